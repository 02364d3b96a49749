"""The braces of a binding: `{ name: value }` asks for a property that equals the value."""

from __future__ import annotations

from omnigraph.language.query import tree
from omnigraph.language.query.context import Context, Scope
from omnigraph.language.query.never import note_if_never
from omnigraph.language.query.terms import Compare, Constant, Property, Variable
from omnigraph.language.query.typer import Typer
from omnigraph.language.query.types import BOOL, assignable, describe
from omnigraph.language.schema.source import Place


def equals(context: Context, scope: Scope, variable: Variable, assignment: tree.Assignment) -> Compare:
    found = context.property(variable, assignment.name, assignment.place, "T2")
    place = assignment.value.place
    _check_scalar(context, found, assignment.place)
    typer = Typer(context, scope, "value")
    value = typer.dated(typer.read(assignment.value), found.type, assignment.value)
    if value.type.kind == "Null":
        detail = f"Nothing equals null; write ${variable.name}.{assignment.name} is null as a clause."
        raise context.fail("T3", place, detail)
    numbers = value.type.is_number and found.type.is_number
    if not (numbers or assignable(value.type, found.type)):
        raise context.fail("T3", place, f"{found.name} is {describe(found.type)}; this is {describe(value.type)}.")
    if isinstance(value, Constant) and found.type.kind == "Enum" and value.value not in found.type.values:
        word = str(value.value)
        raise context.fail(
            "T3",
            place,
            f"{found.name} has no value {word!r}; it is {found.type.null(False)}.",
            word=word,
            known=found.type.values,
        )
    made = Compare("=", found, value, BOOL.null(found.type.nullable or value.type.nullable))
    note_if_never(context, made, assignment.place)
    return made


def _check_scalar(context: Context, found: Property, place: Place) -> None:
    if found.type.kind in ("List", "Vector", "Blob"):
        hint = (
            f"; write ${found.variable.name}.{found.name} contains … as a clause" if found.type.kind == "List" else ""
        )
        raise context.fail("T3", place, f"{describe(found.type)} can't be matched by equality{hint}.")
