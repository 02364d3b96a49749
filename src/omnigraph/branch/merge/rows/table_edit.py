"""Turn the row changes of one type into table work: adopt fragments of the source, write everything else.

1. adopt    a large fragment of the source of which most rows apply is referred to as it is
2. write    all other new rows together as one set of fragments, all other new images as another; many rows by tasks
3. commit   `Append` (new rows), then `Update` or `Delete` (by address, keeping row ids), then a fold if one is due

Append and Update are separate commits: an Update that also inserts makes Lance search the whole table. A column change
that the merged schema brings comes first; the rows are then written against a detached version that has it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from omnigraph.branch.diff.states import row_width_bytes
from omnigraph.branch.merge.model import TableMerge
from omnigraph.branch.merge.rows.changes import RowChanges, SourceRows
from omnigraph.branch.merge.rows.tasks import Destination, RowTasks, Written
from omnigraph.commit.operation import LaterStep, TableWork, View, fold_step, fork_for, work_on
from omnigraph.errors import VersionReclaimed
from omnigraph.language.schema.merge.schemas import SchemaMerge
from omnigraph.language.schema.model import EntityType
from omnigraph.language.schema.plan.steps import AddType
from omnigraph.storage.concurrency import map_threads
from omnigraph.storage.diff.adopt_fragments import Adoption, adopted_fragments, number_fragments
from omnigraph.storage.diff.row_diff import physical_row_ids
from omnigraph.storage.diff.table_version import (
    FragmentFile,
    TableVersion,
    fragment_counts,
    fragment_ids_of,
    offsets_of,
)
from omnigraph.storage.lance.edits import Editor, on_version, written_files
from omnigraph.storage.lance.rewrites.rewrite import detached_commit, remove_detached
from omnigraph.storage.manifest.records import Pin
from omnigraph.write.evolve import new_table, reshape_table, steps_by_type

if TYPE_CHECKING:
    from lance import FragmentMetadata, LanceDataset, Transaction

ADOPT_ROWS_MIN = 1_000
"""Smaller fragments are written again together with others: many small fragments cost every reader more."""
COPY_ROWS_MAX = 50_000
"""Rows that are copied at once: memory follows this, not the size of the change."""


@dataclass(frozen=True, eq=False)
class TableEdit:
    """`counts` is None if no row changes."""

    work: TableWork
    counts: TableMerge | None


class TableEditor:
    """Writes the changes of one table. `ours` is the target's version, `pin` and `handle` where the work goes."""

    def __init__(self, view: View, changes: RowChanges, pin: Pin, handle: LanceDataset, tasks: RowTasks | None) -> None:
        self.changes = changes
        self.tasks = tasks
        self.view = view
        self.location = view.tables.location
        self.pin = pin
        self.handle = handle
        self.line = TableVersion(self.location, pin, changes.type, handle)
        self.editor = Editor(self.location, pin, handle, changes.type)
        self.adopted_keys: set[Any] = set()
        self.adopted_count = 0
        self.copied_rows = 0

    def counts(self) -> TableMerge:
        changes = self.changes
        return TableMerge(
            changes.type.key,
            changes.insert_count,
            changes.update_count,
            changes.delete_count,
            self.adopted_count,
            self.copied_rows,
        )

    def write(self) -> tuple[list[FragmentMetadata], list[FragmentMetadata]]:
        """Fragments of new rows, and of new images of existing rows; all synced, not referred to yet."""
        changes = self.changes
        insert_adoptions, insert_rest = self._adoptions(changes.inserted, None)
        update_adoptions, update_rest = self._adoptions(changes.updated, changes.overwritten.row_ids)
        adoptions = [*insert_adoptions, *update_adoptions]
        adopted = adopted_fragments(
            self.location, self.pin, self.handle, adoptions, root_base_id=self.line.root_base_id
        )
        self.adopted_count = len(adopted)
        new, images = adopted[: len(insert_adoptions)], adopted[len(insert_adoptions) :]
        inserted, updated = changes.inserted.filter(insert_rest), changes.updated.filter(update_rest)
        row_ids = changes.overwritten.row_ids[update_rest]
        if self._is_large(len(inserted) + len(updated)):
            written = self._write_in_tasks(inserted, updated, row_ids)
            new, images = new + written.new, images + written.images
            inserted, updated, row_ids = SourceRows(), SourceRows(), row_ids[:0]
        for rows in self._copies(inserted, changes.copied):
            new += self.editor.write(rows)
            self.copied_rows += rows.num_rows
        images += self._write_images(updated, row_ids)
        number_fragments(self.handle, [*new, *images])
        return new, images

    def _is_large(self, count: int) -> bool:
        """Whether tasks write this many rows of the source; what tasks decided they write in any case."""
        if self.tasks is None:
            return False
        deferred = self.changes.deferred
        size = count * row_width_bytes(self.changes.type)
        return (deferred is not None and deferred.row_count > 0) or (count > 0 and size >= self.tasks.bytes_min)

    def _write_in_tasks(self, inserted: SourceRows, updated: SourceRows, row_ids: np.ndarray) -> Written:
        changes, tasks = self.changes, self.tasks
        assert tasks is not None
        assert changes.theirs is not None
        into = Destination(self.location, self.pin, self.handle, changes.type, changes.columns)
        bodies = into.copies(changes.theirs, inserted.addresses, None)
        bodies += into.copies(changes.theirs, updated.addresses, row_ids)
        count = len(inserted) + len(updated)
        if changes.deferred is not None:
            bodies += into.decided(changes.deferred)
            count += changes.deferred.row_count
        written = into.write(tasks, bodies, count)
        self.copied_rows += written.row_count
        return written

    def _write_images(self, rows: SourceRows, row_ids: np.ndarray) -> list[FragmentMetadata]:
        parts: list[tuple[pa.Table, np.ndarray]] = []
        if len(rows):
            parts.append((self.changes.images(rows, self.changes.columns), row_ids))
        if self.changes.replaced is not None:
            parts.append((self.changes.replaced, self.changes.replaced_rows.row_ids))
        if not parts:
            return []
        table = pa.concat_tables([rows for rows, _ in parts], promote_options="default")
        self.copied_rows += table.num_rows
        return self.editor.write_replaced(
            table, row_ids=pa.array(np.concatenate([ids for _, ids in parts]), pa.uint64())
        )

    def _copies(self, rows: SourceRows, copied: pa.Table | None) -> Iterator[pa.Table]:
        """New rows, in pieces of bounded size."""
        for start in range(0, len(rows), COPY_ROWS_MAX):
            mask = np.zeros(len(rows), dtype=bool)
            mask[start : start + COPY_ROWS_MAX] = True
            piece = self.changes.images(rows.filter(mask), self.changes.columns)
            if copied is not None and start + COPY_ROWS_MAX >= len(rows):
                piece, copied = pa.concat_tables([piece, copied], promote_options="default"), None
            yield piece
        if copied is not None:
            yield copied

    # ---- adoption ----------------------------------------------------------------------------------------------------

    def _adoptions(self, rows: SourceRows, row_ids: np.ndarray | None) -> tuple[list[Adoption], np.ndarray]:
        """Large fragments of the source of which most rows are among these; and which rows are left to be copied."""
        rest = np.ones(len(rows), dtype=bool)
        theirs = self.changes.theirs
        if not len(rows) or theirs is None or not self._fields_agree(theirs):
            return [], rest
        fragment_ids = fragment_ids_of(rows.addresses)
        adoptions: list[Adoption] = []
        for number, count in fragment_counts(rows.addresses).items():
            fragment = theirs.fragments_by_id[number]
            if not self._is_adoptable(theirs, fragment, count):
                continue
            here = np.flatnonzero(fragment_ids == number)
            offsets = offsets_of(rows.addresses[here])
            ids = None
            if row_ids is not None and self.line.has_stable_row_ids:
                ids = physical_row_ids(fragment)
                ids[offsets] = row_ids[here]
                if len(ids) > 1 and not np.diff(np.sort(ids)).all():
                    continue  # the row id of a deleted row of the source's line is that of another row here
            is_excluded = np.ones(fragment.physical_rows, dtype=bool)
            is_excluded[offsets] = False
            adoptions.append(Adoption(fragment, ids, np.flatnonzero(is_excluded)))
            self.adopted_keys.add(fragment.key)
            rest[here] = False
        return adoptions, rest

    def _is_adoptable(self, theirs: TableVersion, fragment: FragmentFile, count: int) -> bool:
        if count < ADOPT_ROWS_MIN or 2 * count < fragment.physical_rows or not theirs.is_in_root(fragment):
            return False
        # A version refers to a data file once: fragments are known by their files.
        return fragment.key not in self.line.fragments and fragment.key not in self.adopted_keys

    def _fields_agree(self, theirs: TableVersion) -> bool:
        """Whether files of the source mean the same here: one table folder, the same properties under the same ids."""
        same_type = theirs.type == self.changes.type or theirs.field_properties == self.line.field_properties
        return theirs.pin.root == self.pin.root and same_type and theirs.field_properties == self.line.field_properties

    # ---- steps -------------------------------------------------------------------------------------------------------

    def row_steps(self) -> list[Transaction]:
        """Append, then Update or Delete."""
        new, images = self.write()
        steps = [self.editor.appended(new)] if new else []
        if len(self.removed_addresses):
            updated, removed = self.deletions()
            if images:
                steps.append(self.editor.update(new=images, updated=updated, removed=removed))
            else:
                steps.append(self.editor.deleted(updated, removed))
        return steps

    @property
    def removed_addresses(self) -> np.ndarray:
        changes = self.changes
        sets = [changes.overwritten, changes.replaced_rows, changes.deleted]
        if changes.deferred is not None:
            sets.append(changes.deferred.replaced_rows)
        return np.concatenate([rows.addresses for rows in sets])

    def deletions(self) -> tuple[list[FragmentMetadata], list[int]]:
        """The fragments with new deletion files, and those of which no row is left."""
        addresses = self.removed_addresses
        whole = self.line.whole_fragments(addresses)
        rest = addresses[~np.isin(fragment_ids_of(addresses), whole)]
        updated, removed = self.editor.delete_marks(pa.array(rest, pa.uint64()))
        return updated, [*removed, *whole]


