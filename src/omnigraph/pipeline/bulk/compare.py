"""The compare task of a merge: which matched rows of one piece are equal to their rows in the graph.

Each matched row is compared with the row of the graph that it would replace. It is asserted here that both ids are the
same text, because rows are matched by digests.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.language.schema.model import EntityType
from omnigraph.pipeline.bulk.context import ROW_BITS, Context, context_of
from omnigraph.pipeline.bulk.existing import open_pinned
from omnigraph.storage.lance.columns import arrow_schema
from omnigraph.storage.lance.tables import take, take_rows
from omnigraph.tasks.digest_index import DROPPED, RemovedRows
from omnigraph.write.compare import unchanged_mask
from omnigraph.write.embedding_carryover import keep_vectors

CHUNK_ROWS = 65_536


def compare_piece(task: Mapping[str, Any]) -> dict[str, Any]:
    """`types`: per type key its staged table, its pin, and where its matches are. The dropped rows of each."""
    context = context_of(task)
    removed = RemovedRows(context.staging, task["gone"])
    dropped: dict[str, list[Any]] = {}
    compared_rows = 0
    for key, about in task["types"].items():
        t = context.type(key)
        matches = matches_of(context, about["matches"])
        matches = matches[removed.live(key, matches[:, 0])]
        same = _same(context, t, about, matches)
        compared_rows += len(matches)
        if len(same):
            phases = np.full(len(same), DROPPED, dtype=np.uint64)
            dropped[key] = [context.staging.put_array("dropped", np.column_stack([same, phases])), len(same)]
    return {"dropped": dropped, "rows_done": compared_rows, "bytes_done": 0}


def matches_of(context: Context, parts: Sequence[Sequence[Any]]) -> np.ndarray:
    """(name, row id, address) of the matched rows of one piece, from its slices of the buckets' files."""
    slices = [context.staging.get_array(name, width=3, start=start, count=count) for name, start, count in parts]
    matches = np.concatenate(slices) if slices else np.empty((0, 3), dtype=np.uint64)
    return matches[np.argsort(matches[:, 0])]


def _same(context: Context, t: EntityType, about: Mapping[str, Any], matches: np.ndarray) -> np.ndarray:
    """The names of the rows that would change nothing."""
    names = arrow_schema(t).names
    rows = context.staging.get_table(about["table"], names)
    table = open_pinned(context, about["pin"])
    unchanged = []
    for start in range(0, len(matches), CHUNK_ROWS):
        part = matches[start : start + CHUNK_ROWS]
        part = part[np.argsort(part[:, 1])]
        new = rows.take(pa.array((part[:, 0] & np.uint64(2**ROW_BITS - 1)).astype(np.int64)))
        old = rows_by_id(table, t, part[:, 1], names)
        assert bool(pc.all(pc.equal(old.column("id"), new.column("id"))).as_py()), "two ids share a digest"
        old = old.cast(new.schema)
        same = np.asarray(unchanged_mask(old, keep_vectors(t, old, new)))
        unchanged.append(part[same, 0])
    return np.concatenate(unchanged) if unchanged else np.empty(0, dtype=np.uint64)


def rows_by_id(table: Any, t: EntityType, row_ids: np.ndarray, columns: Sequence[str]) -> pa.Table:
    """Rows of the table by row id, in that order."""
    if any(p.type.kind == "Blob" for p in t.properties):
        rows = take(table, t, pa.array(row_ids, pa.uint64()), columns)
        position = pc.index_in(pa.array(row_ids, pa.uint64()), value_set=rows.column("_rowid").combine_chunks())
        return rows.take(position).select(list(columns))
    return take_rows(table, t, row_ids.tolist(), columns).select(list(columns))
