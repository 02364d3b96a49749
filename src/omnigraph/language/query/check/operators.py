"""Arithmetic on numbers, text, dates and durations; and the patterns of `matches`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from omnigraph.language.query.terms import Arithmetic, Constant, Expression, Function
from omnigraph.language.query.types import DURATION, STRING, Type, describe
from omnigraph.language.regex import pattern_problem
from omnigraph.language.schema.source import Place

if TYPE_CHECKING:
    from omnigraph.language.query.check.typer import Typer
    from omnigraph.language.query.syntax import tree

_TIMES = ("Date", "DateTime")


def arithmetic(typer: Typer, op: str, left: Expression, right: Expression, e: tree.Operation) -> Expression:
    if op == "-" and left.type.kind in _TIMES and right.type.kind in _TIMES:
        return Arithmetic(op, left, right, DURATION.null(left.type.nullable or right.type.nullable))
    if left.type.kind in _TIMES or right.type.kind in _TIMES:
        return _moved(typer, op, left, right, e)
    result_type = _result(op, left.type, right.type)
    if result_type is None:
        words = {"+": "added to", "-": "subtracted from", "*": "multiplied by", "/": "divided by"}
        first, second = (right, left) if op == "-" else (left, right)
        shown = f"{describe(first.type)} can't be {words[op]} {describe(second.type)}"
        raise typer.fail("T26", e.place, f"{shown[0].upper()}{shown[1:]}.")
    if result_type.is_text:
        return Function("concat", (left, right), result_type)
    return Arithmetic(op, left, right, result_type)


def _result(op: str, a: Type, b: Type) -> Type | None:
    nullable = a.nullable or b.nullable
    if op == "+" and a.is_text and b.is_text:
        return STRING.null(nullable)
    if a.is_number and b.is_number:
        if op == "/":
            return Type("F64", True)
        return Type("I64" if a.is_integer and b.is_integer else "F64", nullable)
    if a.kind == b.kind == "Duration":
        return DURATION.null(nullable) if op in "+-" else Type("F64", True) if op == "/" else None
    if op == "*" and {a.kind, b.kind} & {"Duration"} and (a.is_number or b.is_number):
        return DURATION.null(nullable)
    if op == "/" and a.kind == "Duration" and b.is_number:
        return DURATION.null()
    return None


def _moved(typer: Typer, op: str, left: Expression, right: Expression, e: tree.Operation) -> Expression:
    """A date or datetime plus or minus a duration."""
    nullable = left.type.nullable or right.type.nullable
    if op in "+-" and left.type.kind in _TIMES and right.type.kind == "Duration":
        return Arithmetic(op, left, right, Type(left.type.kind, nullable))
    if op == "+" and left.type.kind == "Duration":
        return Arithmetic(op, right, left, Type(right.type.kind, nullable))
    detail = f"{left.type.null(False)} {op} {right.type.null(False)} means nothing; as in $t.due + days(7)."
    raise typer.fail("T26", e.place, detail)


def check_pattern_text(typer: Typer, pattern: Expression, place: Place) -> None:
    """A literal pattern must compile; a pattern in a parameter is checked when the parameter is bound."""
    if not isinstance(pattern, Constant):
        return
    problem = pattern_problem(str(pattern.value))
    if problem is not None:
        raise typer.fail("T7", place, problem)
