"""The differences between two accepted schemas of one graph, as steps. Elements are matched by id, never by name.

A plan (`planner`) leads from an accepted schema to a declaration without ids; this module compares two schemas with
ids: of two commits, or of two branches. Nothing is refused: both schemas exist.
"""

from __future__ import annotations

from collections.abc import Iterator

from omnigraph.language.schema.identity import counterpart
from omnigraph.language.schema.model import EdgeType, EntityType, NodeType, Property, Schema
from omnigraph.language.schema.plan.compare import differing_annotations
from omnigraph.language.schema.plan.steps import (
    AddConstraint,
    AddProperty,
    AddType,
    DropProperty,
    DropType,
    ExtendEnum,
    RenameProperty,
    RenameType,
    Step,
    UpdatePropertyMetadata,
    UpdateTypeMetadata,
)

TypePair = tuple[EntityType | None, EntityType | None]
"""A type in the old and in the new schema; None if that schema does not have it."""


def matched_types(old: Schema, new: Schema) -> list[TypePair]:
    """All types of both schemas: nodes before edges, then by name."""
    pairs: list[TypePair] = []
    for old_types, new_types in ((old.nodes, new.nodes), (old.edges, new.edges)):
        by_new_id = {t.id: counterpart(t, old) for t in new_types}
        matched_ids = {t.id for t in by_new_id.values() if t is not None}
        pairs += [(by_new_id[t.id], t) for t in new_types]
        pairs += [(t, None) for t in old_types if t.id not in matched_ids]
    return sorted(pairs, key=_order)


def matched_type(old: Schema, new: Schema, type_id: str) -> TypePair:
    """The type with this id in either schema. KeyError if neither has it."""
    after = new.by_id.get(type_id)
    if after is not None:
        return counterpart(after, old), after
    before = old.by_id[type_id]
    return before, counterpart(before, new)


def _order(pair: TypePair) -> tuple[bool, str, str]:
    t = pair[1] or pair[0]
    assert t is not None
    return t.kind == "edge", t.name, t.id


def type_steps(old: EntityType | None, new: EntityType | None) -> tuple[Step, ...]:
    """The steps from one state of a type to another."""
    return tuple(_type_steps(old, new))


def _type_steps(old: EntityType | None, new: EntityType | None) -> Iterator[Step]:
    if old is None or new is None:
        if new is not None:
            yield AddType(new.kind, new.name, new.id)
        if old is not None:
            yield DropType(old.kind, old.name, old.id, "soft")
        return
    if old.name != new.name:
        yield RenameType(new.kind, new.name, new.id, old.name)
    matched_ids: set[str] = set()
    for p in new.properties:
        before = counterpart(p, old)
        if before is None:
            yield AddProperty(new.kind, new.name, new.id, p.name, p.id, str(p.type), p.nullable, p.default)
        else:
            matched_ids.add(before.id)
            yield from _property_steps(before, p, new)
    for p in old.properties:
        if p.id not in matched_ids:
            yield DropProperty(new.kind, new.name, new.id, p.name, p.id, "soft")
    yield from _index_steps(old, new)
    names = differing_annotations(old.annotations, new.annotations, without=("rename_from",))
    if names:
        yield UpdateTypeMetadata(new.kind, new.name, new.id, names)


def _property_steps(old: Property, new: Property, owner: NodeType | EdgeType) -> Iterator[Step]:
    where = (owner.kind, owner.name, owner.id, new.name, new.id)
    if old.name != new.name:
        yield RenameProperty(*where, old.name)
    values = tuple(sorted(set(new.type.values) - set(old.type.values)))
    if values:
        yield ExtendEnum(*where, values)
    names = differing_annotations(old.annotations, new.annotations, without=("rename_from", "embed"))
    if names:
        yield UpdatePropertyMetadata(*where, names)


def _index_steps(old: EntityType, new: EntityType) -> Iterator[Step]:
    names = {p.name: q.name for p in old.properties if (q := counterpart(p, new)) is not None}
    old_indices = {tuple(names.get(n, n) for n in c.properties) for c in old.constraints if c.kind == "index"}
    for c in new.constraints:
        if c.kind == "index" and c.properties not in old_indices:
            yield AddConstraint(new.kind, new.name, new.id, "index", c.properties)
