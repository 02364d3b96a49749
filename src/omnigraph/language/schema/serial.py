"""A schema as plain JSON values and back, without loss: ids, unknown annotations, the source text.

Defaults are omitted, so that the accepted schema of a large graph stays small. `format` is the version of this form.

Reading compares every name and id with its form (`language/identifiers.py`): names of types become paths of an export,
names of properties parts of filters, ids paths of tables. A schema that is read satisfies the rules of a parsed schema
as far as other code relies on them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from omnigraph.errors import FormatError, HostileOrDamagedManifest, NewerFormat
from omnigraph.language import identifiers as form
from omnigraph.language.identifiers import Malformed
from omnigraph.language.schema.identity import identifiers
from omnigraph.language.schema.model import (
    CONSTRAINTS,
    EDGE_COLUMNS,
    RESERVED_PROPERTIES,
    SCALARS,
    VECTOR_DIMENSION_MAX,
    Annotation,
    Constraint,
    EdgeType,
    EntityType,
    InterfaceType,
    NodeType,
    Property,
    PropertyType,
    Schema,
)

FORMAT = 1
WHERE = "the stored schema"
_COLUMNS = {"node": ("id",), "edge": EDGE_COLUMNS, "interface": ()}
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
    """Raises NewerFormat if a newer omnigraph wrote it, HostileOrDamagedManifest if a name, an id or a rule is
    violated, FormatError if it is not the JSON of a schema.
    """
    try:
        format_version = int(data["format"])
        if format_version > FORMAT:
            raise NewerFormat(found=format_version, known=FORMAT)
        schema = Schema(
            tuple(InterfaceType(form.type_name(i["name"]), _properties(i, "interface")) for i in data["interfaces"]),
            tuple(_read_node(n) for n in data["nodes"]),
            tuple(_read_edge(e) for e in data["edges"]),
            form.text(data["source"]),
        )
        _require_distinct("type", (t.name for t in (*schema.interfaces, *schema.types())))
        _require_distinct("type id", (i for t in schema.types() for i in identifiers(t)))
        return schema
    except Malformed as error:
        raise HostileOrDamagedManifest(where=WHERE, detail=str(error)) from error
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        detail = f"the stored schema can't be read: {type(error).__name__}: {error}"
        raise FormatError(detail=detail) from error


def type_to_json(t: EntityType) -> Json:
    """One type without the others, as a task carries it."""
    return schema_to_json(Schema(nodes=(t,)) if isinstance(t, NodeType) else Schema(edges=(t,)))


def type_from_json(data: Mapping[str, Any]) -> EntityType:
    return next(schema_from_json(data).types())


def require_types(data: Any) -> Json:
    """The JSON of a schema, of which only the names and ids of its types are checked. Malformed if one of them has not
    its form.
    """
    body = dict(form.mapping(data))
    for key, check in (("nodes", form.node_id), ("edges", form.edge_id)):
        for t in form.sequence(body[key]):
            form.type_name(t["name"])
            check(t["id"])
    return body


def _require_distinct(what: str, names: Iterable[str]) -> None:
    seen: set[str] = set()
    for name in names:
        if name in seen:
            raise Malformed(f"the {what} {form.shown(name)} is there twice")
        seen.add(name)


# ---- out -------------------------------------------------------------------------------------------------------------


def _node(n: NodeType) -> Json:
    return _set(
        name=n.name,
        id=n.id,
        aliases=list(n.aliases),
        implements=list(n.implements),
        properties=_all(n.properties),
        constraints=[_constraint(c) for c in n.constraints],
        annotations=[_annotation(a) for a in n.annotations],
    )


def _edge(e: EdgeType) -> Json:
    return _set(
        name=e.name,
        id=e.id,
        aliases=list(e.aliases),
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
            aliases=list(p.aliases),
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
    """The values without empty ones. Empty text stays (a literal may be ""), except for missing ids."""
    return {k: v for k, v in values.items() if v is not None and v != [] and not (k == "id" and v == "")}


# ---- in --------------------------------------------------------------------------------------------------------------


def _read_node(n: Json) -> NodeType:
    properties = _properties(n, "node")
    return NodeType(
        form.type_name(n["name"]),
        properties,
        _constraints(n, {p.name for p in properties}),
        tuple(form.type_name(i) for i in n.get("implements", ())),
        _annotations(n),
        _id(form.node_id, n),
        _aliases(form.node_id, n),
    )


def _read_edge(e: Json) -> EdgeType:
    properties = _properties(e, "edge")
    return EdgeType(
        form.type_name(e["name"]),
        form.type_name(e["source"]),
        form.type_name(e["target"]),
        properties,
        _constraints(e, {*EDGE_COLUMNS, *(p.name for p in properties)}),
        form.count(e.get("card_min", 0)),
        form.optional(form.count, e.get("card_max")),
        _annotations(e),
        _id(form.edge_id, e),
        _aliases(form.edge_id, e),
    )


def _id(check: Callable[[Any], str], owner: Json) -> str:
    """An accepted schema has ids; a parsed one has none."""
    return check(owner["id"]) if owner.get("id") else ""


def _aliases(check: Callable[[Any], str], owner: Json) -> tuple[str, ...]:
    return tuple(check(i) for i in form.sequence(owner.get("aliases", ())))


def _properties(owner: Json, kind: str) -> tuple[Property, ...]:
    properties = tuple(_property(p) for p in owner.get("properties", ()))
    for p in properties:
        if p.name in RESERVED_PROPERTIES or p.name in _COLUMNS[kind]:
            raise Malformed(f"the property {p.name} has the name of a column of the storage")
    _require_distinct("property", (p.name for p in properties))
    _require_distinct("property id", (i for p in properties for i in identifiers(p)))
    return properties


def _property(p: Json) -> Property:
    return Property(
        form.property_name(p["name"]),
        _read_type(p["type"]),
        form.flag(p.get("nullable", False)),
        _annotations(p),
        _id(form.property_id, p),
        _aliases(form.property_id, p),
    )


def _read_type(t: Json) -> PropertyType:
    kind, item, dimension = t["kind"], t.get("item"), t.get("dimension")
    values = tuple(form.text(v) for v in t.get("values", ()))
    is_complete = {
        "List": item in SCALARS and item != "Blob",
        "Enum": bool(values),
        "Vector": type(dimension) is int and 0 < dimension <= VECTOR_DIMENSION_MAX,
    }
    if not isinstance(kind, str) or not is_complete.get(kind, kind in SCALARS):
        raise Malformed(f"{form.shown(t)} is not the type of a property")
    return PropertyType(kind, item, values, dimension)


def _constraints(owner: Json, names: set[str]) -> tuple[Constraint, ...]:
    return tuple(_constraint_of(c, names) for c in owner.get("constraints", ()))


def _constraint_of(c: Json, names: set[str]) -> Constraint:
    properties = tuple(c["properties"])
    if c["kind"] not in CONSTRAINTS or not names.issuperset(properties):
        raise Malformed(f"{form.shown(c)} is not a constraint of its type")
    low, high = c.get("low"), c.get("high")
    if any(isinstance(b, bool) or not isinstance(b, int | float | None) for b in (low, high)):
        raise Malformed(f"{form.shown([low, high])} are not the bounds of a range")
    return Constraint(c["kind"], properties, low, high, form.optional(form.text, c.get("pattern")))


def _annotations(owner: Json) -> tuple[Annotation, ...]:
    return tuple(
        Annotation(
            form.word(a["name"]),
            _literal(a.get("argument")),
            tuple((form.word(k), _literal(v)) for k, v in a.get("options", ())),
        )
        for a in owner.get("annotations", ())
    )


def _literal(value: Any) -> Any:
    if isinstance(value, str | int | float | None):
        return value
    raise Malformed(f"{form.shown(value)} is not a literal")
