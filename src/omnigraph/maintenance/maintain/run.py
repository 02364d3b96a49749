"""Maintain: everything a graph needs on a schedule, in one run with one report.

1. measure   the health of each chosen branch, as `stats` reports it
2. recover   operations of crashed writers; wait for live ones
3. verify    all branches, without reading data unless the policy says so
4. optimize  each chosen branch, within the budget
5. cleanup   what retention releases, if confirmed; otherwise, and without retention, only a preview
6. measure   again: the report has both

Keeps: the order is fixed and the steps are independent. A step that fails has its error in the report, and the others
run; the run as a whole is then not ok. The budget is for optimize, whose cost follows the data; it has a quarter of the
time at least, so that slow steps before it can't starve it; cleanup runs however late it is.
Cleanup only previews if verify failed, if verify found that published data may be lost, or if a table failed in
optimize: then older versions may be all that is left. Rows that break rules do not prevent cleanup: otherwise the graph
would grow without bound.

A run with nothing to do makes no commit. A crash leaves what a crash of the current step leaves; the next run
continues. Concurrent runs are safe but redundant.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from fnmatch import fnmatchcase
from functools import partial
from typing import Any, Literal

from omnigraph.commit.backoff import write_timeout_s
from omnigraph.commit.committer import Committer
from omnigraph.errors import BranchNotFound, OmnigraphError, UnknownType, UsageError
from omnigraph.maintenance.cleanup import CleanupResult, cleanup
from omnigraph.maintenance.cleanup.policy import Policy, Rule
from omnigraph.maintenance.maintain.policy import MaintainPolicy
from omnigraph.maintenance.maintain.text import (
    brief_cleanup,
    cleanup_text,
    optimize_notes,
    optimize_text,
    recover_text,
    verify_notes,
    verify_text,
)
from omnigraph.maintenance.optimize import Optimize
from omnigraph.maintenance.optimize.budget import remaining
from omnigraph.maintenance.optimize.model import options_of
from omnigraph.maintenance.recover import recover
from omnigraph.maintenance.stats import GraphStats, stats
from omnigraph.maintenance.verify import Finding, VerifyOptions, verify
from omnigraph.maintenance.verify.findings import DROPPED, INDEX
from omnigraph.maintenance.verify.run import IN_FLIGHT_S
from omnigraph.storage.manifest.records import MAIN
from omnigraph.tasks.engine import EngineSettings

StepName = Literal["recover", "verify", "optimize", "cleanup"]
Outcome = Literal["done", "nothing", "previewed", "problems", "failed"]
OPTIMIZE_SHARE = 0.25
PREVIEW = Policy(Rule(keep=10, older_than_s=7 * 86_400.0))
"""The retention of the preview if none is configured."""
NOT_LOST = frozenset(
    (
        *("dangling_endpoint", "duplicate_key", "duplicate_value", "cardinality", "key_mismatch", "null_key"),
        "broken_rule",
        *("index_stale", "index_wrong_answer", "dead_row_address", "uncovered_drift"),
    )
)
"""Errors of verify that are not about lost data: rows that break rules, indices that can be built anew from rows, and
drift, for which cleanup has a rule of its own. After any other error nothing is removed, `index_unreadable` included:
if an index can't be read, the cause may be rows that can't be read.
"""
WRONG_POLICY = (BranchNotFound.condition, UnknownType.condition, UsageError.condition)
"""Errors of optimize if the policy names what does not exist; they say nothing about the data."""
UNKNOWN = "so older versions may be the only copy of something"
OR_YOURSELF = "or run omnigraph cleanup yourself"


@dataclass(frozen=True)
class Step:
    """One step. `summary` is a sentence, `notes` need attention, `result` the JSON of the step's verb.

    `outcome` is `done`, `nothing` (to do), `previewed`, `problems` (it ran, and something is wrong or a table failed)
    or `failed` (it could not run; `error` says why). `branch` is None for steps that are about the whole graph.
    """

    name: StepName
    outcome: Outcome
    summary: str
    branch: str | None = None
    notes: tuple[str, ...] = ()
    error: Mapping[str, Any] | None = None
    seconds: float = 0.0
    result: Mapping[str, Any] | None = field(default=None, repr=False)

    @property
    def ok(self) -> bool:
        return self.outcome not in ("problems", "failed")

    def to_json(self) -> dict[str, Any]:
        plain = {k: v for k, v in self.__dict__.items() if k not in ("name", "notes", "seconds")}
        return {"step": self.name, **plain, "notes": list(self.notes), "seconds": round(self.seconds, 3)}


@dataclass(frozen=True)
class Figures:
    """The health of one branch before and after. None where it could not be measured; `error` says why."""

    branch: str
    before: GraphStats | None
    after: GraphStats | None
    error: str | None = None

    def to_json(self) -> dict[str, Any]:
        return {
            "branch": self.branch,
            "before": None if self.before is None else self.before.to_json(),
            "after": None if self.after is None else self.after.to_json(),
            "error": self.error,
        }


@dataclass(frozen=True)
class MaintainResult:
    """The report of one run. `ok`: every step did what it should, and verify found no error."""

    graph: str
    started_at: datetime
    policy: MaintainPolicy
    confirmed: bool
    steps: tuple[Step, ...]
    figures: tuple[Figures, ...]
    seconds: float

    @property
    def ok(self) -> bool:
        return all(step.ok for step in self.steps)

    def step(self, name: StepName, branch: str | None = None) -> Step:
        """The first step of that name, on that branch if one is named."""
        return next(s for s in self.steps if s.name == name and branch in (None, s.branch))

    def to_json(self) -> dict[str, Any]:
        return {
            "graph": self.graph,
            "ok": self.ok,
            "started_at": self.started_at.isoformat(timespec="seconds"),
            "seconds": round(self.seconds, 3),
            "confirmed": self.confirmed,
            "policy": self.policy.to_json(),
            "steps": [step.to_json() for step in self.steps],
            "figures": [figures.to_json() for figures in self.figures],
        }

    def to_html(self) -> str:
        """The report as one page that needs nothing else."""
        from omnigraph.maintenance.maintain.report import page

        return page(self)


def maintain(
    committer: Committer, engines: EngineSettings, policy: MaintainPolicy, *, confirm: bool, engine: str | None = None
) -> MaintainResult:
    """One run. `confirm` allows cleanup to remove what the policy's retention lets go."""
    return _Run(committer, engines, policy, confirm=confirm, engine=engine).run()


