"""What a merge has to do, written down without Lance: dictionaries, brute-force ancestors, full comparisons.

1. bases     all common ancestors that are no ancestor of another one
2. schema    three-way by element (`oracle_schema`)
3. base      several bases merge among themselves, recursively; an entity on which they conflict is UNKNOWN
4. rows      every entity of every type by the truth table of `omnigraph.branch.three_way`, property by property
5. rules     orphan edges, unique values and cardinality of the whole merged state
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from tests.branch.merge.oracle_schema import Conflict, Schema, SchemaMerge, Type, merge_schemas

UNKNOWN: Final[Any] = object()
"""The base image of an entity on which several bases conflict."""
Row = dict[str, Any]


@dataclass(frozen=True)
class State:
    schema: Schema
    rows: dict[str, dict[str, Row]]

    def shaped(self, t: Type) -> dict[str, Row]:
        """All rows of a type in the shape that another state gives it."""
        stored = self.schema.get(t.name)
        if stored is None:
            return {}
        if stored == t:
            return self.rows[t.name]
        names = {p.name: stored.same(p) for p in t.properties}
        defaults = {p.name: p.default for p in t.properties}
        shaped: dict[str, Row] = {}
        for entity_id, row in self.rows[t.name].items():
            image: Row = {c: row[c] for c in ("src", "dst") if c in row}
            image |= {name: defaults[name] if p is None else row[p.name] for name, p in names.items()}
            shaped[entity_id] = image
        return shaped


@dataclass
class History:
    """All commits of a graph. `lineage_only` are merges that moved no table."""

    states: dict[str, State] = field(default_factory=dict)
    parents: dict[str, tuple[str, ...]] = field(default_factory=dict)
    lineage_only: set[str] = field(default_factory=set)

    def add(self, commit: str, state: State, *parents: str) -> None:
        self.states[commit] = state
        self.parents[commit] = parents

    def ancestors(self, commit: str) -> set[str]:
        reached: set[str] = set()
        open_commits = [commit]
        while open_commits:
            c = open_commits.pop()
            if c not in reached:
                reached.add(c)
                open_commits += self.parents[c]
        return reached

    def bases(self, a: str, b: str) -> list[str]:
        common = self.ancestors(a) & self.ancestors(b)
        behind = {c: self.ancestors(c) - {c} for c in common}
        return sorted(c for c in common if not any(c in behind[d] for d in common))


# ---- rows ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Clash:
    kind: str
    properties: frozenset[str] = frozenset()


def three_way(
    t: Type, base: Any, theirs: Row | None, ours: Row | None, *, grain: str, favour: str | None = None
) -> Row | Clash | None:
    """The merged image of one entity; None if it does not exist."""
    if theirs == ours or (base is not UNKNOWN and theirs == base):
        return ours
    if base is not UNKNOWN and ours == base:
        return theirs
    if theirs is None or ours is None:
        kind = "delete_vs_update" if theirs is None else "update_vs_delete"
        return _whole(Clash(kind), theirs, ours, favour)
    if base is None or base is UNKNOWN:
        kind = "divergent_insert" if base is None else "divergent_update"
        return _whole(Clash(kind, _differing(t, theirs, ours)), theirs, ours, favour)
    if grain == "rows":
        return _whole(Clash("divergent_update", _differing(t, theirs, ours)), theirs, ours, favour)
    merged = dict(ours)
    clashing: set[str] = set()
    for group in t.groups:
        b, s, o = ({c: image[c] for c in group} for image in (base, theirs, ours))
        if s in (b, o):
            continue
        if o == b or favour == "theirs":
            merged |= s
        elif favour is None:
            clashing |= {c for c in group if s[c] != o[c]}
    return Clash("divergent_update", frozenset(clashing)) if clashing else merged


def _whole(clash: Clash, theirs: Row | None, ours: Row | None, favour: str | None) -> Row | Clash | None:
    return clash if favour is None else ours if favour == "ours" else theirs


def _differing(t: Type, theirs: Row, ours: Row) -> frozenset[str]:
    return frozenset(c for group in t.groups for c in group if theirs[c] != ours[c])


def base_schema(history: History, commits: Sequence[str]) -> Schema:
    schema, before = history.states[commits[0]].schema, commits[0]
    for commit in commits[1:]:
        other = history.states[commit].schema
        below = base_schema(history, history.bases(before, commit))
        schema, before = merge_schemas(below, schema, other).schema, commit
    return schema


def base_rows(history: History, commits: Sequence[str], t: Type, *, grain: str) -> dict[str, Any]:
    """Rows of the base, or of the virtual base of several."""
    merged: dict[str, Any] = dict(history.states[commits[0]].shaped(t))
    for position, commit in enumerate(commits[1:], start=1):
        below = sorted({b for c in commits[:position] for b in history.bases(c, commit)})
        base = base_rows(history, below, t, grain=grain)
        other = history.states[commit].shaped(t)
        for entity_id in {*merged, *other, *base}:
            ours = merged.get(entity_id)
            if ours is UNKNOWN:
                continue
            image = three_way(t, base.get(entity_id), other.get(entity_id), ours, grain=grain)
            merged[entity_id] = UNKNOWN if isinstance(image, Clash) else image
        merged = {i: image for i, image in merged.items() if image is not None}
    return merged


# ---- rules -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Crowd:
    """Entities that break a rule together: `count` of the `changed` ones are told, whichever."""

    kind: str
    table_key: str
    property: str
    members: frozenset[str]
    changed: frozenset[str]
    count: int


def broken_rules(state: State, ours: State) -> tuple[set[Conflict], list[Crowd]]:
    orphans: set[Conflict] = set()
    crowds: list[Crowd] = []
    for t in state.schema.values():
        rows = state.rows[t.name]
        before = ours.shaped(t)
        changed = {i for i, row in rows.items() if before.get(i) != row}
        if t.ends is not None:
            for column, end, node in (("src", "from", t.ends[0]), ("dst", "to", t.ends[1])):
                ids = (i for i, row in rows.items() if row[column] not in state.rows[node])
                orphans |= {("orphan_edge", t.table_key, i, frozenset({end})) for i in ids}
        if t.edges_max is not None and t.ends is not None:
            for source, members in _grouped(rows, "src").items():
                if len(members) > t.edges_max and source in state.rows[t.ends[0]]:
                    told = min(len(members) - t.edges_max, len(members & changed))
                    crowd = members & changed
                    crowds.append(Crowd("cardinality_violation", t.table_key, "from", members, crowd, told))
        if t.unique is not None:
            for members in _grouped(rows, t.unique).values():
                if len(members) > 1:
                    crowd = members & changed
                    told = len(crowd) - (crowd == members)
                    crowds.append(Crowd("unique_violation", t.table_key, t.unique, members, crowd, told))
    return orphans, crowds


def _grouped(rows: Mapping[str, Row], column: str) -> dict[Any, frozenset[str]]:
    groups: dict[Any, set[str]] = {}
    for entity_id, row in rows.items():
        if row[column] is not None:
            groups.setdefault(row[column], set()).add(entity_id)
    return {value: frozenset(ids) for value, ids in groups.items()}


# ---- merge -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Options:
    grain: str = "properties"
    favour: str | None = None
    resolutions: Mapping[tuple[str, str], Any] = field(default_factory=dict)
    """By table key and id: a side, or values."""


@dataclass(frozen=True)
class Expected:
    outcome: str
    bases: tuple[str, ...]
    state: State
    conflicts: frozenset[Conflict] = frozenset()
    crowds: tuple[Crowd, ...] = ()
    unknown: frozenset[tuple[str, str]] = frozenset()


def expected_merge(
    history: History, source: str, target: str, options: Options, *, base: str | None = None
) -> Expected:
    """`base` is set for a revert or a cherry-pick."""
    bases = history.bases(source, target) if base is None else [base]
    ours, theirs = history.states[target], history.states[source]
    known = history.ancestors(target)
    adds_nothing = source in history.lineage_only and known.issuperset(history.parents[source])
    if base is None and (bases == [source] or adds_nothing):
        return Expected("already_up_to_date", tuple(bases), ours)
    schema = merge_schemas(base_schema(history, bases), ours.schema, theirs.schema)
    conflicts = {*schema.conflicts, *_drop_conflicts(history, schema, bases, ours, theirs)}
    if conflicts:
        return Expected("conflicts", tuple(bases), ours, frozenset(conflicts))
    state = State(schema.schema, {})
    unknown: set[tuple[str, str]] = set()
    for t in schema.schema.values():
        before = base_rows(history, bases, t, grain=options.grain)
        unknown |= {(t.table_key, i) for i, image in before.items() if image is UNKNOWN}
        state.rows[t.name] = _merged_rows(t, before, theirs.shaped(t), ours.shaped(t), options, conflicts)
    is_fast_forward = bases == [target]
    crowds: list[Crowd] = []
    if not is_fast_forward or options.resolutions:
        orphans, crowds = broken_rules(state, ours)
        conflicts |= orphans
    outcome = "conflicts" if conflicts or crowds else "fast_forward" if is_fast_forward else "merged"
    return Expected(outcome, tuple(bases), state, frozenset(conflicts), tuple(crowds), frozenset(unknown))


def _merged_rows(
    t: Type,
    base: Mapping[str, Any],
    theirs: Mapping[str, Row],
    ours: Mapping[str, Row],
    options: Options,
    conflicts: set[Conflict],
) -> dict[str, Row]:
    merged: dict[str, Row] = {}
    for entity_id in {*base, *theirs, *ours}:
        b, s, o = base.get(entity_id), theirs.get(entity_id), ours.get(entity_id)
        image: Row | Clash | None
        if (t.table_key, entity_id) in options.resolutions:
            image = _resolved(options.resolutions[t.table_key, entity_id], b, s, o)
        else:
            image = three_way(t, b, s, o, grain=options.grain, favour=options.favour)
        if isinstance(image, Clash):
            conflicts.add((image.kind, t.table_key, entity_id, image.properties))
            image = o
        if image is not None:
            merged[entity_id] = image
    return merged


def _resolved(resolution: Any, base: Any, theirs: Row | None, ours: Row | None) -> Row | None:
    if isinstance(resolution, str):
        sides: dict[str, Row | None] = {"base": base, "theirs": theirs, "ours": ours}
        return sides[resolution]
    return {**(ours or theirs or base), **resolution}


def _drop_conflicts(
    history: History, schema: SchemaMerge, bases: Sequence[str], ours: State, theirs: State
) -> Iterator[Conflict]:
    """What one side dropped and the other wrote to."""
    for type_name, name, side in schema.dropped:
        state = ours if side == "ours" else theirs
        t, rows = state.schema[type_name], state.rows[type_name]
        if name is None:
            before = base_rows(history, bases, t, grain="properties")
            if any(before.get(i) is UNKNOWN or before.get(i) != row for i, row in rows.items()):
                yield "schema_dropped_type", t.table_key, None, frozenset()
        elif any(_wrote(history.states[b], t, name, rows) for b in bases):
            yield "schema_dropped_property", t.table_key, None, frozenset({name})


def _wrote(base: State, t: Type, name: str, rows: Mapping[str, Row]) -> bool:
    stored = base.schema.get(t.name)
    p = None if stored is None else stored.same(next(q for q in t.properties if q.name == name))
    if p is None:
        return False
    before = base.rows[t.name]
    return any((before[i][p.name] if i in before else None) != row[name] for i, row in rows.items())
