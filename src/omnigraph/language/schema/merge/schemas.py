"""The three-way merge of accepted schemas: the changes of ours and theirs since their base, in one schema.

1. match    types and properties by their ids and aliases, then those that both sides added alike (`threeway`)
2. merge    interfaces by name, then each type: head, properties, constraints (`types`)
3. name     references get the merged names; no two elements may share one
4. check    the result is rendered and parsed: it has to satisfy the rules of the language
5. plan     the steps from ours to the result, by id (`plan.planner`)

Invariants: elements of ours keep their ids; elements of theirs keep their own. If one side has not changed, the result
is the other side's content; merging again changes nothing. As in a schema change, no value of an enum and no interface
is ever removed. A merge with conflicts has ours as its result and no steps. Pure: the caller checks whether rows
prevent the merge, by the ids that the result lists.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

from omnigraph.errors import SchemaRuleError, SchemaSyntaxError
from omnigraph.language.schema.merge.conflicts import Findings, SchemaConflict
from omnigraph.language.schema.merge.threeway import Three, attributes, match_added, match_by_ids, same_type
from omnigraph.language.schema.merge.types import NodeKeys, merge_properties, merge_type, named
from omnigraph.language.schema.model import EdgeType, EntityType, InterfaceType, NodeType, Property, Schema
from omnigraph.language.schema.plan.planner import plan_by_id
from omnigraph.language.schema.plan.steps import Step
from omnigraph.language.schema.syntax.constraints import constraint_identity, in_order
from omnigraph.language.schema.syntax.parse import parse_schema
from omnigraph.language.schema.syntax.show import render, render_property, render_type

T = TypeVar("T", bound=NodeType | EdgeType)


@dataclass(frozen=True)
class SchemaMerge:
    """`steps` lead from ours to `result`.

    Where the other side may have changed rows, the caller decides: `dropped_types` and `dropped_properties` (with their
    type) are dropped by theirs, listed by ours' ids; `missing_types` and `missing_properties` are dropped by ours,
    listed by theirs' ids. `required_properties` are added by theirs, without a default, to types of ours.
    """

    result: Schema
    steps: tuple[Step, ...]
    conflicts: tuple[SchemaConflict, ...]
    changed: bool
    dropped_types: tuple[str, ...] = ()
    dropped_properties: tuple[tuple[str, str], ...] = ()
    missing_types: tuple[str, ...] = ()
    missing_properties: tuple[tuple[str, str], ...] = ()
    required_properties: tuple[tuple[str, str], ...] = ()


def merge_schemas(base: Schema, ours: Schema, theirs: Schema) -> SchemaMerge:
    findings = Findings(base, ours, theirs)
    interfaces = _merge_interfaces(findings)
    node_threes = _match_types(base.nodes, ours.nodes, theirs.nodes, ({}, {}, {}), findings)
    node_keys = _keys(node_threes, (base, ours, theirs))
    edge_threes = _match_types(base.edges, ours.edges, theirs.edges, node_keys, findings)
    nodes = [merge_type(three, node_keys, findings) for three in node_threes]
    edges = [merge_type(three, node_keys, findings) for three in edge_threes]
    merged = Schema(interfaces, tuple(n for n in nodes if n is not None), tuple(e for e in edges if e is not None))
    _report_dropped_endpoints(merged, node_threes, findings)
    _report_shared_names(merged, findings)
    if not findings.conflicts:
        merged = _with_source(_named(merged), findings)
        _report_broken_rules(merged, findings)
    plan = plan_by_id(ours, ours if findings.conflicts else merged)
    for refusal in plan.unsupported:
        _report(findings, refusal.entity, refusal.type_id, refusal.reason)
    has_conflicts = bool(findings.conflicts)
    return SchemaMerge(
        result=ours if has_conflicts else merged,
        steps=() if has_conflicts else plan.steps,
        conflicts=tuple(findings.conflicts),
        changed=not has_conflicts and merged != ours,
        dropped_types=tuple(findings.dropped_types),
        dropped_properties=tuple(findings.dropped_properties),
        missing_types=tuple(findings.missing_types),
        missing_properties=tuple(findings.missing_properties),
        required_properties=tuple(findings.required_properties),
    )


# ---- match -----------------------------------------------------------------------------------------------------------


def _match_types(
    base: Sequence[T], ours: Sequence[T], theirs: Sequence[T], node_keys: NodeKeys, findings: Findings
) -> list[Three[T]]:
    threes, repeated = match_by_ids(base, ours, theirs)
    for three, other in repeated:
        message = f"{three.present.name} and {other.name} are one type on the other side"
        findings.about_type("schema_divergent_type", three, message)
    return match_added(threes, lambda a, b: same_type(a, b, node_keys[1], node_keys[2]))


def _keys(threes: Sequence[Three[NodeType]], schemas: tuple[Schema, Schema, Schema]) -> NodeKeys:
    """The key of each node type, by its name on each side."""

    def of(side: int) -> Mapping[str, str]:
        own = {n.name: n.id for n in schemas[side].nodes}
        return own | {t.name: three.key for three in threes for t in (three.versions[side],) if t is not None}

    return of(0), of(1), of(2)


# ---- interfaces ------------------------------------------------------------------------------------------------------


def _merge_interfaces(findings: Findings) -> tuple[InterfaceType, ...]:
    base, ours, theirs = ({i.name: i for i in s.interfaces} for s in (findings.base, findings.ours, findings.theirs))
    merged: list[InterfaceType] = []
    for name in dict.fromkeys((*ours, *theirs)):
        our_interface, their_interface = ours.get(name), theirs.get(name)
        if our_interface is None or their_interface is None:
            merged += [i for i in (our_interface, their_interface) if i is not None]
        elif name not in base and _definition(our_interface) != _definition(their_interface):
            message = f"both sides have added the interface {name}, differently"
            findings.add(
                "schema_divergent_type",
                f"interface:{name}",
                findings.texts(None, our_interface, their_interface),
                message,
            )
        else:
            merged.append(
                _merge_interface(base.get(name, InterfaceType(name)), our_interface, their_interface, findings)
            )
    return tuple(merged)


def _definition(interface: InterfaceType) -> object:
    return {p.name: attributes(p) for p in interface.properties}


def _merge_interface(
    base: InterfaceType, ours: InterfaceType, theirs: InterfaceType, findings: Findings
) -> InterfaceType:
    base_properties, our_properties, their_properties = (
        {p.name: p for p in i.properties} for i in (base, ours, theirs)
    )
    properties: list[Property] = []
    for name in dict.fromkeys((*our_properties, *their_properties)):
        three = (base_properties.get(name), our_properties.get(name), their_properties.get(name))
        merged, diverged = _merge_interface_property(*three)
        if merged is not None:
            properties.append(merged)
        if diverged:
            texts = tuple(None if p is None else render_property(p) for p in three)
            message = f"both sides have changed {name} of the interface {ours.name}, differently"
            findings.add("schema_divergent_definition", f"interface:{ours.name}.{name}", texts, message)  # type: ignore[arg-type]
    return InterfaceType(ours.name, tuple(properties))


def _merge_interface_property(
    base: Property | None, ours: Property | None, theirs: Property | None
) -> tuple[Property | None, bool]:
    """The property, None if it is dropped; and whether the two sides conflict."""
    if ours is not None and theirs is not None:
        merged, diverged = merge_properties(base, ours, theirs)
        return merged, bool(diverged)
    present = ours or theirs
    if present is None or base is None:
        return present, False
    return None, attributes(present) != attributes(base)


# ---- names -----------------------------------------------------------------------------------------------------------


def _named(merged: Schema) -> Schema:
    nodes = {n.id: n.name for n in merged.nodes}

    def of(t: T) -> T:
        with_names = named(t, nodes, {p.id: p.name for p in t.properties})
        constraints = in_order(with_names.constraints, [p.name for p in t.properties])
        return replace(with_names, constraints=constraints)

    return replace(merged, nodes=tuple(map(of, merged.nodes)), edges=tuple(map(of, merged.edges)))


def _report_dropped_endpoints(merged: Schema, threes: Sequence[Three[NodeType]], findings: Findings) -> None:
    node_ids = {n.id for n in merged.nodes}
    by_key = {three.key: three for three in threes}
    for edge in merged.edges:
        for key in dict.fromkeys((edge.source, edge.target)):
            three = by_key.get(key)
            if key not in node_ids and three is not None:
                message = f"{three.present.name} is dropped on one side, and {edge.name} of the other side connects it"
                findings.about_type("schema_dropped_type", three, message)


def _report_shared_names(merged: Schema, findings: Findings) -> None:
    """Types of all kinds share one namespace, and queries match edge names case-insensitively."""
    seen: dict[str, InterfaceType | EntityType] = {}
    edges: dict[str, EdgeType] = {}
    for t in (*merged.interfaces, *(t for t in merged.types() if t.id not in findings.undecided)):
        other = seen.setdefault(t.name, t)
        if other is t and isinstance(t, EdgeType):
            other = edges.setdefault(t.name.lower(), t)
        if other is t:
            continue
        names = (other.name, t.name)
        our_type = next((v for v in (*findings.ours.interfaces, *findings.ours.types()) if v.name in names), None)
        their_type = next((v for v in (*findings.theirs.interfaces, *findings.theirs.types()) if v.name in names), None)
        texts = findings.texts(None, our_type, their_type)
        message = f"two types would be called {t.name}"
        if texts[1] == texts[2]:
            message += "; they can't be one type, because of an embedded vector or the order of the key's members"
        findings.add("schema_divergent_type", _entity(t), texts, message)


def _entity(t: InterfaceType | EntityType) -> str:
    return f"interface:{t.name}" if isinstance(t, InterfaceType) else t.key


# ---- rules and text --------------------------------------------------------------------------------------------------


def _with_source(merged: Schema, findings: Findings) -> Schema:
    """The schema with the text of the side that it equals; else with rendered text."""
    for side in (findings.ours, findings.theirs):
        if _content(side) == _content(merged):
            return replace(merged, source=side.source)
    return replace(merged, source=render(merged))


def _report_broken_rules(merged: Schema, findings: Findings) -> None:
    """Only a result that equals neither side can break rules, for example if a type lacks a property that its interface
    got on the other side.
    """
    if merged.source in (findings.ours.source, findings.theirs.source):
        return
    try:
        parsed = parse_schema(merged.source)
    except (SchemaRuleError, SchemaSyntaxError) as error:
        findings.add(
            "schema_divergent_definition", "schema", (None, None, None), f"the merged schema is no schema: {error}"
        )
        return
    texts, contents = _content(merged), _content(parsed)
    types = {_entity(t): t for t in (*merged.interfaces, *merged.types())}
    for entity, t in types.items():
        if texts[entity] != contents[entity]:
            parsed_text = next(
                render_type(p, parsed) for p in (*parsed.interfaces, *parsed.types()) if _entity(p) == entity
            )
            message = f"the merged {t.name} would not be what its text says: {parsed_text}"
            _report(findings, entity, "" if isinstance(t, InterfaceType) else t.id, message)


def _report(findings: Findings, entity: str, type_id: str, message: str) -> None:
    versions = [
        next((t for t in s.types() if type_id and type_id in (t.id, *t.aliases)), None)
        for s in (findings.base, findings.ours, findings.theirs)
    ]
    base, ours, theirs = versions
    findings.add("schema_divergent_definition", entity, findings.texts(base, ours, theirs), message)


def _content(schema: Schema) -> dict[str, object]:
    """Everything but ids and order, by entity."""
    content: dict[str, object] = {f"interface:{i.name}": _definition(i) for i in schema.interfaces}
    for t in schema.types():
        properties = {p.name: (attributes(p), _rename(p)) for p in t.properties}
        constraints = frozenset(constraint_identity(c) for c in t.constraints)
        content[t.key] = attributes(t), _rename(t), properties, constraints
    return content


def _rename(element: EntityType | Property) -> object:
    return next((a.argument for a in element.annotations if a.name == "rename_from"), None)
