"""The short part of optimize, inside the committer: publish what was prepared on the branch's newest state.

Per table, on the newest version:

1. replay   rows that were deleted or moved since the snapshot are marked deleted in the rewritten fragments
2. trim     a segment over a fragment that will not exist, or whose column was exchanged or dropped meanwhile, is left
            out
3. steps    stale settings are removed; segments are exchanged; fragments are exchanged. In this order: no index may
            cover a part of what a rewrite replaces. A deferred rewrite is Lance's own commit, and comes last; one whose
            fragments lost rows meanwhile can't be replayed and is left out

A table whose indices another process changed, that was forked meanwhile, whose deferred remap can't be ended as
planned, that has lost files, or of whose work a part had to be left out, gets another round: `changed` names it,
whether or not the rest of its work is in this commit. Nothing here reads data, so that writers wait for milliseconds.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any

from omnigraph.commit.operation import LaterStep, Prepared, TableWork, Unstamped, View
from omnigraph.errors import OmnigraphError
from omnigraph.maintenance.optimize.prepare import Ready
from omnigraph.storage.lance import fragment_stats
from omnigraph.storage.lance.edits import added_files
from omnigraph.storage.lance.indices import built_indices, exchange_segments, field_ids, segment_files
from omnigraph.storage.lance.rewrites.rewrite import (
    DEFERRED,
    Exchange,
    Replayer,
    changed_fields,
    commit_deferred,
    commit_of,
    untouched,
)
from omnigraph.storage.lance.transactions import steps_above
from omnigraph.storage.manifest.records import Pin
from omnigraph.storage.objects.leases import HeldLease

if TYPE_CHECKING:
    from lance import LanceDataset

ROWS_ONLY = ("Append", "Delete", "Update")


@dataclass(frozen=True)
class Published:
    """The part of a table's work that is in the commit."""

    fragments_removed: int
    fragments_added: int
    segments: int
    replayed: int
    left_fragments: int


@dataclass(eq=False)
class PublishOptimized:
    ready: Mapping[str, Ready]
    planned_on: View
    """Read before anything was written."""
    lease: HeldLease
    """Held since then."""
    kind: str = "optimize"
    quick: bool = True
    changed: set[str] = field(default_factory=set)
    """Tables that others changed in a way that makes all or some of the work useless."""
    errors: dict[str, str] = field(default_factory=dict)
    spent: set[str] = field(default_factory=set)
    """Tables of which a commit has failed in a way that makes the work useless."""

    def scope(self, view: View) -> frozenset[str]:
        return frozenset(t for t in self.ready if t in view.pins)

    def prepare(self, view: View) -> Prepared:
        self.changed.clear()
        tables: dict[str, TableWork] = {}
        published: dict[str, Published] = {}
        for table, ready in sorted(self.ready.items()):
            if table in self.errors:
                continue
            try:
                work = self._work(view, table, ready)
            except OmnigraphError as error:
                self.errors[table] = str(error)
                continue
            if work is not None:
                tables[table], published[table] = work
        summary = {
            view.table_keys[t]: {"fragments": [d.fragments_removed, d.fragments_added]} for t, d in published.items()
        }
        return Prepared(
            view=view,
            tables=tables,
            summary={"optimized": summary},
            result=published,
            begun_on=self.planned_on,
            lease=self.lease,
            discard=self._discard,
        )

    def _discard(self, tables: Set[str]) -> None:
        for table in tables:
            self.ready[table].is_lost = True

    def _work(self, view: View, table: str, ready: Ready) -> tuple[TableWork, Published] | None:
        if ready.is_lost:
            self.changed.add(table)
            return None
        base = self._base(view, table, ready)
        if ready.was_attempted or (base is None and view.pins.get(table) == ready.source):
            self.spent.add(table)
        if base is None or ready.was_attempted:
            self.changed.add(table)
            return None
        now = view.tables.open(base, table_key=ready.plan.table_key)
        if not self._indices_are_known(ready, now):
            self.changed.add(table)
            return None
        deferred = [r for r in ready.results if untouched(now, r["original_fragments"])]
        if ready.results and not _lance_would_accept(ready, now):
            self.changed.add(table)
            return None
        replayer = ready.replayer = ready.replayer or Replayer(
            view.tables.location, ready.pin, ready.then, ready.private
        )
        replayed = replayer.replay(ready.groups, now)
        segments = _usable(ready, now, replayed.dropped)
        removed = _removed(ready, now)
        if ready.plan.drain and not _replaces_all(now, removed):
            self.changed.add(table)
            return None
        steps = _steps(ready, base, segments, removed, replayed.groups)
        taken = [o.id for g in replayed.groups for o in g.old] + [
            o["id"] for r in deferred for o in r["original_fragments"]
        ]
        rewrites = (len(ready.groups) + len(ready.results), len(replayed.groups) + len(deferred))
        if rewrites[0] != rewrites[1] or len(segments) != len(_new_segments(ready)):
            self.changed.add(table)
        if not steps and not deferred:
            return None
        counts = Published(
            fragments_removed=len(taken),
            fragments_added=sum(g.new is not None for g in replayed.groups) + len(deferred),
            segments=len(segments),
            replayed=replayed.replayed,
            left_fragments=len((_planned(ready) & _live(now)) - set(taken)),
        )
        last = Unstamped(DEFERRED, partial(_commit_deferred, ready, deferred), _deferred_files(base, deferred))
        work = TableWork(pin=base, source=view.pins[table], steps=(), later=tuple(steps), handle=now)
        return replace(work, last=last if deferred else None), counts

    def _base(self, view: View, table: str, ready: Ready) -> Pin | None:
        """The pin to build on; None if the line that was prepared is not the branch's any more."""
        current = view.pins.get(table)
        if current is None:
            return None
        if ready.pin.path == current.path:
            return current
        # A fork with commits of a failed attempt can't be used: no branch has it, so nothing restores it.
        is_fresh = current == ready.source and view.tables.newest_version(ready.pin) == ready.pin.version
        return ready.pin if is_fresh else None

    @staticmethod
    def _indices_are_known(ready: Ready, now: LanceDataset) -> bool:
        segments = {i.name: tuple(sorted(s.uuid for s in i.segments)) for i in built_indices(now)}
        return all(segments.get(i.name, ()) == i.known for i in ready.plan.indexes)


