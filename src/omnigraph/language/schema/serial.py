"""A schema as plain JSON values and back, everything kept: ids, unknown annotations, the source text.

Defaults are left out, so that the accepted schema of a large graph stays small. `format` counts changes of this shape.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from omnigraph.errors import FormatError, NewerFormat
from omnigraph.language.schema.model import (
    Annotation,
    Constraint,
    EdgeType,
    InterfaceType,
    NodeType,
    Property,
    PropertyType,
    Schema,
)

FORMAT = 1
Json = dict[str, Any]


def schema_to_json(schema: Schema) -> Json:
    return {
        "format": FORMAT,
        "interfaces": [{"name": i.name, "properties": _all(i.properties)} for i in schema.interfaces],
        "nodes": [_node(n) for n in schema.nodes],
        "edges": [_edge(e) for e in schema.edges],
        "source": schema.source,
    }


def schema_from_json(data: Mapping[str, Any]) -> Schema:
    """NewerFormat if a newer omnigraph wrote it, FormatError if it is not the JSON of a schema."""
    try:
        found = int(data["format"])
        if found > FORMAT:
            raise NewerFormat(found=found, known=FORMAT)
        return Schema(
            tuple(InterfaceType(i["name"], _properties(i)) for i in data["interfaces"]),
            tuple(_read_node(n) for n in data["nodes"]),
            tuple(_read_edge(e) for e in data["edges"]),
            data["source"],
        )
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        detail = f"the stored schema can't be read: {type(error).__name__}: {error}"
        raise FormatError(detail=detail) from error


# ---- out -------------------------------------------------------------------------------------------------------------


def _node(n: NodeType) -> Json:
    return _set(
        name=n.name,
        id=n.id,
        implements=list(n.implements),
        properties=_all(n.properties),
        constraints=[_constraint(c) for c in n.constraints],
        annotations=[_annotation(a) for a in n.annotations],
    )


def _edge(e: EdgeType) -> Json:
    return _set(
        name=e.name,
        id=e.id,
        source=e.source,
        target=e.target,
        card_min=e.card_min or None,
        card_max=e.card_max,
        properties=_all(e.properties),
        constraints=[_constraint(c) for c in e.constraints],
        annotations=[_annotation(a) for a in e.annotations],
    )


def _all(properties: Sequence[Property]) -> list[Json]:
    return [
        _set(
            name=p.name,
            id=p.id,
            type=_type(p.type),
            nullable=p.nullable or None,
            annotations=[_annotation(a) for a in p.annotations],
        )
        for p in properties
    ]


def _type(t: PropertyType) -> Json:
    return _set(kind=t.kind, item=t.item, values=list(t.values), dimension=t.dimension)


def _constraint(c: Constraint) -> Json:
    return _set(kind=c.kind, properties=list(c.properties), low=c.low, high=c.high, pattern=c.pattern)


def _annotation(a: Annotation) -> Json:
    return _set(name=a.name, argument=a.argument, options=[list(o) for o in a.options])


def _set(**values: Any) -> Json:
    """Without what is empty by default. Empty text stays (a literal may be ""), except for ids not given yet."""
    return {k: v for k, v in values.items() if v is not None and v != [] and not (k == "id" and v == "")}


# ---- in --------------------------------------------------------------------------------------------------------------


def _read_node(n: Json) -> NodeType:
    return NodeType(
        n["name"],
        _properties(n),
        _constraints(n),
        tuple(n.get("implements", ())),
        _annotations(n),
        n.get("id", ""),
    )


def _read_edge(e: Json) -> EdgeType:
    return EdgeType(
        e["name"],
        e["source"],
        e["target"],
        _properties(e),
        _constraints(e),
        e.get("card_min", 0),
        e.get("card_max"),
        _annotations(e),
        e.get("id", ""),
    )


def _properties(owner: Json) -> tuple[Property, ...]:
    return tuple(
        Property(p["name"], _read_type(p["type"]), p.get("nullable", False), _annotations(p), p.get("id", ""))
        for p in owner.get("properties", ())
    )


def _read_type(t: Json) -> PropertyType:
    return PropertyType(t["kind"], t.get("item"), tuple(t.get("values", ())), t.get("dimension"))


def _constraints(owner: Json) -> tuple[Constraint, ...]:
    return tuple(
        Constraint(c["kind"], tuple(c["properties"]), c.get("low"), c.get("high"), c.get("pattern"))
        for c in owner.get("constraints", ())
    )


def _annotations(owner: Json) -> tuple[Annotation, ...]:
    return tuple(
        Annotation(a["name"], a.get("argument"), tuple((k, v) for k, v in a.get("options", ())))
        for a in owner.get("annotations", ())
    )
