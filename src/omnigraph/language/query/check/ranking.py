"""Search and scores: `search`, `fuzzy`, `match_text` are conditions; `nearest`, `bm25`, `rrf` are numbers for order."""

from __future__ import annotations

from typing import TYPE_CHECKING

from omnigraph.language.query.syntax import tree
from omnigraph.language.query.terms import (
    Bm25,
    Constant,
    Expression,
    Fused,
    ListOf,
    Nearest,
    Parameter,
    Property,
    Rank,
    Search,
)
from omnigraph.language.query.types import BOOL, F64, I64, counted, describe

if TYPE_CHECKING:
    from omnigraph.language.query.check.typer import Typer

SEARCHES = {"search": "T19", "fuzzy": "T19", "match_text": "T20"}
RANKS = {"nearest": "T15", "bm25": "T20", "rrf": "T21"}
EDITS_MAX = 2
RRF_K = 60


def search(typer: Typer, e: tree.Call) -> Search:
    code = SEARCHES[e.name]
    maximum = 3 if e.name == "fuzzy" else 2
    if typer.zone not in ("match", "return", "order", "having"):
        raise typer.fail(code, e.place, f"{e.name} belongs to a pattern; a statement compares properties.")
    if not 2 <= len(e.arguments) <= maximum:
        required = "a property, a text and how many edits" if maximum == 3 else "a property and a text"
        raise typer.fail(code, e.place, f"{e.name} takes {required}.")
    field = _text_property(typer, e, code)
    query = _text(typer, e, code)
    edits = None
    if e.name == "fuzzy":
        edits = typer.read(e.arguments[2]) if len(e.arguments) == 3 else Constant(1, I64)
        edits_value = edits.value if isinstance(edits, Constant) else 1
        if not (
            isinstance(edits, Constant | Parameter)
            and edits.type.is_integer
            and 0 <= int(str(edits_value)) <= EDITS_MAX
        ):
            raise typer.fail(code, e.arguments[2].place, f"The number of edits is 0, 1 or {EDITS_MAX}.")
    return Search(e.name, field, query, edits, BOOL.null(field.type.nullable or query.type.nullable))


def rank(typer: Typer, e: tree.Call) -> Rank:
    code = RANKS[e.name]
    if typer.zone not in ("return", "order"):
        detail = f"{e.name} gives a score; it stands in return and order, not in a condition."
        raise typer.fail(code, e.place, detail)
    if typer.in_aggregate:
        raise typer.fail("T8", e.place, f"A score ({e.name}) can't be aggregated.")
    if e.name == "nearest":
        return _nearest(typer, e)
    if e.name == "bm25":
        if len(e.arguments) != 2:
            raise typer.fail(code, e.place, "bm25 takes a property and a text.")
        return Bm25(_text_property(typer, e, code), _text(typer, e, code), F64.null())
    return _fused(typer, e)


def _property(typer: Typer, e: tree.Call, code: str) -> Property:
    first = e.arguments[0]
    searched = typer.read(first)
    if not isinstance(searched, Property):
        raise typer.fail(code, first.place, f"{e.name} searches a property, as in {e.name}($x.name, …).")
    if searched.variable.kind == "edge":
        raise typer.fail("T23", first.place, f"{e.name} searches properties of nodes, not of edges.")
    return searched


def _text_property(typer: Typer, e: tree.Call, code: str) -> Property:
    searched = _property(typer, e, code)
    if searched.type.kind != "String" or searched.name in ("id", "@type"):
        raise typer.fail(
            code, e.arguments[0].place, f"{e.name} searches a String property, not {describe(searched.type)}."
        )
    return searched


def _text(typer: Typer, e: tree.Call, code: str) -> Constant | Parameter:
    query = typer.read(e.arguments[1])
    if not query.type.is_text:
        raise typer.fail(code, e.arguments[1].place, f"{e.name} searches for text, not for {describe(query.type)}.")
    if not isinstance(query, Constant | Parameter):
        raise typer.fail(code, e.arguments[1].place, f"{e.name} searches for a literal or a parameter.")
    return query


def _nearest(typer: Typer, e: tree.Call) -> Nearest:
    if len(e.arguments) != 2:
        raise typer.fail("T15", e.place, "nearest takes a vector property, and a vector or a text.")
    field = _property(typer, e, "T15")
    if field.type.kind != "Vector":
        detail = f"nearest searches a Vector property, not {describe(field.type)}."
        raise typer.fail("T15", e.arguments[0].place, detail)
    return Nearest(field, _vector(typer, field, e.arguments[1]), F64.null())


def _vector(typer: Typer, field: Property, argument: tree.Expression) -> Expression:
    query, size = typer.read(argument), field.type.dimension
    if isinstance(query, Constant | Parameter) and query.type.is_text:
        _check_embedded(typer, field, argument)
        return query
    if isinstance(query, Parameter) and query.type.kind == "Vector":
        if query.type.dimension != size:
            detail = f"{field.name} is a Vector({size}) and can't be compared with a {query.type.null(False)}."
            raise typer.fail("T15", argument.place, detail)
        return query
    if isinstance(query, ListOf) and all(isinstance(i, Constant) and i.type.is_number for i in query.items):
        if len(query.items) != size:
            detail = f"{field.name} is a Vector({size}); this one has {counted(len(query.items), 'number')}."
            raise typer.fail("T15", argument.place, detail)
        numbers = tuple(float(i.value) for i in query.items if isinstance(i, Constant))  # type: ignore[arg-type]
        return Constant(numbers, field.type.null(False))
    described = describe(query.type)
    if isinstance(query, Property):
        described = f"the property ${query.variable.name}.{query.name}, which every row has another one of"
    detail = f"nearest compares with a Vector({size}) or a text, a literal or a parameter, not with {described}."
    raise typer.fail("T15", argument.place, detail)


def _check_embedded(typer: Typer, field: Property, argument: tree.Expression) -> None:
    """Refuse a text unless the schema declares how the property's vectors are made."""
    for entity in field.variable.types:
        if typer.context.type_of(entity).by_name[field.name].annotation("embed") is None:
            detail = f'{entity.name}.{field.name} is not declared with @embed("source")'
            advice = f"compare it with a Vector({field.type.dimension}), not with a text"
            raise typer.fail("T15", argument.place, f"{detail}: {advice}.")


def _fused(typer: Typer, e: tree.Call) -> Fused:
    if not 2 <= len(e.arguments) <= 3:
        raise typer.fail("T21", e.place, "rrf takes two ranks (nearest or bm25) and, optionally, k.")
    parts: list[Nearest | Bm25] = []
    for argument in e.arguments[:2]:
        part = typer.read(argument)
        if not isinstance(part, Nearest | Bm25):
            raise typer.fail("T21", argument.place, "rrf joins nearest(…) and bm25(…), nothing else.")
        parts.append(part)
    k: Expression = typer.read(e.arguments[2]) if len(e.arguments) == 3 else Constant(RRF_K, I64)
    positive = not isinstance(k, Constant) or (isinstance(k.value, int) and k.value > 0)
    if not (isinstance(k, Constant | Parameter) and k.type.is_integer and positive):
        raise typer.fail("T21", e.arguments[2].place, "k of rrf is a whole number above 0.")
    return Fused(parts[0], parts[1], k, F64)
