"""The tasks of an export: some fragments of one table in, one file out, in one of four formats.

A task opens the table at the pinned version, reads its fragments in order and writes them under a temporary name; the
file is renamed to the planned name when it is complete. The bytes depend on the task only, so a second run of a task
writes the same file again. For `lance` Lance chooses the names of the files, and the result carries the fragments, of
which the driver creates a table.

| format  | a row                                                                                                     |
|---------|-----------------------------------------------------------------------------------------------------------|
| jsonl   | the record that `load` takes: ids, and properties that are not null                                       |
| parquet | columns as stored; vectors are lists of float, blobs binary, a null is no empty value                     |
| csv     | a null is empty, an empty text is `""`; lists and vectors are JSON, blobs base64, times ISO 8601 in UTC   |
| lance   | columns as stored; vectors stay fixed-size lists, blobs are large binary                                  |
"""

from __future__ import annotations

import base64
import os
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any

import orjson
import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.language.schema.model import EntityType
from omnigraph.language.schema.serial import type_from_json, type_to_json
from omnigraph.pipeline.export.stream import record_lines
from omnigraph.storage.lance.columns import arrow_schema, physical_columns
from omnigraph.storage.lance.plain_tables import write_fragments
from omnigraph.storage.lance.scan import scan
from omnigraph.storage.lance.tables import Tables
from omnigraph.storage.layout import Location
from omnigraph.storage.manifest.records import Pin
from omnigraph.storage.objects.folder import Folder
from omnigraph.write.values import json_value

EXTENSIONS = {"jsonl": ".jsonl", "parquet": ".parquet", "csv": ".csv", "lance": ""}
ROW_GROUP_ROWS, ROW_GROUP_ROWS_BLOBS = 131_072, 1_024
ROW_GROUP_BYTES = 64 << 20


@dataclass(frozen=True)
class PartTask:
    """One file to write. `path` is relative to the folder of the export; for lance the folder of the table."""

    graph: Location
    out: Location
    format: str
    type: EntityType
    pin: Pin
    fragments: tuple[int, ...]
    rows: int
    size_bytes: int
    path: str
    scratch: str

    def to_json(self) -> dict[str, Any]:
        return {
            "graph": asdict(self.graph),
            "out": asdict(self.out),
            "format": self.format,
            "schema": type_to_json(self.type),
            "table": self.pin.table,
            "pin": self.pin.to_json(),
            "fragments": list(self.fragments),
            "rows": self.rows,
            "size_bytes": self.size_bytes,
            "path": self.path,
            "scratch": self.scratch,
        }

    @staticmethod
    def from_json(body: Mapping[str, Any]) -> PartTask:
        return PartTask(
            graph=Location(**body["graph"]),
            out=Location(**body["out"]),
            format=body["format"],
            type=type_from_json(body["schema"]),
            pin=Pin.from_json(body["table"], body["pin"]),
            fragments=tuple(body["fragments"]),
            rows=body["rows"],
            size_bytes=body["size_bytes"],
            path=body["path"],
            scratch=body["scratch"],
        )


def write_part(body: Mapping[str, Any]) -> dict[str, Any]:
    """The work of one task: rows and bytes written, and for lance the fragments."""
    task = PartTask.from_json(body)
    folder = Folder(task.out)
    t = task.type
    table = Tables(task.graph).open(task.pin, table_key=t.key)
    reader = _Counted(scan(table, t, arrow_schema(t).names, fragments=task.fragments))
    fragments: list[dict[str, Any]] = []
    if task.format == "lance":
        if task.rows:
            fragments = write_fragments(folder, task.path, reader.shaped(lance_schema(t)))
        size = sum(int(file["file_size_bytes"] or 0) for body in fragments for file in body["files"])
    else:
        with folder.placed(task.path, scratch=task.scratch) as path:
            _WRITERS[task.format](path, task, reader)
            size = os.path.getsize(path)
    assert reader.rows == task.rows or not task.fragments, "the table holds what was planned"
    return {"rows_done": reader.rows, "bytes_done": size, "fragments": fragments}