class _Run:
    def __init__(
        self,
        committer: Committer,
        engines: EngineSettings,
        policy: MaintainPolicy,
        *,
        confirm: bool,
        engine: str | None,
    ) -> None:
        self._committer = committer
        self._engines = engines
        self._policy = policy
        self._confirm = confirm
        self._engine = engine
        self._began = time.monotonic()
        self._lost: list[str] | None = None
        """Codes of findings about lost data; None before verify has run."""
        self._bytes_left = policy.budget.max_bytes
        self._rows_left = policy.budget.max_rows

    def run(self) -> MaintainResult:
        started_at = datetime.now(UTC)
        branches, unmatched = self._branches()
        measured = branches or [MAIN]
        before = {branch: self._measured(branch) for branch in measured}
        steps = [_step("recover", self._recover), _step("verify", self._verify)]
        until = self._optimize_until()
        optimized = [_step("optimize", partial(self._optimize, branch, until), branch=branch) for branch in branches]
        optimized += [Step("optimize", "nothing", f"no branch matches {pattern}") for pattern in unmatched]
        reasons = list(reasons_to_keep(self._lost, optimized))
        steps += [*optimized, _step("cleanup", partial(self._cleanup, reasons))]
        after = {branch: self._measured(branch) for branch in measured}
        return MaintainResult(
            graph=self._committer.manifest.location.uri,
            started_at=started_at,
            policy=self._policy,
            confirmed=self._confirm,
            steps=tuple(steps),
            figures=tuple(_figures(branch, before[branch], after[branch]) for branch in measured),
            seconds=time.monotonic() - self._began,
        )

    def _branches(self) -> tuple[list[str], list[str]]:
        """Branches that the policy names or its patterns match, main first; and patterns that match none."""
        there = sorted(self._committer.manifest.heads())
        names: list[str] = []
        unmatched: list[str] = []
        for pattern in dict.fromkeys(self._policy.optimize.branches):
            is_pattern = any(c in pattern for c in "*?[")
            meant = [b for b in there if fnmatchcase(b, pattern)] if is_pattern else [pattern]
            names += meant
            unmatched += [] if meant else [pattern]
        return sorted(dict.fromkeys(names), key=lambda b: b != MAIN), unmatched

    def _measured(self, branch: str) -> GraphStats | str:
        """The figures, or why there are none."""
        try:
            return stats(self._committer, branch=branch)
        except OmnigraphError as error:
            return error.message
        except Exception as error:  # noqa: BLE001
            # As in a step: a failure to measure must not stop the steps.
            return f"{type(error).__name__}: {error}"

    def _recover(self) -> Step:
        result = recover(self._committer, wait_s=write_timeout_s())
        return Step(
            "recover",
            "done" if result.settled else "nothing",
            recover_text(result),
            notes=tuple(f"{p.kind} on {p.branch} is still at work" for p in result.pending),
            result=result.to_json(),
        )

    def _verify(self) -> Step:
        part = self._policy.verify
        old_s = IN_FLIGHT_S if part.orphans_older_than_s is None else part.orphans_older_than_s
        options = VerifyOptions(
            quick=part.depth == "quick", full=part.depth == "full", orphans_older_than_s=old_s, engine=self._engine
        )
        result = verify(self._committer, self._engines, options)
        self._lost = sorted({f.code for f in result.findings if indicates_loss(f)})
        return Step(
            "verify",
            "done" if result.ok else "problems",
            verify_text(result),
            notes=tuple(verify_notes(result)),
            result=result.to_json(),
        )

    def _optimize_until(self) -> float | None:
        limit = self._policy.budget.max_time_s
        return None if limit is None else max(self._began + limit, time.monotonic() + OPTIMIZE_SHARE * limit)

    def _optimize(self, branch: str, until: float | None) -> Step:
        left_s = None if until is None else until - time.monotonic()
        spent = next((what for what, amount in self._limits(left_s) if amount is not None and amount <= 0), None)
        if spent is not None:
            return Step("optimize", "nothing", f"left for a later run: {spent} of the budget is spent", branch=branch)
        part = self._policy.optimize
        options = options_of(
            tables=part.tables,
            target_rows_per_fragment=part.target_rows_per_fragment,
            concurrency=part.concurrency,
            max_bytes=self._bytes_left,
            max_rows=self._rows_left,
            max_time_s=left_s,
        )
        run = Optimize(self._committer, self._engines, branch=branch, engine=self._engine)
        if self._bytes_left is not None or self._rows_left is not None:
            work = [t for t in run.plan(options).tables if t.has_work]
            self._bytes_left = remaining(self._bytes_left, sum(t.read_bytes for t in work))
            self._rows_left = remaining(self._rows_left, sum(t.read_rows for t in work))
        result = run.run(options)
        failed = any(t.error for t in result.tables)
        changed = result.commit is not None or any(t.committed for t in result.tables)
        return Step(
            "optimize",
            "problems" if failed else "done" if changed else "nothing",
            optimize_text(result),
            branch=branch,
            notes=tuple(optimize_notes(result)),
            result=result.to_json(),
        )

    def _limits(self, left_s: float | None) -> tuple[tuple[str, float | None], ...]:
        return ("the time", left_s), ("what may be read", self._bytes_left), ("the rows", self._rows_left)

    def _cleanup(self, reasons: Sequence[str]) -> Step:
        """Step 5. `reasons` to remove nothing."""
        retention = self._policy.retention
        remove = self._confirm and retention is not None and not reasons
        result = cleanup(self._committer, retention or PREVIEW, confirm=remove, watcher=self._engines.watcher)
        outcome: Outcome = "problems" if result.failed else "done" if remove else "previewed"
        if outcome == "done" and not result.bytes_removed and not result.old_versions_removed:
            outcome = "nothing"
        return Step(
            "cleanup",
            outcome,
            cleanup_text(result),
            notes=tuple(self._cleanup_notes(result, reasons)),
            result=brief_cleanup(result.to_json()),
        )

    def _cleanup_notes(self, result: CleanupResult, reasons: Sequence[str]) -> Iterator[str]:
        if self._policy.retention is None:
            rule = f"keep: {PREVIEW.default.keep}, older_than: {PREVIEW.default.to_json()['older_than']}"
            yield f"no retention is configured, so nothing was removed; this is what {rule} would remove"
        elif reasons:
            yield from (f"nothing was removed: {reason}" for reason in reasons)
        elif not self._confirm and result.bytes_removed:
            yield "nothing was removed: add --confirm to do it"
        yield from (f"{t.table_key}: {t.error}" for t in result.tables if t.error)
        yield from result.plan.warnings


