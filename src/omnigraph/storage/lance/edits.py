"""Changes to one table as uncommitted Lance transactions: the files are written, and nothing is visible yet.

* append   new rows as new fragments
* replace  new values of existing rows: the old rows are marked deleted by address, the new fragment carries their
           row ids, so that identity and creation version stay
* delete   rows by address
* exchange every fragment of the table for new ones

Data files of a fork are written into the root table's `data/` and referred to through the fork's base path, so that
a merge can adopt them without copying. `fields_for_preserving_frag_bitmap` names every field id: with fewer, indices
would keep returning old values.
"""

from __future__ import annotations

import itertools
import json
import os
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from omnigraph.errors import StorageError
from omnigraph.language import identifiers as form
from omnigraph.language.schema.model import EntityType
from omnigraph.storage import durability
from omnigraph.storage.files import checksums, deletion_files
from omnigraph.storage.lance import lance_api
from omnigraph.storage.lance.tables import to_storage
from omnigraph.storage.layout import Location
from omnigraph.storage.manifest.records import Pin

if TYPE_CHECKING:
    from lance import FragmentMetadata, LanceDataset, Transaction

ROWS_PER_FRAGMENT = 200_000
"""Small enough that a one-row update of a fragment commits in milliseconds, large enough to scan well."""


PART_ROWS_MAX = 1 << 31
"""What is written part by part stays in one fragment: its caller knows how many rows there are."""


class ForkTaken(StorageError):
    """A fork of that name exists, complete or not, or was just removed. Another name works."""


