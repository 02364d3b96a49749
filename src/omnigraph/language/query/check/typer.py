"""Types of expressions: from the tree to terms.

1. atoms       literals, parameters, properties, aliases; unknown names are refused with their place
2. operators   operands are checked against each other; a text literal compared with a date becomes a date
3. calls       see `functions`

`zone` is the section of the expression and determines what it may use: properties of variables in a pattern (`match`)
or of the row in a statement (`where`, `set`, `returning`); aggregates, scores, aliases in `return`, `order`, `having`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Literal

from omnigraph.language.query.check.context import Context, Scope
from omnigraph.language.query.check.functions import call
from omnigraph.language.query.check.operators import arithmetic, check_pattern_text
from omnigraph.language.query.syntax import tree
from omnigraph.language.query.syntax.literals import date_of, datetime_of, show_literal
from omnigraph.language.query.terms import (
    And,
    Compare,
    Constant,
    Expression,
    In,
    IsNull,
    ListOf,
    Match,
    Not,
    Object,
    Or,
    PathOf,
    Property,
    Variable,
)
from omnigraph.language.query.types import (
    BOOL,
    DURATION,
    EDGE,
    NODE,
    NULL,
    PATH,
    STRING,
    Type,
    common,
    comparable,
    describe,
)
from omnigraph.language.query.values import exact
from omnigraph.language.schema.source import Place

Zone = Literal["match", "value", "return", "order", "having", "where", "set", "returning"]
# In these a bare name is a property of the statement's row, and a `$variable` can only be a parameter.
ROW_ZONES = ("where", "set", "returning")


@dataclass
class Typer:
    """`aliases` are the columns of `return`, by alias: usable in `order`, `having` and later columns."""

    context: Context
    scope: Scope
    zone: Zone
    row: Variable | None = None
    aliases: Mapping[str, Expression] = field(default_factory=dict)
    in_aggregate: bool = False

    def read(self, e: tree.Expression) -> Expression:
        if isinstance(e, tree.Constant):
            return constant(e)
        if isinstance(e, tree.Variable):
            return self._variable(e)
        if isinstance(e, tree.Access):
            return self._access(e)
        if isinstance(e, tree.Name):
            return self._name(e)
        if isinstance(e, tree.Items):
            return self._items(e)
        if isinstance(e, tree.Call):
            return call(self, e)
        return self._operation(e)

    def condition(self, e: tree.Expression) -> Expression:
        """A typed expression that is true or false; other types are refused."""
        condition = self.read(e)
        if condition.type.kind == "Null" or condition.type.kind != "Bool":
            shown = describe(condition.type)
            raise self.context.fail("T25", e.place, f"A condition is true or false; this is {shown}.")
        return condition

    def fail(self, code: str, place: Place, detail: str) -> Exception:
        return self.context.fail(code, place, detail)

    # ---- atoms

    def _variable(self, e: tree.Variable) -> Expression:
        variable = None if self.zone in ROW_ZONES else self.scope.find(e.name)
        if variable is None:
            parameter = self.context.parameters.get(e.name)
            if parameter is None:
                raise self._unbound(e)
            self.context.used_parameters.add(e.name)
            return parameter
        if variable.kind == "path":
            return PathOf(variable, PATH.null(variable.nullable))
        if variable.kind == "edge":
            return Object(variable, EDGE.null(variable.nullable))
        return Object(variable, NODE.null(variable.nullable), self._object_properties(variable))

    def _unbound(self, e: tree.Variable) -> Exception:
        named, known = f"${e.name}", [f"${name}" for name in self.context.parameters]
        if self.zone in ROW_ZONES:
            detail = f"{named} is not a parameter of this query; the row's own properties have no $."
            return self.context.fail("T14", e.place, detail, word=named, known=known)
        known = [*(f"${name}" for name in self.scope.all_names()), *known]
        if self.zone == "value":
            detail = f"{named} is neither a parameter nor bound by the pattern."
            return self.context.fail("T14", e.place, detail, word=named, known=known)
        if e.name == "_":
            return self.context.fail("T6", e.place, "$_ has no name and can't be used again.")
        hidden = any(tree.in_not_block(clauses, e.name) for clauses in self.context.query.patterns)
        detail = f"{named} is not bound here" + ("; a variable of a not block is known only in it." if hidden else ".")
        return self.context.fail("T6", e.place, detail, word=named, known=known)

    def _object_properties(self, v: Variable) -> tuple[str, ...]:
        """The names of properties of all types of the variable, without vectors and blobs."""
        names: dict[str, None] = {}
        for entity in v.types:
            for p in self.context.type_of(entity).properties:
                if p.type.kind not in ("Blob", "Vector"):
                    names[p.name] = None
        return tuple(names)

    def _access(self, e: tree.Access) -> Expression:
        variable = None if self.zone in ROW_ZONES else self.scope.find(e.variable.name)
        if variable is not None and variable.kind != "path":
            return self.context.property(variable, e.name, e.place)
        is_path = isinstance(self._variable(e.variable), PathOf)
        what, code = ("a path", "T27") if is_path else ("a parameter", "T6")
        raise self.fail(code, e.place, f"${e.variable.name} is {what} and has no properties.")

    def _name(self, e: tree.Name) -> Expression:
        if self.row is not None:
            code = "T11" if self.zone == "where" else "T6"
            return self.context.property(self.row, e.name, e.place, code)
        if e.name in self.aliases:
            return self.aliases[e.name]
        if self.zone in ("order", "having", "return"):
            detail = f"There is no column named {e.name} by `as`; a property is written $variable.{e.name}."
            raise self.context.fail("T6", e.place, detail, word=e.name, known=self.aliases)
        raise self.fail("T6", e.place, f"{e.name} stands here alone; a property is written $variable.{e.name}.")

    def _items(self, e: tree.Items) -> Expression:
        items = [self.read(i) for i in e.items]
        date = next((i.type for i in items if i.type.is_time), None)
        if date is not None:
            items = [self.dated(i, date, parsed) for i, parsed in zip(items, e.items, strict=True)]
        common_type: Type | None = None
        for item, parsed in zip(items, e.items, strict=True):
            if item.type.kind in ("List", "Vector", "Blob", "Null", "Node", "Edge", "Path", "Duration"):
                raise self.fail("T26", parsed.place, f"A list can't hold {describe(item.type)}.")
            joined = item.type if common_type is None else common(common_type, item.type)
            if joined is None:
                detail = f"The items of a list have one type; this is {describe(item.type)} beside {common_type}."
                raise self.fail("T26", parsed.place, detail)
            common_type = joined
        kind = None if common_type is None else ("String" if common_type.is_text else common_type.kind)
        return ListOf(tuple(items), Type("List", item=kind))

    # ---- operators

    def _operation(self, e: tree.Operation) -> Expression:
        op = e.operator
        if op in ("and", "or", "not"):
            operands = tuple(self.condition(o) for o in e.operands)
            type_ = BOOL.null(any(o.type.nullable for o in operands))
            if op == "not":
                return Not(operands[0], type_)
            return And(operands, type_) if op == "and" else Or(operands, type_)
        if op in ("is null", "is not null"):
            return self._is_null(e, negated=op == "is not null")
        if op == "negative":
            operand = self.read(e.operands[0])
            zero = Constant(timedelta(0), DURATION) if operand.type.kind == "Duration" else Constant(0, Type("I64"))
            return arithmetic(self, "-", zero, operand, e)
        left, right = (self.read(o) for o in e.operands)
        if op in tree.ARITHMETIC:
            return arithmetic(self, op, left, right, e)
        if op in tree.COMPARISONS:
            return self._compare(op, left, right, e)
        if op in ("in", "not in"):
            membership = self._in(left, right, e.operands[0], e.operands[1])
            return Not(membership, membership.type) if op == "not in" else membership
        return self._text(op, left, right, e)

    def _is_null(self, e: tree.Operation, *, negated: bool) -> Expression:
        operand = self.read(e.operands[0])
        self.scalar(operand, e.operands[0].place, lists=True)
        is_null = IsNull(operand)
        return Not(is_null) if negated else is_null

    def _compare(self, op: str, left: Expression, right: Expression, e: tree.Operation) -> Compare:
        left_place, right_place = (o.place for o in e.operands)
        for operand, place in ((left, left_place), (right, right_place)):
            if operand.type.kind == "Null":
                raise self.fail("T7", place, "Nothing equals null; write `is null` or `is not null`.")
        left, right = self.dated(left, right.type, e.operands[0]), self.dated(right, left.type, e.operands[1])
        nullable = left.type.nullable or right.type.nullable
        if isinstance(left, Object) and isinstance(right, Object) and left.type.kind == right.type.kind == "Node":
            if op not in ("=", "!="):
                raise self.fail("T7", left_place, f"Two nodes can be equal or not; they have no order for {op}.")
            return Compare(op, left, right, BOOL.null(nullable))
        self.scalar(left, left_place)
        self.scalar(right, right_place)
        if not comparable(left.type, right.type):
            raise self.fail("T7", right_place, f"{describe(left.type)} can't be compared with {describe(right.type)}.")
        comparison = Compare(op, left, right, BOOL.null(nullable))
        first = e.operands[0]
        note_if_never(self.context, comparison, first.variable.place if isinstance(first, tree.Access) else left_place)
        return comparison

    def _in(
        self, needle: Expression, items: Expression, needle_tree: tree.Expression, items_tree: tree.Expression
    ) -> In:
        if items.type.kind != "List":
            raise self.fail("T7", items_tree.place, f"Behind `in` stands a list, not {describe(items.type)}.")
        self.scalar(needle, needle_tree.place)
        needle = self.dated(needle, Type(items.type.item or "Null"), needle_tree)
        items = self.dated(items, Type("List", item=needle.type.kind), items_tree)
        if items.type.item is not None and not comparable(needle.type, Type(items.type.item)):
            raise self.fail("T7", items_tree.place, f"{describe(needle.type)} is never in a list {items.type}.")
        return In(needle, items, BOOL.null(needle.type.nullable or items.type.nullable))

    def _text(self, op: str, left: Expression, right: Expression, e: tree.Operation) -> Expression:
        left_place, right_place = (o.place for o in e.operands)
        if op == "contains" and left.type.kind == "List":
            return self._in(right, left, e.operands[1], e.operands[0])
        if not left.type.is_text:
            more = " or a list" if op == "contains" else ""
            raise self.fail("T7", left_place, f"The left side of {op} is text{more}, not {describe(left.type)}.")
        if not right.type.is_text:
            raise self.fail("T7", right_place, f"The right side of {op} is text, not {describe(right.type)}.")
        if op == "matches":
            check_pattern_text(self, right, right_place)
        return Match(op, left, right, BOOL.null(left.type.nullable or right.type.nullable))

    def scalar(self, value: Expression, place: Place, *, lists: bool = False) -> None:
        """Refuse values that can't be compared: lists, vectors, blobs, edges, paths."""
        kind = value.type.kind
        if kind == "Blob" and self.zone == "where":
            raise self.fail("T11", place, "A Blob can't be part of a condition.")
        if kind == "Blob" or (kind in ("Vector", "List") and not lists):
            raise self.fail("T7", place, f"{describe(value.type)} can't be compared.")
        if kind == "Edge":
            raise self.fail("T23", place, "An edge variable is used by its properties, as in $e.since.")
        if kind == "Path":
            raise self.fail("T27", place, "A path is used by length($p) and nodes($p).")
        if kind == "Node" and not lists:
            raise self.fail("T7", place, "A node is compared with another node; its properties are $variable.name.")

    def dated(self, value: Expression, beside: Type, parsed: tree.Expression) -> Expression:
        """A text literal compared with a date or datetime becomes one; so do the items of a list compared with a list
        of them.
        """
        if isinstance(value, ListOf) and beside.item is not None:
            item = Type(beside.item)
            places = parsed.items if isinstance(parsed, tree.Items) else (parsed,) * len(value.items)
            items = tuple(self.dated(i, item, e) for i, e in zip(value.items, places, strict=True))
            changed = items != value.items and all(i.type.kind == item.kind for i in items)
            return ListOf(items, Type("List", item=item.kind)) if changed else value
        if not (isinstance(value, Constant) and isinstance(value.value, str)) or not beside.is_time:
            return value
        return self.time(value.value, beside.kind, parsed.place)

    def time(self, text: str, kind: str, place: Place) -> Constant:
        value = date_of(text) if kind == "Date" else datetime_of(text)
        if value is None:
            raise self.fail("T3", place, f"{show_literal(text)} is not a {kind}.")
        return Constant(value, Type(kind))


def constant(e: tree.Constant) -> Constant:
    value = e.value
    if value is None:
        return Constant(None, NULL)
    if isinstance(value, bool):
        return Constant(value, BOOL)
    if isinstance(value, int):
        return Constant(value, Type("I64" if value < 2**63 else "U64"))
    return Constant(value, STRING if isinstance(value, str) else Type("F64"))


def note_if_never(context: Context, c: Compare, place: Place) -> None:
    """Warn of a comparison of a property with a literal that is true for no value of the property. It runs."""
    if not (isinstance(c.left, Property) and isinstance(c.right, Constant)):
        return
    t, value = c.left.type, c.right.value
    if t.kind == "Enum" and c.operator == "=" and isinstance(value, str) and value not in t.values:
        detail = f"{c.left.name} = {show_literal(value)} never holds; it is {t.null(False)}."
        context.note(place, detail, word=value, known=t.values)
    elif t.is_number and isinstance(value, int | float) and exact(t.kind, c.operator, value) is False:
        context.note(place, f"{c.left.name} {c.operator} {show_literal(value)} never holds; it is {t.null(False)}.")
