"""The driver of embed: choose, survey, then per batch request, write and commit. The package has the steps."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from omnigraph.commit import owner
from omnigraph.commit.operation import View
from omnigraph.commit.request import Outcome
from omnigraph.errors import EmbeddingMismatch, UsageError
from omnigraph.graph.results import CommitInfo, EmbedResult
from omnigraph.pipeline.embed import tasks as work
from omnigraph.pipeline.embed.commit import AddMarks, Batch, Part, PublishVectors
from omnigraph.pipeline.embed.plan import Chunk, SurveyResult, Unit, Work, batches, groups, units_of
from omnigraph.pipeline.embed.provider import key_of, kind_of
from omnigraph.storage.lance.fragment_groups import fragment_groups
from omnigraph.storage.lance.rewrites.column_files import base_of
from omnigraph.storage.objects import leases
from omnigraph.tasks.engine import EngineSettings
from omnigraph.tasks.runner import LocalRunner, Runner
from omnigraph.tasks.session import active_session
from omnigraph.tasks.staging import Staging, new_staging

if TYPE_CHECKING:
    from omnigraph.commit.operation import Operation

SURVEY_ROWS, SURVEY_BYTES = 500_000, 4 << 30


@dataclass(frozen=True)
class EmbedOptions:
    """The options of a caller. `rate_per_minute` limits the sum of the requests of all workers."""

    type_name: str | None = None
    property_name: str | None = None
    provider: str | None = None
    model: str | None = None
    batch: int | None = None
    commit_every: int | None = None
    rate_per_minute: float | None = None
    everything: bool = False

    def checked(self) -> EmbedOptions:
        if self.commit_every is not None and self.commit_every < 1:
            raise UsageError(detail=f"a commit every {self.commit_every} rows makes no sense; give 1 or more.")
        if self.rate_per_minute is not None and not self.rate_per_minute > 0:
            raise UsageError(detail=f"{self.rate_per_minute} requests per minute make no sense; give more than 0.")
        return self


def embed(
    *,
    branch: str,
    view: Callable[[], View],
    commit: Callable[[Operation], Outcome],
    engines: EngineSettings,
    engine: str | None,
    options: EmbedOptions,
) -> EmbedResult:
    """Embed the rows that need it. `view` returns the branch's newest state, `commit` commits an operation."""
    started = time.monotonic()
    options = options.checked()
    state = view()
    units = units_of(
        state.schema,
        type_name=options.type_name,
        property_name=options.property_name,
        provider=options.provider,
        model=options.model,
        batch=options.batch,
    )
    with _leased(state, units) as lease:
        surveys = _survey(state, units, _surveyor(engines, engine), options)
        results = _ResultBuilder(branch, surveys)
        pending = [f for f in surveys if f.chunks]
        if pending:
            _require_ready(pending, options)
            results.add(commit(AddMarks([f.unit for f in pending])))
            runner = engines.runner(work_bytes=sum(f.work_bytes for f in pending), requested=engine)
            for batch in batches(pending, commit_every=options.commit_every):
                results.add(_publish(state, pending, batch, runner, commit, options, lease))
    return results.result(seconds=time.monotonic() - started)


def _leased(state: View, units: Sequence[Unit]) -> AbstractContextManager[leases.HeldLease]:
    """Lease the surveyed versions and new files, so that cleanup keeps them: providers may take hours."""
    pins = {unit.type_id: state.pins[unit.type_id] for unit in units}
    return leases.hold(
        state.tables.location,
        pins.values(),
        owner=owner.myself(),
        is_gone=owner.is_gone,
        branch=state.head.branch,
        commit=state.head.commit,
        prepares=True,
    )


def _require_ready(pending: Sequence[SurveyResult], options: EmbedOptions) -> None:
    """Refuse vectors of another model and missing API keys before any request is made."""
    for survey in pending:
        if survey.foreign and not options.everything:
            detail = (
                f"{survey.foreign:,} of its vectors were made by another model than {survey.unit.choice.model}, and "
                "vectors of two models can't be compared; --all embeds every text anew"
            )
            raise EmbeddingMismatch(column=survey.unit.column, provider=survey.unit.choice.name, detail=detail)
    for name in {f.unit.choice.name for f in pending if f.to_embed}:
        if kind_of(name).key is not None:
            key_of(name)


# ---- survey ----------------------------------------------------------------------------------------------------------


def _survey(state: View, units: Sequence[Unit], runner: Runner, options: EmbedOptions) -> list[SurveyResult]:
    """Scan the tables for rows to embed."""
    chunk_rows = min(work.CHUNK_ROWS, options.commit_every or work.CHUNK_ROWS)
    tasks: list[dict[str, Any]] = []
    owners: list[int] = []
    for number, unit in enumerate(units):
        pin = state.pins[unit.type_id]
        table = state.open(state.schema.by_id[unit.type_id])
        for part in fragment_groups(table, rows_max=SURVEY_ROWS, bytes_max=SURVEY_BYTES):
            if part.fragments:
                task = {**work.table_address(state.tables.location, pin), "unit": unit.to_json()}
                more = {"fragments": list(part.fragments), "everything": options.everything, "chunk_rows": chunk_rows}
                tasks.append({**task, **more})
                owners.append(number)
    results = runner.run(work.survey, tasks, stage="looking for texts")
    return [
        _survey_result(unit, [r for o, r in zip(owners, results, strict=True) if o == n])
        for n, unit in enumerate(units)
    ]