class Editor:
    """Builds transactions for one table or fork at one exact version."""

    def __init__(self, location: Location, pin: Pin, table: LanceDataset, t: EntityType) -> None:
        self._location = location
        self._pin = pin
        self._table = table
        self._type = t
        self._stable = table.has_stable_row_ids

    def append(self, rows: pa.Table) -> Transaction:
        return self.appended(self.write(rows))

    def appended(self, fragments: list[FragmentMetadata]) -> Transaction:
        """Fragments that were written before, here or elsewhere, as an append."""
        return self._transaction(lance_api.operations().Append(fragments))

    def replace(self, rows: pa.Table, *, row_ids: pa.Array, addresses: pa.Array) -> Transaction:
        """`rows[i]` replaces the row with `row_ids[i]` at `addresses[i]`."""
        fragments = self.write_replaced(rows, row_ids=row_ids)
        updated, removed = self.delete_marks(addresses)
        return self.update(new=fragments, updated=updated, removed=removed)

    def write_replaced(self, rows: pa.Table, *, row_ids: pa.Array) -> list[FragmentMetadata]:
        """Write new values of existing rows as one fragment that carries their row ids."""
        from lance.fragment import RowIdSequence

        order = np.argsort(row_ids.to_numpy(zero_copy_only=False), kind="stable")
        fragments = self.write(rows.take(pa.array(order)), rows_per_file=max(len(rows), 1))
        if self._stable:
            assert len(fragments) == 1, "replaced rows go into one fragment, in the order of their ids"
            ids = RowIdSequence(pa.array(np.sort(row_ids.to_numpy(zero_copy_only=False)), pa.uint64()))
            fragments[0].row_id_meta = ids.to_inline_metadata()
        return fragments

    def delete(self, addresses: pa.Array) -> Transaction:
        return self.deleted(*self.delete_marks(addresses))

    def deleted(self, updated: list[FragmentMetadata], removed: list[int]) -> Transaction:
        """Delete rows: they are marked in `updated`, or their whole fragment is in `removed`."""
        return self._transaction(lance_api.operations().Delete(updated, removed, "omnigraph"))

    def exchange(self, rows: pa.Table) -> Transaction:
        """All rows of the table are replaced by these, as new identities; index definitions stay."""
        return self.exchanged(self.write(rows) if rows.num_rows else [])

    def exchanged(self, fragments: list[FragmentMetadata]) -> Transaction:
        old_ids = [f.fragment_id for f in self._table.get_fragments()]
        return self.update(new=fragments, updated=[], removed=old_ids)

    def write_parts(self, parts: Iterable[tuple[pa.Table, np.ndarray | None]]) -> list[FragmentMetadata]:
        """Write rows that come part by part into one fragment, holding a part at a time: new rows, or new images of
        existing rows with their row ids. No fragment if there are no rows.
        """
        from lance.fragment import RowIdSequence

        row_ids: list[np.ndarray] = []

        def batches() -> Iterator[pa.RecordBatch]:
            for rows, ids in parts:
                if ids is not None:
                    order = np.argsort(ids, kind="stable")
                    rows, ids = rows.take(pa.array(order)), ids[order]
                    row_ids.append(ids)
                yield from to_storage(rows, self._type).to_batches()

        stream = batches()
        first = next(stream, None)
        if first is None:
            return []
        reader = pa.RecordBatchReader.from_batches(first.schema, itertools.chain([first], stream))
        fragments = self._write(reader, rows_per_file=PART_ROWS_MAX)
        if self._stable and row_ids:
            assert len(fragments) == 1, "replaced rows go into one fragment, in the order of their ids"
            ids = RowIdSequence(pa.array(np.concatenate(row_ids), pa.uint64()))
            fragments[0].row_id_meta = ids.to_inline_metadata()
        return fragments

    def write(self, rows: pa.Table, *, rows_per_file: int = ROWS_PER_FRAGMENT) -> list[FragmentMetadata]:
        """Write rows as files of this table; checked and synced, without a reference yet."""
        return self._write(to_storage(rows, self._type), rows_per_file=rows_per_file)

    def _write(self, rows: pa.Table | pa.RecordBatchReader, *, rows_per_file: int) -> list[FragmentMetadata]:
        from lance.fragment import FragmentMetadata, write_fragments

        base = self._root_base()
        fragments = write_fragments(
            rows,
            self._table,
            mode="append",
            max_rows_per_file=rows_per_file,
            storage_options=self._location.lance_options,
            enable_stable_row_ids=self._stable,
            **({} if base is None else {"target_bases": [base.path]}),
        )
        if base is not None:
            bodies = [f.to_json() for f in fragments]
            for body in bodies:
                for file in body["files"]:
                    file["base_id"] = base.id
            fragments = [FragmentMetadata.from_json(json.dumps(b)) for b in bodies]
        self._sync(fragments, data_root=self._pin.root)
        return list(fragments)

    def _root_base(self) -> Any:
        if self._pin.fork is None:
            return None
        for base in self._table.base_paths().values():
            if base.path.rstrip("/").endswith(self._pin.root):
                return base
        raise StorageError(doing=f"writing to {self._pin.path}", detail="the fork does not know its root table")

    def update(
        self, *, new: list[FragmentMetadata], updated: list[FragmentMetadata], removed: list[int]
    ) -> Transaction:
        """Replace rows: old ones are marked in `updated`, or their fragment is in `removed`; new ones are in `new`."""
        operation = lance_api.operations().Update(
            removed_fragment_ids=removed,
            updated_fragments=updated,
            new_fragments=new,
            fields_modified=[],
            fields_for_preserving_frag_bitmap=self._field_ids(),
            update_mode="rewrite_rows",
        )
        return self._transaction(operation)

    def delete_marks(self, addresses: pa.Array) -> tuple[list[FragmentMetadata], list[int]]:
        """Mark rows deleted; returns the fragments with remaining rows, and the ids of the fragments without any."""
        where = np.sort(addresses.to_numpy(zero_copy_only=False).astype(np.uint64))
        updated: list[FragmentMetadata] = []
        removed: list[int] = []
        for fragment_id in np.unique(where >> np.uint64(32)).tolist():
            offsets = where[(where >> np.uint64(32)) == fragment_id] & np.uint64(0xFFFFFFFF)
            remaining = self._table.get_fragment(fragment_id).delete_rows(offsets.tolist())
            if remaining is None:
                removed.append(fragment_id)
            else:
                updated.append(remaining)
        self._sync(updated, data_root=None)
        for fragment in updated:
            deletion_files.note_written(self._location, self._pin.path, fragment)
        return updated, removed

    def _sync(self, fragments: Sequence[FragmentMetadata], *, data_root: str | None) -> None:
        """Check and sync new data files (`data_root` given) or new deletion files (None)."""
        if not self._location.is_local:
            return
        bodies = [f.to_json() for f in fragments]
        if data_root is None:
            bodies = [{"id": b["id"], "files": [], "deletion_file": b["deletion_file"]} for b in bodies]
            root = self._location.join(self._pin.path)
        else:
            root = self._location.join(data_root)
        durability.sync_fragments(root, bodies)

    def _field_ids(self) -> list[int]:
        ids: list[int] = []
        pending = list(self._table.lance_schema.fields())
        while pending:
            field = pending.pop()
            ids.append(field.id())
            pending.extend(field.children())
        return ids

    def _transaction(self, operation: Any) -> Transaction:
        return lance_api.transaction(operation, read_version=self._table.version)