class _Counted:
    """A reader that counts its rows."""

    def __init__(self, reader: pa.RecordBatchReader) -> None:
        self._reader = reader
        self.rows = 0

    def __iter__(self) -> Iterator[pa.Table]:
        for batch in self._reader:
            self.rows += batch.num_rows
            yield pa.Table.from_batches([batch])

    def shaped(self, schema: pa.Schema) -> pa.RecordBatchReader:
        return pa.RecordBatchReader.from_batches(
            schema, (batch for rows in self for batch in rows.cast(schema).to_batches())
        )


# ---- formats ---------------------------------------------------------------------------------------------------------


def lance_schema(t: EntityType) -> pa.Schema:
    return pa.schema([f.with_nullable(f.name not in physical_columns(t)) for f in arrow_schema(t)])


def parquet_schema(t: EntityType) -> pa.Schema:
    """Types that every reader of Parquet knows, in place of fixed-size lists and large binary."""
    return pa.schema([f.with_type(_common(f.type)) for f in lance_schema(t)])


def _common(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_list(kind) or pa.types.is_fixed_size_list(kind):
        return pa.list_(_common(kind.value_type))
    return pa.binary() if pa.types.is_large_binary(kind) else kind


def _write_jsonl(path: str, task: PartTask, rows: _Counted) -> None:
    with open(path, "wb") as file:
        for table in rows:
            if table.num_rows:
                file.write(record_lines(task.type, table))


def _write_parquet(path: str, task: PartTask, rows: _Counted) -> None:
    import pyarrow.parquet as pq

    schema = parquet_schema(task.type)
    with pq.ParquetWriter(path, schema, compression="zstd") as file:
        for group in _regrouped(rows, _rows_per_group(task)):
            file.write_table(group.cast(schema).combine_chunks())


def _write_csv(path: str, task: PartTask, rows: _Counted) -> None:
    import pyarrow.csv as csv

    schema = pa.schema([pa.field(f.name, _csv_type(f.type)) for f in arrow_schema(task.type)])
    with csv.CSVWriter(path, schema) as file:
        for table in rows:
            columns = [_csv_column(column) for column in table.columns]
            file.write_table(pa.table(columns, schema=schema))


_WRITERS = {"jsonl": _write_jsonl, "parquet": _write_parquet, "csv": _write_csv}


def _rows_per_group(task: PartTask) -> int:
    """The number of rows of a row group. It depends on the task only, so that the bytes of the file do as well."""
    if any(p.type.kind == "Blob" for p in task.type.properties):
        return ROW_GROUP_ROWS_BLOBS
    row_bytes = max(1, task.size_bytes // max(1, task.rows))
    return max(1_024, min(ROW_GROUP_ROWS, ROW_GROUP_BYTES // row_bytes))


def _regrouped(rows: _Counted, size: int) -> Iterator[pa.Table]:
    """Tables of exactly `size` rows, and a rest: the file must not depend on the batches of the scan."""
    pending: list[pa.Table] = []
    count = 0
    for table in rows:
        pending.append(table)
        count += table.num_rows
        while count >= size:
            joined = pa.concat_tables(pending)
            yield joined.slice(0, size)
            pending, count = [joined.slice(size)], count - size
    if count:
        yield pa.concat_tables(pending)


def _csv_type(kind: pa.DataType) -> pa.DataType:
    is_text = pa.types.is_nested(kind) or pa.types.is_large_binary(kind) or pa.types.is_temporal(kind)
    return pa.string() if is_text else kind


def _csv_column(column: pa.ChunkedArray) -> pa.ChunkedArray:
    kind = column.type
    if pa.types.is_timestamp(kind):
        text = pc.replace_substring(column.cast(pa.timestamp("ms")).cast(pa.string()), " ", "T")
        return pc.binary_join_element_wise(text, "Z", "")
    if pa.types.is_temporal(kind):
        return column.cast(pa.string())
    if pa.types.is_large_binary(kind):
        return _texts(column, lambda value: base64.b64encode(value).decode())
    if pa.types.is_nested(kind):
        return _texts(column, lambda value: orjson.dumps(value, default=json_value).decode())
    return column


def _texts(column: pa.ChunkedArray, text: Any) -> pa.ChunkedArray:
    texts = [None if value is None else text(value) for value in column.to_pylist()]
    return pa.chunked_array([pa.array(texts, pa.string())])