def _surveyor(engines: EngineSettings, engine: str | None) -> Runner:
    """This process, unless a session is running: no JVM is started for an empty job."""
    if engines.session is not None or active_session() is not None:
        return engines.runner(work_bytes=None, requested=engine)
    return LocalRunner(watcher=engines.watcher)


def _survey_result(unit: Unit, results: Iterable[Mapping[str, Any]]) -> SurveyResult:
    counted = list(results)
    return SurveyResult(
        unit=unit,
        chunks=tuple(Chunk(*c) for r in counted for c in r["chunks"]),
        **{name: sum(r[name] for r in counted) for name in ("given", "blank", "foreign")},
    )


# ---- one batch -------------------------------------------------------------------------------------------------------


def _publish(
    state: View,
    pending: Sequence[SurveyResult],
    batch: Sequence[Work],
    runner: Runner,
    commit: Callable[[Operation], Outcome],
    options: EmbedOptions,
    lease: leases.HeldLease,
) -> Outcome:
    """Steps 3 to 5 for some rows."""
    staging = new_staging(state.tables.location)
    try:
        staged = _stage_vectors(state, pending, batch, runner, staging, options)
        unbroken_lease = lease if lease.is_unbroken else None
        return commit(PublishVectors(staged, runner, staging, everything=options.everything, lease=unbroken_lease))
    finally:
        staging.remove()


def _stage_vectors(
    state: View,
    pending: Sequence[SurveyResult],
    batch: Sequence[Work],
    runner: Runner,
    staging: Staging,
    options: EmbedOptions,
) -> list[Batch]:
    task_chunks = list(groups(batch, parallelism=runner.parallelism))
    slots = min(runner.parallelism, len(task_chunks))
    interval_s = 60.0 * slots / options.rate_per_minute if options.rate_per_minute is not None else 0.0
    tasks = [
        {
            **work.table_address(state.tables.location, state.pins[pending[number].unit.type_id]),
            "unit": pending[number].unit.to_json(),
            "staging": staging.to_json(),
            "everything": options.everything,
            "interval_s": interval_s,
            "known": [],
            "only_known": False,
            "chunks": [[c.fragment, c.offset, c.rows] for c in chunks],
        }
        for number, chunks in task_chunks
    ]
    results = runner.run(work.embed_chunks, tasks, stage="embedding")
    parts: dict[int, list[Part]] = {}
    for (number, _), result in zip(task_chunks, results, strict=True):
        parts.setdefault(number, []).extend(Part(**p) for p in result["parts"])
    return [_batch(state, pending[number].unit, parts_of_unit) for number, parts_of_unit in parts.items()]


def _batch(state: View, unit: Unit, parts: list[Part]) -> Batch:
    table = state.open(state.schema.by_id[unit.type_id])
    fragments = list(table.get_fragments())
    return Batch(
        unit=unit,
        surveyed={f.fragment_id: (base_of(table, f.fragment_id, [unit.source]) or (None,))[0] for f in fragments},
        deletions={f.fragment_id: f.metadata.to_json().get("deletion_file") for f in fragments},
        parts=parts,
    )


# ---- result ----------------------------------------------------------------------------------------------------------


class _ResultBuilder:
    """Adds up the summaries of the commits."""

    def __init__(self, branch: str, surveys: Sequence[SurveyResult]) -> None:
        self._branch = branch
        self._surveys = surveys
        self._commits: list[CommitInfo] = []
        self._embedded: dict[str, int] = {}
        self._cleared: dict[str, int] = {}

    def add(self, outcome: Outcome) -> None:
        if outcome.record is not None:
            self._commits.append(CommitInfo.of(outcome.record))
        summary = (outcome.record.summary if outcome.record is not None else None) or {}
        for totals, part in ((self._embedded, "embedded"), (self._cleared, "cleared")):
            for key, count in summary.get(part, {}).items():
                totals[key] = totals.get(key, 0) + count

    def result(self, *, seconds: float) -> EmbedResult:
        planned = sum(c.embed + c.clear for f in self._surveys for c in f.chunks)
        finished_rows = sum(self._embedded.values()) + sum(self._cleared.values())
        return EmbedResult(
            branch=self._branch,
            commits=tuple(self._commits),
            embedded=self._embedded,
            cleared=self._cleared,
            skipped={
                "given": sum(f.given for f in self._surveys),
                "without_text": sum(f.blank for f in self._surveys),
                "changed_meanwhile": planned - finished_rows,
            },
            models={f.unit.column: f.unit.choice.model for f in self._surveys},
            provider=self._surveys[0].unit.choice.name,
            seconds=round(seconds, 3),
        )
