"""The maintenance verbs of a graph handle, each a package or module of `omnigraph.maintenance`.

`graph.maintenance` is the namespace that holds them; the handle itself has the same methods as short aliases.

Every verb is safe beside every other one and beside any number of writers, from any number of processes.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING

from omnigraph.arguments import checked, renamed
from omnigraph.storage.manifest.records import MAIN

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from typing import Any

    from omnigraph.commit.committer import Committer
    from omnigraph.graph.snapshot import AsOf, Snapshot
    from omnigraph.maintenance.cleanup import CleanupResult, Policy
    from omnigraph.maintenance.maintain.policy import MaintainPolicy
    from omnigraph.maintenance.maintain.run import MaintainResult
    from omnigraph.maintenance.optimize import OptimizePlan, OptimizeResult
    from omnigraph.maintenance.relocate import RelocateResult
    from omnigraph.maintenance.repair.run import RepairResult
    from omnigraph.maintenance.stats import GraphStats
    from omnigraph.maintenance.verify import VerifyResult
    from omnigraph.storage.layout import Location
    from omnigraph.tasks.engine import EngineSettings


class MaintenanceMethods:
    """What `Graph` inherits: the verbs that keep a graph fast, small and whole."""

    _committer: Committer
    _location: Location

    @property
    def engines(self) -> EngineSettings:
        raise NotImplementedError

    @checked
    def plan_optimize(
        self,
        *,
        branch: str = MAIN,
        tables: Sequence[str] | None = None,
        target_rows_per_fragment: int | None = None,
        max_bytes: int | None = None,
        max_rows: int | None = None,
        max_time_s: float | None = None,
        concurrency: int | None = None,
        defer_index_remap: bool = False,
        drain: bool = False,
        rebuild_indexes: bool = False,
    ) -> OptimizePlan:
        """What `optimize` would do with these options, per table and with the reasons. Nothing is changed."""
        from omnigraph.maintenance.optimize import Optimize
        from omnigraph.maintenance.optimize.model import options_of

        options = options_of(
            tables=tables,
            target_rows_per_fragment=target_rows_per_fragment,
            max_bytes=max_bytes,
            max_rows=max_rows,
            max_time_s=max_time_s,
            concurrency=concurrency,
            defer_index_remap=defer_index_remap,
            drain=drain,
            rebuild_indexes=rebuild_indexes,
        )
        return Optimize(self._committer, self.engines, branch=branch, engine=None).plan(options)

    @checked
    def optimize(
        self,
        *,
        branch: str = MAIN,
        tables: Sequence[str] | None = None,
        target_rows_per_fragment: int | None = None,
        max_bytes: int | None = None,
        max_rows: int | None = None,
        max_time_s: float | None = None,
        concurrency: int | None = None,
        defer_index_remap: bool = False,
        drain: bool = False,
        rebuild_indexes: bool = False,
        plan: OptimizePlan | Mapping[str, Any] | None = None,
        engine: str | None = None,
    ) -> OptimizeResult:
        """Merge small fragments, restore index coverage, build declared indices: all tables in one commit, or none.

        `tables` are table keys or type names, all by default. Budgets limit what is read (`max_bytes`, `max_rows`) and
        for how long new work is begun (`max_time_s`). `rebuild_indexes` builds every index of the tables anew from
        their rows; without it only those whose files are missing or cut short are. `plan`, from `plan_optimize`, is
        executed as it is, as far as it still stands; its options are its own, but for `max_time_s` and `concurrency`
        where they are given. Rows never change, and old versions stay.
        """
        from omnigraph.maintenance.optimize import Optimize, OptimizePlan
        from omnigraph.maintenance.optimize.model import options_of

        if plan is not None:
            given = plan if isinstance(plan, OptimizePlan) else OptimizePlan.of(plan)
            kept = given.options.with_limits(max_time_s=max_time_s, concurrency=concurrency)
            return Optimize(self._committer, self.engines, branch=given.branch, engine=engine).run(kept, given)
        options = options_of(
            tables=tables,
            target_rows_per_fragment=target_rows_per_fragment,
            max_bytes=max_bytes,
            max_rows=max_rows,
            max_time_s=max_time_s,
            concurrency=concurrency,
            defer_index_remap=defer_index_remap,
            drain=drain,
            rebuild_indexes=rebuild_indexes,
        )
        return Optimize(self._committer, self.engines, branch=branch, engine=engine).run(options)

    @checked
    def repair(
        self,
        *,
        branch: str = MAIN,
        confirm: bool = False,
        force: bool = False,
        discard: bool = False,
        tables: Sequence[str] | None = None,
    ) -> RepairResult:
        """What moved tables of the branch without omnigraph; with `confirm`, verified maintenance is published.

        `force` publishes the rest as well, `discard` restores the tables to what is published instead. `tables` are
        table keys or type names, all by default.
        """
        from omnigraph.maintenance.repair.run import repair

        return repair(self._committer, branch=branch, confirm=confirm, force=force, discard=discard, tables=tables)

    @checked
    def stats(self, *, branch: str = MAIN) -> GraphStats:
        """How healthy the graph is, in figures: per table of the branch, and as a whole. No data is read."""
        from omnigraph.maintenance.stats import stats

        return stats(self._committer, branch=branch)

    @checked
    def verify(
        self,
        *,
        branch: str | None = None,
        quick: bool = False,
        full: bool = False,
        orphans_older_than_s: float | None = None,
        engine: str | None = None,
        seed: int | None = None,
    ) -> VerifyResult:
        """Check everything that the graph rests on, of one branch or of all. Nothing is written to the graph.

        `quick` reads no data. `full` asks every index for every value and checks every rule of every row; otherwise
        indices and blobs are sampled, by `seed`. Files that no version refers to are told once they are older than
        `orphans_older_than_s`, seven days by default.
        """
        from omnigraph.maintenance.verify import VerifyOptions, verify
        from omnigraph.maintenance.verify.run import IN_FLIGHT_S

        old_s = IN_FLIGHT_S if orphans_older_than_s is None else orphans_older_than_s
        options = VerifyOptions(
            branch=branch, quick=quick, full=full, orphans_older_than_s=old_s, engine=engine, seed=seed
        )
        return verify(self._committer, self.engines, options)

    @renamed(from_="from_address")
    @checked
    def relocate(self, *, from_address: str | None = None, confirm: bool = False) -> RelocateResult:
        """Rewrite the absolute addresses that forks of a copied or moved graph hold; a preview unless `confirm`.

        The place that it was copied from is not touched, and the two are independent afterwards. With
        `from_address`, only what refers to that address is rewritten. Safe to repeat, and beside readers and writers.
        """
        from omnigraph.maintenance.relocate import relocate

        return relocate(self._committer, self.engines, from_=from_address, confirm=confirm)

    @checked
    def plan_cleanup(
        self,
        *,
        keep: int | None = None,
        older_than: str | float | None = None,
        policy: Policy | Mapping[str, Any] | str | os.PathLike[str] | None = None,
        orphans_older_than: str | float | None = None,
        manifest_older_than: str | float | None = None,
    ) -> CleanupResult:
        """What `cleanup` would remove with these options: every version and file, and why. Nothing is removed."""
        return self.cleanup(
            keep=keep,
            older_than=older_than,
            policy=policy,
            orphans_older_than=orphans_older_than,
            manifest_older_than=manifest_older_than,
        )

    @checked
    def cleanup(
        self,
        *,
        keep: int | None = None,
        older_than: str | float | None = None,
        policy: Policy | Mapping[str, Any] | str | os.PathLike[str] | None = None,
        orphans_older_than: str | float | None = None,
        manifest_older_than: str | float | None = None,
        plan: CleanupResult | Mapping[str, Any] | str | os.PathLike[str] | None = None,
        confirm: bool = False,
    ) -> CleanupResult:
        """Remove versions beyond the newest `keep` of each table and replaced at least `older_than` ago; a preview
        unless `confirm`.

        Durations are seconds, or texts as 7d. `policy` is a policy file instead of both. `plan`, from `plan_cleanup`,
        its JSON or a file of it, is executed as it is, except for what has come into use since. Whatever a live
        branch, a tag or a running reader needs stays, and so does the newest version of everything.
        """
        from omnigraph.maintenance.cleanup import CleanupResult, cleanup, make_policy
        from omnigraph.maintenance.cleanup.document import read_plan

        if plan is not None:
            name = os.fspath(plan) if isinstance(plan, str | os.PathLike) else "the plan"
            body = plan.to_json() if isinstance(plan, CleanupResult) else plan
            saved = body if isinstance(body, Mapping) else read_plan(name)
            return cleanup(self._committer, confirm=confirm, apply=saved, apply_name=name, watcher=self.engines.watcher)
        chosen = make_policy(
            keep=keep,
            older_than=older_than,
            policy=policy,
            orphans_older_than=orphans_older_than,
            manifest_older_than=manifest_older_than,
        )
        return cleanup(self._committer, chosen, confirm=confirm, watcher=self.engines.watcher)

    @checked
    def maintain(
        self,
        policy: MaintainPolicy | Mapping[str, Any] | str | os.PathLike[str] | None = None,
        *,
        branches: Sequence[str] | None = None,
        keep: int | None = None,
        older_than: str | float | None = None,
        max_time_s: float | None = None,
        max_bytes: int | None = None,
        confirm: bool = False,
        engine: str | None = None,
    ) -> MaintainResult:
        """Recover, verify, optimize and clean up, in this order; one report, with the figures before and after.

        A step that fails stands in the report and does not stop the others. `policy` is a policy file or its content;
        options come before what it says. `branches`, names or patterns, are optimized, main by default. `max_time_s`
        and `max_bytes` limit optimize. Nothing is removed without `confirm` and something that says what to keep.
        """
        from omnigraph.maintenance.maintain.policy import make_maintain_policy
        from omnigraph.maintenance.maintain.run import maintain

        chosen = make_maintain_policy(
            policy,
            branches=branches,
            keep=keep,
            older_than=older_than,
            max_time_s=max_time_s,
            max_bytes=max_bytes,
        )
        return maintain(self._committer, self.engines, chosen, confirm=confirm, engine=engine)

    @checked
    @contextmanager
    def lease(
        self,
        branch: str = MAIN,
        *,
        commit: str | None = None,
        as_of: AsOf | None = None,
        seconds: float | None = None,
    ) -> Iterator[Snapshot]:
        """One state that cleanup leaves alone until the block ends, however long that takes.

        The lease is renewed while this process lives; if it dies, it blocks cleanup for `seconds` at the most, ten
        minutes by default.
        """
        from omnigraph.pipeline.snapshot_lease import leased

        with leased(self._committer, branch, commit=commit, as_of=as_of, seconds=seconds) as snapshot:
            yield snapshot


class Maintenance(MaintenanceMethods):
    """The namespace `graph.maintenance`: the maintenance verbs of one graph.

    plan = graph.maintenance.plan_optimize()
    result = graph.maintenance.optimize(plan=plan)
    """

    def __init__(self, graph: MaintenanceMethods) -> None:
        self._graph = graph

    def __repr__(self) -> str:
        return f"<maintenance of {self._graph!r}>"

    @property
    def _committer(self) -> Committer:  # type: ignore[override]
        return self._graph._committer

    @property
    def engines(self) -> EngineSettings:
        return self._graph.engines
