"""The write and delete tasks: staged rows to uncommitted fragments, replaced rows to deletion files.

A write task takes pieces of some types. Rows that count and are new become ordinary fragments; rows that replace rows
of the graph become fragments that carry the old rows' ids, so that identity survives, and their old addresses are
staged for the delete tasks, each of which marks rows in some fragments of the old table. No version refers to these
files yet.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import pyarrow as pa

from omnigraph.language.schema.model import EntityType
from omnigraph.pipeline.bulk.compare import matches_of, rows_by_id
from omnigraph.pipeline.bulk.context import ROW_BITS, Context, context_of
from omnigraph.pipeline.bulk.existing import open_pinned
from omnigraph.storage.lance import lance_api
from omnigraph.storage.lance.columns import arrow_schema
from omnigraph.storage.lance.edits import Editor
from omnigraph.storage.manifest.records import Pin
from omnigraph.tasks.digest_index import RemovedRows
from omnigraph.write.embedding_carryover import carried_columns, carry, keep_vectors, kept_columns


def write_rows(task: Mapping[str, Any]) -> dict[str, Any]:
    """`jobs`: a type, the pin to write to, and pieces with their staged tables and matches."""
    context = context_of(task)
    removed = RemovedRows(context.staging, task["gone"])
    results = []
    for job in task["jobs"]:
        with lance_api.reading(f"writing {job['type']}"):
            results.append(_write(context, job, removed))
    total = sum(r["inserted"] + r["updated"] for r in results)
    return {"jobs": results, "rows_done": total, "bytes_done": 0}


def editor_of(context: Context, t: EntityType, pin: Any) -> Editor:
    location = context.staging.location
    return Editor(location, Pin.from_json(pin[0], pin[1]), open_pinned(context, pin), t)


def _write(context: Context, job: Mapping[str, Any], removed: RemovedRows) -> dict[str, Any]:
    t = context.type(job["type"])
    editor = editor_of(context, t, job["pin"])
    fresh: list[pa.Table] = []
    old: list[pa.Table] = []
    match_parts: list[np.ndarray] = []
    for rows, replaced, matches in _pieces(context, t, job, removed):
        if rows.num_rows:
            fresh.append(rows)
        if len(matches):
            old.append(replaced)
            match_parts.append(matches)
    inserted = sum(rows.num_rows for rows in fresh)
    result: dict[str, Any] = {"type": t.key, "inserted": inserted, "updated": 0, "new": [], "replaced": [], "at": None}
    if inserted:
        result["new"] = [_json(f) for f in editor.write(pa.concat_tables(fresh))]
    if match_parts:
        matched = np.concatenate(match_parts)
        result["updated"] = len(matched)
        images = _carried(open_pinned(context, job["pin"]), t, pa.concat_tables(old), matched[:, 1])
        fragments = editor.write_replaced(images, row_ids=pa.array(matched[:, 1], pa.uint64()))
        result["replaced"] = [_json(f) for f in fragments]
        addresses = np.sort(matched[:, 2])
        result["at"] = context.staging.put_array("addresses", addresses.reshape(-1, 1))
        result["fragments"] = np.unique(addresses >> np.uint64(32)).tolist()
    return result


def _carried(table: Any, t: EntityType, images: pa.Table, row_ids: np.ndarray) -> pa.Table:
    """The new rows with what they keep of the rows that they replace: embedded vectors, and their embedding marks."""
    stored = table.schema.names
    columns = list(dict.fromkeys([*kept_columns(t), *carried_columns(t, stored)]))
    if not columns:
        return images
    before = rows_by_id(table, t, row_ids, columns)
    return carry(t, before, keep_vectors(t, before, images), stored)


def _json(fragment: Any) -> str:
    return json.dumps(fragment.to_json())


def _pieces(
    context: Context, t: EntityType, job: Mapping[str, Any], removed: RemovedRows
) -> Iterator[tuple[pa.Table, pa.Table, np.ndarray]]:
    """Per piece: its new rows, its rows that replace others, and (name, row id, address) of these."""
    columns = arrow_schema(t).names
    for piece in job["pieces"]:
        rows = context.staging.get_table(piece["table"], columns)
        names = (np.uint64(piece["index"]) << np.uint64(ROW_BITS)) + np.arange(rows.num_rows, dtype=np.uint64)
        live = removed.live(t.key, names)
        matches = matches_of(context, piece["matches"])
        if len(matches):
            matches = matches[removed.live(t.key, matches[:, 0])]
        offsets = (matches[:, 0] & np.uint64(2**ROW_BITS - 1)).astype(np.int64)
        replaced = rows.take(pa.array(offsets))
        live[offsets] = False
        yield rows if live.all() else rows.filter(pa.array(live)), replaced, matches


def delete_rows(task: Mapping[str, Any]) -> dict[str, Any]:
    """Mark rows of some fragments deleted. Returns the updated fragments, and the ids of those without live rows."""
    context = context_of(task)
    t = context.type(task["type"])
    editor = editor_of(context, t, task["pin"])
    parts = []
    low, high = min(task["fragments"]), max(task["fragments"])
    for name in task["addresses"]:
        file_addresses = context.staging.get_array(name, width=1)[:, 0]
        first = np.searchsorted(file_addresses, np.uint64(low) << np.uint64(32))
        last = np.searchsorted(file_addresses, np.uint64(high + 1) << np.uint64(32))
        parts.append(file_addresses[first:last])
    addresses = np.concatenate(parts)
    addresses = addresses[np.isin(addresses >> np.uint64(32), np.array(task["fragments"], dtype=np.uint64))]
    with lance_api.reading(f"marking deleted rows of {t.key}"):
        updated, removed = editor.delete_marks(pa.array(addresses, pa.uint64()))
    updated_json = [_json(f) for f in updated]
    return {"type": t.key, "updated": updated_json, "removed": removed, "rows_done": len(addresses), "bytes_done": 0}
