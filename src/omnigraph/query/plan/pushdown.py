"""Conditions as Lance filters: only where the filter is equivalent to the condition, nulls included.

None means that the condition is evaluated by this process. That is so for a value without an exact literal and for
`matches`, whose regular expressions differ in Lance.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from omnigraph.language.query.terms import (
    And,
    Compare,
    Constant,
    Expression,
    Function,
    In,
    IsNull,
    ListOf,
    Match,
    Not,
    Or,
    Parameter,
    Property,
    Variable,
)
from omnigraph.language.query.values import exact
from omnigraph.language.schema.model import EntityType
from omnigraph.query.execution.compare import FLIPPED
from omnigraph.storage.lance.filters import literal
from omnigraph.storage.lance.tables import name_of
from omnigraph.storage.manifest.table import quote

ITEMS_MAX = 1000
_SQL = {"=": "=", "!=": "<>", "<": "<", "<=": "<=", ">": ">", ">=": ">="}
_TEXT = {"contains": "contains", "starts_with": "starts_with", "ends_with": "ends_with"}
_KINDS = ("String", "Enum", "Bool", "I32", "I64", "U32", "U64", "F32", "F64", "Date", "DateTime")


class Pusher:
    """Filters on the table of one variable, with the values of one run."""

    def __init__(self, variable: Variable, params: Mapping[str, Any], now: Any) -> None:
        self.variable = variable
        self.params = params
        self.now = now

    def sql(self, e: Expression) -> str | None:
        if isinstance(e, Compare):
            return self._compare(e)
        if isinstance(e, And | Or):
            parts = [self.sql(o) for o in e.operands]
            word = " AND " if isinstance(e, And) else " OR "
            return None if None in parts else "(" + word.join(p for p in parts if p is not None) + ")"
        if isinstance(e, Not):
            inner = self.sql(e.operand)
            return None if inner is None else f"(NOT {inner})"
        if isinstance(e, IsNull):
            return f"({name_of(e.operand.name)} IS NULL)" if self._is_column(e.operand, any_kind=True) else None  # type: ignore[union-attr]
        if isinstance(e, In):
            return self._in(e)
        if isinstance(e, Match):
            return self._match(e)
        if isinstance(e, Property) and self._is_column(e) and e.type.kind == "Bool":
            return name_of(e.name)
        return None

    def ids(self, e: Expression, t: EntityType) -> Sequence[str] | None:
        """The ids that a condition selects, if it compares `id` or a key of one text property with constants; else
        None.
        """
        if isinstance(e, Compare) and e.operator == "=":
            column, other = (e.left, e.right) if isinstance(e.left, Property) else (e.right, e.left)
            is_constant, value = self._value(other)
            values: Sequence[Any] | None = [value] if is_constant else None
        elif isinstance(e, In):
            column, values = e.needle, self._items(e.items)
        else:
            return None
        if values is None or not self._is_column(column) or not all(isinstance(v, str) for v in values):
            return None
        assert isinstance(column, Property)
        is_key = t.key_properties == (column.name,) and column.type.kind == "String"
        return values if is_key or column.name == "id" else None

    def _is_column(self, e: Expression, *, any_kind: bool = False) -> bool:
        if not isinstance(e, Property) or e.variable.slot != self.variable.slot or e.name.startswith("@"):
            return False
        return e.type.kind in _KINDS or (any_kind and e.type.kind in ("List", "Vector"))

    def _value(self, e: Expression) -> tuple[bool, Any]:
        if isinstance(e, Constant):
            return True, e.value
        if isinstance(e, Parameter):
            return True, self.params[e.name]
        if isinstance(e, Function) and e.name == "now":
            return True, self.now
        return False, None

    def _compare(self, e: Compare) -> str | None:
        column, other, op = e.left, e.right, e.operator
        if not self._is_column(column):
            column, other, op = e.right, e.left, FLIPPED[e.operator]
        is_constant, value = self._value(other)
        if not self._is_column(column) or not is_constant or value is None:
            return None
        assert isinstance(column, Property)
        return self._against(column, op, value)

    def _against(self, column: Property, op: str, value: Any) -> str | None:
        kind = column.type.kind
        if column.type.is_number:
            converted = exact(kind, op, value)
            if isinstance(converted, bool):
                return None
            op, value = converted
        literal_sql = literal(kind, value)
        return None if literal_sql is None else f"({name_of(column.name)} {_SQL[op]} {literal_sql})"

    def _in(self, e: In) -> str | None:
        if not self._is_column(e.needle):
            return self._has_item(e)
        assert isinstance(e.needle, Property)
        items = self._items(e.items)
        if not items or len(items) > ITEMS_MAX or None in items:
            return None
        literals = []
        for item in items:
            value = item
            if e.needle.type.is_number:
                converted = exact(e.needle.type.kind, "=", item)
                if isinstance(converted, bool):
                    continue
                value = converted.value
            literal_sql = literal(e.needle.type.kind, value)
            if literal_sql is None:
                return None
            literals.append(literal_sql)
        return f"({name_of(e.needle.name)} IN ({', '.join(literals)}))" if literals else None

    def _items(self, e: Expression) -> Sequence[Any] | None:
        if isinstance(e, ListOf):
            values = [self._value(i) for i in e.items]
            return [v for _, v in values] if all(k for k, _ in values) else None
        is_constant, value = self._value(e)
        return value if is_constant and value is not None else None

    def _has_item(self, e: In) -> str | None:
        """`value in column` for a list column, which a label-list index answers."""
        is_constant, value = self._value(e.needle)
        items = e.items
        if not is_constant or not isinstance(value, str) or not isinstance(items, Property):
            return None
        if items.variable.slot != self.variable.slot or items.type.item not in ("String", "Enum"):
            return None
        return f"array_has({name_of(items.name)}, {quote(value)})"

    def _match(self, e: Match) -> str | None:
        is_constant, value = self._value(e.pattern)
        if e.operator not in _TEXT or not self._is_column(e.text) or not is_constant or not isinstance(value, str):
            return None
        assert isinstance(e.text, Property)
        return f"{_TEXT[e.operator]}({name_of(e.text.name)}, {quote(value)})"


def selectivity(e: Expression) -> float:
    """The estimated share of rows that satisfy a condition."""
    if isinstance(e, And):
        share = 1.0
        for operand in e.operands:
            share *= selectivity(operand)
        return share
    if isinstance(e, Or):
        return min(1.0, sum(selectivity(o) for o in e.operands))
    if isinstance(e, Not):
        return max(0.05, 1 - selectivity(e.operand))
    if isinstance(e, Compare):
        return 0.01 if e.operator == "=" else 0.95 if e.operator == "!=" else 0.33
    return 0.05
