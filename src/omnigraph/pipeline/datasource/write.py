"""Writing a DataFrame into a type of the graph: tasks stage rows, one commit loads them.

1. aim     on the driver: open the graph, look up branch, type and columns; name a staging folder for this job
2. write   on an executor: rows of the partition as files of the staging folder; the message names them
3. commit  on the driver: the rows of the files that messages name, loaded with all rules as one graph commit
4. clean   remove the staging folder, after a commit, a failed one, or an abort

Invariant: all rows or none. A task that runs twice, or fails, stages files that no message names. The commit carries
the job's own operation id: repeating it returns the first outcome. A crash before 3 leaves the staging folder, which
is never read; a crash in 3 is handled by the commit protocol.
"""

from __future__ import annotations

import os
import secrets
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, get_args

import pyarrow as pa
from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage

import omnigraph
from omnigraph.errors import ConstraintViolation, StorageError, UsageError, Violation
from omnigraph.graph.reads import require_column, type_of
from omnigraph.language.schema.model import EntityType
from omnigraph.storage.layout import Location, locate
from omnigraph.tasks.error_text import with_remedy
from omnigraph.tasks.staging import Staging
from omnigraph.write.violations import told

FILE_BYTES = 64 << 20
"""The size of a batch in memory at which a task writes a file."""
Mode = Literal["append", "merge"]


@dataclass(frozen=True)
class Target:
    """The graph, branch and type that rows are written to, and the mode."""

    location: Location
    job: str
    type: EntityType
    branch: str
    mode: Mode
    actor: str | None
    if_commit: str | None
    operation_id: str

    @property
    def staging(self) -> Staging:
        return Staging(self.location, self.job)


@dataclass
class Staged(WriterCommitMessage):  # type: ignore[misc]
    """The files of one successful task."""

    files: tuple[str, ...]
    rows: int


def aim(
    graph: str,
    type_name: str,
    columns: Sequence[str],
    *,
    storage: Mapping[str, str] | None,
    branch: str,
    mode: Mode,
    actor: str | None,
    if_commit: str | None,
    operation_id: str | None,
) -> Target:
    if mode not in get_args(Mode):
        raise UsageError(detail=f"the option 'load_mode' is one of {', '.join(get_args(Mode))}, not {mode!r}.")
    schema = omnigraph.open(graph, storage_options=storage, actor=actor).schema(branch)
    t = type_of(schema, type_name)
    _require_columns(t, columns)
    job = f"spark-{secrets.token_hex(8)}"
    location = locate(graph, options=storage)
    return Target(location, job, t, branch, mode, actor, if_commit, operation_id or job)


def _require_columns(t: EntityType, columns: Sequence[str]) -> None:
    allowed = {"id", *t.by_name, *(("from", "to", "src", "dst") if t.kind == "edge" else ())}
    for name in columns:
        require_column(t, name, allowed)
    if t.kind == "edge":
        for names in (("from", "src"), ("to", "dst")):
            if not any(name in columns and name not in t.by_name for name in names):
                have = ", ".join(columns)
                raise UsageError(
                    detail=f"{t.key} needs a column {names[1]} (or {names[0]}); the DataFrame has: {have}."
                )


class GraphWriter(DataSourceArrowWriter):  # type: ignore[misc]
    def __init__(self, target: Target) -> None:
        self.target = target

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        with with_remedy():
            return _stage(self.target, iterator)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        staged = [m for m in messages if isinstance(m, Staged)]
        with with_remedy():
            try:
                _load_staged(self.target, [name for message in staged for name in message.files])
            finally:
                self.target.staging.remove()

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        self.target.staging.remove()


# ---- on an executor --------------------------------------------------------------------------------------------------


def _stage(target: Target, batches: Iterator[pa.RecordBatch]) -> Staged:
    files: list[str] = []
    pending: list[pa.RecordBatch] = []
    rows = size = 0

    def flush() -> None:
        nonlocal size
        if pending:
            _prepare(target)
            files.append(target.staging.put_table("rows", pa.Table.from_batches(pending)))
            pending.clear()
            size = 0

    for batch in batches:
        if batch.num_rows == 0:
            continue
        pending.append(_with_integers(target.type, batch))
        rows += batch.num_rows
        size += batch.nbytes
        if size >= FILE_BYTES:
            flush()
    flush()
    return Staged(tuple(files), rows)


def _prepare(target: Target) -> None:
    if target.location.is_local:
        try:
            os.makedirs(target.staging.path(""), exist_ok=True)
        except OSError as error:
            raise StorageError(doing=f"creating {target.staging.folder}", detail=str(error)) from error


def _with_integers(t: EntityType, batch: pa.RecordBatch) -> pa.RecordBatch:
    """Convert the decimals of U64 properties to integers, which a write requires."""
    for p in t.properties:
        position = batch.schema.get_field_index(p.name)
        if position < 0 or "U64" not in (p.type.kind, p.type.item):
            continue
        target = _integer_type(batch.schema.field(position).type)
        if target is None:
            continue
        try:
            column = batch.column(position).cast(target)
        except pa.ArrowInvalid as error:
            message = f"{p.name}: a number is outside of the range of U64, 0 to {2**64 - 1}"
            violation = Violation(rule="type", table_key=t.key, message=message, property=p.name)
            raise ConstraintViolation(**told([violation], {"type": 1})) from error
        batch = batch.set_column(position, pa.field(p.name, target), column)
    return batch


def _integer_type(kind: pa.DataType) -> pa.DataType | None:
    if pa.types.is_decimal(kind) and kind.scale == 0:
        return pa.uint64()
    if pa.types.is_list(kind):
        item = _integer_type(kind.value_type)
        return None if item is None else pa.list_(item)
    return None


# ---- on the driver ---------------------------------------------------------------------------------------------------


def _load_staged(target: Target, files: Sequence[str]) -> None:
    """All rows of these files, as one commit. There is no session here: the load runs in this process."""
    if not files:
        return
    graph = omnigraph.open(target.location.uri, storage_options=target.location.options or None, actor=target.actor)
    with _mapped(target.staging, files) as rows:
        tables = {target.type.name: rows}
        graph.load(
            nodes=tables if target.type.kind == "node" else None,
            edges=tables if target.type.kind == "edge" else None,
            mode=target.mode,
            branch=target.branch,
            engine="local",
            if_commit=target.if_commit,
            operation_id=target.operation_id,
        )


@contextmanager
def _mapped(staging: Staging, files: Sequence[str]) -> Iterator[pa.Table]:
    """The rows of staged files as one table on disk, not in memory; files of a bucket are fetched first."""
    if staging.location.is_local:
        yield pa.concat_tables(staging.get_table(name) for name in files)
        return
    with tempfile.TemporaryDirectory(prefix="omnigraph-") as folder:
        fetched = Staging(Location(folder, True, {}), staging.job)
        os.makedirs(fetched.path(""))
        for name in files:
            Path(fetched.path(name)).write_bytes(staging.get(name))
        yield pa.concat_tables(fetched.get_table(name) for name in files)
