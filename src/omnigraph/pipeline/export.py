"""Export: one snapshot as NDJSON records that `load` takes back.

Nodes come before edges, types by name, entities by id: the same state gives the same bytes. Every record carries its
id, so that entities without a key and edges keep theirs. Memory: the ids of one type, and a batch of its rows.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, date, datetime
from typing import Any

import numpy as np
import orjson
import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.language.schema.model import EntityType
from omnigraph.results import ExportResult
from omnigraph.snapshot import Snapshot
from omnigraph.storage.columns import arrow_schema
from omnigraph.storage.table import reading

BATCH_ROWS = 4096


def export_records(
    snapshot: Snapshot, write: Callable[[bytes], Any], *, types: Sequence[str] | None = None
) -> ExportResult:
    wanted = None if types is None else {snapshot.view.type(name).name for name in types}
    counts: dict[str, int] = {}
    for t in sorted(snapshot.schema.types(), key=lambda t: (t.kind != "node", t.name)):
        if wanted is not None and t.name not in wanted:
            continue
        count = 0
        for batch in _in_order(snapshot, t):
            lines = [orjson.dumps(_record(t, row), default=_plain) for row in batch.to_pylist()]
            write(b"\n".join(lines) + b"\n")
            count += len(lines)
        counts[t.key] = count
    return ExportResult(branch=snapshot.branch, commit=snapshot.commit, rows=counts)


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


def _plain(value: Any) -> Any:
    """What JSON has no form for: bytes as base64, times in ISO form with milliseconds."""
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, datetime):
        return value.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    if isinstance(value, date):
        return value.isoformat()
    raise TypeError(type(value).__name__)
