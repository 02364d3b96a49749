"""The whole of embed: choose, survey, then per batch ask, write and commit. See the package's text for the steps."""

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
from omnigraph.pipeline.embed.plan import Chunk, Found, Unit, Work, batches, groups, units_of
from omnigraph.pipeline.embed.provider import key_of, kind_of
from omnigraph.storage.lance.column_files import base_of
from omnigraph.storage.lance.fragment_groups import cut
from omnigraph.storage.objects import leases
from omnigraph.tasks.engine import Engines
from omnigraph.tasks.runner import LocalRunner, Runner
from omnigraph.tasks.session import active_session
from omnigraph.tasks.staging import Staging, new_staging

if TYPE_CHECKING:
    from omnigraph.commit.operation import Operation

SURVEY_ROWS, SURVEY_BYTES = 500_000, 4 << 30


@dataclass(frozen=True)
class EmbedOptions:
    """What a caller can say. `rate_per_minute` counts requests of all workers together."""

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
    engines: Engines,
    engine: str | None,
    options: EmbedOptions,
) -> EmbedResult:
    """Embed what needs it. `view` is the branch's newest state, `commit` brings an operation through the door."""
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
        found = _survey(state, units, _surveyor(engines, engine), options)
        told = _Told(branch, found)
        pending = [f for f in found if f.chunks]
        if pending:
            _require_ready(pending, options)
            told.add(commit(AddMarks([f.unit for f in pending])))
            runner = engines.runner(work_bytes=sum(f.work_bytes for f in pending), requested=engine)
            for batch in batches(pending, commit_every=options.commit_every):
                told.add(_publish(state, pending, batch, runner, commit, options, lease))
    return told.result(seconds=time.monotonic() - started)


def _leased(state: View, units: Sequence[Unit]) -> AbstractContextManager[leases.Held]:
    """Providers may take hours: cleanup leaves the texts alone that were found at the beginning, and new files."""
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


def _require_ready(pending: Sequence[Found], options: EmbedOptions) -> None:
    """What would fail later fails now: vectors of another model, and keys that are not there."""
    for one in pending:
        if one.foreign and not options.everything:
            detail = (
                f"{one.foreign:,} of its vectors were made by another model than {one.unit.choice.model}, and vectors "
                "of two models can't be compared; --all embeds every text anew"
            )
            raise EmbeddingMismatch(column=one.unit.column, provider=one.unit.choice.name, detail=detail)
    for name in {f.unit.choice.name for f in pending if f.to_embed}:
        if kind_of(name).key is not None:
            key_of(name)


# ---- survey ----------------------------------------------------------------------------------------------------------


def _survey(state: View, units: Sequence[Unit], runner: Runner, options: EmbedOptions) -> list[Found]:
    """Look through the tables."""
    chunk_rows = min(work.CHUNK_ROWS, options.commit_every or work.CHUNK_ROWS)
    tasks: list[dict[str, Any]] = []
    owners: list[int] = []
    for number, unit in enumerate(units):
        pin = state.pins[unit.type_id]
        table = state.open(state.schema.by_id[unit.type_id])
        for part in cut(table, rows_most=SURVEY_ROWS, bytes_most=SURVEY_BYTES):
            if part.fragments:
                task = {**work.place(state.tables.location, pin), "unit": unit.to_json()}
                more = {"fragments": list(part.fragments), "everything": options.everything, "chunk_rows": chunk_rows}
                tasks.append({**task, **more})
                owners.append(number)
    results = runner.run(work.survey, tasks, stage="looking for texts")
    return [_found(unit, [r for o, r in zip(owners, results, strict=True) if o == n]) for n, unit in enumerate(units)]


def _surveyor(engines: Engines, engine: str | None) -> Runner:
    """This process, unless a session is running: who has nothing to do gets no JVM."""
    if engines.session is not None or active_session() is not None:
        return engines.runner(work_bytes=None, requested=engine)
    return LocalRunner(watcher=engines.watcher)


def _found(unit: Unit, results: Iterable[Mapping[str, Any]]) -> Found:
    kept = list(results)
    return Found(
        unit=unit,
        chunks=tuple(Chunk(*c) for r in kept for c in r["chunks"]),
        **{name: sum(r[name] for r in kept) for name in ("given", "blank", "foreign")},
    )


# ---- one batch -------------------------------------------------------------------------------------------------------


def _publish(
    state: View,
    pending: Sequence[Found],
    batch: Sequence[Work],
    runner: Runner,
    commit: Callable[[Operation], Outcome],
    options: EmbedOptions,
    lease: leases.Held,
) -> Outcome:
    """Steps 3 to 5 for some rows."""
    staging = new_staging(state.tables.location)
    try:
        staged = _ask(state, pending, batch, runner, staging, options)
        held = lease if lease.is_unbroken else None
        return commit(PublishVectors(staged, runner, staging, everything=options.everything, lease=held))
    finally:
        staging.remove()


def _ask(
    state: View,
    pending: Sequence[Found],
    batch: Sequence[Work],
    runner: Runner,
    staging: Staging,
    options: EmbedOptions,
) -> list[Batch]:
    cut_up = list(groups(batch, parallelism=runner.parallelism))
    slots = min(runner.parallelism, len(cut_up))
    interval_s = 60.0 * slots / options.rate_per_minute if options.rate_per_minute is not None else 0.0
    tasks = [
        {
            **work.place(state.tables.location, state.pins[pending[number].unit.type_id]),
            "unit": pending[number].unit.to_json(),
            "staging": staging.to_json(),
            "everything": options.everything,
            "interval_s": interval_s,
            "known": [],
            "only_known": False,
            "chunks": [[c.fragment, c.offset, c.rows] for c in chunks],
        }
        for number, chunks in cut_up
    ]
    results = runner.run(work.embed_chunks, tasks, stage="embedding")
    parts: dict[int, list[Part]] = {}
    for (number, _), result in zip(cut_up, results, strict=True):
        parts.setdefault(number, []).extend(Part(**p) for p in result["parts"])
    return [_batch(state, pending[number].unit, found) for number, found in parts.items()]


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


class _Told:
    """Adds up what the commits say."""

    def __init__(self, branch: str, found: Sequence[Found]) -> None:
        self._branch = branch
        self._found = found
        self._commits: list[CommitInfo] = []
        self._embedded: dict[str, int] = {}
        self._cleared: dict[str, int] = {}

    def add(self, outcome: Outcome) -> None:
        if outcome.record is not None:
            self._commits.append(CommitInfo.of(outcome.record))
        told = (outcome.record.summary if outcome.record is not None else None) or {}
        for into, part in ((self._embedded, "embedded"), (self._cleared, "cleared")):
            for key, count in told.get(part, {}).items():
                into[key] = into.get(key, 0) + count

    def result(self, *, seconds: float) -> EmbedResult:
        planned = sum(c.embed + c.clear for f in self._found for c in f.chunks)
        done = sum(self._embedded.values()) + sum(self._cleared.values())
        return EmbedResult(
            branch=self._branch,
            commits=tuple(self._commits),
            embedded=self._embedded,
            cleared=self._cleared,
            skipped={
                "given": sum(f.given for f in self._found),
                "without_text": sum(f.blank for f in self._found),
                "changed_meanwhile": planned - done,
            },
            models={f.unit.column: f.unit.choice.model for f in self._found},
            provider=self._found[0].unit.choice.name,
            seconds=round(seconds, 3),
        )
