"""The operation of a bulk load: decide which rows count, write them, return the prepared work to the committer.

It may be prepared again on a newer view: the inputs are not read again, tables of the graph that did not change are not
scanned again, everything else is. Files of an earlier preparation are unreferenced.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from omnigraph.commit.operation import Prepared, TableWork, View, fold_step, work_on
from omnigraph.commit.request import Outcome
from omnigraph.errors import StaleView
from omnigraph.graph.results import LoadResult
from omnigraph.language.schema.model import EntityType, NodeType, Schema
from omnigraph.pipeline.bulk.existing import pin_json
from omnigraph.pipeline.bulk.job import Job, State
from omnigraph.pipeline.bulk.rejects.quarantine import write_quarantine
from omnigraph.pipeline.bulk.rejects.resolve import live_types, resolve_rejects
from omnigraph.pipeline.bulk.write import delete_rows, write_rows

UNIT_ROWS = 400_000
"""The rows of one type that one write task takes, so that fragments get a good size."""


@dataclass
class _Last:
    """The result of the last preparation; the commit that is acknowledged is the last one that was prepared."""

    state: State | None = None
    view: View | None = None


@dataclass(frozen=True, eq=False)
class BulkLoad:
    job: Job
    schema: Schema
    on_error: str
    quarantine: str | None
    kind: str = "load"
    quick: bool = False
    last: _Last = field(default_factory=_Last)

    def scope(self, view: View) -> frozenset[str]:
        return frozenset(self.job.types[key].id for key in self.job.touched)

    def prepare(self, view: View) -> Prepared:
        if view.schema != self.schema:
            raise StaleView(detail="the branch's schema was changed while its input was being read.")
        state = resolve_rejects(self.job, view, tolerant=self.on_error == "quarantine")
        self.last.state, self.last.view = state, view
        tables, counts = _written(self.job, view, state)
        return Prepared(view=view, tables=tables, reads=_consulted(self.job, view), summary=counts, result=counts)

    def finish(self, outcome: Outcome, *, branch: str) -> LoadResult:
        """Write the quarantine after the commit. Returns the result of the load."""
        by_rule: Counter[str] = Counter()
        if not outcome.repeated and self.on_error == "quarantine":
            assert self.last.state is not None
            assert self.last.view is not None
            by_rule = write_quarantine(self.job, self.last.state, self.last.view, self.quarantine)
        counts: Mapping[str, Any] = (outcome.record.summary if outcome.record else None) or {}
        return LoadResult.of(
            outcome,
            branch=branch,
            mode=self.job.mode,
            counts=counts,
            lines=self.job.places.total,
            rejected=sum(by_rule.values()),
            rejected_by_rule=dict(by_rule),
            quarantine=self.quarantine if by_rule else None,
            engine=self.job.runner.engine,
        )


def _consulted(job: Job, view: View) -> frozenset[str]:
    """The tables that checks may have read."""
    table_ids: set[str] = set()
    for key in job.touched:
        t = job.types[key]
        table_ids.add(t.id)
        if isinstance(t, NodeType):
            incident = job.schema.incident_edges(t.name)
            if job.overwritten or any(e.card_min for e in incident):
                table_ids.update(e.id for e in incident)
        else:
            table_ids.update(job.schema.node[name].id for name in (t.source, t.target))
    return frozenset(table_ids & set(view.pins))


# ---- writing ---------------------------------------------------------------------------------------------------------


@dataclass
class _Work:
    """One type's table: where it is written, and the results of the tasks."""

    type: EntityType
    pin: Any
    handle: Any
    editor: Any
    new: list[str] = field(default_factory=list)
    replaced: list[str] = field(default_factory=list)
    addresses: list[str] = field(default_factory=list)
    touched: set[int] = field(default_factory=set)
    updated_fragments: list[str] = field(default_factory=list)
    removed: list[int] = field(default_factory=list)
    inserted: int = 0
    updated: int = 0