def _commit_deferred(ready: Ready, results: Sequence[Mapping[str, Any]], handle: LanceDataset) -> LanceDataset:
    ready.was_attempted = True
    return commit_deferred(handle, results)


def _lance_would_accept(ready: Ready, now: LanceDataset) -> bool:
    """Whether only rows were added or deleted since the rewrites were prepared. After any other operation, a restore
    included, Lance refuses them for good.
    """
    for step in steps_above(now, max(ready.looked_at, int(ready.then.version))):
        if step.operation not in ROWS_ONLY:
            return False
        ready.looked_at = step.version
    return True


def _planned(ready: Ready) -> set[int]:
    """The fragments that were rewritten."""
    plain = {int(o["id"]) for group in ready.groups for o in group.old}
    return plain | {int(o["id"]) for result in ready.results for o in result["original_fragments"]}


def _live(now: LanceDataset) -> set[int]:
    return {int(f.fragment_id) for f in now.get_fragments()}


def _removed(ready: Ready, now: LanceDataset) -> list[str]:
    """Segments to remove. Of an index that could not be built, those that a rewrite would leave half-covered; all
    of them if they would lose the reuse index that they need, or can't be used anyway.
    """
    rewritten = {int(o["id"]) for group in ready.groups for o in group.old}
    deferred = ready.plan.deferred
    segment_ids = [
        u
        for index in ready.plan.indexes
        if deferred or index.unusable or index.name not in ready.failed
        for u in index.remove
    ]
    for index in built_indices(now):
        if index.name in ready.failed and not deferred:
            segment_ids += [s.uuid for s in index.segments if ready.plan.drain or s.fragments & rewritten]
    return segment_ids


def _replaces_all(now: LanceDataset, removed: Sequence[str]) -> bool:
    """Whether every segment is removed: a kept one would lose its rows with the reuse index that it needs."""
    return {s.uuid for index in built_indices(now) for s in index.segments} <= set(removed)


def _usable(ready: Ready, now: LanceDataset, dropped: frozenset[int]) -> list[dict[str, Any]]:
    """Step 2."""
    exchanged, fields_now = changed_fields(ready.then, now), field_ids(now)
    there = _live(now) | {group.new_id for group in ready.groups}
    usable = []
    for segment in _new_segments(ready):
        over = set(segment["fragments"])
        stale = any(set(segment["fields"]) & fields for n, fields in exchanged.items() if n in over)
        if over & there and not over & dropped and not stale and fields_now.issuperset(segment["fields"]):
            usable.append(segment)
    return usable


def _new_segments(ready: Ready) -> list[dict[str, Any]]:
    return [s for name, segments in ready.segments.items() if name not in ready.failed for s in segments]


def _steps(
    ready: Ready,
    base: Pin,
    segments: list[dict[str, Any]],
    removed: list[str],
    groups: tuple[Exchange, ...],
) -> list[LaterStep]:
    steps: list[LaterStep] = []
    if ready.plan.stale_config:
        steps.append(LaterStep(lambda table: fragment_stats.unset(table, ready.plan.stale_config), files=()))
    drained = ready.plan.drain
    if segments or removed or drained:
        version = int(ready.then.version)
        exchange = partial(exchange_segments, new=segments, removed=removed, version=version, ends_reuse=drained)
        steps.append(LaterStep(exchange, files=tuple(f for s in segments for f in segment_files(base, s))))
    if groups:
        rewritten = tuple(f for g in groups if g.new is not None for f in added_files(base, g.new))
        steps.append(LaterStep(lambda table: commit_of(table, groups), files=rewritten))
    return steps


def _deferred_files(base: Pin, deferred: Sequence[Mapping[str, Any]]) -> tuple[str, ...]:
    return tuple(
        f"{base.path}/data/{file['path']}" for r in deferred for new in r["new_fragments"] for file in new["files"]
    )
