"""Types of expressions: from the tree to terms.

1. atoms       literals, parameters, properties, aliases; what is unknown is refused with its place
2. operators   operands are checked against each other; a text literal beside a date becomes a date
3. calls       see `functions`

`zone` says where the expression stands, and with it what it may use: properties of variables in a pattern (`match`) or
of the row in a statement (`where`, `set`, `returning`); aggregates, scores, aliases in `return`, `order`, `having`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Literal

from omnigraph.language.query import tree
from omnigraph.language.query.context import Context, Scope
from omnigraph.language.query.functions import call
from omnigraph.language.query.literals import date_of, datetime_of, show_literal
from omnigraph.language.query.never import note_if_never
from omnigraph.language.query.operators import arithmetic, check_pattern_text
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
from omnigraph.language.schema.source import Place

Zone = Literal["match", "value", "return", "order", "having", "where", "set", "returning"]
# In these the row of a statement is meant by a bare name, and a `$variable` can only be a parameter.
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
        """An expression that is true or false."""
        found = self.read(e)
        if found.type.kind == "Null" or found.type.kind != "Bool":
            shown = describe(found.type)
            raise self.context.fail("T25", e.place, f"A condition is true or false; this is {shown}.")
        return found

    def fail(self, code: str, place: Place, detail: str) -> Exception:
        return self.context.fail(code, place, detail)

    # ---- atoms

    def _variable(self, e: tree.Variable) -> Expression:
        found = None if self.zone in ROW_ZONES else self.scope.find(e.name)
        if found is None:
            parameter = self.context.parameters.get(e.name)
            if parameter is None:
                raise self._unbound(e)
            self.context.used_parameters.add(e.name)
            return parameter
        if found.kind == "path":
            return PathOf(found, PATH.null(found.nullable))
        if found.kind == "edge":
            return Object(found, EDGE.null(found.nullable))
        return Object(found, NODE.null(found.nullable), self._object_properties(found))

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
        """Properties of all types of the variable, without those that are no values to look at."""
        found: dict[str, None] = {}
        for entity in v.types:
            for p in self.context.type_of(entity).properties:
                if p.type.kind not in ("Blob", "Vector"):
                    found[p.name] = None
        return tuple(found)

    def _access(self, e: tree.Access) -> Expression:
        found = None if self.zone in ROW_ZONES else self.scope.find(e.variable.name)
        if found is not None and found.kind != "path":
            return self.context.property(found, e.name, e.place)
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
            items = [self.dated(i, date, at) for i, at in zip(items, e.items, strict=True)]
        found: Type | None = None
        for item, at in zip(items, e.items, strict=True):
            if item.type.kind in ("List", "Vector", "Blob", "Null", "Node", "Edge", "Path", "Duration"):
                raise self.fail("T26", at.place, f"A list can't hold {describe(item.type)}.")
            joined = item.type if found is None else common(found, item.type)
            if joined is None:
                detail = f"The items of a list have one type; this is {describe(item.type)} beside {found}."
                raise self.fail("T26", at.place, detail)
            found = joined
        kind = None if found is None else ("String" if found.is_text else found.kind)
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
            found = self._in(left, right, e.operands[0], e.operands[1])
            return Not(found, found.type) if op == "not in" else found
        return self._text(op, left, right, e)

    def _is_null(self, e: tree.Operation, *, negated: bool) -> Expression:
        operand = self.read(e.operands[0])
        self.scalar(operand, e.operands[0].place, lists=True)
        found = IsNull(operand)
        return Not(found) if negated else found

    def _compare(self, op: str, left: Expression, right: Expression, e: tree.Operation) -> Compare:
        at, right_at = (o.place for o in e.operands)
        for operand, place in ((left, at), (right, right_at)):
            if operand.type.kind == "Null":
                raise self.fail("T7", place, "Nothing equals null; write `is null` or `is not null`.")
        left, right = self.dated(left, right.type, e.operands[0]), self.dated(right, left.type, e.operands[1])
        nullable = left.type.nullable or right.type.nullable
        if isinstance(left, Object) and isinstance(right, Object) and left.type.kind == right.type.kind == "Node":
            if op not in ("=", "!="):
                raise self.fail("T7", at, f"Two nodes can be equal or not; they have no order for {op}.")
            return Compare(op, left, right, BOOL.null(nullable))
        self.scalar(left, at)
        self.scalar(right, right_at)
        if not comparable(left.type, right.type):
            raise self.fail("T7", right_at, f"{describe(left.type)} can't be compared with {describe(right.type)}.")
        made = Compare(op, left, right, BOOL.null(nullable))
        first = e.operands[0]
        note_if_never(self.context, made, first.variable.place if isinstance(first, tree.Access) else at)
        return made

    def _in(self, needle: Expression, items: Expression, at: tree.Expression, items_at: tree.Expression) -> In:
        if items.type.kind != "List":
            raise self.fail("T7", items_at.place, f"Behind `in` stands a list, not {describe(items.type)}.")
        self.scalar(needle, at.place)
        needle = self.dated(needle, Type(items.type.item or "Null"), at)
        items = self.dated(items, Type("List", item=needle.type.kind), items_at)
        if items.type.item is not None and not comparable(needle.type, Type(items.type.item)):
            raise self.fail("T7", items_at.place, f"{describe(needle.type)} is never in a list {items.type}.")
        return In(needle, items, BOOL.null(needle.type.nullable or items.type.nullable))

    def _text(self, op: str, left: Expression, right: Expression, e: tree.Operation) -> Expression:
        at, right_at = (o.place for o in e.operands)
        if op == "contains" and left.type.kind == "List":
            return self._in(right, left, e.operands[1], e.operands[0])
        if not left.type.is_text:
            more = " or a list" if op == "contains" else ""
            raise self.fail("T7", at, f"The left side of {op} is text{more}, not {describe(left.type)}.")
        if not right.type.is_text:
            raise self.fail("T7", right_at, f"The right side of {op} is text, not {describe(right.type)}.")
        if op == "matches":
            check_pattern_text(self, right, right_at)
        return Match(op, left, right, BOOL.null(left.type.nullable or right.type.nullable))

    def scalar(self, value: Expression, place: Place, *, lists: bool = False) -> None:
        """Refuses what can't be compared: lists, vectors, blobs, edges, paths."""
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

    def dated(self, value: Expression, beside: Type, at: tree.Expression) -> Expression:
        """A text literal beside a date or datetime is one; so are those of a list beside a list of them."""
        if isinstance(value, ListOf) and beside.item is not None:
            item = Type(beside.item)
            places = at.items if isinstance(at, tree.Items) else (at,) * len(value.items)
            items = tuple(self.dated(i, item, e) for i, e in zip(value.items, places, strict=True))
            changed = items != value.items and all(i.type.kind == item.kind for i in items)
            return ListOf(items, Type("List", item=item.kind)) if changed else value
        if not (isinstance(value, Constant) and isinstance(value.value, str)) or not beside.is_time:
            return value
        return self.time(value.value, beside.kind, at.place)

    def time(self, text: str, kind: str, place: Place) -> Constant:
        found = date_of(text) if kind == "Date" else datetime_of(text)
        if found is None:
            raise self.fail("T3", place, f"{show_literal(text)} is not a {kind}.")
        return Constant(found, Type(kind))


def constant(e: tree.Constant) -> Constant:
    value = e.value
    if value is None:
        return Constant(None, NULL)
    if isinstance(value, bool):
        return Constant(value, BOOL)
    if isinstance(value, int):
        return Constant(value, Type("I64" if value < 2**63 else "U64"))
    return Constant(value, STRING if isinstance(value, str) else Type("F64"))
