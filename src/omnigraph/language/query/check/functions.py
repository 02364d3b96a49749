"""Calls: scalar functions, aggregates, search and scores."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

from omnigraph.language.query.check.ranking import RANKS, SEARCHES, rank, search
from omnigraph.language.query.syntax import tree
from omnigraph.language.query.terms import (
    Aggregate,
    Bm25,
    Constant,
    Expression,
    Function,
    Fused,
    Nearest,
    Object,
    PathOf,
    walk,
)
from omnigraph.language.query.types import DATE, DATETIME, DURATION, F64, I64, STRING, Type, common, counted, describe

if TYPE_CHECKING:
    from omnigraph.language.query.check.typer import Typer

AGGREGATES = ("count", "sum", "avg", "min", "max", "collect")
UNITS = ("weeks", "days", "hours", "minutes", "seconds")


def call(typer: Typer, e: tree.Call) -> Expression:
    if (e.distinct or e.star) and e.name not in AGGREGATES:
        raise typer.fail("T26", e.place, f"{e.name} takes neither `distinct` nor `*`.")
    if e.name in AGGREGATES:
        return _aggregate(typer, e)
    if e.name in SEARCHES:
        return search(typer, e)
    if e.name in RANKS:
        return rank(typer, e)
    scalar = SCALARS.get(e.name)
    if scalar is None:
        known = [*SCALARS, *AGGREGATES, *SEARCHES, *RANKS]
        raise typer.context.fail("T26", e.place, f"There is no function {e.name}.", word=e.name, known=known)
    minimum, maximum, make = scalar
    if not minimum <= len(e.arguments) <= (maximum or len(e.arguments)):
        # A function without a fixed number of arguments takes any number above the minimum.
        required = counted(minimum, "argument") if maximum == minimum else f"{minimum} or more arguments"
        raise typer.fail("T26", e.place, f"{e.name} takes {required}, not {len(e.arguments)}.")
    return make(typer, e, tuple(typer.read(a) for a in e.arguments))


# ---- scalar functions ------------------------------------------------------------------------------------------------

Arguments = tuple[Expression, ...]


def _now(typer: Typer, e: tree.Call, arguments: Arguments) -> Expression:
    return Function("now", (), DATETIME)


def _coalesce(typer: Typer, e: tree.Call, arguments: Arguments) -> Expression:
    dated = list(arguments)
    anchor = next((t for t in (a.type for a in arguments) if t.is_time or Type(t.item or "").is_time), None)
    for i, argument in enumerate(arguments):
        if anchor is not None:
            dated[i] = typer.dated(argument, anchor, e.arguments[i])
    common_type = dated[0].type
    for i, argument in enumerate(dated):
        if argument.type.kind in ("Node", "Edge", "Path", "Blob"):
            raise typer.fail("T26", e.arguments[i].place, f"coalesce takes values, not {describe(argument.type)}.")
        joined = common(common_type, argument.type)
        if joined is None:
            detail = f"The values of coalesce have one type; this is {describe(argument.type)} beside {common_type}."
            raise typer.fail("T26", e.arguments[i].place, detail)
        common_type = joined
    return Function("coalesce", tuple(dated), common_type.null(all(a.type.nullable for a in dated)))


def _case(typer: Typer, e: tree.Call, arguments: Arguments) -> Expression:
    (text,) = arguments
    if not text.type.is_text:
        raise typer.fail("T26", e.arguments[0].place, f"{e.name} takes text, not {describe(text.type)}.")
    return Function(e.name, arguments, STRING.null(text.type.nullable))


def _length(typer: Typer, e: tree.Call, arguments: Arguments) -> Expression:
    (value,) = arguments
    if not (value.type.is_text or value.type.kind in ("List", "Path")):
        raise typer.fail(
            "T26", e.arguments[0].place, f"length takes text, a list or a path, not {describe(value.type)}."
        )
    return Function("length", arguments, I64.null(value.type.nullable))


def _nodes(typer: Typer, e: tree.Call, arguments: Arguments) -> Expression:
    (path,) = arguments
    if not isinstance(path, PathOf):
        detail = f"nodes takes what `path $p = …` binds, not {describe(path.type)}."
        raise typer.fail("T27", e.arguments[0].place, detail)
    return Function("nodes", arguments, Type("List", path.type.nullable, item="String"))


def _date(typer: Typer, e: tree.Call, arguments: Arguments) -> Expression:
    (value,) = arguments
    target, other = (DATE, "DateTime") if e.name == "date" else (DATETIME, "Date")
    if isinstance(value, Constant) and isinstance(value.value, str):
        return typer.time(value.value, target.kind, e.arguments[0].place)
    if value.type.kind not in (target.kind, other):
        detail = f"{e.name} takes a literal in quotes or a {other}, not {describe(value.type)}."
        raise typer.fail("T26", e.arguments[0].place, detail)
    return value if value.type.kind == target.kind else Function(e.name, arguments, target.null(value.type.nullable))


def _duration(typer: Typer, e: tree.Call, arguments: Arguments) -> Expression:
    (number,) = arguments
    if not number.type.is_number:
        raise typer.fail("T26", e.arguments[0].place, f"{e.name} takes a number, not {describe(number.type)}.")
    return Function(e.name, arguments, DURATION.null(number.type.nullable))


Maker = Callable[["Typer", tree.Call, Arguments], Expression]
SCALARS: dict[str, tuple[int, int | None, Maker]] = {
    "now": (0, 0, _now),
    "coalesce": (2, None, _coalesce),
    "lower": (1, 1, _case),
    "upper": (1, 1, _case),
    "length": (1, 1, _length),
    "nodes": (1, 1, _nodes),
    "date": (1, 1, _date),
    "datetime": (1, 1, _date),
    **dict.fromkeys(UNITS, (1, 1, _duration)),
}


# ---- aggregates ------------------------------------------------------------------------------------------------------


def _aggregate(typer: Typer, e: tree.Call) -> Expression:
    if typer.zone not in ("return", "order", "having"):
        raise typer.fail("T9", e.place, f"{e.name} is an aggregate; aggregates stand in return, having and order.")
    if typer.in_aggregate:
        raise typer.fail("T9", e.place, f"{e.name} stands inside of another aggregate.")
    if e.star:
        if e.name != "count" or e.distinct:
            raise typer.fail("T8", e.place, "Only count takes `*`.")
        return Aggregate("count", None, False, I64)
    if len(e.arguments) != 1:
        raise typer.fail("T8", e.place, f"{e.name} takes one argument, not {len(e.arguments)}.")
    operand = replace(typer, in_aggregate=True).read(e.arguments[0])
    # An alias may contain terms that are not allowed here.
    for part in walk(operand):
        if isinstance(part, Aggregate):
            raise typer.fail("T9", e.arguments[0].place, f"{part.name} stands inside of another aggregate.")
        if isinstance(part, Nearest | Bm25 | Fused):
            raise typer.fail("T8", e.arguments[0].place, "A score can't be aggregated.")
    return Aggregate(e.name, operand, e.distinct, _aggregated(typer, e, operand))


def _aggregated(typer: Typer, e: tree.Call, operand: Expression) -> Type:
    t, place, name = operand.type, e.arguments[0].place, e.name
    if t.kind == "Blob":
        raise typer.fail("T24", place, "A Blob is not a value that a query can read.")
    if t.kind == "Path":
        raise typer.fail("T27", place, f"{name} can't take a path; length($p) is a number.")
    if name == "count":
        if t.kind in ("List", "Vector") and e.distinct:
            raise typer.fail("T8", place, f"count(distinct …) can't compare {describe(t)}.")
        return I64
    if isinstance(operand, Object):
        raise typer.fail("T8", place, f"{name} takes a property, as in {name}(${operand.variable.name}.id).")
    if name in ("sum", "avg"):
        if not t.is_number:
            raise typer.fail("T8", place, f"{name} takes numbers, not {describe(t)}.")
        return F64.null() if name == "avg" or not t.is_integer else I64.null()
    if name == "collect":
        if t.kind in ("List", "Vector", "Duration", "Null"):
            raise typer.fail("T8", place, f"collect can't hold {describe(t)}.")
        return Type("List", item="String" if t.is_text else t.kind)
    if not t.is_ordered or t.kind in ("Bool", "Duration"):
        raise typer.fail("T8", place, f"{name} takes numbers, text, dates or datetimes, not {describe(t)}.")
    return t.null()