def on_version(tx: Transaction, table: LanceDataset) -> Transaction:
    """The same operation as a transaction on another version of the table, which has the same fields."""
    return lance_api.transaction(tx.operation, read_version=table.version)


def restoring(version: int, *, read_version: int) -> Transaction:
    """An uncommitted transaction that makes an older version the newest. It changes metadata only."""
    return lance_api.transaction(lance_api.operations().Restore(version), read_version=read_version)


def written_files(pin: Pin, tx: Transaction, base: LanceDataset) -> list[str]:
    """The data and deletion files that an uncommitted transaction on `base` refers to as new, relative to the graph."""
    operation = tx.operation
    new, changed = getattr(operation, "new_fragments", ()), getattr(operation, "updated_fragments", ())
    if isinstance(operation, lance_api.operations().Append):
        new = operation.fragments
    elif isinstance(operation, lance_api.operations().Merge):
        changed = operation.fragments
    paths = [path for fragment in new for path in added_files(pin, fragment)]
    return paths + [path for f in changed for path in added_files(pin, f, old=base.get_fragment(f.id))]


def added_files(pin: Pin, fragment: FragmentMetadata, old: Any = None) -> list[str]:
    """The files of a fragment that `old`, the same fragment before, does not have, relative to the graph."""
    old_paths = {file.path for file in old.metadata.files} if old is not None else set()
    paths = [
        f"{pin.path if file.base_id is None else pin.root}/data/{file.path}"
        for file in fragment.files
        if file.path not in old_paths
    ]
    deletion = fragment.to_json().get("deletion_file")
    if deletion and (old is None or deletion != old.metadata.to_json().get("deletion_file")):
        paths.append(durability.deletion_path(pin.path, fragment.id, deletion))
    return paths


def line_files(pin: Pin) -> list[str]:
    """The file of a version, and Lance's reference file of its fork, relative to the graph."""
    paths = [durability.manifest_path(pin.path, pin.version)]
    return paths if pin.fork is None else [*paths, f"{pin.root}/_refs/branches/{pin.fork}.json"]


def fragment_files(location: Location, pin: Pin, table: LanceDataset, fragment: Any, *, with_data: bool) -> list[str]:
    """Paths of a committed fragment's deletion file and, if asked for, its data files, on a local disk."""
    body = fragment.metadata.to_json()
    bases = {b.id: b.path for b in table.base_paths().values()}
    line_uri = location.join(pin.path)
    paths: list[str] = []
    if with_data:
        for file in body["files"]:
            root = line_uri if file.get("base_id") is None else bases[file["base_id"]]
            with form.reading(f"a version of {pin.path}"):
                paths.append(os.path.join(root, "data", form.file_name(file["path"])))
    deletion = body.get("deletion_file")
    if deletion:
        root = line_uri if deletion.get("base_id") is None else bases[deletion["base_id"]]
        paths.append(durability.deletion_path(root, body["id"], deletion))
    return paths


def fork_table(location: Location, pin: Pin, table: LanceDataset, *, name: str) -> tuple[Pin, LanceDataset]:
    """A fork of the table for one branch, from exactly the pinned version. `name` must never have been used."""
    try:
        table.create_branch(name, pin.version)
    except (OSError, ValueError, RuntimeError) as error:
        if "already exists" not in str(error):
            raise
        # The store's response was lost and Lance repeated the request; the result of the first one is unknown.
        raise ForkTaken(doing=f"forking {pin.path}", detail=str(error)) from error
    forked = Pin(table=pin.table, incarnation=pin.incarnation, fork=name, version=pin.version)
    uri = location.join(forked.path)
    if location.is_local:
        checksums.note([durability.manifest_path(uri, pin.version)])
        durability.sync_tree(uri, above=2)
        durability.sync_files([location.join(pin.root, "_refs", "branches", f"{name}.json")])
    try:
        return forked, lance_api.open_table(location, uri)
    except lance_api.TableMissing as error:
        # If this process was stopped here for long, a cleanup may have removed the fork as that of a crashed writer.
        raise ForkTaken(doing=f"forking {pin.path}", detail="the fork was removed while it was being made") from error
