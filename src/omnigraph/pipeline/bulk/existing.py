"""The existing task: digests of the rows in some fragments of one pinned table.

Where the input is small compared with the table, only rows whose id the input names are sent: no check needs the rest.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.language.schema.model import EntityType
from omnigraph.pipeline.bulk.context import Context, context_of
from omnigraph.pipeline.bulk.input.read import unique_tuples
from omnigraph.storage.lance import lance_api
from omnigraph.storage.lance.tables import reading
from omnigraph.storage.manifest.records import Pin
from omnigraph.tasks.digests import digests
from omnigraph.tasks.exchange import Sender, relation
from omnigraph.tasks.staging import Staging
from omnigraph.write.validate.unique import texts_of

BATCH_ROWS = 131_072


def read_existing(task: Mapping[str, Any]) -> dict[str, Any]:
    """`wants` names relations: `id`, `src`, `dst`, `unique`. `among` are staged columns that hold the ids to send."""
    context = context_of(task)
    t = context.type(task["type"])
    table = open_pinned(context, task["pin"])
    wants = task["wants"]
    columns = _columns(t, wants)
    among = None if task.get("among") is None else _among(context.staging, task["among"])
    sender = Sender(context.buckets, width=4)
    scanned_rows = 0
    with reading(table, t):
        scanner = table.scanner(
            columns=columns,
            fragments=[table.get_fragment(i) for i in task["fragments"]],
            with_row_id=True,
            with_row_address=True,
            batch_size=BATCH_ROWS,
        )
        for batch in scanner.to_batches():
            scanned_rows += batch.num_rows
            _send(t, pa.table(batch), wants, among, sender)
    return {"type": t.key, "sent": sender.send(context.staging, "ex"), "rows_done": scanned_rows, "bytes_done": 0}


def pin_json(pin: Pin) -> list[Any]:
    return [pin.table, pin.to_json()]


def open_pinned(context: Context, pin: Sequence[Any]) -> Any:
    location = context.staging.location
    return _open(
        location.uri, location.is_local, tuple(sorted(location.options.items())), Pin.from_json(pin[0], pin[1])
    )


@lru_cache(maxsize=64)
def _open(uri: str, is_local: bool, options: tuple[tuple[str, str], ...], pin: Pin) -> Any:
    from omnigraph.storage.layout import Location

    location = Location(uri, is_local, dict(options))
    return lance_api.open_table(location, location.join(pin.path), version=pin.version)


def _columns(t: EntityType, wants: Sequence[str]) -> list[str]:
    columns = ["id"] if "id" in wants else []
    columns += [c for c in ("src", "dst") if c in wants]
    if "unique" in wants:
        columns += [p for _, properties in unique_tuples(t) for p in properties]
    return list(dict.fromkeys(columns)) or ["id"]


def _among(staging: Staging, names: Sequence[Sequence[str]]) -> pa.Array:
    parts = [staging.get_table(name, [column]).column(column) for name, column in names]
    return pc.unique(pa.chunked_array([chunk for part in parts for chunk in part.chunks], pa.string()))


def _send(t: EntityType, rows: pa.Table, wants: Sequence[str], among: pa.Array | None, sender: Sender) -> None:
    if among is not None:
        rows = rows.filter(pc.is_in(rows.column("id"), value_set=among))
    names = [np.asarray(rows.column(c).combine_chunks()) for c in ("_rowid", "_rowaddr")]
    for column in ("id", "src", "dst"):
        if column in wants:
            sender.add(relation(column, t.key), digests(rows.column(column).combine_chunks()), *names)
    if "unique" in wants:
        for number, properties in unique_tuples(t):
            texts = texts_of(t, rows, properties)
            is_valid = np.asarray(texts.is_valid())
            sender.add(relation(f"u{number}", t.key), digests(texts.drop_null()), *(n[is_valid] for n in names))
