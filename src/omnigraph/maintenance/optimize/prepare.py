"""The long part of optimize, outside the committer: rewritten fragments and index segments without references yet.

1. line      the line of the table that this branch may write: its own, or a new fork of what it inherits
2. rewrite   one task per bin, all tables of a wave together
3. private   a detached version per table with the rewrite applied, to build on
4. train     centroids of vector indices that are new or outgrown, as tasks
5. build     one task per segment

Tables are worked on in waves of `concurrency`; a time limit is checked before each wave. A table that fails is
recorded and left out; an index that can't be built from its rows is pending, with the reason.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from omnigraph.commit.operation import View, work_on
from omnigraph.errors import OmnigraphError
from omnigraph.index.segments import IndexPlan
from omnigraph.maintenance.optimize import tasks as work
from omnigraph.maintenance.optimize.model import PendingIndex, TablePlan
from omnigraph.storage.lance import lance_api
from omnigraph.storage.lance.rewrites.rewrite import Group, Replayer, private_version, remove_detached
from omnigraph.storage.layout import Location
from omnigraph.storage.manifest.records import Pin
from omnigraph.tasks.runner import Runner
from omnigraph.tasks.staging import Staging, new_staging

if TYPE_CHECKING:
    from lance import LanceDataset


@dataclass
class Ready:
    """One table in progress: what has been prepared for it so far."""

    plan: TablePlan
    source: Pin
    """The pin that the branch had: another one for a table that is forked for this."""
    pin: Pin
    then: LanceDataset
    private: LanceDataset
    groups: list[Group] = field(default_factory=list)
    results: list[dict[str, Any]] = field(default_factory=list)
    """Of a deferred rewrite: what Lance's own commit takes."""
    was_attempted: bool = False
    """Whether that commit has been tried. If it fails, Lance removes what was rewritten."""
    is_lost: bool = False
    """Whether files of it are missing, or may be: a cleanup treated them as those of a crashed writer."""
    looked_at: int = 0
    """The version up to which nothing has happened that makes Lance refuse it."""
    segments: dict[str, list[dict[str, Any]]] = field(default_factory=dict)
    """New segments by the name of their index."""
    failed: dict[str, str] = field(default_factory=dict)
    """Indices that could not be built, and why."""
    detached: list[int] = field(default_factory=list)
    replayer: Replayer | None = None
    error: str | None = None
    is_missing: bool = False
    """Whether the version that it was planned on has been removed: the newest version will do."""
    seconds: float = 0.0

    @property
    def pending(self) -> tuple[PendingIndex, ...]:
        named = {i.name: i for i in self.plan.indexes}
        more = [PendingIndex(named[n].property, named[n].kind, why) for n, why in sorted(self.failed.items())]
        return (*self.plan.pending_indexes, *more)


