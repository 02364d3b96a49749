"""Merge a commit into a branch: what the source changed since the merge base, on top of the target, in one commit.

1. bases     the best common ancestors of source and target (`branch/ancestry`), never version numbers
2. schema    three-way by element id (`schema`)
3. rows      per type whose pin the source moved, three-way by entity (`rows/type_merge`)
4. rules     of the schema, on the merged image of what changes (`rules`); not for a fast-forward
5. write     adopt fragments of the source, write the rest (`rows/table_edit`)
6. commit    through the commit protocol: all tables and the second parent become visible together

Any conflict refuses the merge: nothing is written. A merge that changes no row still records the second parent. A crash
before 6 leaves unreferenced files. Revert and cherry-pick are the same operation with another base and one parent.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from omnigraph.branch.ancestry import is_ancestor, merge_bases
from omnigraph.branch.diff.states import table_version
from omnigraph.branch.merge.images import conflict_images
from omnigraph.branch.merge.merged_reader import MergedReader
from omnigraph.branch.merge.model import Conflict, MergeOptions, MergeOutcome, MergePlan, Resolution, TableMerge
from omnigraph.branch.merge.rows.changes import RowChanges
from omnigraph.branch.merge.rows.table_edit import edit_tables
from omnigraph.branch.merge.rows.tasks import RowTasks
from omnigraph.branch.merge.rows.type_merge import TypeStates, merge_type
from omnigraph.branch.merge.rules import entities, rule_conflicts, with_images
from omnigraph.branch.merge.schema import merged_schema, required_conflicts, schema_conflicts
from omnigraph.commit.operation import Prepared, View
from omnigraph.errors import MergeConflicts, UnknownType, VersionReclaimed
from omnigraph.language.schema.identity import counterpart
from omnigraph.language.schema.merge.schemas import SchemaMerge
from omnigraph.language.schema.model import EntityType, NodeType, Schema
from omnigraph.language.schema.plan.steps import DropType
from omnigraph.storage.concurrency import map_threads
from omnigraph.storage.diff.row_diff import rows_only_in
from omnigraph.storage.manifest.records import Pin
from omnigraph.write.reader import Reader

QUICK_ROWS_MAX = 2_000
CONFLICTS_SHOWN_MAX = 20


@dataclass(frozen=True)
class MergeStates:
    """The three states of a merge; several bases after criss-cross merges."""

    ours: View
    theirs: View
    bases: tuple[View, ...]

    @property
    def base_commits(self) -> tuple[str, ...]:
        return tuple(base.head.commit for base in self.bases)

    @property
    def is_fast_forward(self) -> bool:
        return self.base_commits == (self.ours.head.commit,)

    @property
    def moved_types(self) -> set[str]:
        """Types whose table the source has moved since a base."""
        types = {t for view in (*self.bases, self.theirs) for t in view.pins}
        return {t for t in types if any(base.pins.get(t) != self.theirs.pins.get(t) for base in self.bases)}

    @property
    def pins_read(self) -> list[Pin]:
        """The versions of the bases and of the source that a merge reads, and whose files it may adopt."""
        moved = sorted(self.moved_types)
        return [view.pins[t] for view in (*self.bases, self.theirs) for t in moved if t in view.pins]


@dataclass(frozen=True, eq=False)
class _Judged:
    """What a merge would do: the merged schema and the changes of each type, if there is anything to merge."""

    plan: MergePlan
    schema: SchemaMerge | None = None
    changes: tuple[RowChanges, ...] = ()


@dataclass(frozen=True)
class Merge:
    """The operation. `base` is set for a revert or a cherry-pick, which record no second parent."""

    source: str
    options: MergeOptions = field(default_factory=MergeOptions)
    base: str | None = None
    kind: str = "merge"
    summary: Mapping[str, Any] = field(default_factory=dict)
    quick: bool = True
    tasks: RowTasks | None = None
    """Runs what is too large for this process."""

    @property
    def records_parent(self) -> bool:
        return self.base is None

    def states(self, view: View) -> MergeStates:
        bases = [self.base] if self.base else merge_bases(view.manifest, view.head.commit, self.source)
        return MergeStates(view, view.at(self.source), tuple(view.at(base) for base in bases))

    def leased_pins(self, view: View) -> list[Pin]:
        return self.states(view).pins_read

    def scope(self, view: View) -> frozenset[str]:
        states = self.states(view)
        if states.theirs.head.schema != view.head.schema:
            return frozenset(view.pins)
        return frozenset(states.moved_types) & frozenset(view.pins)

    # ---- preparing ---------------------------------------------------------------------------------------------------

    def plan(self, view: View) -> MergePlan:
        """What the merge would do, with all conflicts. Writes nothing."""
        return self._judge(view).plan

    def prepare(self, view: View) -> Prepared:
        judged = self._judge(view)
        plan = judged.plan
        if plan.outcome == "already_up_to_date":
            return Prepared(view=view, result=plan)
        if plan.conflicts:
            raise _refusal(view, plan)
        assert judged.schema is not None
        edits = edit_tables(view, judged.schema, judged.changes, self.tasks)
        plan = plan.with_tables([e.counts for e in edits.values() if e.counts is not None])
        changed = [c for c in judged.changes if not c.is_empty]
        reads = _consulted(judged.schema.result, changed) & frozenset(view.pins)
        return Prepared(
            view=view,
            tables={type_id: edit.work for type_id, edit in edits.items()},
            dropped=frozenset(s.type_id for s in judged.schema.steps if isinstance(s, DropType) and s.type_id),
            reads=frozenset(view.pins) if judged.schema.changed else reads,
            schema=(f"s{secrets.token_hex(8)}", judged.schema.result) if judged.schema.changed else None,
            summary=self._summary(plan),
            result=plan,
            merged_parent=self.source if self.records_parent else None,
        )

    def _judge(self, view: View) -> _Judged:
        states = self.states(view)
        commits = states.base_commits
        if self.records_parent and (commits == (self.source,) or self._adds_nothing(view)):
            return _Judged(MergePlan("already_up_to_date", self.source, commits))
        schema = merged_schema(states.ours, states.theirs, states.bases)
        conflicts = schema_conflicts(schema, states.ours, states.theirs, states.bases, self.tasks)
        if conflicts:
            return _Judged(MergePlan("conflicts", self.source, commits, conflicts=tuple(conflicts)), schema)
        changes = self._changes(states, schema.result)
        conflicts = [conflict for c in changes for conflict in c.conflicts]
        conflicts += required_conflicts(schema, view, changes)
        if not states.is_fast_forward or self.options.resolutions:
            reader: Reader = MergedReader(view, schema.result) if schema.changed else view
            broken = rule_conflicts(schema.result, changes, reader)
            images = conflict_images(schema.result, states.ours, states.theirs, states.bases, entities(broken))
            conflicts += [with_images(c, images) for c in broken]
        outcome: MergeOutcome = "conflicts" if conflicts else "fast_forward" if states.is_fast_forward else "merged"
        counts = tuple(_counts(c) for c in changes if not c.is_empty)
        steps = tuple(str(step) for step in schema.steps)
        return _Judged(MergePlan(outcome, self.source, commits, counts, tuple(conflicts), steps), schema, changes)

    def _changes(self, states: MergeStates, schema: Schema) -> tuple[RowChanges, ...]:
        resolutions = _by_table(self.options)
        unknown = sorted(resolutions.keys() - {t.key for t in schema.types()})
        if unknown:
            raise UnknownType(kind="node or edge", type_name=unknown[0])
        moved = states.moved_types
        types = []
        for t in schema.types():
            theirs = counterpart(t, states.theirs.schema)
            is_new = counterpart(t, states.ours.schema) is None
            if t.key in resolutions or (theirs is not None and (is_new or theirs.id in moved)):
                types.append(t)
        return tuple(
            map_threads(lambda t: merge_type(_type_states(states, t, resolutions), self.options, self.tasks), types)
        )

    def _adds_nothing(self, view: View) -> bool:
        """Whether the source is only a lineage commit of two commits that the target has: else merging back and forth
        would never end.
        """
        record = view.manifest.record(self.source)
        if record.merged_parent is None or record.delta or record.parent is None:
            return False
        before = view.manifest.record(record.parent)
        parents = (record.parent, record.merged_parent)
        return before.schema == record.schema and all(is_ancestor(view.manifest, c, view.head.commit) for c in parents)

    def _summary(self, plan: MergePlan) -> dict[str, Any]:
        counts = {
            part: {t.table_key: getattr(t, part) for t in plan.tables if getattr(t, part)}
            for part in ("inserted", "updated", "deleted")
        }
        return {"outcome": plan.outcome, "bases": list(plan.bases), **counts, **self.summary}

    def sized(self, view: View) -> Merge:
        """The same merge, prepared before the advisory lock if it changes many rows."""
        states = self.states(view)
        is_large = any(_changes_many(states, type_id) for type_id in sorted(states.moved_types))
        return replace(self, quick=not is_large)


def _changes_many(states: MergeStates, type_id: str) -> bool:
    """Whether the source has many more or fewer rows of a type than a base, or has written many again."""
    bases = [base.pins[type_id] for base in states.bases if type_id in base.pins]
    before = max((pin.rows or 0 for pin in bases), default=0)
    after = states.theirs.pins[type_id].rows or 0 if type_id in states.theirs.pins else 0
    if max(before, after) <= QUICK_ROWS_MAX or abs(after - before) > QUICK_ROWS_MAX:
        return abs(after - before) > QUICK_ROWS_MAX
    try:
        theirs = table_version(states.theirs, states.theirs.schema.by_id[type_id])
        others = [table_version(base, states.theirs.schema.by_id[type_id]) for base in states.bases]
    except VersionReclaimed:
        return True  # preparing raises for what is missing
    return any(rows_only_in(theirs, other) > QUICK_ROWS_MAX for other in others if theirs and other)


def _type_states(states: MergeStates, t: EntityType, resolutions: Mapping[str, Mapping[str, Resolution]]) -> TypeStates:
    return TypeStates(
        type=t,
        ours=table_version(states.ours, t),
        theirs=table_version(states.theirs, t),
        bases=tuple(table_version(base, t) for base in states.bases),
        base_views=states.bases,
        resolutions=resolutions.get(t.key, {}),
    )


def _by_table(options: MergeOptions) -> dict[str, dict[str, Resolution]]:
    by_table: dict[str, dict[str, Resolution]] = {}
    for (table_key, entity_id), resolution in options.resolutions.items():
        by_table.setdefault(table_key, {})[entity_id] = resolution
    return by_table


def _consulted(schema: Schema, changes: Sequence[RowChanges]) -> frozenset[str]:
    """The tables that the merge read: those it changes, the ends of changed edges, the edges of changed nodes."""
    types: set[str] = set()
    for change in changes:
        t = change.type
        types.add(t.id)
        if isinstance(t, NodeType):
            types.update(e.id for e in schema.incident_edges(t.name))
        else:
            types.update(schema.node[name].id for name in (t.source, t.target))
    return frozenset(types)


def _counts(changes: RowChanges) -> TableMerge:
    return TableMerge(changes.type.key, changes.insert_count, changes.update_count, changes.delete_count)


def _refusal(view: View, plan: MergePlan) -> MergeConflicts:
    error = MergeConflicts(
        source=plan.source_commit,
        branch=view.head.branch,
        count=len(plan.conflicts),
        first=_described(plan.conflicts[0]),
        conflicts=[c.to_json() for c in plan.conflicts[:CONFLICTS_SHOWN_MAX]],
    )
    error.plan = plan
    return error


def _described(conflict: Conflict) -> str:
    entity = conflict.table_key if conflict.id is None else f"{conflict.table_key} {conflict.id!r}"
    return f"{conflict.kind} of {entity}"
