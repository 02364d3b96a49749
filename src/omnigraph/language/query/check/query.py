"""From a parsed query and a schema to a CheckedQuery.

1. pattern   variables, their types, conditions (`patterns`)
2. columns   names and types of the result columns; aggregates make groups
3. order     keys, and tie breakers so that the order is total
4. limits    whole numbers, or parameters that are

Statements are in `statements`. The first error is raised as QueryCheckError with its code and place.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from omnigraph.language.query.check.context import Context, Scope
from omnigraph.language.query.check.patterns import check_pattern
from omnigraph.language.query.check.statements import check_statement
from omnigraph.language.query.check.typer import Typer
from omnigraph.language.query.model import CheckedQuery, Column, Key, Read
from omnigraph.language.query.syntax import tree
from omnigraph.language.query.syntax.show import show_expression
from omnigraph.language.query.terms import (
    Aggregate,
    And,
    Bm25,
    Constant,
    Expression,
    Fused,
    Match,
    Nearest,
    Object,
    Output,
    Parameter,
    PathOf,
    Property,
    Search,
    Variable,
    walk,
)
from omnigraph.language.query.types import BOOL, describe
from omnigraph.language.schema.model import Schema
from omnigraph.language.schema.source import Place


def check_query(query: tree.Query, schema: Schema) -> CheckedQuery:
    return checked_in(Context(query, schema))


def checked_in(context: Context) -> CheckedQuery:
    """As check_query, for callers that also need the notes of the context."""
    query = context.query
    body = (
        _read(context, query.body)
        if isinstance(query.body, tree.Read)
        else tuple(check_statement(context, s) for s in query.body)
    )
    return CheckedQuery(
        query.name,
        tuple(context.parameters.values()),
        body,
        tuple(sorted(context.reads | context.writes, key=lambda e: (e.kind, e.name))),
        tuple(sorted(context.writes, key=lambda e: (e.kind, e.name))),
        query,
        tuple(t for t in walk(body) if isinstance(t, Fused | Search | Match)),
    )


def _read(context: Context, body: tree.Read) -> Read:
    pattern, scope = check_pattern(context, body.match, Scope())
    columns = check_columns(context, body.projections, Typer(context, scope, "return"))
    aggregated = any(has_aggregate(c.value) for c in columns)
    aggregated = aggregated or any(_calls_aggregate(e) for e in (*body.having, *(o.value for o in body.order)))
    group = tuple(i for i, c in enumerate(columns) if not has_aggregate(c.value)) if aggregated else ()
    reader = _RowStages(context, scope, body, columns, aggregated, group)
    if aggregated:
        reader.check_groups()
    having = reader.having()
    order = tuple(reader.key(o) for o in body.order)
    reader.check_ranks(order)
    ties = () if aggregated or body.distinct else tuple(v for v in pattern.binds)
    return Read(
        pattern,
        columns,
        body.distinct,
        aggregated,
        group,
        having,
        order,
        ties,
        _count(context, body.limit, "limit"),
        _count(context, body.offset, "offset"),
    )


# ---- columns ---------------------------------------------------------------------------------------------------------


def check_columns(context: Context, projections: tuple[tree.Projection, ...], typer: Typer) -> tuple[Column, ...]:
    columns: dict[str, Column] = {}
    aliases: dict[str, Expression] = {}
    for p in projections:
        value = replace(typer, aliases=aliases).read(p.value)
        check_output(context, value, p.place)
        name = p.alias if p.alias is not None else column_name(p.value)
        if name in columns:
            raise context.fail("T29", p.place, f"Two columns are named {name}; give one another name with `as`.")
        columns[name] = Column(name, value)
        if p.alias is not None:
            aliases[p.alias] = value
    return tuple(columns.values())


def column_name(value: tree.Expression) -> str:
    """`var.prop` for `$var.prop`, otherwise the expression as written, without the $."""
    return show_expression(value).replace("$", "")


def check_output(context: Context, value: Expression, place: Place) -> None:
    kind = value.type.kind
    if kind == "Blob":
        raise context.fail("T24", place, "A Blob is not a value that a query can read.")
    if kind == "Edge":
        raise context.fail("T23", place, "An edge variable is used by its properties, as in $e.since.")
    if isinstance(value, PathOf):
        raise context.fail("T27", place, "A path is used by length($p) and nodes($p).")
    if kind == "Duration":
        detail = "A duration has no form in a result; divide it, as in (now() - $x.created) / days(1)."
        raise context.fail("T26", place, detail)
    if kind == "Null" or (kind == "List" and value.type.item is None):
        raise context.fail("T26", place, f"This has no type that a column could have: {describe(value.type)}.")


def has_aggregate(value: Expression) -> bool:
    return any(isinstance(v, Aggregate) for v in walk(value))


def _calls_aggregate(e: tree.Expression) -> bool:
    if isinstance(e, tree.Call):
        return e.name in ("count", "sum", "avg", "min", "max", "collect") or any(map(_calls_aggregate, e.arguments))
    if isinstance(e, tree.Operation):
        return any(map(_calls_aggregate, e.operands))
    return isinstance(e, tree.Items) and any(map(_calls_aggregate, e.items))


# ---- groups, order, limits -------------------------------------------------------------------------------------------


class _RowStages:
    """Checks of the stages after the pattern: groups, having, order."""

    def __init__(
        self,
        context: Context,
        scope: Scope,
        body: tree.Read,
        columns: tuple[Column, ...],
        aggregated: bool,
        group: tuple[int, ...],
    ) -> None:
        self.context = context
        self.scope = scope
        self.body = body
        self.columns = columns
        self.aggregated = aggregated
        self.group = group
        self.aliases = {p.alias: c.value for p, c in zip(body.projections, columns, strict=True) if p.alias is not None}

    def check_groups(self) -> None:
        """A column with an aggregate may only use values that all rows of a group share."""
        keys = [self.columns[i].value for i in self.group]
        for p, c in zip(self.body.projections, self.columns, strict=True):
            if has_aggregate(c.value):
                stray = _stray(c.value, keys)
                if stray is not None:
                    raise self.context.fail("T9", p.place, f"{_named(stray)} is not one of the columns to group by.")
            for v in walk(c.value):
                if isinstance(v, Nearest | Bm25 | Fused):
                    raise self.context.fail("T9", p.place, "A score belongs to a row; it can't be grouped.")

    def having(self) -> Expression | None:
        if not self.body.having:
            return None
        typer = Typer(self.context, self.scope, "having", aliases=self.aliases)
        conditions: list[Expression] = []
        for e in self.body.having:
            condition = self.over_columns(typer.condition(e), e.place, "having")
            conditions.extend(condition.operands if isinstance(condition, And) else (condition,))
        if len(conditions) == 1:
            return conditions[0]
        return And(tuple(conditions), BOOL.null(any(f.type.nullable for f in conditions)))

    def key(self, item: tree.OrderItem) -> Key:
        value = Typer(self.context, self.scope, "order", aliases=self.aliases).read(item.value)
        self._check_key(value, item.place)
        descending = item.direction == "desc"
        if item.direction is None and isinstance(value, Bm25 | Fused):
            descending = True
        if self.aggregated or self.body.distinct:
            value = self.over_columns(value, item.place, "order")
        return Key(value, descending)

    def _check_key(self, value: Expression, place: Place) -> None:
        kind = value.type.kind
        if isinstance(value, Object) and kind == "Node":
            return
        if kind in ("List", "Vector"):
            raise self.context.fail("T7", place, f"{describe(value.type)} has no order.")
        if kind != "Duration":
            check_output(self.context, value, place)

    def over_columns(self, value: Expression, place: Place, what: str) -> Expression:
        """The expression with columns in place of equal parts; refuses other values of single rows."""
        replaced = _replaced(value, {c.value: i for i, c in reversed(list(enumerate(self.columns)))})
        if self.aggregated:
            stray = _stray(replaced, [])
            if stray is not None:
                raise self.context.fail("T9", place, f"{_named(stray)} is not one of the columns to group by.")
            if self.body.distinct and what == "order" and has_aggregate(replaced):
                detail = "order can only use columns of return here: distinct keeps only the columns."
                raise self.context.fail("T29", place, detail)
        elif _stray(replaced, []) is not None or has_aggregate(replaced):
            why = "distinct keeps only the columns" if self.body.distinct else "there are no groups"
            raise self.context.fail("T29", place, f"{what} can only use columns of return here: {why}.")
        return replaced

    def check_ranks(self, order: tuple[Key, ...]) -> None:
        ranks = [v for k in order for v in walk(k.value) if isinstance(v, Nearest | Fused)]
        ranks += [v for c in self.columns for v in walk(c.value) if isinstance(v, Fused)]
        limited = self.body.limit is not None
        for item in self.body.order:
            nearest = isinstance(item.value, tree.Call) and item.value.name == "nearest"
            if nearest and any(isinstance(o.value, tree.Name) for o in self.body.order):
                raise self.context.fail("T18", item.place, "nearest can't be mixed with an order by alias.")
        for rank in ranks:
            if not limited:
                place = self.body.order[0].place if self.body.order else self.body.projections[0].place
                code, name = ("T21", "rrf") if isinstance(rank, Fused) else ("T17", "nearest")
                raise self.context.fail(code, place, f"{name} needs a limit: it finds the best so many rows.")


def _stray(value: Expression, keys: list[Expression]) -> Expression | None:
    """A value of a single row, outside of aggregates and of the keys; None if there is none."""
    if value in keys or isinstance(value, Aggregate):
        return None
    if isinstance(value, Property | Object | PathOf):
        return value
    for name in getattr(value, "__slots__", ()):
        part = getattr(value, name)
        for p in part if isinstance(part, tuple) else (part,):
            if hasattr(p, "type") and not isinstance(p, Variable):
                stray = _stray(p, keys)
                if stray is not None:
                    return stray
    return None


def _replaced(value: Expression, columns: dict[Expression, int]) -> Expression:
    if not isinstance(value, Constant | Parameter) and value in columns:
        return Output(columns[value], value.type)
    if isinstance(value, Aggregate | Property | Object | PathOf | Constant | Parameter | Output):
        return value
    if isinstance(value, Search | Nearest | Bm25 | Fused):
        # They read the property of a row, not the value of an equal column.
        return value
    changes: dict[str, Any] = {}
    for name in value.__slots__:
        part = getattr(value, name)
        if isinstance(part, tuple):
            changes[name] = tuple(_replaced(p, columns) if hasattr(p, "type") else p for p in part)
        elif hasattr(part, "type") and hasattr(part, "__slots__"):
            changes[name] = _replaced(part, columns)
    return replace(value, **changes)


def _named(value: Expression) -> str:
    if isinstance(value, Property):
        return f"${value.variable.name}.{value.name}"
    return f"${value.variable.name}" if isinstance(value, Object | PathOf) else "this"


def _count(context: Context, value: tree.Constant | tree.Variable | None, what: str) -> Constant | Parameter | None:
    if value is None:
        return None
    count = Typer(context, Scope(), "value").read(value)
    if not (isinstance(count, Constant | Parameter) and count.type.is_integer):
        raise context.fail("T29", value.place, f"{what} takes a whole number, not {describe(count.type)}.")
    return count
