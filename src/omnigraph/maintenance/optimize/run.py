"""The verb optimize: merge small fragments, restore index coverage, build what is declared, in one graph commit.

1. recover   a graph of an older format is migrated, one of a newer format refused; the operation of a crashed writer
             on the branch is recovered; a live one is waited for
2. plan      from metadata (`plan.py`); with nothing to do nothing is started and no commit is made
3. prepare   outside the committer, as tasks on the runner (`prepare.py`), under a lease on the versions that it reads;
             readers and writers continue
4. publish   through the committer (`publish.py`): all tables in one commit by `omnigraph:optimize`
5. again     tables that others changed meanwhile in a way that can't be replayed, all of them or in part, are planned
             again, a few times, each with a commit of its own; a saved plan is not, because it defines what is done
6. manifest  its small fragments are merged as well, which is no graph commit

Keeps: every row, old versions, other writers' work. Nothing is collected. A crash in 3 leaves orphan files, in 4
an epoch that recovery rolls forward or back.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import replace

from omnigraph.commit import owner
from omnigraph.commit.backoff import write_timeout_s
from omnigraph.commit.committer import Committer
from omnigraph.commit.operation import View
from omnigraph.commit.request import Outcome, Request
from omnigraph.config.logs import log_event
from omnigraph.errors import VersionReclaimed
from omnigraph.graph.results import CommitInfo
from omnigraph.legacy.migrate import require_current
from omnigraph.maintenance.optimize.budget import remaining
from omnigraph.maintenance.optimize.indices import coverage_of
from omnigraph.maintenance.optimize.model import (
    CHANGED_MEANWHILE,
    CHANGED_SINCE_PLAN,
    DRIFT,
    MANIFEST_KEY,
    OptimizeOptions,
    OptimizePlan,
    OptimizeResult,
    TablePlan,
    TableResult,
)
from omnigraph.maintenance.optimize.plan import plan
from omnigraph.maintenance.optimize.prepare import Preparation, Ready
from omnigraph.maintenance.optimize.publish import Published, PublishOptimized
from omnigraph.maintenance.optimize.saved_plan import planned_view, still_standing
from omnigraph.maintenance.recover import pending, recover
from omnigraph.storage.files.blob_files import blob_bytes
from omnigraph.storage.lance import fragment_stats
from omnigraph.storage.lance.indices import built_indices
from omnigraph.storage.objects import leases, reserve
from omnigraph.tasks.engine import EngineSettings

logger = logging.getLogger(__name__)

ACTOR = "omnigraph:optimize"
ROUNDS_MAX = 3
COMMITS_FAILED = "the store failed at each try to commit it; the published state is untouched"


class Optimize:
    """One run on one branch."""

    def __init__(self, committer: Committer, engines: EngineSettings, *, branch: str, engine: str | None) -> None:
        self._committer = committer
        self._engines = engines
        self._branch = branch
        self._engine = engine
        self._used: str | None = None
        self._results: dict[str, TableResult] = {}
        self._plans: dict[str, TablePlan] = {}
        self._commits: list[CommitInfo] = []
        self._spent: set[str] = set()
        self._read_bytes = 0
        self._read_rows = 0

    def plan(self, options: OptimizeOptions) -> OptimizePlan:
        return self._planned(options)[1]

    def run(self, options: OptimizeOptions, saved: OptimizePlan | None = None) -> OptimizeResult:
        """`saved` is an earlier plan: exactly that is done, as far as it is still valid; otherwise StaleView."""
        began = time.monotonic()
        deadline = None if options.max_time_s is None else began + options.max_time_s
        with self._committer.mutex:
            require_current(self._committer.manifest, observe=self._committer.observe)
        if any(p.branch == self._branch for p in pending(self._committer)):
            recover(self._committer, wait_s=write_timeout_s())
        view, work = self._planned(options) if saved is None else self._applied(saved, options)
        again, rounds = self._round(view, work, deadline), 1
        while again and saved is None and rounds < ROUNDS_MAX and (deadline is None or time.monotonic() < deadline):
            view, work = self._planned_again(again, options)
            again, rounds = self._round(view, work, deadline), rounds + 1
        self._lost(again, CHANGED_MEANWHILE if saved is None else CHANGED_SINCE_PLAN)
        manifest_row = self._manifest_row(began)
        reserve.keep(self._committer.manifest.location)
        return OptimizeResult(
            branch=self._branch,
            tables=(*self._results.values(), manifest_row),
            commit=self._commits[-1] if self._commits else None,
            commits=tuple(self._commits),
            engine=self._used,
            seconds=time.monotonic() - began,
            rounds=rounds,
        )

    def _planned(self, options: OptimizeOptions) -> tuple[View, OptimizePlan]:
        view = self._committer.view(self._branch)
        return view, plan(view, options)

    def _planned_again(self, tables: set[str], options: OptimizeOptions) -> tuple[View, OptimizePlan]:
        """Step 5, for these tables as far as they still exist, within the remaining budgets."""
        view = self._committer.view(self._branch)
        keys = tuple(view.table_keys[t] for t in sorted(tables) if t in view.pins and t in view.table_keys)
        remaining_options = replace(
            options,
            tables=keys,
            max_bytes=remaining(options.max_bytes, self._read_bytes, minimum=1),
            max_rows=remaining(options.max_rows, self._read_rows, minimum=1),
        )
        return view, plan(view, remaining_options)

    def _applied(self, saved: OptimizePlan, options: OptimizeOptions) -> tuple[View, OptimizePlan]:
        """The state that a plan was made for, and the part of it that is still valid, with current figures."""
        then, now = planned_view(self._committer, saved), self._committer.view(self._branch)
        work = still_standing(then, now, saved)
        for t in work.tables:
            row = _with_current_figures(now, t.table, _untouched(t))
            self._results[t.table] = replace(row, bytes_before=row.bytes_after, coverage_before=row.coverage_after)
        return then, replace(work, options=options)

    def _round(self, view: View, work: OptimizePlan, deadline: float | None) -> set[str]:
        """Prepare and publish one plan. Returns the tables that need another round."""
        todo = [t for t in work.tables if t.has_work]
        for t in work.tables:
            self._plans[t.table] = t
            self._results[t.table] = _begun(t, self._results.get(t.table))
            self._log_plan(view, t)
        if not todo:
            return set()
        self._read_bytes += sum(t.read_bytes for t in todo)
        self._read_rows += sum(t.read_rows for t in todo)
        runner = self._engines.runner(work_bytes=sum(t.read_bytes for t in todo), requested=self._engine)
        self._used = runner.engine
        preparation = Preparation(self._committer.manifest.location, runner, view)
        try:
            with self._leased(view, todo) as lease:
                late = preparation.run(todo, concurrency=work.options.concurrency, deadline=deadline)
                operation = PublishOptimized(preparation.ready, planned_on=view, lease=lease)
                outcome = self._publish(operation)
            self._note(preparation, operation, outcome, late)
            self._spent = operation.spent
            return operation.changed | preparation.missing
        except VersionReclaimed:
            # The branch moved, and a cleanup removed the planned version: plan again on the newest state.
            return {t.table for t in todo}
        finally:
            preparation.clear()

    def _lost(self, tables: set[str], why: str) -> None:
        """Report tables that others changed in every round, with what is left to do."""
        view = self._committer.view(self._branch) if tables else None
        for table in tables:
            assert view is not None
            t, row = self._plans[table], self._results[table]
            row = replace(
                row,
                skipped=None if row.committed or table in self._spent else why,
                error=COMMITS_FAILED if table in self._spent else row.error,
                left_fragments=max(row.left_fragments, t.left_fragments + sum(len(b.fragments) for b in t.bins)),
                left_indexes=t.left_indexes + len(t.indexes),
            )
            self._results[table] = _with_current_figures(view, table, row)

    def _leased(self, view: View, todo: Sequence[TablePlan]) -> AbstractContextManager[leases.HeldLease]:
        """Keep cleanup from the versions that the work reads and from the files that it writes."""
        return leases.hold(
            self._committer.manifest.location,
            [t.pin for t in todo],
            owner=owner.myself(),
            is_gone=owner.is_gone,
            branch=view.head.branch,
            commit=view.head.commit,
            prepares=True,
        )

    def _publish(self, operation: PublishOptimized) -> Outcome:
        if not operation.ready:
            return Outcome(None, {})
        return self._committer.run(operation, Request(self._branch, actor=ACTOR))

    def _note(
        self, preparation: Preparation, operation: PublishOptimized, outcome: Outcome, late: Sequence[TablePlan]
    ) -> None:
        published: dict[str, Published] = outcome.result or {}
        view = self._committer.view(self._branch)
        if outcome.record is not None:
            self._commits.append(CommitInfo.of(outcome.record))
        for table, ready in preparation.ready.items():
            result = replace(
                self._results[table],
                seconds=self._results[table].seconds + ready.seconds,
                pending_indexes=ready.pending,
                error=operation.errors.get(table),
            )
            if table in published and outcome.record is not None:
                result = _committed(view, ready, result, published[table])
                self._log(
                    logging.INFO,
                    "optimize committed",
                    outcome.record.epoch,
                    table,
                    fragments_removed=published[table].fragments_removed,
                    fragments_added=published[table].fragments_added,
                    index_segments=published[table].segments,
                    commit=outcome.record.commit,
                )
            self._results[table] = result
        for table, error in preparation.errors.items():
            self._results[table] = replace(self._results[table], error=error)
            self._log(logging.WARNING, "optimize failed", view.head.epoch, table, reason=error)
        for t in late:
            remaining_fragments = sum(len(b.fragments) for b in t.bins)
            self._results[t.table] = replace(
                self._results[t.table],
                left_fragments=t.left_fragments + remaining_fragments,
                left_indexes=len(t.indexes),
            )

    def _log_plan(self, view: View, t: TablePlan) -> None:
        """The decision on one table: what is rewritten and built and why, or why nothing is."""
        if not t.has_work:
            reason = t.error or t.skipped
            level = logging.DEBUG if reason is None else logging.INFO
            reason = reason or "it needs nothing"
            self._log(level, "optimize skipped", view.head.epoch, t.table, table_key=t.table_key, reason=reason)
            return
        self._log(
            logging.INFO,
            "optimize planned",
            view.head.epoch,
            t.table,
            table_key=t.table_key,
            fragments=t.fragments,
            fragments_in=sum(len(merged.fragments) for merged in t.bins),
            fragments_out=len(t.bins),
            indices=len(t.indexes),
            read_bytes=t.read_bytes,
            reason="; ".join(dict.fromkeys([*(b.reason for b in t.bins), *(i.reason for i in t.indexes)])) or None,
        )

    def _log(self, level: int, event: str, epoch: int, table: str, **fields: object) -> None:
        graph = self._committer.manifest.location.uri
        log_event(logger, level, event, graph=graph, branch=self._branch, epoch=epoch, table=table, **fields)

    def _manifest_row(self, began: float) -> TableResult:
        manifest = self._committer.manifest
        table = manifest.table()
        stale = fragment_stats.stale_settings(table)
        if stale:
            manifest.unset(stale)
        size = sum(f.size_bytes for f in fragment_stats.fragments_of(table))
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
            bytes_after=sum(f.size_bytes for f in fragment_stats.fragments_of(after)),
            seconds=time.monotonic() - began,
        )


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


def _begun(t: TablePlan, before: TableResult | None) -> TableResult:
    """The row of a table at the start of a round, with what earlier rounds did."""
    row = _untouched(t)
    if before is None:
        return row
    if not t.has_work and not before.committed:
        return replace(before, error=row.error or before.error, skipped=row.skipped or before.skipped)
    kept = ("fragments_removed", "fragments_added", "committed", "bytes_before", "coverage_before", "indexes_built")
    return replace(row, **{name: getattr(before, name) for name in (*kept, "rows_replayed", "seconds")})


def _committed(view: View, ready: Ready, result: TableResult, counts: Published) -> TableResult:
    result = replace(
        result,
        committed=True,
        fragments_removed=result.fragments_removed + counts.fragments_removed,
        fragments_added=result.fragments_added + counts.fragments_added,
        indexes_built=result.indexes_built + counts.segments,
        rows_replayed=result.rows_replayed + counts.replayed,
        left_fragments=result.left_fragments + counts.left_fragments,
    )
    return _with_current_figures(view, ready.plan.table, result)


def _with_current_figures(view: View, table: str, result: TableResult) -> TableResult:
    """The row with the versions, bytes and coverage that the table has now."""
    t, pin = view.schema.by_id.get(table), view.pins.get(table)
    if t is None or pin is None:
        return result  # dropped meanwhile
    if result.error is not None and not result.committed:
        return result
    handle = view.open(t)
    fragments = fragment_stats.fragments_of(handle, blob_bytes(view.tables.location, pin, handle))
    rows = {f.id: f.rows for f in fragments}
    return replace(
        result,
        manifest_version=pin.version,
        lance_head_version=result.lance_head_version if result.skipped == DRIFT else pin.version,
        bytes_after=sum(f.size_bytes for f in fragments),
        coverage_after=coverage_of(t, built_indices(handle), rows, result.pending_indexes),
    )
