"""The graph handle: one object for everything that a program does with a graph.

`init` creates a graph, `open` opens one; opening reads and never writes. Reads work on one pinned snapshot. Writes
go through the one door and are either acknowledged exactly once or refused with a typed error and no effect.
Threads may share a handle: writers take turns, readers never wait. Any number of processes may hold handles of one
graph.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, Literal, TypedDict, Unpack

from omnigraph.arguments import checked, renamed
from omnigraph.branch.create import create_branch
from omnigraph.branch.delete import delete_branch
from omnigraph.branch.revisions import resolve
from omnigraph.commit.actor import checked_actor
from omnigraph.commit.committer import Committer
from omnigraph.commit.phases import Observer, silent
from omnigraph.commit.request import Outcome, Request
from omnigraph.errors import OmnigraphError, UsageError
from omnigraph.graph.branches import BranchMethods
from omnigraph.graph.maintenance import Maintenance, MaintenanceMethods
from omnigraph.graph.queries import QueryMethods
from omnigraph.graph.results import (
    BranchInfo,
    CommitInfo,
    EmbedResult,
    ExportResult,
    LoadResult,
    SchemaResult,
    WriteResult,
)
from omnigraph.graph.snapshot import AsOf, Snapshot
from omnigraph.graph.versions import VersionMethods
from omnigraph.language.schema.model import Schema
from omnigraph.storage.layout import Location, locate
from omnigraph.storage.manifest.records import MAIN
from omnigraph.storage.manifest.table import Manifest

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pyarrow as pa

    from omnigraph.graph.reads import Where
    from omnigraph.graph.transaction import Transaction
    from omnigraph.language.schema.plan.planner import SchemaPlan
    from omnigraph.pipeline.export.stream import Format
    from omnigraph.pipeline.load.sources import Source
    from omnigraph.tasks.engine import EngineSettings
    from omnigraph.tasks.progress import Watcher
    from omnigraph.write.mutate import Rows, Statement

Address = str | os.PathLike[str]
Session = Any
"""A Spark session, classic or Connect."""
Table = Any
"""A table of a load: a path, a `TableSource`, an Arrow table or a Spark DataFrame."""


class ReadOptions(TypedDict, total=False):
    """What of a type is read: `limit` counts rows."""

    columns: Sequence[str] | None
    where: Where | None
    branch: str
    commit: str | None
    as_of: AsOf | None
    limit: int | None


class CommitOptions(TypedDict, total=False):
    """Who commits, and under which condition: `if_commit` is the newest commit of the branch that is expected,
    `operation_id` the caller's own id of the operation, which is committed once however often it is repeated.
    """

    actor: str | None
    if_commit: str | None
    operation_id: str | None


class WriteOptions(CommitOptions, total=False):
    """The options of a small write."""

    branch: str


class Graph(QueryMethods, BranchMethods, MaintenanceMethods, VersionMethods):
    """A graph at one address."""

    def __init__(
        self,
        location: Location,
        *,
        actor: str | None = None,
        observer: Observer = silent,
        engines: EngineSettings | None = None,
    ) -> None:
        self._location = location
        self._manifest = Manifest(location)
        self._committer = Committer(self._manifest, observer=observer)
        # That of the environment is judged when it is used: reading needs none.
        self._actor = checked_actor(actor) or os.environ.get("OMNIGRAPH_ACTOR") or None
        self._engines = engines

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

    @property
    def engines(self) -> EngineSettings:
        """Where heavy work runs: Spark or this process."""
        if self._engines is None:
            from omnigraph.tasks.engine import EngineSettings

            self._engines = EngineSettings()
        return self._engines

    @property
    def maintenance(self) -> Maintenance:
        """The maintenance verbs as a namespace: `graph.maintenance.optimize()`."""
        return Maintenance(self)

    def close(self) -> None:
        """Let go of open tables. Nothing is pending: every write was finished when its call returned."""
        self._query_cache = None
        self._manifest = Manifest(self._location)
        self._committer = Committer(self._manifest, observer=self._committer.observe)

    # ---- reading -----------------------------------------------------------------------------------------------------

    @checked
    def schema(self, branch: str = MAIN) -> Schema:
        return self._manifest.schema(self._manifest.head(branch).schema)

    @checked
    def snapshot(self, branch: str = MAIN, *, commit: str | None = None, as_of: AsOf | None = None) -> Snapshot:
        """One coherent state: the branch's newest, that of a revision (the id of a commit, a branch, a tag, a time), or
        the branch's newest at a time.
        """
        return Snapshot.take(self._committer, branch, self._resolved(commit, branch), as_of)

    def _resolved(self, revision: str | None, branch: str = MAIN) -> str | None:
        return None if revision is None else resolve(self._manifest, revision, branch=branch)

    @checked
    def nodes(self, type_name: str, **options: Unpack[ReadOptions]) -> pa.Table:
        """Nodes of a type as an Arrow table: `id`, then the properties in the order of the schema.

        `columns` chooses some of them. `where` is a filter text (`"age >= 30 AND name <> 'Ada'"`) or a mapping from
        properties to the values they must hold, None for null. `branch`, `commit`, `as_of` name the state.
        """
        return self._read(type_name, "node", **options).read_all()

    @checked
    def edges(self, type_name: str, **options: Unpack[ReadOptions]) -> pa.Table:
        """Edges of a type as an Arrow table: `id`, `src`, `dst`, then the properties. Options as of `nodes`."""
        return self._read(type_name, "edge", **options).read_all()

    @checked
    def scan(self, type_name: str, **options: Unpack[ReadOptions]) -> pa.RecordBatchReader:
        """Nodes or edges of a type, batch by batch, for more than fits in memory. Options as of `nodes`."""
        return self._read(type_name, None, **options)

    def _read(
        self,
        type_name: str,
        kind: Literal["node", "edge"] | None,
        *,
        branch: str = MAIN,
        commit: str | None = None,
        as_of: AsOf | None = None,
        **options: Any,
    ) -> pa.RecordBatchReader:
        from omnigraph.graph.reads import read_rows

        return read_rows(self.snapshot(branch, commit=commit, as_of=as_of), type_name, kind=kind, **options)

    def branches(self) -> list[BranchInfo]:
        """All branches, sorted by name."""
        return [BranchInfo.of(head) for _, head in sorted(self._manifest.heads().items())]

    @checked
    def commits(self, branch: str = MAIN, *, limit: int | None = None) -> list[CommitInfo]:
        """The commits that the branch's state is made of, newest first."""
        from omnigraph.graph.commits import reachable

        if limit is not None and limit < 0:
            raise UsageError(detail=f"limit is a number of commits, not {limit}.")
        return [CommitInfo.of(r) for r in reachable(self._manifest, branch, limit=limit)]

    @checked
    def get_commit(self, revision: str) -> CommitInfo:
        """The commit that a revision names: its id, a branch, a tag or a time."""
        return CommitInfo.of(self._manifest.record(resolve(self._manifest, revision)))

    @checked
    def commit(self, commit_id: str) -> CommitInfo:
        """Deprecated: use `get_commit`."""
        warnings.warn("Graph.commit(id) is deprecated; use get_commit", DeprecationWarning, stacklevel=3)
        return self.get_commit(commit_id)

    # ---- small writes ------------------------------------------------------------------------------------------------

    @checked
    def insert(self, rows: Mapping[str, Rows], **options: Unpack[WriteOptions]) -> WriteResult:
        """Add entities of one or many types, in one commit. An id that exists is a KeyConflict."""
        from omnigraph.write.mutate import Put

        return self._write([Put(name, given, "insert") for name, given in rows.items()], **options)

    @checked
    def upsert(self, rows: Mapping[str, Rows], **options: Unpack[WriteOptions]) -> WriteResult:
        """Add or replace entities, in one commit. A row is the full image of its entity."""
        from omnigraph.write.mutate import Put

        return self._write([Put(name, given, "upsert") for name, given in rows.items()], **options)

    @checked
    def update(
        self,
        type_name: str,
        values: Mapping[str, object],
        *,
        ids: Sequence[str] | None = None,
        where: Mapping[str, object] | None = None,
        **options: Unpack[WriteOptions],
    ) -> WriteResult:
        """Set some properties of the entities with these ids, or with these values; the others keep theirs."""
        from omnigraph.write.mutate import Change

        return self._write([Change(type_name, values, ids=ids, where=where)], **options)

    @checked
    def delete(self, ids: Mapping[str, Sequence[str]], **options: Unpack[WriteOptions]) -> WriteResult:
        """Remove entities by id, in one commit. Edges of removed nodes go with them."""
        from omnigraph.write.mutate import Remove

        return self._write([Remove(name, ids=given) for name, given in ids.items()], **options)

    @checked
    @contextmanager
    def transaction(self, branch: str = MAIN, **options: Unpack[CommitOptions]) -> Iterator[Transaction]:
        """Several writes and what they rest on, in one commit when the block ends; an exception discards them."""
        from omnigraph.graph.transaction import Transaction

        self._by(options.get("actor"))
        transaction = Transaction(self._committer, branch)
        yield transaction
        if transaction.statements:
            outcome = self._run(transaction.operation(), branch=branch, **options)
            transaction.result = WriteResult.of(outcome)

    def _write(self, statements: Sequence[Statement], **options: Unpack[WriteOptions]) -> WriteResult:
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
        request = Request(branch=branch, actor=self._by(actor), if_commit=if_commit, operation_id=operation_id)
        return self._committer.run(operation, request)

    # ---- files -------------------------------------------------------------------------------------------------------

    @checked
    def load(
        self,
        source: Source | Sequence[Source] | None = None,
        *,
        nodes: Mapping[str, Table] | None = None,
        edges: Mapping[str, Table] | None = None,
        mode: Literal["append", "merge", "overwrite"],
        branch: str = MAIN,
        from_branch: str | None = None,
        on_error: Literal["fail", "quarantine"] = "fail",
        quarantine: Address | None = None,
        max_line_bytes: int | None = None,
        engine: str | None = None,
        **options: Unpack[CommitOptions],
    ) -> LoadResult:
        """Load nodes and edges, in one commit: NDJSON records from `source`, tables per type from `nodes` and `edges`.

        A table is a path or pattern, a `TableSource`, an Arrow table or a Spark DataFrame. Rows that are wrong fail
        the load, or are put aside. A record of NDJSON, JSON lines or CSV is at most `max_line_bytes` long, 256 MiB by
        default. `engine` is `auto`, `spark` or `local`.
        """
        from omnigraph.pipeline.load.planner import started_load

        self._by(options.get("actor"))
        self._manifest.require_writable()  # before hours of work
        fork = from_branch is not None and branch not in {b.name for b in self.branches()}
        base = from_branch if fork and from_branch is not None else branch
        started = started_load(
            self._location,
            self.engines,
            self._committer.view(base),
            source=source,
            nodes=nodes,
            edges=edges,
            mode=mode,
            on_error=on_error,
            quarantine=quarantine,
            engine=engine,
            max_line_bytes=max_line_bytes,
        )
        with started as load:
            made = self.create_branch(branch, from_branch=base) if fork else None
            try:
                outcome = self._run(load, branch=branch, **options)
            except (OmnigraphError, KeyboardInterrupt):
                if made is not None:
                    self._forget(made)
                raise
            return load.finish(outcome, branch=branch)

    def _forget(self, made: BranchInfo) -> None:
        """Take a branch back that was made for a load which then failed, unless somebody has used it since."""
        with self._committer.mutex, suppress(OmnigraphError):
            if self._manifest.head(made.name).commit == made.commit:
                delete_branch(self._committer, made.name)

    @renamed(format="file_format")
    @checked
    def export(
        self,
        to: Callable[[bytes], Any] | Address,
        *,
        branch: str = MAIN,
        commit: str | None = None,
        as_of: AsOf | None = None,
        types: Sequence[str] | None = None,
        file_format: Format = "jsonl",
        engine: str | None = None,
    ) -> ExportResult:
        """Write one snapshot: NDJSON records to a function, nodes before edges, in a stable order; or files into a
        folder, on Spark or in this process. `load` takes both back.
        """
        from omnigraph.pipeline.export.stream import export_records, require_records

        if callable(to):
            require_records(format=file_format, engine=engine)
            return export_records(self.snapshot(branch, commit=commit, as_of=as_of), to, types=types)
        from omnigraph.pipeline.export.folder import export_folder, folder_location

        out = folder_location(to)
        snapshot = self.snapshot(branch, commit=commit, as_of=as_of)
        return export_folder(snapshot, out, self.engines, format=file_format, types=types, engine=engine)

    # ---- vectors -----------------------------------------------------------------------------------------------------

    @renamed(type="type_name", property="property_name", all="everything")
    @checked
    def embed(
        self,
        type_name: str | None = None,
        property_name: str | None = None,
        *,
        provider: str | None = None,
        model: str | None = None,
        batch: int | None = None,
        commit_every: int | None = None,
        rate_per_minute: float | None = None,
        everything: bool = False,
        branch: str = MAIN,
        engine: str | None = None,
        actor: str | None = None,
    ) -> EmbedResult:
        """Fill vector properties declared `@embed` where the vector is missing or its text has changed since.

        One commit, or one for every `commit_every` rows; running it again does what is left. `everything` embeds
        every text anew.
        """
        from omnigraph.pipeline.embed.run import EmbedOptions, embed

        self._by(actor)
        self._manifest.require_writable()  # before hours of work
        return embed(
            branch=branch,
            view=lambda: self._committer.view(branch),
            commit=lambda operation: self._run(operation, branch=branch, actor=actor),
            engines=self.engines,
            engine=engine,
            options=EmbedOptions(
                type_name=type_name,
                property_name=property_name,
                provider=provider,
                model=model,
                batch=batch,
                commit_every=commit_every,
                rate_per_minute=rate_per_minute,
                everything=everything,
            ),
        )

    # ---- schema ------------------------------------------------------------------------------------------------------

    @checked
    def plan_schema(
        self,
        text: str,
        *,
        branch: str = MAIN,
        allow_data_loss: bool = False,
        drop_all: bool = False,
        schema_file: str = "<schema>",
    ) -> SchemaPlan:
        """What applying this schema to the branch would do. Nothing is changed."""
        from omnigraph.language.schema.syntax.parse import parse_schema
        from omnigraph.write.evolve import ApplySchema

        desired = parse_schema(text, file=schema_file)
        operation = ApplySchema(desired, allow_data_loss=allow_data_loss, drop_all=drop_all)
        return operation.plan(self._committer.view(branch))

    @checked
    def apply_schema(
        self,
        text: str,
        *,
        branch: str = MAIN,
        allow_data_loss: bool = False,
        drop_all: bool = False,
        schema_file: str = "<schema>",
        **options: Unpack[CommitOptions],
    ) -> SchemaResult:
        """Move the branch to this schema, with all its tables, in one commit. Other branches keep theirs.

        A schema that keeps no type of the branch needs `drop_all`, or `allow_data_loss`, which removes the data too.
        """
        from omnigraph.language.schema.syntax.parse import parse_schema
        from omnigraph.maintenance.cleanup import dropped
        from omnigraph.write.evolve import ApplySchema

        desired = parse_schema(text, file=schema_file)
        operation = ApplySchema(desired, allow_data_loss=allow_data_loss, drop_all=drop_all)
        with self._committer.mutex:
            before = self._committer.view(branch)
            plan = operation.plan(before)
            drops = dropped.Drops.of(before, plan)
            dropped.require_removable(self._committer, drops)
            outcome = self._run(operation, branch=branch, **options)
            result = SchemaResult.of(outcome, plan)
            return dropped.remove_dropped(self._committer, drops, result) if result.applied else result

    # ---- branches ----------------------------------------------------------------------------------------------------

    @renamed(from_="from_branch")
    @checked
    def create_branch(self, name: str, *, from_branch: str = MAIN, if_commit: str | None = None) -> BranchInfo:
        """Create a branch at the commit that the revision `from_branch` names (a branch, a tag, the id of a commit, a
        time): one small change, whatever the size of the graph.
        """
        with self._committer.mutex:
            return BranchInfo.of(create_branch(self._manifest, name, from_branch=from_branch, if_commit=if_commit))

    @checked
    def delete_branch(self, name: str) -> BranchInfo:
        with self._committer.mutex:
            return BranchInfo.of(delete_branch(self._committer, name))


@checked
def open_graph(
    address: Address,
    *,
    actor: str | None = None,
    storage_options: Mapping[str, str] | None = None,
    observer: Observer = silent,
    spark: Session | None = None,
    engine: str | None = None,
    master: str | None = None,
    conf: Mapping[str, str] | None = None,
    watcher: Watcher | None = None,
) -> Graph:
    """Open the graph at this address; GraphNotFound if there is none. Nothing is written.

    `spark` is a session that the caller has; `engine`, `master` and `conf` say where heavy work runs else. `watcher`
    is told of the progress of heavy work.
    """
    engines = None
    if any(given is not None for given in (spark, engine, master, conf, watcher)):
        from omnigraph.tasks.engine import EngineSettings
        from omnigraph.tasks.progress import SilentWatcher
        from omnigraph.tasks.session import SparkSettings

        settings = SparkSettings(master=master or os.environ.get("OMNIGRAPH_MASTER") or None, conf=dict(conf or {}))
        engines = EngineSettings(requested=engine, settings=settings, session=spark, watcher=watcher or SilentWatcher())
    graph = Graph(locate(address, options=storage_options), actor=actor, observer=observer, engines=engines)
    graph._manifest.table()
    return graph
