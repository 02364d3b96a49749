"""The braces of a binding: `{ name: value }` requires a property that equals the value."""

from __future__ import annotations

from omnigraph.language.query.check.context import Context, Scope
from omnigraph.language.query.check.typer import Typer, note_if_never
from omnigraph.language.query.syntax import tree
from omnigraph.language.query.terms import Compare, Constant, Property, Variable
from omnigraph.language.query.types import BOOL, assignable, describe
from omnigraph.language.schema.source import Place


def equals(context: Context, scope: Scope, variable: Variable, assignment: tree.Assignment) -> Compare:
    matched_property = context.property(variable, assignment.name, assignment.place, "T2")
    place = assignment.value.place
    _check_scalar(context, matched_property, assignment.place)
    typer = Typer(context, scope, "value")
    value = typer.dated(typer.read(assignment.value), matched_property.type, assignment.value)
    if value.type.kind == "Null":
        detail = f"Nothing equals null; write ${variable.name}.{assignment.name} is null as a clause."
        raise context.fail("T3", place, detail)
    numbers = value.type.is_number and matched_property.type.is_number
    if not (numbers or assignable(value.type, matched_property.type)):
        raise context.fail(
            "T3",
            place,
            f"{matched_property.name} is {describe(matched_property.type)}; this is {describe(value.type)}.",
        )
    if (
        isinstance(value, Constant)
        and matched_property.type.kind == "Enum"
        and value.value not in matched_property.type.values
    ):
        word = str(value.value)
        raise context.fail(
            "T3",
            place,
            f"{matched_property.name} has no value {word!r}; it is {matched_property.type.null(False)}.",
            word=word,
            known=matched_property.type.values,
        )
    comparison = Compare("=", matched_property, value, BOOL.null(matched_property.type.nullable or value.type.nullable))
    note_if_never(context, comparison, assignment.place)
    return comparison


def _check_scalar(context: Context, matched_property: Property, place: Place) -> None:
    if matched_property.type.kind in ("List", "Vector", "Blob"):
        hint = (
            f"; write ${matched_property.variable.name}.{matched_property.name} contains … as a clause"
            if matched_property.type.kind == "List"
            else ""
        )
        raise context.fail("T3", place, f"{describe(matched_property.type)} can't be matched by equality{hint}.")
