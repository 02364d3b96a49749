"""The schema of the oracle's states, and its three-way merge by element.

Properties match by their ids and aliases, then by name and definition if both sides added them. Types are never renamed
here, so their names identify them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

Conflict = tuple[str, str, str | None, frozenset[str]]
"""Kind, table key, entity id, properties."""


@dataclass(frozen=True)
class Property:
    ids: frozenset[int]
    name: str
    text: str
    """Type and annotations, as the schema language spells them."""
    default: Any = None
    is_fixed: bool = False
    """Neither renamed nor dropped."""
    kind: str = "int"

    def is_same(self, other: Property) -> bool:
        return not self.ids.isdisjoint(other.ids)

    @property
    def definition(self) -> tuple[str, str]:
        return self.name, self.text


@dataclass(frozen=True)
class Type:
    name: str
    properties: tuple[Property, ...]
    ends: tuple[str, str] | None = None
    edges_max: int | None = None
    key: str | None = None
    unique: str | None = None

    @property
    def table_key(self) -> str:
        return f"{'node' if self.ends is None else 'edge'}:{self.name}"

    @property
    def groups(self) -> list[tuple[str, ...]]:
        """Columns that change together."""
        ends = [] if self.ends is None else [("src", "dst")]
        return [*ends, *((p.name,) for p in self.properties)]

    def same(self, p: Property) -> Property | None:
        matches = [q for q in self.properties if q.is_same(p)]
        return matches[0] if matches else None

    @property
    def definition(self) -> frozenset[tuple[str, str]]:
        return frozenset(p.definition for p in self.properties)


Schema = dict[str, Type]


@dataclass(frozen=True)
class SchemaMerge:
    """`dropped` are (type, property or None, side that still has it), whose rows have to be looked at."""

    schema: Schema
    conflicts: frozenset[Conflict]
    dropped: tuple[tuple[str, str | None, str], ...]


def merge_schemas(base: Schema, ours: Schema, theirs: Schema) -> SchemaMerge:
    merged: Schema = {}
    conflicts: set[Conflict] = set()
    dropped: list[tuple[str, str | None, str]] = []
    for name in dict.fromkeys((*ours, *theirs)):
        b, o, t = base.get(name), ours.get(name), theirs.get(name)
        if o is not None and t is not None:
            merged[name] = _merge_types(b, o, t, conflicts, dropped)
            continue
        present = o or t
        assert present is not None
        if b is None:
            merged[name] = present
        elif _differ(b, present):
            conflicts.add(("schema_dropped_type", present.table_key, None, frozenset()))
        else:
            dropped.append((name, None, "ours" if t is None else "theirs"))
    return SchemaMerge(ours if conflicts else merged, frozenset(conflicts), tuple(dropped))


def _differ(a: Type, b: Type) -> bool:
    pairs = [(p, b.same(p)) for p in a.properties]
    return len(a.properties) != len(b.properties) or any(q is None or p.definition != q.definition for p, q in pairs)


def _merge_types(
    base: Type | None,
    ours: Type,
    theirs: Type,
    conflicts: set[Conflict],
    dropped: list[tuple[str, str | None, str]],
) -> Type:
    kept: list[Property] = []
    for b, o, t in _matched(base, ours, theirs):
        present = o or t
        if present is None:
            continue
        if o is not None and t is not None:
            name, both_renamed = _merge_name(b, o, t)
            if both_renamed:
                conflicts.add(("schema_divergent_rename", ours.table_key, None, frozenset()))
            kept.append(replace(o, name=name, ids=o.ids | t.ids | (b.ids if b else frozenset())))
        elif b is None:
            kept.append(present)
        elif present.definition != b.definition:
            conflicts.add(("schema_dropped_property", ours.table_key, None, frozenset()))
        else:
            dropped.append((ours.name, present.name, "ours" if t is None else "theirs"))
    return replace(ours, properties=tuple(kept))


def _merge_name(base: Property | None, ours: Property, theirs: Property) -> tuple[str, bool]:
    before = None if base is None else base.name
    if ours.name == theirs.name or theirs.name == before:
        return ours.name, False
    return theirs.name, ours.name != before


def _matched(base: Type | None, ours: Type, theirs: Type) -> Iterator[tuple[Property | None, ...]]:
    rest = list(theirs.properties)
    behind = [] if base is None else list(base.properties)

    def take(candidates: list[Property], ids: frozenset[int]) -> Property | None:
        match = next((p for p in candidates if not p.ids.isdisjoint(ids)), None)
        if match is not None:
            candidates.remove(match)
        return match

    threes: list[list[Property | None]] = []
    for o in ours.properties:
        t = take(rest, o.ids)
        b = take(behind, o.ids | (t.ids if t else frozenset()))
        if t is None and b is not None:
            t = take(rest, b.ids)
        threes.append([b, o, t])
    threes += [[take(behind, t.ids), None, t] for t in rest]
    added = {t.name: three for three in threes for b, o, t in [three] if b is None and o is None and t is not None}
    for three in threes:
        b, o, t = three
        other = added.get(o.name) if o is not None and b is None and t is None else None
        if other is not None and other[2] is not None and o is not None and other[2].definition == o.definition:
            three[2] = other[2]
            other[2] = None
    yield from (tuple(three) for three in threes)