def _written(job: Job, view: View, state: State) -> tuple[dict[str, TableWork], dict[str, dict[str, int]]]:
    overwritten = set(job.overwritten)
    keys = job.overwritten or live_types(job, state)
    works: dict[str, _Work] = {}
    for key in keys:
        t = job.types[key]
        works[key] = _Work(t, *work_on(view, t))
    _run_writes(job, state, works)
    _run_deletes(job, works)
    tables: dict[str, TableWork] = {}
    counts: dict[str, dict[str, int]] = {"inserted": {}, "updated": {}, "deleted": {}}
    for key, work in works.items():
        deleted = view.count(work.type) if key in overwritten else 0
        steps = _steps(work, is_overwritten=key in overwritten and deleted > 0)
        for name, count in (("inserted", work.inserted), ("updated", work.updated), ("deleted", deleted)):
            if count:
                counts[name][key] = count
        if steps:
            later = () if key in overwritten else fold_step(view, work.pin, work.handle, touched=work.touched)
            source = view.pins[work.type.id]
            tables[work.type.id] = TableWork(pin=work.pin, source=source, steps=steps, handle=work.handle, later=later)
    return tables, counts


def _steps(work: _Work, *, is_overwritten: bool) -> tuple[Any, ...]:
    from lance.fragment import FragmentMetadata

    new, replaced, updated = (
        [FragmentMetadata.from_json(text) for text in texts]
        for texts in (work.new, work.replaced, work.updated_fragments)
    )
    if is_overwritten:
        return (work.editor.exchanged(new),)
    steps = []
    if new:
        steps.append(work.editor.appended(new))
    if replaced:
        steps.append(work.editor.update(new=replaced, updated=updated, removed=work.removed))
    return tuple(steps)


def _run_writes(job: Job, state: State, works: Mapping[str, _Work]) -> None:
    units = [unit for key, work in works.items() for unit in _units(job, state, key, work)]
    total = sum(unit["rows"] for unit in units)
    rows_max = max(1, total // max(1, 2 * job.runner.parallelism))
    packed: list[list[dict[str, Any]]] = []
    group_rows = rows_max
    for unit in units:
        if group_rows >= rows_max or group_rows + unit["rows"] > 2 * rows_max:
            packed.append([])
            group_rows = 0
        packed[-1].append(unit)
        group_rows += unit["rows"]
    tasks = [{"context": job.context, "gone": state.removed, "jobs": jobs} for jobs in packed]
    for result in job.runner.run(write_rows, tasks, stage="writing"):
        for job_result in result["jobs"]:
            work = works[job_result["type"]]
            work.new += job_result["new"]
            work.replaced += job_result["replaced"]
            work.inserted += job_result["inserted"]
            work.updated += job_result["updated"]
            if job_result["at"] is not None:
                work.addresses.append(job_result["at"])
                work.touched.update(job_result["fragments"])


def _units(job: Job, state: State, key: str, work: _Work) -> list[dict[str, Any]]:
    """The pieces of one type in groups of a fragment or two."""
    units: list[dict[str, Any]] = []
    for result in job.read:
        about = result["types"].get(key)
        if about is None:
            continue
        if not units or units[-1]["rows"] + about["rows"] > UNIT_ROWS:
            units.append({"type": key, "pin": pin_json(work.pin), "pieces": [], "rows": 0})
        slices = state.match_slices(key, result["piece"])
        units[-1]["pieces"].append({"index": result["piece"], "table": about["table"], "matches": slices})
        units[-1]["rows"] += about["rows"]
    return units


def _run_deletes(job: Job, works: Mapping[str, _Work]) -> None:
    tasks = []
    for key, work in works.items():
        fragments = sorted(work.touched)
        step = max(1, -(-len(fragments) // job.runner.parallelism))
        for first in range(0, len(fragments), step):
            about = {"context": job.context, "type": key, "pin": pin_json(work.pin), "addresses": work.addresses}
            tasks.append({**about, "fragments": fragments[first : first + step]})
    for result in job.runner.run(delete_rows, tasks, stage="marking replaced rows") if tasks else ():
        works[result["type"]].updated_fragments += result["updated"]
        works[result["type"]].removed += result["removed"]
