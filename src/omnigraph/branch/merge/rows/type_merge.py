"""Merge the rows of one type: what the source changed since the base, on top of the target.

1. diff      base and source by fragment (`storage/diff/row_diff`): a superset of what the source changed, no values
2. match     by id: inserted, updated or deleted; rows with equal images are dropped
3. locate    where the target still has the base's very image nothing of it is read: the change is clean
4. decide    what the target changed as well, and what a resolution names, is read and decided by the truth table

Values of many rows are compared in 2, and decided on in 4, by tasks (`tasks`).

Several bases: the candidates are the rows in which the source differs from any of them; their base images come from
`virtual_base`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.branch.diff.states import full_schema, reshaped, row_width_bytes, stored_columns, unshared_columns
from omnigraph.branch.merge.model import MergeOptions, Resolution
from omnigraph.branch.merge.rows.changes import RowChanges, SourceRows, TargetRows
from omnigraph.branch.merge.rows.contended import ContendedRows
from omnigraph.branch.merge.rows.entity_images import (
    EntityImages,
    StoredRows,
    entity_ids,
    entity_images,
    looked_up_images,
)
from omnigraph.branch.merge.rows.tasks import (
    Contended,
    ContendedPositions,
    RowTasks,
    Task,
    addresses_of,
    changed_rows,
    decide_in_tasks,
)
from omnigraph.branch.merge.rows.virtual_base import images_at
from omnigraph.branch.three_way import Images
from omnigraph.commit.operation import View
from omnigraph.language.schema.model import EntityType
from omnigraph.storage.diff.column_diff import rows_left_out
from omnigraph.storage.diff.row_diff import Located, RowDiff, RowSet, diff_rows, locate_unchanged, unshared_fragments
from omnigraph.storage.diff.table_version import TableVersion
from omnigraph.storage.lance import tables as tables_of
from omnigraph.write.compare import unchanged_mask
from omnigraph.write.delta import flat, is_in

READ_AT_ONCE_ROWS = 10_000
"""Up to this many changed rows are read with their addresses: a second read would cost more than the values."""
COMPARED_BYTES_MAX = 256 << 20
"""Up to this much is read to drop updates that change nothing."""
FRESH_ROWS_MAX = 50_000
"""Up to this many rows that the base does not have are searched by a scan; beyond, ids are looked up in the table."""


@dataclass(frozen=True, eq=False)
class TypeStates:
    """One type in all states of a merge; None where a state does not have it. `type` is that of the merged schema."""

    type: EntityType
    ours: TableVersion | None
    theirs: TableVersion | None
    bases: tuple[TableVersion | None, ...]
    base_views: tuple[View, ...] = ()
    resolutions: Mapping[str, Resolution] = field(default_factory=dict)


def merge_type(states: TypeStates, options: MergeOptions, tasks: RowTasks | None = None) -> RowChanges:
    """`tasks` runs what is too large for this process; without them everything is done here."""
    if states.theirs is None:
        return RowChanges(states.type, [])
    merge = _TypeMerge(states, states.theirs, options, tasks)
    return merge.with_one_base(states.bases[0]) if len(states.bases) == 1 else merge.with_several_bases()


class _TypeMerge:
    def __init__(self, states: TypeStates, theirs: TableVersion, options: MergeOptions, tasks: RowTasks | None) -> None:
        self.type = states.type
        self.states = states
        self.ours, self.theirs = states.ours, theirs
        self.options = options
        self.tasks = tasks
        hidden = {f.name for f in full_schema(self.type)}
        versions = [v for v in (states.ours, theirs) if v is not None]
        marks = {c for v in versions for c in stored_columns(v) if c.startswith("__embedded_") and c in hidden}
        self.columns = [c for c in full_schema(self.type).names if not c.startswith("__embedded_") or c in marks]
        self.forced = pa.array(sorted(states.resolutions), pa.string())

    # ---- one base ----------------------------------------------------------------------------------------------------

    def with_one_base(self, base: TableVersion | None) -> RowChanges:
        diff = self._diff(base)
        changes = RowChanges(self.type, self.columns, self.theirs)
        if not (len(diff.removed) or len(diff.added) or len(self.forced)):
            return changes
        added, removed = self._with_ids(self.theirs, diff.added, diff.added_rows), diff.removed_rows
        if base is not None:
            removed = self._with_ids(base, diff.removed, removed)
        ids_added, ids_removed = flat(added["id"]), flat(removed["id"])
        positions = pc.index_in(ids_added, value_set=ids_removed)
        is_update = np.asarray(positions.is_valid())
        pair = np.asarray(positions.fill_null(0)).astype(np.int64)
        is_changed = self._changed(base, added, removed, is_update, pair)
        is_deleted = ~np.asarray(is_in(ids_removed, ids_added))
        forced_added = np.asarray(is_in(ids_added, self.forced))
        forced_removed = np.asarray(is_in(ids_removed, self.forced))
        updates = np.flatnonzero(is_update & is_changed & ~forced_added)
        deletes = np.flatnonzero(is_deleted & ~forced_removed)
        inserts = np.flatnonzero(~is_update & ~forced_added)
        removed_set = RowSet.of(removed) if removed.num_rows else RowSet.of(self._empty_rows())
        located = self._located(base, removed_set)
        clean_update, clean_delete = located.is_known[pair[updates]], located.is_known[deletes]
        is_present = self._present(base, ids_added.take(pa.array(inserts)))
        addresses = added["_rowaddr"].to_numpy()
        clean = updates[clean_update]
        sources, deleted_rows = pair[clean], deletes[clean_delete]
        changes = replace(
            changes,
            inserted=_source_rows(added, addresses, inserts[~is_present]),
            updated=_source_rows(added, addresses, clean),
            overwritten=TargetRows(
                ids_removed.take(pa.array(sources)), located.addresses[sources], located.row_ids[sources]
            ),
            deleted=TargetRows(
                ids_removed.take(pa.array(deleted_rows)), located.addresses[deleted_rows], located.row_ids[deleted_rows]
            ),
        )
        contended = updates[~clean_update]
        entities = ContendedPositions(
            in_theirs=np.concatenate([inserts[is_present], contended]),
            in_base=np.concatenate([pair[contended], deletes[~clean_delete]]),
            update_count=len(contended),
        )
        if self._is_large(len(entities)) and not self._was_read(added):
            bodies = self._contended_tasks(base, added, removed, entities)
            changes = self._decided_by_tasks(changes, bodies, len(entities), goes_first=True)
            nothing = np.empty(0, np.int64)
            entities = ContendedPositions(nothing, nothing, 0)
        if not (len(entities) or len(self.forced)):
            return changes
        images = self._contended(base, added, removed, entities.in_theirs, entities.in_base)
        return self._decided_here(changes, images)

    def _diff(self, base: TableVersion | None) -> RowDiff:
        if base is None:
            rows = self.theirs.rows_at(
                np.empty(0, np.uint64), whole_fragments=[f.id for f in self.theirs.fragments.values()]
            )
            whole = frozenset(f.id for f in self.theirs.fragments.values())
            empty = self._empty_rows()
            return RowDiff(RowSet.of(empty), RowSet.of(rows, whole), empty, rows)
        bytes_max = COMPARED_BYTES_MAX if self.tasks is None else min(COMPARED_BYTES_MAX, self.tasks.bytes_min)
        rows_max = min(READ_AT_ONCE_ROWS, bytes_max // row_width_bytes(self.type))
        columns = (stored_columns(base), stored_columns(self.theirs))
        diff = diff_rows(base, self.theirs, columns=columns, rows_max=rows_max)
        unshared = rows_left_out(base, self.theirs, diff, unshared_columns(base, self.theirs))
        if not len(unshared):
            return diff
        removed = self._appended(base, diff.removed, diff.removed_rows, unshared.in_a)
        added = self._appended(self.theirs, diff.added, diff.added_rows, unshared.in_b)
        return RowDiff(RowSet.of(removed), RowSet.of(added), removed, added)

    def _appended(self, version: TableVersion, rows: RowSet, read: pa.Table, addresses: np.ndarray) -> pa.Table:
        """The rows with those at further addresses: their ids are read, values only when they are needed."""
        names = version.row_schema(["id"]).names
        known = self._with_ids(version, rows, read).select(names)
        return pa.concat_tables([known, version.rows_at(addresses, ["id"]).select(names)])

    def _empty_rows(self) -> pa.Table:
        return self.theirs.row_schema(["id"]).empty_table()

    def _with_ids(self, version: TableVersion, rows: RowSet, read: pa.Table) -> pa.Table:
        if "id" in read.column_names:
            return read
        return version.rows_at(rows.scattered, ["id"], whole_fragments=rows.whole_fragments)

    def _changed(
        self, base: TableVersion | None, added: pa.Table, removed: pa.Table, is_update: np.ndarray, pair: np.ndarray
    ) -> np.ndarray:
        """Which rows of the source differ from the base in a value; more than can be compared all count."""
        is_changed = np.ones(added.num_rows, dtype=bool)
        count = int(is_update.sum())
        was_read = self._was_read(added)
        if base is None or not count or not (was_read or 2 * count * row_width_bytes(self.type) <= COMPARED_BYTES_MAX):
            return is_changed
        if self.tasks is not None and self._is_large(count, states=2) and not was_read:
            old, new = addresses_of(removed)[pair[is_update]], addresses_of(added)[is_update]
            is_changed[is_update] = changed_rows(
                self.tasks, self.type, self.columns, base=(base, old), theirs=(self.theirs, new)
            )
            return is_changed
        before = self._images(base, removed, pair[is_update])
        after = self._images(self.theirs, added, np.flatnonzero(is_update))
        is_changed[is_update] = ~np.asarray(unchanged_mask(before, after))
        return is_changed

    def _was_read(self, added: pa.Table) -> bool:
        """Whether whole rows were read together with their addresses."""
        return set(stored_columns(self.theirs)) <= set(added.column_names)

    def _images(self, version: TableVersion, rows: pa.Table, positions: np.ndarray) -> pa.Table:
        """Whole images of some rows, in the order of the positions, in the shape of the merged type."""
        return reshaped(self._whole(version, rows, positions), version.type, self.type, self.columns)

    def _whole(self, version: TableVersion, rows: pa.Table, positions: np.ndarray) -> pa.Table:
        picked = rows.take(pa.array(positions))
        columns = stored_columns(version)
        if set(columns) <= set(rows.column_names):
            return picked
        return version.rows_in_order(picked["_rowaddr"].to_numpy(), columns)

    def _located(self, base: TableVersion | None, rows: RowSet) -> Located:
        if base is None or self.ours is None:
            return Located.nowhere(len(rows))
        return locate_unchanged(base, rows, self.ours)

    # ---- rows of the target ------------------------------------------------------------------------------------------

    def _present(self, base: TableVersion | None, ids: pa.Array) -> np.ndarray:
        """Which of these ids, none of which the base has, the target has."""
        if not len(ids) or self.ours is None or (base is not None and base.pin == self.ours.pin):
            return np.zeros(len(ids), dtype=bool)
        return np.asarray(is_in(ids, flat(self._target_rows(base, ids, ["id"])["id"])))

    def _target_rows(self, base: TableVersion | None, ids: pa.Array, columns: list[str]) -> pa.Table:
        """Rows of the target with these ids. None of them lies where the base has it, so they are in fragments that
        the base does not have, or where the target stores more of them, unless the target restored rows that the base
        had deleted.
        """
        ours = self.ours
        assert ours is not None
        if base is None:
            return tables_of.find(ours.table, ours.type, "id", ids, columns)
        unshared = unshared_fragments(base, ours)
        fresh = [f for key, f in ours.fragments.items() if key not in base.fragments or f.id in unshared]
        if sum(f.live_rows for f in fresh) > FRESH_ROWS_MAX or _has_restored_rows(base, ours):
            return tables_of.find(ours.table, ours.type, "id", ids, columns)
        rows = ours.row_schema(columns).empty_table()
        if fresh:
            rows = ours.rows_at(np.empty(0, np.uint64), ["id"], whole_fragments=[f.id for f in fresh])
            rows = rows.filter(is_in(flat(rows["id"]), ids))
            if columns != ["id"]:
                rows = ours.rows_at(rows["_rowaddr"].to_numpy(), columns)
        return rows

    def _contended(
        self,
        base: TableVersion | None,
        added: pa.Table,
        removed: pa.Table,
        added_positions: np.ndarray,
        removed_positions: np.ndarray,
    ) -> EntityImages:
        theirs_rows = self._whole(self.theirs, added, added_positions)
        base_rows = removed.take(pa.array(removed_positions))
        if base is not None:
            base_rows = self._whole(base, removed, removed_positions)
        ids = entity_ids(theirs_rows, base_rows, pa.table({"id": self.forced}))
        images = entity_images(
            self.type,
            self.columns,
            ids,
            theirs=(theirs_rows, self.theirs.type),
            base=(base_rows, self.type if base is None else base.type),
            ours=self._ours(base, ids),
        )
        return self._with_forced(images, base) if len(self.forced) else images

    def _ours(self, base: TableVersion | None, ids: pa.Array) -> StoredRows:
        """Target rows, with address and row id."""
        if self.ours is None:
            return full_schema(self.type).empty_table(), self.type
        columns = stored_columns(self.ours)
        if len(self.forced):
            return tables_of.find(self.ours.table, self.ours.type, "id", ids, columns), self.ours.type
        return self._target_rows(base, ids, columns), self.ours.type

    def _with_forced(self, images: EntityImages, base: TableVersion | None) -> EntityImages:
        """Images of entities that only a resolution names are looked up by id."""
        ids = images.ids
        is_forced = np.asarray(is_in(ids, self.forced))
        base_images = self._forced_images(images.base, base, ids, is_forced)
        theirs_images = self._forced_images(images.theirs, self.theirs, ids, is_forced)
        return EntityImages(ids, base_images, theirs_images, images.ours)

    def _forced_images(
        self, images: Images, version: TableVersion | None, ids: pa.Array, is_forced: np.ndarray
    ) -> Images:
        if version is None:
            return images
        looked_up = images_at(version, self.type, self.columns, ids)
        rows = pa.concat_tables([images.rows, looked_up.rows])
        count = len(ids)
        positions = np.where(is_forced, np.arange(count) + count, np.arange(count))
        return Images(rows.take(pa.array(positions)), np.where(is_forced, looked_up.exists, images.exists))

    # ---- several bases -----------------------------------------------------------------------------------------------

    def with_several_bases(self) -> RowChanges:
        candidates: list[pa.Array] = [self.forced]
        for base in self.states.bases:
            diff = self._diff(base)
            candidates.append(flat(self._with_ids(self.theirs, diff.added, diff.added_rows)["id"]))
            if base is not None:
                candidates.append(flat(self._with_ids(base, diff.removed, diff.removed_rows)["id"]))
        ids = pc.unique(pa.concat_arrays([c.cast(pa.string()) for c in candidates]))
        changes = RowChanges(self.type, self.columns, self.theirs)
        if len(ids) == 0:
            return changes
        if not self._is_large(len(ids)):
            return self._decided_here(changes, self._images_of(ids))
        if len(self.forced):
            changes = self._decided_here(changes, self._images_of(self.forced))
        rest = ids.filter(pc.invert(is_in(ids, self.forced)))
        views = self.states.base_views
        bodies = self._contended_type.by_ids(views[0].head.branch, [v.head.commit for v in views], rest)
        return self._decided_by_tasks(changes, bodies, len(rest), goes_first=False)

    def _images_of(self, ids: pa.Array) -> EntityImages:
        return looked_up_images(
            self.type,
            self.columns,
            ids,
            bases=self.states.base_views,
            theirs=self.theirs,
            ours=self.ours,
            grain=self.options.grain,
        )

    # ---- deciding ----------------------------------------------------------------------------------------------------

    def _is_large(self, count: int, *, states: int = 3) -> bool:
        """Whether this many rows, each in some states, are more than this process reads at once."""
        size = states * count * row_width_bytes(self.type)
        return self.tasks is not None and count > 0 and size >= self.tasks.bytes_min

    def _decided_here(self, changes: RowChanges, images: EntityImages) -> RowChanges:
        decided = ContendedRows(self.type, self.columns, self.options, self.states.resolutions)
        return decided.apply(changes, images)

    @property
    def _contended_type(self) -> Contended:
        return Contended(self.theirs.location, self.type, self.columns, self.options, self.theirs, self.ours)

    def _decided_by_tasks(
        self, changes: RowChanges, bodies: Sequence[Task], count: int, *, goes_first: bool
    ) -> RowChanges:
        if not count:
            return changes
        assert self.tasks is not None
        decided = decide_in_tasks(self.tasks, self.type, bodies, count, goes_first=goes_first)
        return replace(
            changes,
            deferred=decided.rows,
            deleted=TargetRows.concat([changes.deleted, decided.deleted]),
            conflicts=(*changes.conflicts, *decided.conflicts),
        )

    def _contended_tasks(
        self, base: TableVersion | None, added: pa.Table, removed: pa.Table, entities: ContendedPositions
    ) -> list[Task]:
        """Rows of the source and of the base are known; those of the target are looked up."""
        ids = entities.ids(added, removed)
        ours = None if self.ours is None else self._target_rows(base, ids, ["id"])
        return self._contended_type.at_places(base, entities.sides(ids, added, removed, ours))


def _source_rows(rows: pa.Table, addresses: np.ndarray, positions: np.ndarray) -> SourceRows:
    return SourceRows(rows.take(pa.array(positions)), addresses[positions])


def _has_restored_rows(base: TableVersion, ours: TableVersion) -> bool:
    """Whether the target has a live row in a fragment of the base where the base has deleted it."""
    for key, fragment in ours.fragments.items():
        before = base.fragments.get(key)
        if before is None or before.deletion is None or before.deletion == fragment.deletion:
            continue
        deleted_before, deleted_now = base.deleted_offsets(before), ours.deleted_offsets(fragment)
        if len(np.setdiff1d(deleted_before, deleted_now, assume_unique=True)):
            return True
    return False