class Preparation:
    """The work of one run, kept until it is published or discarded."""

    def __init__(self, location: Location, runner: Runner, view: View) -> None:
        self._location = location
        self._runner = runner
        self._view = view
        self._staging: Staging | None = None
        self._begun_with: list[Ready] = []
        self.ready: dict[str, Ready] = {}
        self.errors: dict[str, str] = {}
        self.missing: set[str] = set()
        """Tables to be planned again."""

    def run(self, tables: Sequence[TablePlan], *, concurrency: int, deadline: float | None) -> list[TablePlan]:
        """Prepare these tables; those that the time did not allow are returned."""
        for start in range(0, len(tables), concurrency):
            if deadline is not None and time.monotonic() > deadline:
                return list(tables[start:])
            began = time.monotonic()
            wave = [r for r in map(self._begun, tables[start : start + concurrency]) if r is not None]
            self._rewrite(wave)
            self._build([r for r in wave if r.error is None])
            for ready in wave:
                ready.seconds = time.monotonic() - began
                if ready.error is None:
                    self.ready[ready.plan.table] = ready
                elif ready.is_missing:
                    self.missing.add(ready.plan.table)
                else:
                    self.errors[ready.plan.table] = ready.error
        return []

    def clear(self) -> None:
        """Discard what is not needed any more."""
        for ready in self._begun_with:
            remove_detached(self._location, ready.pin, ready.detached)
        if self._staging is not None:
            self._staging.remove()

    def _begun(self, plan: TablePlan) -> Ready | None:
        t = self._view.schema.by_id[plan.table]
        with self._isolated(plan.table), lance_api.reading(f"preparing {plan.table_key}"):
            pin, handle, _ = work_on(self._view, t)
            ready = Ready(plan=plan, source=self._view.pins[t.id], pin=pin, then=handle, private=handle)
            self._begun_with.append(ready)
            return ready
        return None

    @contextmanager
    def _isolated(self, table: str) -> Iterator[None]:
        try:
            yield
        except OmnigraphError as error:
            self.errors[table] = str(error)

    def _rewrite(self, wave: Sequence[Ready]) -> None:
        todo = [(ready, b) for ready in wave for b in ready.plan.bins if b.rows]
        tasks = [
            {
                **work.table_json(self._location, ready.pin, ready.pin.version),
                "fragments": list(b.fragments),
                "new_id": b.new_id,
                "rows": b.rows,
                "read_bytes": b.read_bytes,
            }
            for ready, b in todo
        ]
        deferred = any(ready.plan.deferred for ready in wave)
        rewrite = work.rewrite_deferred if deferred else work.rewrite_fragments
        results = self._runner.run(rewrite, tasks, stage="rewriting fragments")
        for (ready, _), result in zip(todo, results, strict=True):
            if "failed" in result:
                _fail(ready, result)
            elif deferred:
                ready.results.append(result["result"])
            else:
                ready.groups.append(Group(tuple(result["old"]), result["new"]))
        for ready in wave:
            if ready.groups and ready.error is None:
                with self._isolated(ready.plan.table):
                    ready.private, ready.detached = private_version(self._location, ready.then, ready.groups)
                ready.error = self.errors.get(ready.plan.table)

    def _build(self, wave: Sequence[Ready]) -> None:
        trained = self._train(wave)
        todo: list[tuple[Ready, IndexPlan]] = []
        tasks: list[Mapping[str, Any]] = []
        for ready in (r for r in wave if r.error is None):
            for index in ready.plan.indexes:
                if index.name in ready.failed:
                    continue
                for fragments in index.build:
                    todo.append((ready, index))
                    tasks.append(self._segment_task(ready, index, fragments, trained))
        results = self._runner.run(work.build_segment, tasks, stage="building indices")
        for (ready, index), result in zip(todo, results, strict=True):
            if result.get("by_store") or result.get("gone"):
                _fail(ready, result)
            elif "failed" in result:
                ready.failed[index.name] = result["reason"]
            else:
                ready.segments.setdefault(index.name, []).append(result["segment"])

    def _segment_task(
        self, ready: Ready, index: IndexPlan, fragments: Sequence[int], trained: Mapping[tuple[str, str], Any]
    ) -> Mapping[str, Any]:
        share = sum(b.rows for b in ready.plan.bins if b.new_id in fragments)
        task = {
            **work.table_json(self._location, ready.pin, int(ready.private.version)),
            "column": index.column,
            "kind": index.kind,
            "name": index.name,
            "fragments": list(fragments),
            "rows": share or index.rows // max(1, len(index.build)),
            "made_with": index.options.get("made_with"),
        }
        if "partitions" in index.options:
            task["partitions"] = index.options["partitions"]
        elif "centroids_of" in index.options:
            task["centroids"] = {"of": index.options["centroids_of"], "version": ready.pin.version}
        elif (ready.plan.table, index.name) in trained:
            task["centroids"] = trained[(ready.plan.table, index.name)]
        return task

    def _train(self, wave: Sequence[Ready]) -> dict[tuple[str, str], Any]:
        todo = [(ready, index) for ready in wave for index in ready.plan.indexes if "vectors" in index.options]
        if not todo:
            return {}
        if self._staging is None:
            self._staging = new_staging(self._location)
        tasks = [
            {
                **work.table_json(self._location, ready.pin, int(ready.private.version)),
                "column": index.column,
                "vectors": index.options["vectors"],
                "made_with": index.options.get("made_with"),
                "staging": self._staging.to_json(),
            }
            for ready, index in todo
        ]
        centroids: dict[tuple[str, str], Any] = {}
        results = self._runner.run(work.train_centroids, tasks, stage="training vector indices")
        for (ready, index), result in zip(todo, results, strict=True):
            if result.get("by_store") or result.get("gone"):
                _fail(ready, result)
            elif "failed" in result:
                ready.failed[index.name] = result["reason"]
            else:
                centroids[(ready.plan.table, index.name)] = {**result, "staging": self._staging.to_json()}
        return centroids


def _fail(ready: Ready, result: Mapping[str, Any]) -> None:
    ready.error = result["failed"]
    ready.is_missing = ready.is_missing or bool(result.get("gone"))
