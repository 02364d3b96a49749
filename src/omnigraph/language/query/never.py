"""Comparisons of a property with a literal that are true for no value of the property. They run; lint warns of them."""

from __future__ import annotations

from omnigraph.language.query.context import Context
from omnigraph.language.query.literals import show_literal
from omnigraph.language.query.terms import Compare, Constant, Property
from omnigraph.language.query.values import exact
from omnigraph.language.schema.source import Place


def note_if_never(context: Context, c: Compare, place: Place) -> None:
    if not (isinstance(c.left, Property) and isinstance(c.right, Constant)):
        return
    t, value = c.left.type, c.right.value
    if t.kind == "Enum" and c.operator == "=" and isinstance(value, str) and value not in t.values:
        detail = f"{c.left.name} = {show_literal(value)} never holds; it is {t.null(False)}."
        context.note(place, detail, word=value, known=t.values)
    elif t.is_number and isinstance(value, int | float) and exact(t.kind, c.operator, value) is False:
        context.note(place, f"{c.left.name} {c.operator} {show_literal(value)} never holds; it is {t.null(False)}.")
