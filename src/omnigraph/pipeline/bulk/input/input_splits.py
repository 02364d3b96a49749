"""Cut inputs into pieces: what one task reads.

A piece is one or several segments, in the order of the input: a byte range of a file of lines, a whole compressed
file, some row groups, batches, stripes or fragments, a staged table. Small files share a piece, large ones are cut.
Cutting reads file names, sizes and footers, never rows; only large files of CSV are scanned for the borders of their
records (`pipeline.csv.splits`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import chain, islice
from typing import Any

from omnigraph.errors import FileUnreadable, UsageError
from omnigraph.language.schema.model import EntityType
from omnigraph.pipeline.bulk.input.tables import part_count, table_columns
from omnigraph.pipeline.csv.splits import CsvFile, csv_segments, split_files, with_headers
from omnigraph.pipeline.load.input_files import InputFile, find_files
from omnigraph.pipeline.load.table_sources import FORMATS, TableSource, fields_of
from omnigraph.tasks.runner import Runner
from omnigraph.tasks.staging import Staging

PIECE_BYTES = (4 << 20, 48 << 20)
"""The minimum and the maximum that one task reads of plain files; packed formats count several times (`PACKED`)."""
PACKED = {"parquet": 4, "orc": 4, "lance": 2}

Piece = dict[str, Any]
"""{"index", "kind", "segments", …} as JSON: see `envelope_pieces` and `table_pieces`."""


def piece_bytes(total: int, parallelism: int) -> int:
    """The size of a piece: several pieces per worker, but limited, so that memory does not grow with the input."""
    minimum, maximum = PIECE_BYTES
    return max(minimum, min(maximum, total // max(1, 3 * parallelism) + 1))


def envelope_pieces(files: Sequence[InputFile], *, size: int, max_line_bytes: int) -> Iterator[Piece]:
    """Pieces of NDJSON records."""
    for segments in _grouped(_line_segments(files, size, max_line_bytes), size):
        yield {"kind": "records", "segments": segments}


def table_pieces(
    t: EntityType,
    source: TableSource,
    files: Sequence[InputFile],
    csv: Sequence[CsvFile] = (),
    *,
    size: int,
    max_line_bytes: int,
) -> Iterator[Piece]:
    """Pieces of tables for one type. `csv` are the files of CSV as `csv_inputs` has cut them."""
    about = {"kind": "table", "type": t.key, **source.to_json()}
    if source.kind == "csv":
        segments: Iterator[dict[str, Any]] = chain.from_iterable(csv_segments(file) for file in csv)
    elif source.kind == "jsonl":
        segments = _line_segments(files, size, max_line_bytes)
    else:
        segments = _table_segments(t, source, files, size)
    for group in _grouped(segments, size):
        yield {**about, "segments": group}


def csv_inputs(
    runner: Runner,
    tables: Sequence[tuple[EntityType, TableSource, Sequence[InputFile]]],
    *,
    size: int,
    max_line_bytes: int,
) -> list[list[CsvFile]]:
    """The files of every table that is CSV, cut where records begin: one pass of tasks for all of them."""
    inputs: list[tuple[CsvFile, Mapping[str, str]]] = []
    counts: list[int] = []
    for t, source, files in tables:
        options = source.format_options
        headed = with_headers(files, options, max_line_bytes=max_line_bytes)
        for csv in headed:
            fields_of(t, csv.header.names, source.renamed(), source.skip)
        inputs += [(csv, options) for csv in headed]
        counts.append(len(headed))
    cut = iter(split_files(runner, inputs, size=size))
    return [list(islice(cut, count)) for count in counts]


def staged_pieces(t: EntityType, source: TableSource, names: Sequence[tuple[str, int]]) -> Iterator[Piece]:
    """Pieces of tables that a program passed and that are staged. `names` come with their bytes."""
    for name, size in names:
        segment = {"source": source.path, "staged": name, "bytes": size, "read": size}
        yield {"kind": "table", "type": t.key, **source.to_json(), "format": "staged", "segments": [segment]}


def numbered(pieces: Sequence[Piece]) -> tuple[Piece, ...]:
    return tuple({**piece, "index": i} for i, piece in enumerate(pieces))


def files_of(source: TableSource) -> list[InputFile]:
    if source.kind not in FORMATS:
        formats = ", ".join(FORMATS)
        raise UsageError(detail=f"{source.kind} is read by Spark only: use --engine spark, or one of {formats}.")
    return find_files(source.path)


def _grouped(segments: Iterator[dict[str, Any]], size: int) -> Iterator[list[dict[str, Any]]]:
    group: list[dict[str, Any]] = []
    group_bytes = 0
    for segment in segments:
        if group and group_bytes + segment["bytes"] > size:
            yield group
            group, group_bytes = [], 0
        group.append(segment)
        group_bytes += segment["bytes"]
    if group:
        yield group


def _line_segments(files: Sequence[InputFile], size: int, max_line_bytes: int) -> Iterator[dict[str, Any]]:
    for file in files:
        about = {"source": file.name, "path": file.path, "size": file.size_bytes, "max_line_bytes": max_line_bytes}
        if file.compression is not None:
            yield {**about, "compression": file.compression, "bytes": file.text_bytes, "read": file.size_bytes}
            continue
        for start in range(0, file.size_bytes, size):
            stop = min(start + size, file.size_bytes)
            yield {**about, "start": start, "stop": stop, "bytes": stop - start, "read": stop - start}


def _table_segments(
    t: EntityType, source: TableSource, files: Sequence[InputFile], size: int
) -> Iterator[dict[str, Any]]:
    kind = source.kind
    for file in files:
        about = {"source": file.name, "path": file.path, "size": file.size_bytes}
        with _readable(file):
            columns = table_columns(kind, file.path)
            parts = part_count(kind, file.path)
        fields_of(t, columns, source.renamed(), source.skip)
        each = max(1, file.size_bytes * PACKED.get(kind, 1) // max(1, parts))
        step = max(1, size // each)
        for first in range(0, parts, step):
            last = min(first + step, parts)
            share = file.size_bytes * (last - first) // parts
            yield {**about, "first": first, "last": last, "bytes": each * (last - first), "read": share}


class _readable:
    """Turns the failure to read a file in its format into a typed error that names the file."""

    def __init__(self, file: InputFile) -> None:
        self._path = file.path

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: object) -> None:
        if isinstance(error, (OSError, ValueError)):
            raise FileUnreadable(path=self._path, detail=str(error)) from error


def staged_table(staging: Staging, table: Any, *, size: int) -> list[tuple[str, int]]:
    """Stage an Arrow table that a program passed, in slices."""
    rows = max(1, table.num_rows * size // max(1, table.nbytes))
    slices = [table.slice(start, rows) for start in range(0, table.num_rows, rows)]
    return [(staging.put_table("given", part), max(1, part.nbytes)) for part in slices]
