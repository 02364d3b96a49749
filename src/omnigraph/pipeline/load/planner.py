"""Start a load: look at the inputs, choose the engine and the way, read.

NDJSON that fits in memory is loaded in memory when this process does the work; everything else goes through `bulk`, on
either engine. Both ways give the same graph, the same refusals and the same rejects.
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
from omnigraph.pipeline.bulk.frames import is_frame, stage_frame
from omnigraph.pipeline.bulk.input_splits import (
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
from omnigraph.pipeline.bulk.job import Job
from omnigraph.pipeline.bulk.load import BulkLoad
from omnigraph.pipeline.bulk.unpack import unpacked
from omnigraph.pipeline.load.chunks import checked_line_bytes
from omnigraph.pipeline.load.in_memory import LocalLoad, checked_options, read_load
from omnigraph.pipeline.load.input_files import InputFile, find_files, is_remote, plain_path, total_bytes
from omnigraph.pipeline.load.quarantine_file import checked_place, quarantine_place
from omnigraph.pipeline.load.table_sources import FORMATS, TableSource, with_format
from omnigraph.storage.layout import Location
from omnigraph.storage.ulids import Ulids
from omnigraph.tasks.engine import SMALL_BYTES, Engines
from omnigraph.tasks.runner import Runner
from omnigraph.tasks.session import spark_session
from omnigraph.tasks.staging import Staging, new_staging
from omnigraph.write.violations import nearest

IN_MEMORY_BYTES = 256 << 20
"""More NDJSON than this is not held in memory at once."""


class Inputs:
    """What a load was given, sorted: NDJSON files or streams, and tables per type."""

    def __init__(
        self, source: Any, nodes: Mapping[str, Any] | None, edges: Mapping[str, Any] | None, schema: Schema
    ) -> None:
        given = source if isinstance(source, list | tuple) else [] if source is None else [source]
        self.records = list(given)
        self.has_streams = any(not isinstance(one, str | os.PathLike) for one in given)
        self.files = [] if self.has_streams else [f for one in given for f in find_files(one)]
        self.tables = [(_type(schema.node, "node", name), given) for name, given in (nodes or {}).items()]
        self.tables += [(_type(schema.edge, "edge", name), given) for name, given in (edges or {}).items()]
        if not self.records and not self.tables:
            raise UsageError(detail="there is nothing to load: name at least one file.")
        self.sources = {i: _source(t, given) for i, (t, given) in enumerate(self.tables)}
        self.found: dict[int, list[InputFile]] = {
            i: files_of(s)
            for i, s in self.sources.items()
            if isinstance(self.tables[i][1], str | os.PathLike | TableSource) and s.kind in FORMATS
        }

    @property
    def frame(self) -> Any:
        """A DataFrame among the inputs: its session is the one to use."""
        return next((given for _, given in self.tables if is_frame(given)), None)

    @property
    def needs_spark(self) -> bool:
        return self.frame is not None or any(
            i not in self.found and isinstance(given, str | os.PathLike | TableSource)
            for i, (_, given) in enumerate(self.tables)
        )

    @property
    def size_bytes(self) -> int:
        total = total_bytes(self.files)
        for i, (_, given) in enumerate(self.tables):
            if i in self.found:
                total += total_bytes(self.found[i])
            elif not is_frame(given) and hasattr(given, "nbytes"):
                total += given.nbytes
        return total

    @property
    def unpacked_bytes(self) -> int:
        """About what the inputs take once they are read."""
        packed = [(total_bytes(f), PACKED.get(self.sources[i].kind, 1)) for i, f in self.found.items()]
        return self.size_bytes + sum(size * (times - 1) for size, times in packed)

    @property
    def names(self) -> list[str]:
        """Every input that has a name, as it was named; of a DataFrame the files that it reads."""
        found = [plain_path(one) for one in self.records if isinstance(one, str | os.PathLike)]
        for i, (_, given) in enumerate(self.tables):
            if is_frame(given):
                found += [plain_path(name) for name in given.inputFiles()]
            elif isinstance(given, str | os.PathLike | TableSource):
                found.append(self.sources[i].path)
        return found

    @property
    def all_files(self) -> list[InputFile]:
        """Records first, as they are read."""
        return [*self.files, *(file for files in self.found.values() for file in files)]


def _type(known: Mapping[str, EntityType], kind: str, name: str) -> EntityType:
    if name not in known:
        suggestion = nearest(name, known)
        raise UnknownType(kind=kind, type_name=name, **({} if suggestion is None else {"suggestion": suggestion}))
    return known[name]


def _source(t: EntityType, given: Any) -> TableSource:
    if isinstance(given, TableSource):
        return with_format(given)
    if isinstance(given, str | os.PathLike):
        return with_format(TableSource(os.fspath(given)))
    return TableSource(f"<{'DataFrame' if is_frame(given) else 'table'} {t.name}>", format="staged")


@contextmanager
def started_load(
    location: Location,
    engines: Engines,
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
    """The operation, its inputs read. What it staged is removed at the end, however that comes."""
    checked_options(mode, on_error, quarantine)
    line_bytes = checked_line_bytes(max_line_bytes)
    aside = None if quarantine is None else checked_place(quarantine)
    inputs = Inputs(source, nodes, edges, view.schema)
    if on_error == "quarantine":
        aside = quarantine_place(aside, names=inputs.names, files=inputs.all_files)
    size = None if inputs.has_streams else inputs.size_bytes
    if inputs.frame is not None:
        engines = replace(engines, session=inputs.frame.sparkSession)
    name, reason = _chosen(inputs, engines, size, engine)
    _require_possible(inputs, name)
    remote = any("://" in plain_path(one) for one in inputs.records if isinstance(one, str | os.PathLike))
    if name == "local" and not inputs.tables and not remote and (size is None or size <= IN_MEMORY_BYTES):
        engines.watcher.engine(name, reason)
        if size is None or size >= SMALL_BYTES:
            engines.watcher.stage("loading", tasks=1)
        load = read_load(
            source,
            view.schema,
            mode=mode,
            on_error=on_error,
            quarantine=aside,
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
        yield BulkLoad(job, view.schema, on_error, aside)
    finally:
        staging.remove()


def _chosen(inputs: Inputs, engines: Engines, size: int | None, engine: str | None) -> tuple[str, str]:
    """The engine and why: as asked for, or the one that can read these inputs, or the one that fits their size."""
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
        is_remote(plain_path(one)) for one in inputs.records if isinstance(one, str | os.PathLike)
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
    engines: Engines,
    max_line_bytes: int,
) -> Job:
    size = piece_bytes(inputs.unpacked_bytes, runner.parallelism)
    _unpack(runner, staging, inputs, size=size, max_line_bytes=max_line_bytes)
    size = piece_bytes(inputs.unpacked_bytes, runner.parallelism)
    pieces: list[Piece] = list(envelope_pieces(inputs.files, size=size, max_line_bytes=max_line_bytes))
    of_csv = [i for i in inputs.found if inputs.sources[i].kind == "csv"]
    tables = [(inputs.tables[i][0], inputs.sources[i], inputs.found[i]) for i in of_csv]
    csv = dict(zip(of_csv, csv_inputs(runner, tables, size=size, max_line_bytes=max_line_bytes), strict=True))
    for i, (t, given) in enumerate(inputs.tables):
        about = inputs.sources[i]
        if i in inputs.found:
            files = inputs.found[i]
            pieces += table_pieces(t, about, files, csv.get(i, ()), size=size, max_line_bytes=max_line_bytes)
        elif is_frame(given) or isinstance(given, str | os.PathLike | TableSource):
            frame = given if is_frame(given) else _read_by_spark(about, engines)
            pieces += staged_pieces(t, about, stage_frame(staging, frame))
        else:
            pieces += staged_pieces(t, about, staged_table(staging, _arrow(given, t), size=size))
    held = sum(pin.rows or 0 for pin in view.pins.values())
    return Job(
        runner,
        staging,
        view.schema,
        numbered(_with_ulids(pieces)),
        mode=mode,
        size_bytes=inputs.unpacked_bytes,
        existing_rows=held,
        named=[t.key for t, _ in inputs.tables],
    )


def _unpack(runner: Runner, staging: Staging, inputs: Inputs, *, size: int, max_line_bytes: int) -> None:
    """Replace large packed files of text by plain ones."""
    texts = [i for i in inputs.found if inputs.sources[i].kind in ("csv", "jsonl")]
    groups = [("jsonl", inputs.files), *((inputs.sources[i].kind, inputs.found[i]) for i in texts)]
    records, *tables = unpacked(runner, staging, groups, size=size, max_line_bytes=max_line_bytes)
    inputs.files = records
    inputs.found |= dict(zip(texts, tables, strict=True))


def _arrow(given: Any, t: EntityType) -> Any:
    import pyarrow as pa

    if isinstance(given, pa.RecordBatch):
        return pa.table(given)
    if isinstance(given, pa.Table):
        return given
    raise UsageError(
        detail=f"{t.name} is given as a {type(given).__name__}: give a path, an Arrow table or a DataFrame."
    )


def _read_by_spark(source: TableSource, engines: Engines) -> Any:
    session = engines.session or spark_session(engines.settings)
    return session.read.format(source.kind).options(**dict(source.options)).load(source.path)


def _with_ulids(pieces: Sequence[Piece]) -> list[Piece]:
    """New ids increase with the byte at which a line stands, where bytes can be counted."""
    ulids = Ulids.fresh()
    before = 0
    found = []
    for piece in pieces:
        segments = []
        for segment in piece["segments"]:
            if "start" in segment and before + segment["bytes"] < 2**38:
                segment = {**segment, "ulids": [ulids.time_ms, str(ulids.randomness + before)]}
                before += segment["bytes"]
            segments.append(segment)
        found.append({**piece, "segments": segments})
    return found
