"""Start a load: find the inputs, choose the engine and the implementation, read.

NDJSON that fits in memory is loaded in memory when the engine is this process; everything else is loaded by `bulk`, on
either engine. Both give the same graph, the same errors and the same rejects.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from omnigraph.commit.operation import View
from omnigraph.errors import UnknownType, UsageError
from omnigraph.language.schema.model import EntityType, Schema
from omnigraph.pipeline.bulk.input.frames import is_frame, stage_frame
from omnigraph.pipeline.bulk.input.input_splits import (
    PACKED,
    Piece,
    csv_inputs,
    envelope_pieces,
    files_of,
    numbered,
    piece_bytes,
    staged_pieces,
    staged_table,
    table_pieces,
)
from omnigraph.pipeline.bulk.input.unpack import unpacked
from omnigraph.pipeline.bulk.job import Job
from omnigraph.pipeline.bulk.load import BulkLoad
from omnigraph.pipeline.load.chunks import checked_line_bytes
from omnigraph.pipeline.load.in_memory import LocalLoad, checked_options, read_load
from omnigraph.pipeline.load.input_files import InputFile, find_files, is_remote, plain_path, total_bytes
from omnigraph.pipeline.load.quarantine_file import checked_path, quarantine_path
from omnigraph.pipeline.load.table_sources import FORMATS, TableSource, with_format
from omnigraph.storage.layout import Location
from omnigraph.storage.ulids import Ulids
from omnigraph.tasks.engine import SMALL_BYTES, EngineSettings
from omnigraph.tasks.runner import Runner
from omnigraph.tasks.session import spark_session
from omnigraph.tasks.staging import Staging, new_staging
from omnigraph.write.violations import nearest

IN_MEMORY_BYTES = 256 << 20
"""The maximum size of NDJSON that is loaded in memory."""


class Inputs:
    """The inputs of a load: NDJSON files or streams, and tables per type."""

    def __init__(
        self, source: Any, nodes: Mapping[str, Any] | None, edges: Mapping[str, Any] | None, schema: Schema
    ) -> None:
        value = source if isinstance(source, list | tuple) else [] if source is None else [source]
        self.records = list(value)
        self.has_streams = any(not isinstance(item, str | os.PathLike) for item in value)
        self.files = [] if self.has_streams else [f for item in value for f in find_files(item)]
        self.tables = [(_type(schema.node, "node", name), value) for name, value in (nodes or {}).items()]
        self.tables += [(_type(schema.edge, "edge", name), value) for name, value in (edges or {}).items()]
        if not self.records and not self.tables:
            raise UsageError(detail="there is nothing to load: name at least one file.")
        self.sources = {i: _source(t, value) for i, (t, value) in enumerate(self.tables)}
        self.table_files: dict[int, list[InputFile]] = {
            i: files_of(s)
            for i, s in self.sources.items()
            if isinstance(self.tables[i][1], str | os.PathLike | TableSource) and s.kind in FORMATS
        }

    @property
    def frame(self) -> Any:
        """A DataFrame among the inputs: its session is the one to use."""
        return next((table for _, table in self.tables if is_frame(table)), None)

    @property
    def needs_spark(self) -> bool:
        return self.frame is not None or any(
            i not in self.table_files and isinstance(table, str | os.PathLike | TableSource)
            for i, (_, table) in enumerate(self.tables)
        )

    @property
    def size_bytes(self) -> int:
        total = total_bytes(self.files)
        for i, (_, table) in enumerate(self.tables):
            if i in self.table_files:
                total += total_bytes(self.table_files[i])
            elif not is_frame(table) and hasattr(table, "nbytes"):
                total += table.nbytes
        return total

    @property
    def unpacked_bytes(self) -> int:
        """An estimate of the size of the inputs in memory."""
        packed = [(total_bytes(f), PACKED.get(self.sources[i].kind, 1)) for i, f in self.table_files.items()]
        return self.size_bytes + sum(size * (times - 1) for size, times in packed)

    @property
    def names(self) -> list[str]:
        """Every input that has a name, as the user wrote it; for a DataFrame the files that it reads."""
        names = [plain_path(record) for record in self.records if isinstance(record, str | os.PathLike)]
        for i, (_, table) in enumerate(self.tables):
            if is_frame(table):
                names += [plain_path(name) for name in table.inputFiles()]
            elif isinstance(table, str | os.PathLike | TableSource):
                names.append(self.sources[i].path)
        return names

    @property
    def all_files(self) -> list[InputFile]:
        """Records first, as they are read."""
        return [*self.files, *(file for files in self.table_files.values() for file in files)]


def _type(types: Mapping[str, EntityType], kind: str, name: str) -> EntityType:
    if name not in types:
        suggestion = nearest(name, types)
        raise UnknownType(kind=kind, type_name=name, **({} if suggestion is None else {"suggestion": suggestion}))
    return types[name]


def _source(t: EntityType, table: Any) -> TableSource:
    if isinstance(table, TableSource):
        return with_format(table)
    if isinstance(table, str | os.PathLike):
        return with_format(TableSource(os.fspath(table)))
    return TableSource(f"<{'DataFrame' if is_frame(table) else 'table'} {t.name}>", format="staged")


@contextmanager
def started_load(
    location: Location,
    engines: EngineSettings,
    view: View,
    *,
    source: Any,
    nodes: Mapping[str, Any] | None,
    edges: Mapping[str, Any] | None,
    mode: Any,
    on_error: Any,
    quarantine: str | os.PathLike[str] | None,
    engine: str | None,
    max_line_bytes: int | None,
) -> Iterator[LocalLoad | BulkLoad]:
    """The operation, with its inputs read. Its staged files are removed at the end, also after an error."""
    checked_options(mode, on_error, quarantine)
    line_bytes = checked_line_bytes(max_line_bytes)
    rejects_path = None if quarantine is None else checked_path(quarantine)
    inputs = Inputs(source, nodes, edges, view.schema)
    if on_error == "quarantine":
        rejects_path = quarantine_path(rejects_path, names=inputs.names, files=inputs.all_files)
    size = None if inputs.has_streams else inputs.size_bytes
    if inputs.frame is not None:
        engines = replace(engines, session=inputs.frame.sparkSession)
    name, reason = _chosen(inputs, engines, size, engine)
    _require_possible(inputs, name)
    remote = any("://" in plain_path(record) for record in inputs.records if isinstance(record, str | os.PathLike))
    if name == "local" and not inputs.tables and not remote and (size is None or size <= IN_MEMORY_BYTES):
        engines.watcher.engine(name, reason)
        if size is None or size >= SMALL_BYTES:
            engines.watcher.stage("loading", tasks=1)
        load = read_load(
            source,
            view.schema,
            mode=mode,
            on_error=on_error,
            quarantine=rejects_path,
            max_line_bytes=line_bytes,
            # A stream can't be read again by tasks.
            max_bytes=None if inputs.has_streams else IN_MEMORY_BYTES,
        )
        if load is not None:
            yield load
            return
    runner = engines.runner(work_bytes=size, requested=name, reason=reason)
    staging = new_staging(location)
    try:
        job = _job(runner, staging, view, inputs, mode=mode, engines=engines, max_line_bytes=line_bytes)
        job.read_inputs()
        yield BulkLoad(job, view.schema, on_error, rejects_path)
    finally:
        staging.remove()


def _chosen(inputs: Inputs, engines: EngineSettings, size: int | None, engine: str | None) -> tuple[str, str]:
    """The engine and the reason: as requested, or what can read these inputs, or what fits their size."""
    if (engine or engines.requested) in (None, "auto"):
        if inputs.needs_spark:
            return "spark", "a DataFrame, or a format that only Spark reads"
        if inputs.has_streams:
            return "local", "stdin and open files are read by this process"
    return engines.choose(work_bytes=size, requested=engine)


def _require_possible(inputs: Inputs, engine: str) -> None:
    if engine == "local" and inputs.needs_spark:
        raise UsageError(detail="a DataFrame, or a format that only Spark reads, needs the engine spark.")
    if inputs.has_streams and inputs.tables:
        raise UsageError(detail="stdin and open files can't be combined with tables: give a file's name.")
    if inputs.has_streams and any(
        is_remote(plain_path(record)) for record in inputs.records if isinstance(record, str | os.PathLike)
    ):
        raise UsageError(detail="stdin and open files can't be combined with s3://: load them one after the other.")
    if inputs.has_streams and engine == "spark":
        raise UsageError(detail="stdin and open files are read by this process: use --engine local, or a file's name.")


def _job(
    runner: Runner,
    staging: Staging,
    view: View,
    inputs: Inputs,
    *,
    mode: str,
    engines: EngineSettings,
    max_line_bytes: int,
) -> Job:
    size = piece_bytes(inputs.unpacked_bytes, runner.parallelism)
    _unpack(runner, staging, inputs, size=size, max_line_bytes=max_line_bytes)
    size = piece_bytes(inputs.unpacked_bytes, runner.parallelism)
    pieces: list[Piece] = list(envelope_pieces(inputs.files, size=size, max_line_bytes=max_line_bytes))
    csv_tables = [i for i in inputs.table_files if inputs.sources[i].kind == "csv"]
    tables = [(inputs.tables[i][0], inputs.sources[i], inputs.table_files[i]) for i in csv_tables]
    csv = dict(zip(csv_tables, csv_inputs(runner, tables, size=size, max_line_bytes=max_line_bytes), strict=True))
    for i, (t, table) in enumerate(inputs.tables):
        source = inputs.sources[i]
        if i in inputs.table_files:
            files = inputs.table_files[i]
            pieces += table_pieces(t, source, files, csv.get(i, ()), size=size, max_line_bytes=max_line_bytes)
        elif is_frame(table) or isinstance(table, str | os.PathLike | TableSource):
            frame = table if is_frame(table) else _read_by_spark(source, engines)
            pieces += staged_pieces(t, source, stage_frame(staging, frame))
        else:
            pieces += staged_pieces(t, source, staged_table(staging, _arrow(table, t), size=size))
    existing_rows = sum(pin.rows or 0 for pin in view.pins.values())
    return Job(
        runner,
        staging,
        view.schema,
        numbered(_with_ulids(pieces)),
        mode=mode,
        size_bytes=inputs.unpacked_bytes,
        existing_rows=existing_rows,
        named=[t.key for t, _ in inputs.tables],
    )


def _unpack(runner: Runner, staging: Staging, inputs: Inputs, *, size: int, max_line_bytes: int) -> None:
    """Replace large packed files of text by plain ones."""
    texts = [i for i in inputs.table_files if inputs.sources[i].kind in ("csv", "jsonl")]
    groups = [("jsonl", inputs.files), *((inputs.sources[i].kind, inputs.table_files[i]) for i in texts)]
    records, *tables = unpacked(runner, staging, groups, size=size, max_line_bytes=max_line_bytes)
    inputs.files = records
    inputs.table_files |= dict(zip(texts, tables, strict=True))


def _arrow(table: Any, t: EntityType) -> Any:
    import pyarrow as pa

    if isinstance(table, pa.RecordBatch):
        return pa.table(table)
    if isinstance(table, pa.Table):
        return table
    raise UsageError(
        detail=f"{t.name} is given as a {type(table).__name__}: give a path, an Arrow table or a DataFrame."
    )


def _read_by_spark(source: TableSource, engines: EngineSettings) -> Any:
    session = engines.session or spark_session(engines.settings)
    return session.read.format(source.kind).options(**dict(source.options)).load(source.path)


def _with_ulids(pieces: Sequence[Piece]) -> list[Piece]:
    """Give segments the ULIDs of their new ids: ids increase with the byte offset of a line, where it is known."""
    ulids = Ulids.fresh()
    before = 0
    numbered_pieces = []
    for piece in pieces:
        segments = []
        for segment in piece["segments"]:
            if "start" in segment and before + segment["bytes"] < 2**38:
                segment = {**segment, "ulids": [ulids.time_ms, str(ulids.randomness + before)]}
                before += segment["bytes"]
            segments.append(segment)
        numbered_pieces.append({**piece, "segments": segments})
    return numbered_pieces
