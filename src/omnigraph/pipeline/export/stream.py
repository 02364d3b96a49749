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
    snapshot.require_readable(chosen)  # a reader of the stream must not take a part of it for the whole
    for t in chosen:
        count = 0
        for batch in _in_order(snapshot, t):
            write(record_lines(t, batch))
            count += batch.num_rows
        counts[t.key] = count
    seconds = round(time.monotonic() - started, 3)
    return ExportResult(branch=snapshot.branch, commit=snapshot.commit, rows=counts, seconds=seconds)


def require_records(*, format: str, engine: str | None) -> None:
    """A stream of records is one thing after another: JSON lines, from this process."""
    if format != "jsonl":
        raise UsageError(detail=f"the format {format} is written into a folder; a stream carries jsonl.")
    if engine == "spark":
        raise UsageError(detail="a stream comes from this process; Spark writes into a folder.")


def chosen_types(snapshot: Snapshot, types: Sequence[str] | None) -> list[EntityType]:
    """The types to export, nodes before edges, by name: all of them, or those that are named."""
    wanted = None if types is None else {snapshot.view.type(name).name for name in types}
    found = sorted(snapshot.schema.types(), key=lambda t: (t.kind != "node", t.name))
    return [t for t in found if wanted is None or t.name in wanted]


def record_lines(t: EntityType, rows: pa.Table) -> bytes:
    """Rows as records, one line each; `rows` has the columns of the type in their order, and is not empty."""
    named = len(physical_columns(t))
    names = ("id", *rows.column_names[named:])
    columns = [_values(column) for column in rows.columns]
    given = zip(columns[0], *columns[named:], strict=True)
    data = ({name: value for name, value in zip(names, row, strict=True) if value is not None} for row in given)
    records: Iterator[dict[str, Any]]
    if t.kind == "node":
        records = ({"type": t.name, "data": one} for one in data)
    else:
        ends = zip(columns[1], columns[2], strict=True)
        records = (
            {"edge": t.name, "from": src, "to": dst, "data": one} for (src, dst), one in zip(ends, data, strict=True)
        )
    lines: list[bytes] = []
    while some := list(islice(records, DUMPED_TOGETHER)):
        lines.append(_lines(t, some))
    return b"".join(lines)


def _lines(t: EntityType, records: list[dict[str, Any]]) -> bytes:
    """Records as lines. One call for many is ten times faster than a call for each.

    Where one record ends and the next begins is what is replaced. It can't be met elsewhere: values hold no objects,
    and in a text the quote after `{` would be escaped, or end the text and not be followed by a name.
    """
    begin = orjson.dumps({"type" if t.kind == "node" else "edge": t.name})[:-1] + b","
    text = orjson.dumps(records, default=json_value)[1:-1]
    return text.replace(b"}," + begin, b"}\n" + begin) + b"\n"


def _values(column: pa.ChunkedArray) -> list[Any]:
    """A column as Python values; vectors, which are most of the bytes where there are any, by way of numpy."""
    if not pa.types.is_fixed_size_list(column.type):
        return list(column.to_pylist())
    found: list[Any] = []
    for chunk in column.chunks:
        known = chunk.drop_null()
        vectors = iter(known.flatten().to_numpy().reshape(len(known), chunk.type.list_size).tolist())
        found += [next(vectors) if is_there else None for is_there in chunk.is_valid().to_pylist()]
    return found


def _in_order(snapshot: Snapshot, t: EntityType) -> Iterator[pa.Table]:
    """The type's rows by id. Only the ids are sorted in memory; rows are fetched batch by batch."""
    table = snapshot.view.open(t)
    with reading(table, t):
        keys = table.to_table(columns=["id"], with_row_id=True)
    order = keys.take(pc.sort_indices(keys["id"]))["_rowid"]
    columns = arrow_schema(t).names
    for start in range(0, len(order), BATCH_ROWS):
        row_ids = order.slice(start, BATCH_ROWS).combine_chunks()
        found = snapshot.view.rows_by_row_id(t, row_ids, columns)
        position = pc.index_in(row_ids, value_set=found["_rowid"].combine_chunks())
        yield found.take(pa.array(np.asarray(position))).select(columns)
