"""From deltas to table work: which rows are new, which replace others, and the Lance transactions for both.

Per type, on the view's pinned version:

1. look the ids of rows and deletions up: what exists has a row id and an address
2. append   the rows whose ids are new
3. update   the rows whose ids exist, and the deletions, by address, in one transaction that keeps row ids
4. fold     the small fragments that earlier writes left, when there are many

Steps 2 and 3 are separate commits on purpose: one Update that also inserts makes Lance search the whole table.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.commit.operation import TableWork, View, fold_step, work_on
from omnigraph.storage.concurrency import MANY, map_threads
from omnigraph.storage.lance.embedding_marks import marked_properties
from omnigraph.storage.lance.tables import result_schema
from omnigraph.write.delta import TypeDelta, flat
from omnigraph.write.embedding_carryover import carried_columns, carry


@dataclass(frozen=True)
class Counts:
    """Rows per table key."""

    inserted: Mapping[str, int] = field(default_factory=dict)
    updated: Mapping[str, int] = field(default_factory=dict)
    deleted: Mapping[str, int] = field(default_factory=dict)

    @property
    def total(self) -> int:
        return sum(sum(part.values()) for part in (self.inserted, self.updated, self.deleted))

    def to_json(self) -> dict[str, dict[str, int]]:
        return {"inserted": dict(self.inserted), "updated": dict(self.updated), "deleted": dict(self.deleted)}


@dataclass(frozen=True)
class Applied:
    tables: Mapping[str, TableWork]
    counts: Counts


_Worked = tuple[TableWork | None, tuple[int, int, int]]
"""The work on one table, and how many rows it inserts, updates and deletes."""
LARGE_ROWS = 20_000


def apply_deltas(view: View, deltas: Mapping[str, TypeDelta]) -> Applied:
    """Work for every type whose delta changes something."""
    tables: dict[str, TableWork] = {}
    inserted: dict[str, int] = {}
    updated: dict[str, int] = {}
    deleted: dict[str, int] = {}
    for delta, (work, counts) in zip(deltas.values(), _worked(view, list(deltas.values())), strict=True):
        if work is None:
            continue
        tables[delta.type.id] = work
        for part, count in zip((inserted, updated, deleted), counts, strict=True):
            if count:
                part[delta.type.key] = count
    return Applied(tables, Counts(inserted, updated, deleted))


def _worked(view: View, deltas: list[TypeDelta]) -> list[_Worked]:
    """The work of each type; of large types two are already worth being written side by side."""
    large = sum(d.rows.num_rows for d in deltas) >= LARGE_ROWS
    return map_threads(lambda d: _work(view, d), deltas, many=2 if large else MANY)


def _work(view: View, delta: TypeDelta) -> _Worked:
    return _exchange(view, delta) if delta.replaces_all else _change(view, delta)


def _exchange(view: View, delta: TypeDelta) -> _Worked:
    gone = view.count(delta.type)
    counts = (delta.rows.num_rows, 0, gone)
    if not any(counts):
        return None, counts
    pin, handle, editor = work_on(view, delta.type)
    step = editor.exchange(delta.rows) if gone else editor.append(delta.rows)
    return TableWork(pin=pin, source=view.pins[delta.type.id], steps=(step,), handle=handle), counts


def _change(view: View, delta: TypeDelta) -> _Worked:
    t = delta.type
    stored = view.open(t).schema.names if marked_properties(t) else []
    columns = list(dict.fromkeys(["id", *carried_columns(t, stored)]))
    known = result_schema(t, columns).empty_table()
    if view.count(t):
        known = view.find(t, "id", pa.concat_arrays([delta.ids, delta.deleted.cast(pa.string())]), columns)
    position = pc.index_in(delta.ids, value_set=flat(known["id"]))
    is_new = pc.is_null(position)
    fresh = delta.rows.filter(is_new)
    old = delta.rows.filter(pc.invert(is_new))
    gone = known.filter(pc.is_in(known["id"], value_set=delta.deleted.cast(pa.string())))
    counts = (fresh.num_rows, old.num_rows, gone.num_rows)
    if not any(counts):
        return None, counts
    pin, handle, editor = work_on(view, t)
    steps = []
    touched: set[int] = set()
    if fresh.num_rows:
        steps.append(editor.append(fresh))
    if old.num_rows or gone.num_rows:
        matched = known.take(position.drop_null())
        addresses = pa.concat_arrays([flat(matched["_rowaddr"]), flat(gone["_rowaddr"])])
        touched = set(np.unique(addresses.to_numpy() >> np.uint64(32)).tolist())
        if old.num_rows:
            old = carry(t, matched, old, stored)
            steps.append(editor.replace(old, row_ids=flat(matched["_rowid"]), addresses=addresses))
        else:
            steps.append(editor.delete(addresses))
    later = fold_step(view, pin, handle, touched=touched) if delta.rows.num_rows else ()
    return TableWork(pin=pin, source=view.pins[t.id], steps=tuple(steps), later=later, handle=handle), counts