def indicates_loss(finding: Finding) -> bool:
    """Whether older versions may be all that is left of some data. Indices can be built again from the rows."""
    return finding.severity == "error" and finding.code not in NOT_LOST and finding.cause not in (INDEX, DROPPED)


def reasons_to_keep(lost: Sequence[str] | None, optimized: Sequence[Step]) -> Iterator[str]:
    """Why cleanup removes nothing, and what to do first. `lost` is None if verify failed."""
    needed = "and older versions may be what is left of it"
    if lost is None:
        yield f"verify failed, {UNKNOWN}; run omnigraph verify, see to what it says, {OR_YOURSELF}"
    elif lost:
        yield f"verify found {', '.join(lost)}, {needed}; see to that first, {OR_YOURSELF}"
    for step in optimized:
        if step.error is not None and step.error["condition"] not in WRONG_POLICY:
            yield f"optimize of {step.branch} failed, {UNKNOWN}; see to that first, {OR_YOURSELF}"
        failed = [t["table_key"] for t in (step.result or {}).get("tables", ()) if t["error"]]
        if failed:
            text = f"{', '.join(failed)} on {step.branch} failed in optimize, {needed}"
            yield f"{text}; run omnigraph verify --full, see to what it says, {OR_YOURSELF}"


def _step(name: StepName, run: Callable[[], Step], *, branch: str | None = None) -> Step:
    """Run a step. Any failure is recorded in the report, and the next step runs."""
    began = time.monotonic()
    try:
        step = run()
    except OmnigraphError as error:
        notes = (f"→ {error.remedy}",) if error.remedy else ()
        step = Step(name, "failed", error.message, branch=branch, notes=notes, error=error.to_json())
    except BaseException as error:
        # A bug, or an unexpected failure of a library; it must not stop the other steps.
        # A panic in Rust is no Exception.
        if not isinstance(error, Exception) and type(error).__name__ != "PanicException":
            raise
        text = f"{type(error).__name__}: {error}"
        body = {"condition": "internal_error", "message": text, "remedy": "Please report this."}
        step = Step(name, "failed", text, branch=branch, error=body)
    return replace(step, seconds=time.monotonic() - began)


def _figures(branch: str, before: GraphStats | str, after: GraphStats | str) -> Figures:
    problem = next((value for value in (before, after) if isinstance(value, str)), None)
    return Figures(
        branch,
        None if isinstance(before, str) else before,
        None if isinstance(after, str) else after,
        problem,
    )
