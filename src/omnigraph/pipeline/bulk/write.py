"""The write and delete tasks: staged rows to uncommitted fragments, replaced rows to deletion files.

A write task takes pieces of some types. Rows that count and are new become ordinary fragments; rows that replace rows
of the graph become fragments that carry the old rows' ids, so that identity survives, and their old addresses are
staged for the delete tasks, each of which marks some fragments of the old table. Nothing refers to any of it yet.
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
from omnigraph.tasks.digest_index import Gone
from omnigraph.write.embedding_carryover import carried_columns, carry, keep_vectors, kept_columns


def write_rows(task: Mapping[str, Any]) -> dict[str, Any]:
    """`jobs`: a type, the pin to write to, and pieces with their staged tables and matches."""
    context = context_of(task)
    gone = Gone(context.staging, task["gone"])
    results = []
    for job in task["jobs"]:
        with lance_api.reading(f"writing {job['type']}"):
            results.append(_write(context, job, gone))
    total = sum(r["inserted"] + r["updated"] for r in results)
    return {"jobs": results, "rows_done": total, "bytes_done": 0}


def editor_of(context: Context, t: EntityType, pin: Any) -> Editor:
    place = context.staging.location
    return Editor(place, Pin.from_json(pin[0], pin[1]), open_pinned(context, pin), t)


def _write(context: Context, job: Mapping[str, Any], gone: Gone) -> dict[str, Any]:
    t = context.type(job["type"])
    editor = editor_of(context, t, job["pin"])
    fresh: list[pa.Table] = []
    old: list[pa.Table] = []
    places: list[np.ndarray] = []
    for rows, replaced, matches in _pieces(context, t, job, gone):
        if rows.num_rows:
            fresh.append(rows)
        if len(matches):
            old.append(replaced)
            places.append(matches)
    inserted = sum(rows.num_rows for rows in fresh)
    result: dict[str, Any] = {"type": t.key, "inserted": inserted, "updated": 0, "new": [], "replaced": [], "at": None}
    if inserted:
        result["new"] = [_json(f) for f in editor.write(pa.concat_tables(fresh))]
    if places:
        where = np.concatenate(places)
        result["updated"] = len(where)
        images = _carried(open_pinned(context, job["pin"]), t, pa.concat_tables(old), where[:, 1])
        fragments = editor.write_replaced(images, row_ids=pa.array(where[:, 1], pa.uint64()))
        result["replaced"] = [_json(f) for f in fragments]
        addresses = np.sort(where[:, 2])
        result["at"] = context.staging.put_array("addresses", addresses.reshape(-1, 1))
        result["fragments"] = np.unique(addresses >> np.uint64(32)).tolist()
    return result


def _carried(table: Any, t: EntityType, images: pa.Table, row_ids: np.ndarray) -> pa.Table:
    """The images with what they keep of the rows that they replace: embedded vectors, and the marks of these."""
    stored = table.schema.names
    columns = list(dict.fromkeys([*kept_columns(t), *carried_columns(t, stored)]))
    if not columns:
        return images
    before = rows_by_id(table, t, row_ids, columns)
    return carry(t, before, keep_vectors(t, before, images), stored)


def _json(fragment: Any) -> str:
    return json.dumps(fragment.to_json())


def _pieces(
    context: Context, t: EntityType, job: Mapping[str, Any], gone: Gone
) -> Iterator[tuple[pa.Table, pa.Table, np.ndarray]]:
    """Per piece: its new rows, its rows that replace others, and (name, row id, address) of these."""
    columns = arrow_schema(t).names
    for piece in job["pieces"]:
        rows = context.staging.get_table(piece["table"], columns)
        names = (np.uint64(piece["index"]) << np.uint64(ROW_BITS)) + np.arange(rows.num_rows, dtype=np.uint64)
        live = gone.live(t.key, names)
        matches = matches_of(context, piece["matches"])
        if len(matches):
            matches = matches[gone.live(t.key, matches[:, 0])]
        at = (matches[:, 0] & np.uint64(2**ROW_BITS - 1)).astype(np.int64)
        replaced = rows.take(pa.array(at))
        live[at] = False
        yield rows if live.all() else rows.filter(pa.array(live)), replaced, matches


def delete_rows(task: Mapping[str, Any]) -> dict[str, Any]:
    """Mark rows of some fragments deleted: what is left of each, or that nothing is."""
    context = context_of(task)
    t = context.type(task["type"])
    editor = editor_of(context, t, task["pin"])
    parts = []
    low, high = min(task["fragments"]), max(task["fragments"])
    for name in task["addresses"]:
        found = context.staging.get_array(name, width=1)[:, 0]
        first = np.searchsorted(found, np.uint64(low) << np.uint64(32))
        last = np.searchsorted(found, np.uint64(high + 1) << np.uint64(32))
        parts.append(found[first:last])
    where = np.concatenate(parts)
    where = where[np.isin(where >> np.uint64(32), np.array(task["fragments"], dtype=np.uint64))]
    with lance_api.reading(f"marking deleted rows of {t.key}"):
        updated, removed = editor.delete_marks(pa.array(where, pa.uint64()))
    left = [_json(f) for f in updated]
    return {"type": t.key, "updated": left, "removed": removed, "rows_done": len(where), "bytes_done": 0}
