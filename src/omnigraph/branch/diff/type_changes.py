"""The row changes of one type between two states of a graph. Diff, commit changes and the change feed share it.

1. pins      a type whose pin is the same in both states has no row changes
2. rows      fragments by their files, deletion vectors, row ids (`storage/diff/row_diff`): a superset of what differs,
             without rows that were only moved; and rows in place that may differ in an added column
             (`storage/diff/column_diff`)
3. match     by id: a row that was deleted and inserted again has another row id. A row of one side only is an insert
             or a delete
4. images    read window by window in the order of ids, compared by value; equal ones are dropped

Cost follows what changed, also across branches, compaction and restores. Memory: the ids of the candidates, and one
window of images of each side. Nothing here holds a lease: callers that read for long hold one on both pins.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.branch.diff.change_rows import (
    DELETE,
    INSERT,
    OPERATIONS,
    UPDATE,
    ChangeShape,
    change_rows,
    image_columns,
    operation_kinds,
)
from omnigraph.branch.diff.states import row_width_bytes, table_version, unshared_columns
from omnigraph.commit.operation import View
from omnigraph.language.schema.model import EntityType
from omnigraph.language.schema.plan.difference import matched_type, matched_types, type_steps
from omnigraph.language.schema.plan.steps import Step
from omnigraph.storage.diff.column_diff import rows_left_out
from omnigraph.storage.diff.row_diff import RowSet, count_places, diff_rows
from omnigraph.storage.diff.table_version import TableVersion
from omnigraph.storage.layout import Location
from omnigraph.storage.manifest.records import Pin
from omnigraph.write.delta import flat, is_in

PAGE_ROWS = 8_192
WINDOW_BYTES_MAX = 64 << 20
"""Bytes of images that are read at once, per side."""
READ_AT_ONCE_ROWS = 10_000
"""Up to this many candidates are read together with their addresses: a second read would cost more than the values."""


def changed_types(old: View, new: View) -> list[str]:
    """Ids of the types whose table or declaration differs: nodes before edges, then by name.

    The id is that of the newer state, or of the older one for a type that was dropped.
    """
    ids = []
    for before, after in matched_types(old.schema, new.schema):
        t = after or before
        assert t is not None
        if _pin(old, before) != _pin(new, after) or type_steps(before, after):
            ids.append(t.id)
    return ids


def _pin(view: View, t: EntityType | None) -> object:
    return None if t is None else view.pins.get(t.id)


@dataclass(frozen=True, eq=False)
class Candidates:
    """Entities that may have changed, in the order of their ids, as parallel arrays.

    `kinds` are indices of OPERATIONS. `old_rows` and `new_rows` are positions in what was read of either side, -1 where
    the entity does not exist.
    """

    ids: pa.Array
    kinds: np.ndarray
    old_rows: np.ndarray
    new_rows: np.ndarray

    def __len__(self) -> int:
        return len(self.kinds)

    def take(self, positions: np.ndarray) -> Candidates:
        return Candidates(
            self.ids.take(pa.array(positions)),
            self.kinds[positions],
            self.old_rows[positions],
            self.new_rows[positions],
        )

    def filter(self, mask: np.ndarray) -> Candidates:
        return self.take(np.flatnonzero(mask))

    def slice(self, start: int, stop: int) -> Candidates:
        part = slice(start, stop)
        return Candidates(
            self.ids.slice(start, stop - start), self.kinds[part], self.old_rows[part], self.new_rows[part]
        )


@dataclass(frozen=True, eq=False)
class SideRows:
    """What was read of one state to match: `_rowaddr`, `id`, and all columns if there are few rows."""

    version: TableVersion
    rows: pa.Table

    @property
    def addresses(self) -> np.ndarray:
        return np.asarray(self.rows["_rowaddr"].to_numpy())

    @property
    def has_images(self) -> bool:
        return set(image_columns(self.version.type)) <= set(self.rows.column_names)

    def images(self, positions: np.ndarray) -> pa.Table:
        columns = image_columns(self.version.type)
        if self.has_images:
            return self.rows.select(columns).take(pa.array(positions))
        return self.version.rows_in_order(self.addresses[positions], columns).select(columns)


class TypeChanges:
    """The changes of one type. `type_id` is that of either state. Reads on first use."""

    def __init__(self, old: View, new: View, type_id: str) -> None:
        before, after = matched_type(old.schema, new.schema, type_id)
        self.shape = ChangeShape(before, after)
        self.schema_steps: tuple[Step, ...] = type_steps(before, after)
        self._views = (old, new)

    @property
    def type(self) -> EntityType:
        """The newer type; the older one of a type that was dropped."""
        return self.shape.type

    @property
    def table_key(self) -> str:
        return self.type.key

    @property
    def location(self) -> Location:
        return self._views[1].tables.location

    @property
    def commit(self) -> str:
        """The newer one."""
        return self._views[1].head.commit

    @property
    def schema(self) -> pa.Schema:
        """Of the batches."""
        return self.shape.schema

    @property
    def candidate_count(self) -> int:
        """How many entities have to be compared; those that turn out to be the same count as well."""
        return len(self.candidates)

    # ---- matching ----------------------------------------------------------------------------------------------------

    @cached_property
    def _versions(self) -> tuple[TableVersion | None, TableVersion | None]:
        old, new = (
            None if t is None else table_version(view, t)
            for view, t in zip(self._views, (self.shape.old, self.shape.new), strict=True)
        )
        return old, new

    @property
    def pins(self) -> list[Pin]:
        """The versions that are read."""
        pairs = zip(self._views, (self.shape.old, self.shape.new), strict=True)
        return [view.pins[t.id] for view, t in pairs if t is not None]

    @property
    def is_small(self) -> bool:
        """Whether all that has to be read is read at once, by metadata."""
        old, new = self._versions
        if old is None or new is None:
            count = sum(version.row_count for version in (old, new) if version is not None)
        else:
            count = 0 if old.pin == new.pin else count_places(old, new)
        return count <= _rows_at_once(self.type)

    @cached_property
    def sides(self) -> tuple[SideRows | None, SideRows | None]:
        old, new = self._versions
        if old is None or new is None:
            return (None if old is None else _all_rows(old)), (None if new is None else _all_rows(new))
        if old.pin == new.pin:
            return _no_rows(old), _no_rows(new)
        columns = (image_columns(old.type), image_columns(new.type))
        diff = diff_rows(old, new, columns=columns, rows_max=_rows_at_once(self.type))
        removed = _with_ids(old, diff.removed, diff.removed_rows)
        added = _with_ids(new, diff.added, diff.added_rows)
        unshared = rows_left_out(old, new, diff, unshared_columns(old, new))
        if len(unshared):
            removed = _appended(old, removed, unshared.in_a)
            added = _appended(new, added, unshared.in_b)
        return SideRows(old, removed), SideRows(new, added)

    @cached_property
    def candidates(self) -> Candidates:
        ids_old, ids_new = (_ids(side) for side in self.sides)
        at = pc.index_in(ids_new, value_set=ids_old)
        deleted = np.flatnonzero(~np.asarray(is_in(ids_old, ids_new)))
        old_rows = np.concatenate([np.asarray(at.fill_null(-1)).astype(np.int64), deleted])
        new_rows = np.concatenate([np.arange(len(ids_new)), np.full(len(deleted), -1)])
        ids = pa.concat_arrays([ids_new, ids_old.take(pa.array(deleted))])
        order = np.asarray(pc.sort_indices(ids)).astype(np.int64)
        old_rows, new_rows = old_rows[order], new_rows[order]
        kinds = np.where(old_rows < 0, INSERT, np.where(new_rows < 0, DELETE, UPDATE))
        return Candidates(ids.take(pa.array(order)), kinds, old_rows, new_rows)

    # ---- reading -----------------------------------------------------------------------------------------------------

    def batches(
        self,
        *,
        rows_max: int = PAGE_ROWS,
        operations: Sequence[str] | None = None,
        ids: Sequence[str] | None = None,
    ) -> Iterator[pa.Table]:
        """Changes in the order of ids, at most `rows_max` at a time: of all entities and operations, or of some."""
        candidates = self.chosen(operations, ids)
        for start, stop in self.windows(candidates, rows_max):
            window = candidates.slice(start, stop)
            changes = change_rows(self.shape, window.kinds, *self._images(window))
            for offset in range(0, changes.num_rows, rows_max):
                yield changes.slice(offset, rows_max)

    def counts(self, *, operations: Sequence[str] | None = None, ids: Sequence[str] | None = None) -> dict[str, int]:
        """The number of changes per operation. Only images of updates are read."""
        candidates = self.chosen(operations, ids)
        counts = Counter({OPERATIONS[kind]: int((candidates.kinds == kind).sum()) for kind in (INSERT, DELETE)})
        if operations is None or "update" in operations:
            counts["update"] = sum(batch.num_rows for batch in self.batches(operations=["update"], ids=ids))
        return {operation: counts[operation] for operation in OPERATIONS}

    def chosen(self, operations: Sequence[str] | None, ids: Sequence[str] | None) -> Candidates:
        """The candidates of some operations and entities; None is all of them."""
        candidates = self.candidates
        if operations is not None:
            candidates = candidates.filter(np.isin(candidates.kinds, operation_kinds(operations)))
        if ids is not None:
            candidates = candidates.filter(np.asarray(is_in(candidates.ids, pa.array(ids, pa.string()))))
        return candidates

    def windows(self, candidates: Candidates, rows_max: int) -> Iterator[tuple[int, int]]:
        """Runs of candidates whose images are read at once."""
        width = row_width_bytes(self.type)
        sizes = np.full(len(candidates), width, dtype=np.int64)
        if any(p.type.kind == "Blob" for p in self.type.properties):
            sizes = np.maximum.reduce([sizes, *self._blob_bytes(candidates)])
        else:
            rows_max = max(rows_max, WINDOW_BYTES_MAX // width)
        ends = np.cumsum(sizes)
        start = 0
        while start < len(candidates):
            used = ends[start - 1] if start else 0
            stop = int(np.searchsorted(ends, used + WINDOW_BYTES_MAX, side="right"))
            stop = min(max(stop, start + 1), start + rows_max, len(candidates))
            yield start, stop
            start = stop

    def _blob_bytes(self, candidates: Candidates) -> Iterator[np.ndarray]:
        for side, rows in zip(self.sides, (candidates.old_rows, candidates.new_rows), strict=True):
            sizes = np.zeros(len(candidates), dtype=np.int64)
            if side is not None:
                sizes[rows >= 0] = side.version.blob_bytes(side.addresses[rows[rows >= 0]])
            yield sizes

    def _images(self, window: Candidates) -> tuple[pa.Table | None, pa.Table | None]:
        old, new = (
            None if side is None else side.images(rows[rows >= 0])
            for side, rows in zip(self.sides, (window.old_rows, window.new_rows), strict=True)
        )
        return old, new


def _ids(side: SideRows | None) -> pa.Array:
    return pa.array([], pa.string()) if side is None else flat(side.rows["id"]).cast(pa.string())


def _all_rows(version: TableVersion) -> SideRows:
    fragments = [f.id for f in version.fragments.values()]
    return SideRows(version, version.rows_at(np.empty(0, np.uint64), ["id"], whole_fragments=fragments))


def _no_rows(version: TableVersion) -> SideRows:
    return SideRows(version, version.row_schema(["id"]).empty_table())


def _rows_at_once(t: EntityType) -> int:
    if any(p.type.kind == "Blob" for p in t.properties):
        return 0  # their size is not known yet
    return min(READ_AT_ONCE_ROWS, WINDOW_BYTES_MAX // row_width_bytes(t))


def _with_ids(version: TableVersion, rows: RowSet, read: pa.Table) -> pa.Table:
    if "id" in read.column_names:
        return read
    return version.rows_at(rows.scattered, ["id"], whole_fragments=rows.whole_fragments)


def _appended(version: TableVersion, rows: pa.Table, addresses: np.ndarray) -> pa.Table:
    narrow = version.row_schema(["id"]).names
    return pa.concat_tables([rows.select(narrow), version.rows_at(addresses, ["id"]).select(narrow)])
