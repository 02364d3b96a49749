"""The three-way merge of one type.

1. refer    names in references (endpoints, members of constraints, the source of @embed) become keys of elements, so
            that a rename on one side does not change the elements that refer to it
2. drop     a type or property that one side dropped is dropped, if the other side has not changed its definition
3. choose   each attribute comes from the side that changed it; values of enums are united, none is ever removed
4. unite    a constraint that one side added is kept, one that one side removed is removed

The merged type still has keys in its references; `merge` replaces them by names when all names are known.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Generic, TypeVar

from omnigraph.language.schema.merge.conflicts import Findings
from omnigraph.language.schema.merge.threeway import (
    Side,
    Three,
    attributes,
    by_name,
    choose,
    match_added,
    match_by_ids,
    same_property,
    with_endpoints,
)
from omnigraph.language.schema.model import (
    EDGE_COLUMNS,
    Annotation,
    Constraint,
    EdgeType,
    NodeType,
    Property,
    PropertyType,
)
from omnigraph.language.schema.syntax.constraints import constraint_identity

T = TypeVar("T", bound=NodeType | EdgeType)
E = TypeVar("E", bound=NodeType | EdgeType | Property)
NodeKeys = tuple[Mapping[str, str], Mapping[str, str], Mapping[str, str]]


@dataclass(frozen=True)
class Keyed(Generic[T]):
    """A type with keys in its references; `keys` are those of its properties, by name."""

    type: T
    keys: Mapping[str, str]

    @property
    def constraints(self) -> dict[tuple[object, ...], Constraint]:
        return {constraint_identity(c): c for c in self.type.constraints}

    @property
    def definition(self) -> object:
        properties = {self.keys[p.name]: attributes(p) for p in self.type.properties}
        return attributes(self.type), properties, self.constraints.keys()


def merge_type(three: Three[T], node_keys: NodeKeys, findings: Findings) -> T | None:
    """The merged type with keys in its references; None if it is dropped."""
    properties = _match_properties(three, findings)
    base, ours, theirs = (
        None if t is None else _keyed(t, side, properties, node_keys[side]) for side, t in enumerate(three.versions)
    )
    if ours is None or theirs is None:
        return _present_on_one_side(three, base, ours, theirs, findings)
    head = _merge_head(three, base, ours, theirs, findings)
    merged = [_merge_property(p, three, (base, ours, theirs), findings) for p in properties]
    properties_kept = [p for p in merged if p is not None]
    _report_shared_names(three, properties_kept, properties, findings)
    identities = _merge_sets({} if base is None else base.constraints, ours.constraints, theirs.constraints)
    constraints = tuple((theirs.constraints | ours.constraints)[i] for i in identities)
    _report_dropped_members(three, properties_kept, constraints, properties, findings)
    return replace(head, properties=tuple(properties_kept), constraints=constraints)


def named(t: T, nodes: Mapping[str, str], keys: Mapping[str, str]) -> T:
    """The type with names in its references; `keys` maps those of properties to names."""
    properties = tuple(_with_source(p, keys) for p in t.properties)
    constraints = tuple(_with_members(c, keys) for c in t.constraints)
    return replace(with_endpoints(t, nodes), properties=properties, constraints=constraints)


# ---- references ------------------------------------------------------------------------------------------------------


def _match_properties(three: Three[T], findings: Findings) -> list[Three[Property]]:
    versions = [() if t is None else t.properties for t in three.versions]
    threes, repeated = match_by_ids(*versions)
    for p, other in repeated:
        message = f"{p.present.name} and {other.name} are one property on the other side"
        findings.about_property("schema_divergent_property", three, p, message)
    return match_added(threes, same_property)


def _keyed(t: T, side: int, properties: Sequence[Three[Property]], node_keys: Mapping[str, str]) -> Keyed[T]:
    keys = {p.name: three.key for three in properties for p in (three.versions[side],) if p is not None}
    # A property that is missing here was reported as repeated: its own id is its key.
    keys = {p.name: p.id for p in t.properties} | keys
    return Keyed(named(t, node_keys, keys), keys)


def _with_source(p: Property, keys: Mapping[str, str]) -> Property:
    if p.annotation("embed") is None:
        return p
    return replace(p, annotations=tuple(_referring(a, keys) for a in p.annotations))


def _referring(a: Annotation, keys: Mapping[str, str]) -> Annotation:
    return replace(a, argument=keys.get(str(a.argument), a.argument)) if a.name == "embed" else a


def _with_members(c: Constraint, keys: Mapping[str, str]) -> Constraint:
    return replace(c, properties=tuple(name if name in EDGE_COLUMNS else keys.get(name, name) for name in c.properties))


# ---- on one side only ------------------------------------------------------------------------------------------------


def _present_on_one_side(
    three: Three[T], base: Keyed[T] | None, ours: Keyed[T] | None, theirs: Keyed[T] | None, findings: Findings
) -> T | None:
    present = ours or theirs
    if present is None or base is None:
        return None if present is None else present.type
    if present.definition != base.definition:
        changed = "ours" if theirs is None else "theirs"
        message = f"{three.present.name} is dropped on one side, and {changed} has changed its definition"
        findings.about_type("schema_dropped_type", three, message)
        findings.undecided.add(three.key)
        return present.type
    if theirs is None:
        findings.dropped_types.append(present.type.id)
    else:
        findings.missing_types.append(present.type.id)
    return None


# ---- attributes ------------------------------------------------------------------------------------------------------


def _merge_head(three: Three[T], base: Keyed[T] | None, ours: Keyed[T], theirs: Keyed[T], findings: Findings) -> T:
    chosen, diverged = choose(None if base is None else base.type, ours.type, theirs.type)
    for name in diverged:
        findings.about_type(_kind(name), three, _diverged(three.present.key, name))
    if "name" in diverged:
        findings.undecided.add(three.key)
    other = theirs.type
    head = _merge_common(ours.type, other, None if base is None else base.type, chosen, three.aliases)
    if isinstance(head, NodeType) and isinstance(other, NodeType):
        return replace(head, implements=other.implements) if chosen["implements"] == "theirs" else head
    assert isinstance(head, EdgeType)
    assert isinstance(other, EdgeType)
    ends: EdgeType = other if chosen["endpoints"] == "theirs" else head
    card: EdgeType = other if chosen["cardinality"] == "theirs" else head
    return replace(head, source=ends.source, target=ends.target, card_min=card.card_min, card_max=card.card_max)


def _merge_property(
    three: Three[Property], owner: Three[T], types: tuple[Keyed[T] | None, Keyed[T], Keyed[T]], findings: Findings
) -> Property | None:
    base, ours, theirs = (
        None if p is None or t is None else t.type.by_name[p.name] for p, t in zip(three.versions, types, strict=True)
    )
    if ours is not None and theirs is not None:
        merged, diverged = merge_properties(base, ours, theirs)
        for name in diverged:
            message = _diverged(f"{owner.present.name}.{three.present.name}", name)
            findings.about_property(_kind(name), owner, three, message)
        if "name" in diverged:
            findings.undecided.add(three.key)
        return replace(merged, id=three.key, aliases=three.aliases)
    present = ours or theirs
    if present is None:
        return None
    type_ids = types[1].type.id, types[2].type.id
    if base is None:
        if ours is None and not present.nullable and present.default is None:
            findings.required_properties.append((type_ids[0], present.id))
        return present
    if attributes(present) != attributes(base):
        changed = "ours" if theirs is None else "theirs"
        message = f"{three.present.name} is dropped on one side, and {changed} has changed its definition"
        findings.about_property("schema_dropped_property", owner, three, message)
        findings.undecided.add(three.key)
        return present
    if theirs is None:
        findings.dropped_properties.append((type_ids[0], present.id))
    else:
        findings.missing_properties.append((type_ids[1], present.id))
    return None


def merge_properties(base: Property | None, ours: Property, theirs: Property) -> tuple[Property, list[str]]:
    """The merge of a property of both sides, and the attributes that they have changed differently."""
    union = _union(ours.type, theirs.type)
    if union is not None:
        ours, theirs = replace(ours, type=union), replace(theirs, type=union)
    chosen, diverged = choose(base, ours, theirs)
    merged = _merge_common(ours, theirs, base, chosen, ours.aliases)
    if chosen["type"] == "theirs":
        merged = replace(merged, type=theirs.type)
    if chosen["nullable"] == "theirs":
        merged = replace(merged, nullable=theirs.nullable)
    return merged, diverged


def _union(a: PropertyType, b: PropertyType) -> PropertyType | None:
    """The union of two enums, with values in the order of the parser."""
    if a.kind != "Enum" or b.kind != "Enum":
        return None
    return replace(a, values=tuple(sorted({*a.values, *b.values})))


def _merge_common(ours: E, theirs: E, base: E | None, chosen: Mapping[str, Side], aliases: tuple[str, ...]) -> E:
    """Merge what types and properties have in common: name, annotations, identity."""
    name = ours.name if chosen["name"] == "ours" else theirs.name
    annotations = _merge_annotations(ours.annotations, theirs.annotations, chosen)
    annotations = _with_rename(annotations, name, ours, theirs, base)
    return replace(ours, name=name, annotations=annotations, aliases=aliases)


def _merge_annotations(
    ours: Sequence[Annotation], theirs: Sequence[Annotation], chosen: Mapping[str, Side]
) -> tuple[Annotation, ...]:
    if all(chosen.get(f"@{a.name}", "ours") == "ours" for a in (*ours, *theirs)):
        return tuple(ours)
    sides = {"ours": by_name(ours), "theirs": by_name(theirs)}
    names = dict.fromkeys(a.name for a in (*ours, *theirs))
    return tuple(a for name in names for a in sides[chosen.get(f"@{name}", "ours")].get(name, ()))


def _with_rename(
    annotations: tuple[Annotation, ...], name: str, ours: E, theirs: E, base: E | None
) -> tuple[Annotation, ...]:
    """The annotations with `@rename_from` of the side that changed it; if both did, of the side of the merged name."""
    our_rename, their_rename, base_rename = (
        None if e is None else by_name(e.annotations).get("rename_from") for e in (ours, theirs, base)
    )
    from_theirs = (
        our_rename == base_rename != their_rename
        if our_rename == base_rename or their_rename == base_rename
        else name != ours.name
    )
    rename = (their_rename if from_theirs else our_rename) or []
    if any(a.argument == name for a in rename):
        rename = []
    if rename == our_rename:
        return annotations
    return (*(a for a in annotations if a.name != "rename_from"), *rename)


def _kind(attribute: str) -> str:
    return "schema_divergent_rename" if attribute == "name" else "schema_divergent_definition"


def _diverged(entity: str, attribute: str) -> str:
    return f"both sides have changed the {attribute} of {entity}, differently"


# ---- constraints and names -------------------------------------------------------------------------------------------


def _merge_sets(
    base: Mapping[tuple[object, ...], Constraint],
    ours: Mapping[tuple[object, ...], Constraint],
    theirs: Mapping[tuple[object, ...], Constraint],
) -> list[tuple[object, ...]]:
    return [i for i in {**ours, **theirs} if (i in ours and i in theirs) or i not in base]


def _report_shared_names(
    owner: Three[T], merged: Sequence[Property], threes: Sequence[Three[Property]], findings: Findings
) -> None:
    by_id = {three.key: three for three in threes}
    seen: dict[str, Property] = {}
    for p in merged:
        if p.id in findings.undecided:
            continue
        other = seen.setdefault(p.name, p)
        if other is p:
            continue
        pair = [by_id[other.id], by_id[p.id]]
        shared = Three(None, _called(p.name, [t.ours for t in pair]), _called(p.name, [t.theirs for t in pair]))
        message = f"two properties of {owner.present.name} would be called {p.name}"
        if shared.present.annotation("embed") is not None:
            message += (
                "; an embedded vector that both sides have added can't be united, because its marks are stored by id"
            )
        findings.about_property("schema_divergent_property", owner, shared, message)


def _called(name: str, versions: Sequence[E | None]) -> E | None:
    return next((v for v in versions if v is not None and v.name == name), None)


def _report_dropped_members(
    owner: Three[T],
    merged: Sequence[Property],
    constraints: Sequence[Constraint],
    threes: Sequence[Three[Property]],
    findings: Findings,
) -> None:
    property_ids = {p.id for p in merged}
    uses = [(f"@{c.kind}", key) for c in constraints for key in c.properties if key not in EDGE_COLUMNS]
    uses += [("@embed", str(a.argument)) for p in merged for a in p.annotations if a.name == "embed"]
    by_id = {three.key: three for three in threes}
    for user, key in dict.fromkeys(uses):
        if key not in property_ids and key in by_id:
            message = f"{by_id[key].present.name} is dropped on one side, and {user} of the other side uses it"
            findings.about_property("schema_dropped_property", owner, by_id[key], message)