def edit_tables(
    view: View, schema: SchemaMerge, changes: Sequence[RowChanges], tasks: RowTasks | None
) -> dict[str, TableEdit]:
    """The work on every table that the merge changes: its columns, its rows, or both."""
    by_type = {c.type.id: c for c in changes}
    columns = steps_by_type(schema.steps)
    added = {step.type_id for step in schema.steps if isinstance(step, AddType) and step.type_id}
    type_ids = [t for t in {**columns, **dict.fromkeys(added), **by_type} if t in schema.result.by_id]

    def edit(type_id: str) -> TableEdit | None:
        t = schema.result.by_id[type_id]
        change = by_type.get(type_id)
        if type_id in added:
            return _edit_new(view, t, change, tasks)
        if type_id in columns:
            reshaped = reshape_table(view, view.schema.by_id[type_id], t, columns[type_id])
            return _edit_reshaped(view, reshaped, change, tasks)
        return None if change is None or change.is_empty else _edit_rows(view, change, tasks)

    edits = zip(type_ids, map_threads(edit, type_ids), strict=True)
    return {type_id: work for type_id, work in edits if work is not None}


def _edit_rows(view: View, changes: RowChanges, tasks: RowTasks | None) -> TableEdit:
    """Work on a table whose columns stay as they are."""
    pin, handle, _ = work_on(view, changes.type)
    writer = TableEditor(view, changes, pin, handle, tasks)
    steps = writer.row_steps()
    touched = set(fragment_ids_of(writer.removed_addresses).tolist())
    later = fold_step(view, pin, handle, touched=touched)
    source = view.pins[changes.type.id]
    work = TableWork(pin=pin, source=source, steps=tuple(steps), later=later, handle=handle)
    return TableEdit(work, writer.counts())


