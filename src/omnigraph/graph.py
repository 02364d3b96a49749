"""The graph handle: one object for everything that a program does with a graph.

`init` creates a graph, `open` opens one; opening reads and never writes. Reads work on one pinned snapshot. Writes
go through the one door and are either acknowledged exactly once or refused with a typed error and no effect.
Threads may share a handle: writers take turns, readers never wait. Any number of processes may hold handles of one
graph.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, Literal

from omnigraph.branch.create import create_branch
from omnigraph.branch.delete import delete_branch
from omnigraph.commit.door import Door
from omnigraph.commit.observe import Observer, silent
from omnigraph.commit.request import Outcome, Request
from omnigraph.errors import OmnigraphError
from omnigraph.language.schema.model import Schema
from omnigraph.results import BranchInfo, CommitInfo, ExportResult, LoadResult, SchemaResult, WriteResult
from omnigraph.snapshot import Snapshot
from omnigraph.storage.layout import Location, locate
from omnigraph.storage.manifest import Manifest
from omnigraph.storage.records import MAIN

if TYPE_CHECKING:
    from collections.abc import Iterator

    from omnigraph.language.schema.plan import SchemaPlan
    from omnigraph.pipeline.sources import Source
    from omnigraph.transaction import Transaction
    from omnigraph.write.mutate import Rows, Statement

Address = str | os.PathLike[str]


class Graph:
    """A graph at one address."""

    def __init__(self, location: Location, *, actor: str | None = None, observer: Observer = silent) -> None:
        self._location = location
        self._manifest = Manifest(location)
        self._door = Door(self._manifest, observer=observer)
        self._actor = actor if actor is not None else os.environ.get("OMNIGRAPH_ACTOR") or None

    def __enter__(self) -> Graph:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"Graph({self.uri!r})"

    @property
    def uri(self) -> str:
        return self._location.uri

    @property
    def is_local(self) -> bool:
        return self._location.is_local

    def close(self) -> None:
        """Let go of open tables. Nothing is pending: every write was finished when its call returned."""
        self._manifest = Manifest(self._location)
        self._door = Door(self._manifest, observer=self._door.observe)

    # ---- reading -----------------------------------------------------------------------------------------------------

    def schema(self, branch: str = MAIN) -> Schema:
        return self._manifest.schema(self._manifest.head(branch).schema)

    def snapshot(self, branch: str = MAIN, *, commit: str | None = None) -> Snapshot:
        """One coherent state: the branch's newest, or that of any commit."""
        return Snapshot.take(self._door, branch, commit)

    def branches(self) -> list[BranchInfo]:
        """All branches, sorted by name."""
        return [BranchInfo.of(head) for _, head in sorted(self._manifest.heads().items())]

    def commits(self, branch: str = MAIN, *, limit: int | None = None) -> list[CommitInfo]:
        """The commits that the branch's state is made of, newest first."""
        from omnigraph.history import reachable

        return [CommitInfo.of(r) for r in reachable(self._manifest, branch, limit=limit)]

    def commit(self, commit_id: str) -> CommitInfo:
        return CommitInfo.of(self._manifest.record(commit_id))

    # ---- small writes ------------------------------------------------------------------------------------------------

    def insert(self, rows: Mapping[str, Rows], **options: Any) -> WriteResult:
        """Add entities of one or many types, in one commit. An id that exists is a KeyConflict."""
        from omnigraph.write.mutate import Put

        return self._write([Put(name, given, "insert") for name, given in rows.items()], **options)

    def upsert(self, rows: Mapping[str, Rows], **options: Any) -> WriteResult:
        """Add or replace entities, in one commit. A row is the full image of its entity."""
        from omnigraph.write.mutate import Put

        return self._write([Put(name, given, "upsert") for name, given in rows.items()], **options)

    def update(
        self,
        type_name: str,
        values: Mapping[str, object],
        *,
        ids: Sequence[str] | None = None,
        where: Mapping[str, object] | None = None,
        **options: Any,
    ) -> WriteResult:
        """Set some properties of the entities with these ids, or with these values; the others keep theirs."""
        from omnigraph.write.mutate import Change

        return self._write([Change(type_name, values, ids=ids, where=where)], **options)

    def delete(self, ids: Mapping[str, Sequence[str]], **options: Any) -> WriteResult:
        """Remove entities by id, in one commit. Edges of removed nodes go with them."""
        from omnigraph.write.mutate import Remove

        return self._write([Remove(name, ids=given) for name, given in ids.items()], **options)

    @contextmanager
    def transaction(self, branch: str = MAIN, **options: Any) -> Iterator[Transaction]:
        """Several writes and what they rest on, in one commit when the block ends; an exception discards them."""
        from omnigraph.transaction import Transaction

        transaction = Transaction(self._door, branch)
        yield transaction
        if transaction.statements:
            outcome = self._run(transaction.operation(), branch=branch, **options)
            transaction.result = WriteResult.of(outcome)

    def _write(self, statements: Sequence[Statement], **options: Any) -> WriteResult:
        from omnigraph.write.mutate import Write

        return WriteResult.of(self._run(Write(tuple(statements)), **options))

    def _run(
        self,
        operation: Any,
        *,
        branch: str = MAIN,
        actor: str | None = None,
        if_commit: str | None = None,
        operation_id: str | None = None,
    ) -> Outcome:
        request = Request(branch=branch, actor=actor or self._actor, if_commit=if_commit, operation_id=operation_id)
        return self._door.run(operation, request)

    # ---- files -------------------------------------------------------------------------------------------------------

    def load(
        self,
        source: Source | Sequence[Source],
        *,
        mode: Literal["append", "merge", "overwrite"],
        branch: str = MAIN,
        from_branch: str | None = None,
        on_error: Literal["fail", "quarantine"] = "fail",
        quarantine: Address | None = None,
        **options: Any,
    ) -> LoadResult:
        """Load NDJSON records of nodes and edges, in one commit. Lines that are wrong fail the load or are put
        aside.
        """
        from omnigraph.pipeline.load import read_load

        fork = from_branch is not None and branch not in {b.name for b in self.branches()}
        base = from_branch if fork and from_branch is not None else branch
        load = read_load(source, self.schema(base), mode=mode, on_error=on_error, quarantine=quarantine)
        made = self.create_branch(branch, from_=base) if fork else None
        try:
            outcome = self._run(load, branch=branch, **options)
        except OmnigraphError:
            if made is not None:
                self._forget(made)
            raise
        return load.finish(outcome, branch=branch)

    def _forget(self, made: BranchInfo) -> None:
        """Take a branch back that was made for a load which then failed, unless somebody has used it since."""
        with self._door.lock, suppress(OmnigraphError):
            if self._manifest.head(made.name).commit == made.commit:
                delete_branch(self._door, made.name)

    def export(
        self,
        write: Callable[[bytes], Any],
        *,
        branch: str = MAIN,
        commit: str | None = None,
        types: Sequence[str] | None = None,
    ) -> ExportResult:
        """Write one snapshot as NDJSON records, nodes before edges, in a stable order; `load` takes them back."""
        from omnigraph.pipeline.export import export_records

        return export_records(self.snapshot(branch, commit=commit), write, types=types)

    # ---- schema ------------------------------------------------------------------------------------------------------

    def plan_schema(
        self, text: str, *, branch: str = MAIN, allow_data_loss: bool = False, schema_file: str = "<schema>"
    ) -> SchemaPlan:
        """What applying this schema to the branch would do. Nothing is changed."""
        from omnigraph.language.schema.parse import parse_schema
        from omnigraph.write.evolve import ApplySchema

        desired = parse_schema(text, file=schema_file)
        return ApplySchema(desired, allow_data_loss=allow_data_loss).plan(self._door.view(branch))

    def apply_schema(
        self,
        text: str,
        *,
        branch: str = MAIN,
        allow_data_loss: bool = False,
        schema_file: str = "<schema>",
        **options: Any,
    ) -> SchemaResult:
        """Move the branch to this schema, with all its tables, in one commit. Other branches keep theirs."""
        from omnigraph.language.schema.parse import parse_schema
        from omnigraph.write.evolve import ApplySchema
        from omnigraph.write.reclaim import reclaim

        operation = ApplySchema(parse_schema(text, file=schema_file), allow_data_loss=allow_data_loss)
        with self._door.lock:
            before = self._door.view(branch)
            plan = operation.plan(before)
            outcome = self._run(operation, branch=branch, **options)
            if outcome.record is not None and allow_data_loss:
                reclaim(self._door, before, plan)
        return SchemaResult.of(outcome, plan)

    # ---- branches ----------------------------------------------------------------------------------------------------

    def create_branch(self, name: str, *, from_: str = MAIN, if_commit: str | None = None) -> BranchInfo:
        """A new branch that stands where `from_` stands: one small change, whatever the size of the graph."""
        with self._door.lock:
            return BranchInfo.of(create_branch(self._manifest, name, from_branch=from_, if_commit=if_commit))

    def delete_branch(self, name: str) -> BranchInfo:
        with self._door.lock:
            return BranchInfo.of(delete_branch(self._door, name))


def open_graph(
    address: Address,
    *,
    actor: str | None = None,
    storage_options: Mapping[str, str] | None = None,
    observer: Observer = silent,
) -> Graph:
    """Open the graph at this address; GraphNotFound if there is none. Nothing is written."""
    graph = Graph(locate(address, options=storage_options), actor=actor, observer=observer)
    graph._manifest.table()
    return graph
