"""The verb optimize: merge small fragments, restore index coverage, build what is declared, in one graph commit.

1. recover   what a dead writer left on the branch is settled; a live one is waited for
2. plan      from metadata (`plan.py`); nothing to do: nothing is started, no commit is made
3. prepare   outside the door, as tasks on the runner (`prepare.py`), under a lease on the versions that it reads;
             readers and writers go on
4. publish   through the door (`publish.py`): all tables in one commit by `omnigraph:optimize`
5. again     tables that others changed meanwhile in a way that can't be replayed are planned again, a few times
6. manifest  its small fragments are merged as well, which is no graph commit

Keeps: every row, old versions, other writers' work. Nothing is collected. A crash in 3 leaves files that nobody refers
to, in 4 what the door settles, forward or back.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import replace

from omnigraph.commit import owner
from omnigraph.commit.door import Door, write_timeout_s
from omnigraph.commit.request import Outcome, Request
from omnigraph.commit.stage import View
from omnigraph.errors import StaleView, VersionReclaimed
from omnigraph.maintenance.optimize.model import (
    MANIFEST_KEY,
    OptimizeOptions,
    OptimizePlan,
    OptimizeResult,
    TablePlan,
    TableResult,
)
from omnigraph.maintenance.optimize.plan import coverage_of, plan
from omnigraph.maintenance.optimize.prepare import Preparation, Ready
from omnigraph.maintenance.optimize.publish import Done, PublishOptimized
from omnigraph.maintenance.recover import pending, recover
from omnigraph.pipeline.engine import Engines
from omnigraph.results import CommitInfo
from omnigraph.storage import facts, leases
from omnigraph.storage.indices import built_indices

ACTOR = "omnigraph:optimize"
ROUNDS_MOST = 3


class Optimize:
    """One run on one branch."""

    def __init__(self, door: Door, engines: Engines, *, branch: str, engine: str | None) -> None:
        self._door = door
        self._engines = engines
        self._branch = branch
        self._engine = engine
        self._used: str | None = None
        self._results: dict[str, TableResult] = {}
        self._commit: CommitInfo | None = None

    def plan(self, options: OptimizeOptions) -> OptimizePlan:
        return self._planned(options)[1]

    def run(self, options: OptimizeOptions, given: OptimizePlan | None = None) -> OptimizeResult:
        """`given` is a plan from before: exactly that is done, or StaleView says why not."""
        began = time.monotonic()
        deadline = None if options.max_time_s is None else began + options.max_time_s
        if any(p.branch == self._branch for p in pending(self._door)):
            recover(self._door, wait_s=write_timeout_s())
        rounds = 0
        while rounds < ROUNDS_MOST:
            rounds += 1
            view, work = self._planned(options) if given is None else (self._planned_view(given), given)
            if work.options.defer_index_remap:
                # Lance refuses a compaction that was prepared before an index changed: what is uncovered comes first.
                self._round(view, _only(work, indexes=True), deadline)
                view, work = self._planned(options)
                work = _only(work, indexes=False)
            again = self._round(view, work, deadline)
            if not again or given is not None:
                break
            options = replace(options, tables=tuple(view.table_keys[t] for t in sorted(again)))
        return OptimizeResult(
            branch=self._branch,
            tables=(*self._results.values(), self._manifest_row(began)),
            commit=self._commit,
            engine=self._used,
            seconds=time.monotonic() - began,
            rounds=rounds,
        )

    def _planned(self, options: OptimizeOptions) -> tuple[View, OptimizePlan]:
        view = self._door.view(self._branch)
        return view, plan(view, options)

    def _planned_view(self, given: OptimizePlan) -> View:
        """The state that a plan was made for, as long as it exists and the branch is still of its kind."""
        head = self._door.manifest.head(given.branch)
        if head.incarnation != given.incarnation:
            raise StaleView(detail=f"the branch {given.branch} was deleted and made again since the plan was made.")
        if head.schema != given.schema:
            raise StaleView(detail="the schema has changed since the plan was made; make a new plan.")
        view = self._door.view_at(given.branch, given.commit)
        for table in given.tables:
            if view.pins.get(table.table) != table.pin:
                raise StaleView(detail=f"{table.table_key} is not at the version that was planned; make a new plan.")
            if table.error is None:
                view.tables.open(table.pin, table_key=table.table_key)
        return view

    def _round(self, view: View, work: OptimizePlan, deadline: float | None) -> set[str]:
        """Prepare and publish one plan; the tables that are worth another round."""
        todo = [t for t in work.tables if t.has_work]
        for t in work.tables:
            self._results[t.table] = _untouched(t)
        if not todo:
            return set()
        runner = self._engines.runner(work_bytes=sum(t.read_bytes for t in todo), requested=self._engine)
        self._used = runner.engine
        preparation = Preparation(self._door.manifest.location, runner, view)
        try:
            with self._leased(view, todo):
                late = preparation.run(todo, concurrency=work.options.concurrency, deadline=deadline)
                operation = PublishOptimized(preparation.ready)
                outcome = self._publish(operation)
            self._note(preparation, operation, outcome, late)
            return operation.changed
        except VersionReclaimed:
            # Others moved on, and a cleanup removes what was planned on: the newest state is as good.
            return {t.table for t in todo}
        finally:
            preparation.clear()

    def _leased(self, view: View, todo: Sequence[TablePlan]) -> AbstractContextManager[object]:
        """Cleanup leaves the versions alone that the work is made from."""
        return leases.hold(
            self._door.manifest.location,
            [t.pin for t in todo],
            owner=owner.myself(),
            branch=view.head.branch,
            commit=view.head.commit,
        )

    def _publish(self, operation: PublishOptimized) -> Outcome:
        if not operation.ready:
            return Outcome(None, {})
        return self._door.run(operation, Request(self._branch, actor=ACTOR))

    def _note(
        self, preparation: Preparation, operation: PublishOptimized, outcome: Outcome, late: Sequence[TablePlan]
    ) -> None:
        done: dict[str, Done] = outcome.result or {}
        view = self._door.view(self._branch)
        if outcome.record is not None:
            self._commit = CommitInfo.of(outcome.record)
        for table, ready in preparation.ready.items():
            result = replace(
                self._results[table],
                seconds=ready.seconds,
                pending_indexes=ready.pending,
                error=operation.errors.get(table),
            )
            if table in done and outcome.record is not None:
                result = _committed(view, ready, result, done[table])
            self._results[table] = result
        for table, error in preparation.errors.items():
            self._results[table] = replace(self._results[table], error=error)
        for t in late:
            left = sum(len(b.fragments) for b in t.bins)
            self._results[t.table] = replace(
                self._results[t.table], left_fragments=t.left_fragments + left, left_indexes=len(t.indexes)
            )

    def _manifest_row(self, began: float) -> TableResult:
        manifest = self._door.manifest
        table = manifest.table()
        stale = facts.stale_settings(table)
        if stale:
            manifest.unset(stale)
        size = sum(f.size_bytes for f in facts.fragments_of(table))
        removed, added = manifest.fold(more_than=1)
        after = manifest.table()
        return TableResult(
            table_key=MANIFEST_KEY,
            fragments_removed=removed,
            fragments_added=added,
            committed=bool(removed or stale),
            manifest_version=int(after.version),
            lance_head_version=int(after.version),
            bytes_before=size,
            bytes_after=sum(f.size_bytes for f in facts.fragments_of(after)),
            seconds=time.monotonic() - began,
        )


def _only(work: OptimizePlan, *, indexes: bool) -> OptimizePlan:
    """The part of a plan that is about indices, or the one that is about fragments."""
    tables = [replace(t, bins=()) if indexes else replace(t, indexes=(), stale_config=()) for t in work.tables]
    return replace(work, tables=tuple(tables))


def _untouched(t: TablePlan) -> TableResult:
    return TableResult(
        table_key=t.table_key,
        skipped=t.skipped,
        manifest_version=t.pin.version,
        lance_head_version=t.lance_head_version,
        pending_indexes=t.pending_indexes,
        bytes_before=t.bytes,
        bytes_after=t.bytes,
        coverage_before=t.coverage,
        coverage_after=t.coverage,
        left_fragments=t.left_fragments,
        left_indexes=t.left_indexes,
        error=t.error,
    )


def _committed(view: View, ready: Ready, result: TableResult, done: Done) -> TableResult:
    t = view.schema.by_id.get(ready.plan.table)
    pin = view.pins.get(ready.plan.table)
    if t is None or pin is None:
        return replace(result, committed=True)  # dropped by somebody right after
    table = view.open(t)
    fragments = facts.fragments_of(table)
    return replace(
        result,
        committed=True,
        fragments_removed=done.fragments_removed,
        fragments_added=done.fragments_added,
        manifest_version=pin.version,
        lance_head_version=pin.version,
        bytes_after=sum(f.size_bytes for f in fragments),
        coverage_after=coverage_of(t, built_indices(table), {f.id: f.rows for f in fragments}, ready.pending),
        indexes_built=done.segments,
        rows_replayed=done.replayed,
        left_fragments=result.left_fragments + done.left_fragments,
    )
