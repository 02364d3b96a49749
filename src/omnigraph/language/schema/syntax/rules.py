"""The rules of the language: from declarations as written to the model.

1. names        no type twice, no two edges that differ only in case (queries match edge words case-insensitively)
2. interfaces   their properties on their own
3. nodes        interface properties first, then their own; then annotations, constraints, @embed sources
4. edges        endpoints, cardinality, then as for nodes

The first broken rule is raised as SchemaRuleError at its place.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from omnigraph.language.schema.model import (
    EDGE_COLUMNS,
    RESERVED_PROPERTIES,
    Constraint,
    EdgeType,
    InterfaceType,
    NodeType,
    Property,
    Schema,
)
from omnigraph.language.schema.source import Place, Source, did_you_mean
from omnigraph.language.schema.syntax.annotations import (
    MARKS,
    cardinality,
    check_embed_source,
    property_annotations,
    type_annotations,
)
from omnigraph.language.schema.syntax.constraints import type_constraints
from omnigraph.language.schema.syntax.declarations import Declaration, Name, RawProperty


def build_schema(declarations: Sequence[Declaration], source: Source) -> Schema:
    _check_type_names(declarations, source)
    raw_interfaces = {d.name.text: d for d in declarations if d.kind == "interface"}
    interfaces = tuple(_interface(d, source) for d in raw_interfaces.values())
    nodes = tuple(_node(d, raw_interfaces, source) for d in declarations if d.kind == "node")
    kinds = {d.name.text: d.kind for d in declarations}
    edges = tuple(_edge(d, kinds, source) for d in declarations if d.kind == "edge")
    return Schema(interfaces, nodes, edges, source.text)


# ---- names -----------------------------------------------------------------------------------------------------------


def _check_type_names(declarations: Sequence[Declaration], source: Source) -> None:
    seen: dict[str, Place] = {}
    edges: dict[str, str] = {}
    for d in declarations:
        name = d.name.text
        if name in seen:
            detail = f"{name} is declared twice, first on line {seen[name].line}; types of all kinds share their names."
            raise source.rule_error(d.name.place, detail)
        seen[name] = d.name.place
        if d.kind == "edge":
            other = edges.setdefault(name.lower(), name)
            if other != name:
                detail = f"The edges {other} and {name} differ only in case, and queries match edge names in any case."
                raise source.rule_error(d.name.place, detail)


def _check_property_names(properties: Iterable[RawProperty], owner: str, type_name: str, source: Source) -> None:
    seen: dict[str, Place] = {}
    columns = EDGE_COLUMNS if owner == "edge" else ("id",)
    for p in properties:
        name = p.name.text
        if name in RESERVED_PROPERTIES:
            raise source.rule_error(p.name.place, f"The property name {name} is reserved for the storage.")
        if name in columns:
            what = "edge" if owner == "edge" else "node"
            detail = f"{name} is a column that every {what} has; a property needs another name."
            raise source.rule_error(p.name.place, detail)
        if name in seen:
            detail = f"{type_name} has the property {name} twice, first on line {seen[name].line}."
            raise source.rule_error(p.name.place, detail)
        seen[name] = p.name.place


# ---- interfaces and nodes --------------------------------------------------------------------------------------------


def _interface(d: Declaration, source: Source) -> InterfaceType:
    if d.annotations:
        raise source.rule_error(d.annotations[0].place, "An interface takes no annotations; its properties may.")
    _check_property_names(d.properties, "interface", d.name.text, source)
    properties = tuple(
        Property(p.name.text, p.type, p.nullable, property_annotations(p, "interface", source)) for p in d.properties
    )
    return InterfaceType(d.name.text, properties)


def _node(d: Declaration, interfaces: dict[str, Declaration], source: Source) -> NodeType:
    _check_property_names(d.properties, "node", d.name.text, source)
    inherited = _inherited(d, interfaces, source)
    merged = _merge_own(d, inherited, source)
    annotations = type_annotations(d, source)
    properties = _properties(merged, "node", source)
    types = {p.name: p.type for p in properties}
    for p in merged:
        check_embed_source(p, types, d.name.text, source)
    constraints = type_constraints("node", d.name.text, merged, d.constraints, list(inherited.values()), source)
    _check_defaults_in_range(merged, properties, constraints, source)
    return NodeType(d.name.text, properties, constraints, tuple(n.text for n in d.implements), annotations)


def _inherited(d: Declaration, interfaces: dict[str, Declaration], source: Source) -> dict[str, RawProperty]:
    """Properties of all interfaces of the node, in order; two interfaces may share a property of the same type."""
    merged: dict[str, RawProperty] = {}
    origin: dict[str, str] = {}
    seen: set[str] = set()
    for name in d.implements:
        if name.text in seen:
            raise source.rule_error(name.place, f"{d.name.text} implements {name.text} twice.")
        seen.add(name.text)
        for p in _find_interface(name, interfaces, source).properties:
            key = p.name.text
            before = merged.get(key)
            if before is not None and not _same_type(before, p):
                detail = (
                    f"{d.name.text} can't implement both {origin[key]} and {name.text}: "
                    f"{key} is {_type_text(before)} in one and {_type_text(p)} in the other."
                )
                raise source.rule_error(name.place, detail)
            merged[key] = p if before is None else _with_annotations_of(before, p)
            origin.setdefault(key, name.text)
    return merged


def _find_interface(name: Name, interfaces: dict[str, Declaration], source: Source) -> Declaration:
    if name.text not in interfaces:
        detail = f"There is no interface {name.text}.{did_you_mean(name.text, interfaces)}"
        raise source.rule_error(name.place, detail)
    return interfaces[name.text]


def _merge_own(d: Declaration, inherited: dict[str, RawProperty], source: Source) -> list[RawProperty]:
    merged = dict(inherited)
    for p in d.properties:
        before = merged.get(p.name.text)
        if before is None:
            merged[p.name.text] = p
            continue
        if not _same_type(before, p):
            detail = (
                f"{d.name.text} can't redeclare {p.name.text} as {_type_text(p)}: "
                f"its interface has it as {_type_text(before)}."
            )
            raise source.rule_error(p.name.place, detail)
        merged[p.name.text] = _with_annotations_of(before, p)
    return list(merged.values())


def _same_type(a: RawProperty, b: RawProperty) -> bool:
    return a.type == b.type and a.nullable == b.nullable


def _type_text(p: RawProperty) -> str:
    return f"{p.type}{'?' if p.nullable else ''}"


def _with_annotations_of(base: RawProperty, over: RawProperty) -> RawProperty:
    """An annotation of the redeclaration replaces those of the same name; the others of the interface stay."""
    names = {a.name for a in over.annotations}
    base_annotations = tuple(a for a in base.annotations if a.name not in names)
    return replace(base, annotations=(*base_annotations, *over.annotations))


# ---- edges and what they share with nodes ----------------------------------------------------------------------------


def _edge(d: Declaration, kinds: Mapping[str, str], source: Source) -> EdgeType:
    start, target = d.endpoints
    for end in d.endpoints:
        if kinds.get(end.text) == "node":
            continue
        if end.text in kinds:
            detail = f"{end.text} is an {kinds[end.text]}; edges connect node types."
        else:
            hint = did_you_mean(end.text, [name for name, kind in kinds.items() if kind == "node"])
            detail = f"There is no node type {end.text}.{hint}"
        raise source.rule_error(end.place, detail)
    _check_property_names(d.properties, "edge", d.name.text, source)
    annotations = type_annotations(d, source)
    card_min, card_max = cardinality(d, source)
    properties = _properties(d.properties, "edge", source)
    constraints = type_constraints("edge", d.name.text, d.properties, d.constraints, (), source)
    return EdgeType(d.name.text, start.text, target.text, properties, constraints, card_min, card_max, annotations)


def _properties(raw: Iterable[RawProperty], owner: str, source: Source) -> tuple[Property, ...]:
    """Properties without marks (@key, @unique, @index), which become constraints of the type."""
    return tuple(
        Property(
            p.name.text,
            p.type,
            p.nullable,
            tuple(a for a in property_annotations(p, owner, source) if a.name not in MARKS),
        )
        for p in raw
    )


def _check_defaults_in_range(
    raw: Sequence[RawProperty], properties: Sequence[Property], constraints: Sequence[Constraint], source: Source
) -> None:
    ranges = [c for c in constraints if c.kind == "range"]
    for raw_property, p in zip(raw, properties, strict=True):
        default = p.default
        if default is None or isinstance(default, str):
            continue
        for c in ranges:
            if c.properties != (p.name,):
                continue
            if (c.low is not None and default < c.low) or (c.high is not None and default > c.high):
                place = next(a.arguments[0].place for a in raw_property.annotations if a.name == "default")
                raise source.rule_error(place, f"The default of {p.name} is outside of its @range.")
