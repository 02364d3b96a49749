"""Export: one snapshot as NDJSON records that `load` takes back.

Nodes come before edges, types by name, entities by id: the same state gives the same bytes. Every record carries its
id, so that entities without a key and edges keep theirs. Memory: the ids of one type, and a batch of its rows.
"""

from __future__ import annotations

import base64
import time
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, date, datetime
from typing import Any, Literal

import numpy as np
import orjson
import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.errors import UsageError
from omnigraph.language.schema.model import EntityType
from omnigraph.results import ExportResult
from omnigraph.snapshot import Snapshot
from omnigraph.storage.columns import arrow_schema
from omnigraph.storage.table import reading

BATCH_ROWS = 4096
Format = Literal["jsonl", "parquet", "csv", "lance"]


def export_records(
    snapshot: Snapshot, write: Callable[[bytes], Any], *, types: Sequence[str] | None = None
) -> ExportResult:
    started = time.monotonic()
    counts: dict[str, int] = {}
    for t in chosen_types(snapshot, types):
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
    """Rows as records, one line each; `rows` is not empty."""
    lines = [orjson.dumps(_record(t, row), default=plain) for row in rows.to_pylist()]
    return b"\n".join(lines) + b"\n"


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


def _record(t: EntityType, row: dict[str, Any]) -> dict[str, Any]:
    data = {name: row[name] for name in t.by_name if row[name] is not None}
    if t.kind == "node":
        return {"type": t.name, "data": {"id": row["id"], **data}}
    return {"edge": t.name, "from": row["src"], "to": row["dst"], "data": {"id": row["id"], **data}}


def plain(value: Any) -> Any:
    """What JSON has no form for: bytes as base64, times in ISO form with milliseconds."""
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, datetime):
        return value.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    if isinstance(value, date):
        return value.isoformat()
    raise TypeError(type(value).__name__)
