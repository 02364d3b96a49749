"""Export: one snapshot as NDJSON records that `load` takes back.

Nodes come before edges, types by name, entities by id: the same state gives the same bytes. Every record carries its
id, so that entities without a key and edges keep theirs. Memory: the ids of one type, and a batch of its rows.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from typing import Any, Literal

import numpy as np
import orjson
import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.errors import UsageError
from omnigraph.graph.results import ExportResult
from omnigraph.graph.snapshot import Snapshot
from omnigraph.language.schema.model import EntityType
from omnigraph.storage.lance.columns import arrow_schema, physical_columns
from omnigraph.storage.lance.tables import reading
from omnigraph.write.values import json_value

BATCH_ROWS = 4096
DUMPED_TOGETHER = 256
Format = Literal["jsonl", "parquet", "csv", "lance"]


def export_records(
    snapshot: Snapshot, write: Callable[[bytes], Any], *, types: Sequence[str] | None = None
) -> ExportResult:
    started = time.monotonic()
    counts: dict[str, int] = {}
    chosen = chosen_types(snapshot, types)
    snapshot.require_readable(chosen)  # an error in the middle would leave the reader with a truncated stream
    for t in chosen:
        count = 0
        for batch in _in_order(snapshot, t):
            write(record_lines(t, batch))
            count += batch.num_rows
        counts[t.key] = count
    seconds = round(time.monotonic() - started, 3)
    return ExportResult(branch=snapshot.branch, commit=snapshot.commit, rows=counts, seconds=seconds)


def require_records(*, format: str, engine: str | None) -> None:
    """UsageError unless the stream is JSON lines written by this process."""
    if format != "jsonl":
        raise UsageError(detail=f"the format {format} is written into a folder; a stream carries jsonl.")
    if engine == "spark":
        raise UsageError(detail="a stream comes from this process; Spark writes into a folder.")


def chosen_types(snapshot: Snapshot, types: Sequence[str] | None) -> list[EntityType]:
    """The types to export, nodes before edges, by name: all of them, or those that are named."""
    names = None if types is None else {snapshot.view.type(name).name for name in types}
    types_in_order = sorted(snapshot.schema.types(), key=lambda t: (t.kind != "node", t.name))
    return [t for t in types_in_order if names is None or t.name in names]


def record_lines(t: EntityType, rows: pa.Table) -> bytes:
    """Rows as records, one line each; `rows` has the columns of the type in their order, and is not empty."""
    physical = len(physical_columns(t))
    names = ("id", *rows.column_names[physical:])
    columns = [_values(column) for column in rows.columns]
    rows_of_values = zip(columns[0], *columns[physical:], strict=True)
    data = (
        {name: value for name, value in zip(names, row, strict=True) if value is not None} for row in rows_of_values
    )
    records: Iterator[dict[str, Any]]
    if t.kind == "node":
        records = ({"type": t.name, "data": properties} for properties in data)
    else:
        ends = zip(columns[1], columns[2], strict=True)
        records = (
            {"edge": t.name, "from": src, "to": dst, "data": properties}
            for (src, dst), properties in zip(ends, data, strict=True)
        )
    lines: list[bytes] = []
    while chunk := list(islice(records, DUMPED_TOGETHER)):
        lines.append(_lines(t, chunk))
    return b"".join(lines)


def _lines(t: EntityType, records: list[dict[str, Any]]) -> bytes:
    """Records as lines. One call for many records is ten times faster than a call for each.

    The bytes between two records are replaced. They can't occur elsewhere: values contain no objects, and in a text the
    quote after `{` would be escaped, or end the text and not be followed by a name.
    """
    begin = orjson.dumps({"type" if t.kind == "node" else "edge": t.name})[:-1] + b","
    text = orjson.dumps(records, default=json_value)[1:-1]
    return text.replace(b"}," + begin, b"}\n" + begin) + b"\n"


def _values(column: pa.ChunkedArray) -> list[Any]:
    """A column as Python values; vectors, which are most of the bytes where there are any, by way of numpy."""
    if not pa.types.is_fixed_size_list(column.type):
        return list(column.to_pylist())
    values: list[Any] = []
    for chunk in column.chunks:
        valid = chunk.drop_null()
        vectors = iter(valid.flatten().to_numpy().reshape(len(valid), chunk.type.list_size).tolist())
        values += [next(vectors) if is_valid else None for is_valid in chunk.is_valid().to_pylist()]
    return values


def _in_order(snapshot: Snapshot, t: EntityType) -> Iterator[pa.Table]:
    """The type's rows by id. Only the ids are sorted in memory; rows are fetched batch by batch."""
    table = snapshot.view.open(t)
    with reading(table, t):
        keys = table.to_table(columns=["id"], with_row_id=True)
    order = keys.take(pc.sort_indices(keys["id"]))["_rowid"]
    columns = arrow_schema(t).names
    for start in range(0, len(order), BATCH_ROWS):
        row_ids = order.slice(start, BATCH_ROWS).combine_chunks()
        rows = snapshot.view.rows_by_row_id(t, row_ids, columns)
        position = pc.index_in(row_ids, value_set=rows["_rowid"].combine_chunks())
        yield rows.take(pa.array(np.asarray(position))).select(columns)