def _edit_reshaped(view: View, reshaped: TableWork, changes: RowChanges | None, tasks: RowTasks | None) -> TableEdit:
    """Work on a table whose columns change first. Rows are written against a detached version where they have."""
    if changes is None or changes.is_empty:
        return TableEdit(reshaped, None)
    location = view.tables.location
    private = reshaped.handle
    detached: list[int] = []
    for step in (*reshaped.steps, *reshaped.later):
        tx = step.build(private) if isinstance(step, LaterStep) else step
        private = detached_commit(location, private, tx)
        detached.append(int(private.version))
    writer = TableEditor(view, changes, reshaped.pin, private, tasks)
    later = [*reshaped.later]
    for tx in writer.row_steps():
        later.append(LaterStep(partial(on_version, tx), tuple(written_files(reshaped.pin, tx, private))))
    remove_detached(location, reshaped.pin, detached)
    return TableEdit(replace(reshaped, later=tuple(later)), writer.counts())


def _edit_new(view: View, t: EntityType, changes: RowChanges | None, tasks: RowTasks | None) -> TableEdit:
    """A type that the target does not have: on the root line of the source's table, so that its files can be adopted;
    as a table of its own where that line is in use, or has other columns.
    """
    empty = _root_line(view, t, changes) or new_table(view, t)
    if changes is None or changes.is_empty:
        return TableEdit(empty, None)
    writer = TableEditor(view, changes, empty.pin, empty.handle, tasks)
    return TableEdit(replace(empty, steps=tuple(writer.row_steps())), writer.counts())


def _root_line(view: View, t: EntityType, changes: RowChanges | None) -> TableWork | None:
    theirs = None if changes is None else changes.theirs
    if theirs is None or theirs.type.id != t.id or theirs.pin.fork is None:
        return None
    pin = Pin(table=t.id, incarnation=theirs.pin.incarnation, fork=None, version=1)
    try:
        handle = view.tables.open(pin, table_key=t.key)
        is_in_use = view.tables.newest_version(pin) != pin.version
    except VersionReclaimed:
        return None
    root = TableVersion(view.tables.location, pin, t, handle)
    # A dropped property has a column here, but no entry in `field_properties`.
    same_columns = handle.schema.names == theirs.table.schema.names
    if root.fragments or not same_columns or root.field_properties != theirs.field_properties:
        return None
    if is_in_use or not view.head.is_main:
        pin, handle = fork_for(view, pin, handle)
    return TableWork(pin=pin, source=None, steps=(), handle=handle)
