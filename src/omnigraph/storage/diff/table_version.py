"""One version of a table as diff and merge read it: fragments by their files, deletion vectors, rows by address.

A fragment is identified by its data files and the fields that each of them holds, not by its fragment id: two lines of
a table number their fragments independently, and a merge adopts fragments of one line into another.

Nothing here writes. Reads are of the pinned version only.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence, Set
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.errors import StorageError
from omnigraph.language.schema.model import EntityType
from omnigraph.storage import durability
from omnigraph.storage.diff.deletion_vectors import deleted_offsets, read_graph_file
from omnigraph.storage.diff.fork_lineage import ForkPoints, read_fork_points, shared_version
from omnigraph.storage.files.blob_values import blob_columns, require_own_blobs
from omnigraph.storage.files.footers import require_index_footers
from omnigraph.storage.lance import tables as tables_of
from omnigraph.storage.lance.fields import property_ids
from omnigraph.storage.lance.tables import Tables
from omnigraph.storage.layout import Location
from omnigraph.storage.manifest.records import Pin

if TYPE_CHECKING:
    from lance import FragmentMetadata, LanceDataset

ROW_VERSION = "_row_last_updated_at_version"
FILTER_ADDRESSES_MAX = 1_024
"""Up to so many scattered rows are read by a filter on their addresses; more by a scan of their fragments."""
BOUNDED_ADDRESSES_MAX = 16_384
"""So many rows are read by one filter where memory has to follow the rows."""
BATCH_ROWS, BLOB_BATCH_ROWS = 16_384, 256
_OFFSET_BITS = np.uint64(32)
_OFFSET_MASK = np.uint64(0xFFFFFFFF)

FragmentKey = tuple[tuple[str, tuple[int, ...]], ...]
"""The data files of a fragment: path and field ids of each."""


def fragment_ids_of(addresses: np.ndarray) -> np.ndarray:
    return (addresses >> _OFFSET_BITS).astype(np.int64)


def fragment_counts(addresses: np.ndarray) -> dict[int, int]:
    """Rows per fragment, by ascending fragment id. Sorts: `np.unique` hashes, which takes many times longer."""
    ids = np.sort(fragment_ids_of(addresses), kind="stable")
    starts = np.flatnonzero(np.append(True, ids[1:] != ids[:-1]))[: len(ids)]
    counts = np.diff(starts, append=len(ids))
    return dict(zip(ids[starts].tolist(), counts.tolist(), strict=True))


def offsets_of(addresses: np.ndarray) -> np.ndarray:
    return (addresses & _OFFSET_MASK).astype(np.int64)


def to_addresses(fragment_id: int, offsets: np.ndarray) -> np.ndarray:
    return (np.uint64(fragment_id) << _OFFSET_BITS) | offsets.astype(np.uint64)


@dataclass(frozen=True)
class FragmentFile:
    """One fragment of a version. `deletion` identifies its deletion file; None if no row is deleted."""

    id: int
    physical_rows: int
    key: FragmentKey
    deletion: tuple[int, int, int] | None
    metadata: FragmentMetadata

    @property
    def live_rows(self) -> int:
        return self.physical_rows - (self.deletion[-1] if self.deletion else 0)

    def holds(self, fields: Set[int]) -> bool:
        """Whether a data file has one of these fields."""
        return any(not fields.isdisjoint(ids) for _, ids in self.key)


@dataclass(eq=False)
class TableVersion:
    """A pinned version. What was read of it once is kept: a version never changes."""

    location: Location
    pin: Pin
    type: EntityType
    table: LanceDataset
    _deleted: dict[int, np.ndarray] = field(default_factory=dict, repr=False)

    @staticmethod
    def open(tables: Tables, pin: Pin, t: EntityType) -> TableVersion:
        return TableVersion(tables.location, pin, t, tables.open(pin, table_key=t.key))

    @cached_property
    def has_stable_row_ids(self) -> bool:
        return bool(self.table.has_stable_row_ids)

    @cached_property
    def fragments(self) -> dict[FragmentKey, FragmentFile]:
        by_key: dict[FragmentKey, FragmentFile] = {}
        for fragment in self.table.get_fragments():
            metadata = fragment.metadata
            key = tuple((file.path, tuple(file.fields)) for file in metadata.files)
            mark = metadata.deletion_file
            deletion = None if mark is None else (int(mark.read_version), int(mark.id), int(mark.num_deleted_rows))
            assert key not in by_key, "a version refers to a data file once"
            by_key[key] = FragmentFile(int(metadata.id), int(metadata.physical_rows), key, deletion, metadata)
        return by_key

    @cached_property
    def fragments_by_id(self) -> dict[int, FragmentFile]:
        return {fragment.id: fragment for fragment in self.fragments.values()}

    @cached_property
    def row_count(self) -> int:
        return sum(fragment.live_rows for fragment in self.fragments.values())

    @cached_property
    def field_properties(self) -> dict[int, str]:
        """The property that each field id stands for (`storage/lance/fields.py`)."""
        return property_ids(self.table, self.type)

    @cached_property
    def _fork_points(self) -> ForkPoints | None:
        return read_fork_points(self.location, self.pin)

    def version_shared_with(self, other: TableVersion) -> int:
        """The last version that this line and the other one have in common; 0 if unknown."""
        if self.pin.root != other.pin.root:
            return 0
        if self.pin.path == other.pin.path:
            return min(self.pin.version, other.pin.version)
        return shared_version(self.pin, self._fork_points, other.pin, other._fork_points)

    @cached_property
    def _base_paths(self) -> dict[int, str]:
        """Base paths by id, relative to the graph."""
        return {
            int(base.id): self.pin.root + str(base.path).rstrip("/").rpartition(self.pin.root)[2]
            for base in self.table.base_paths().values()
        }

    @cached_property
    def root_base_id(self) -> int | None:
        """The base id under which this line refers to files of the root table; None on the root itself."""
        if self.pin.fork is None:
            return None
        for base_id, path in self._base_paths.items():
            if path == self.pin.root:
                return base_id
        raise StorageError(doing=f"reading {self.pin.path}", detail="the fork does not know its root table")

    def is_in_root(self, fragment: FragmentFile) -> bool:
        """Whether all data files of a fragment lie in the root table's folder, where every line can refer to them."""
        return all(file.base_id == self.root_base_id for file in fragment.metadata.files)

    def deleted_offsets(self, fragment: FragmentFile) -> np.ndarray:
        """Offsets of a fragment's deleted rows, ascending."""
        if fragment.deletion is None:
            return np.empty(0, dtype=np.int64)
        known = self._deleted.get(fragment.id)
        if known is None:
            known = self._deleted[fragment.id] = self._read_deleted_offsets(fragment)
        return known

    def _read_deleted_offsets(self, fragment: FragmentFile) -> np.ndarray:
        mark = fragment.metadata.deletion_file
        line = self.pin.path if mark.base_id is None else self._base_paths[mark.base_id]
        body = {"file_type": mark.file_type, "read_version": mark.read_version, "id": mark.id}
        path = durability.deletion_path(line, fragment.id, body)
        with tables_of.reading(self.table, self.type):
            try:
                raw = read_graph_file(self.location, path)
            except FileNotFoundError as error:
                raise StorageError(doing=f"reading {path}", detail="the file does not exist") from error
        return deleted_offsets(raw, path=path)

    # ---- rows --------------------------------------------------------------------------------------------------------

    def rows_at(
        self,
        addresses: np.ndarray,
        columns: Sequence[str] = (),
        *,
        whole_fragments: Iterable[int] = (),
        bounded: bool = False,
    ) -> pa.Table:
        """The live rows at these addresses and all of the whole fragments: the columns, `_rowid`, `_rowaddr` and,
        with stable row ids, the version of the last update. In no particular order.

        `bounded`: memory follows the rows that are asked for, not the fragments that they lie in.
        """
        parts: list[pa.Table] = []
        whole = sorted(whole_fragments)
        ascending = np.sort(addresses)
        at_once = BOUNDED_ADDRESSES_MAX if bounded else FILTER_ADDRESSES_MAX
        if len(addresses) > at_once and not bounded:
            some = list(fragment_counts(ascending))
            parts += [_only_at(batch, ascending) for batch in self.scan(columns, fragments=some)]
        else:
            for start in range(0, len(ascending), at_once):
                text = ",".join(map(str, ascending[start : start + at_once].tolist()))
                parts += self.scan(columns, where=f"_rowaddr IN ({text})")
        if whole:
            parts += self.scan(columns, fragments=whole)
        return pa.concat_tables([self.row_schema(columns).empty_table(), *parts])

    def whole_fragments(self, addresses: np.ndarray) -> list[int]:
        """The fragments of which all live rows are at these addresses."""
        return [n for n, rows in fragment_counts(addresses).items() if self.fragments_by_id[n].live_rows == rows]

    def rows_in_order(self, addresses: np.ndarray, columns: Sequence[str], *, bounded: bool = False) -> pa.Table:
        """The rows at these addresses, in their order."""
        whole = self.whole_fragments(addresses)
        scattered = addresses[~np.isin(fragment_ids_of(addresses), whole)]
        rows = self.rows_at(scattered, columns, whole_fragments=whole, bounded=bounded)
        stored = rows["_rowaddr"].to_numpy()
        order = np.argsort(stored, kind="stable")
        return rows.take(pa.array(order[np.searchsorted(stored, addresses, sorter=order)]))

    def blob_bytes(self, addresses: np.ndarray) -> np.ndarray:
        """How many bytes the blobs of each row at these addresses have, without reading them."""
        columns = [c for c in blob_columns(self.type, list(self.type.by_name)) if c in self.table.schema.names]
        sizes = np.zeros(len(addresses), dtype=np.int64)
        if not columns or not len(addresses):
            return sizes
        fragments = [self.table.get_fragment(n) for n in fragment_counts(addresses)]
        with tables_of.reading(self.table, self.type):
            described = self.table.scanner(
                columns=columns, blob_handling="blobs_descriptions", fragments=fragments, with_row_address=True
            ).to_table()
        stored = described["_rowaddr"].to_numpy()
        order = np.argsort(stored, kind="stable")
        positions = order[np.searchsorted(stored, addresses, sorter=order)]
        for column in columns:
            size = pc.struct_field(described[column], "size").fill_null(0)
            sizes += np.asarray(size).astype(np.int64)[positions]
        return sizes

    def row_schema(self, columns: Sequence[str]) -> pa.Schema:
        schema = tables_of.result_schema(self.type, list(columns))
        return schema.append(pa.field(ROW_VERSION, pa.uint64())) if self.has_stable_row_ids else schema

    def scan(
        self, columns: Sequence[str], *, fragments: Sequence[int] | None = None, where: str | None = None
    ) -> Iterator[pa.Table]:
        """Rows of some fragments, or of all, that pass a filter, batch by batch, in the shape of `row_schema`."""
        blobs = blob_columns(self.type, columns)
        options: dict[str, Any] = {"blob_handling": "all_binary"} if blobs else {}
        chosen = None if fragments is None else [self.table.get_fragment(number) for number in fragments]
        if chosen is not None:
            options["fragments"] = chosen
        stored = [c for c in columns if c in self.table.schema.names]
        schema = self.row_schema(columns)
        with tables_of.reading(self.table, self.type):
            if where is not None:
                require_index_footers(self.table, where)
            require_own_blobs(self.table, self.type, stored, where=where, fragments=chosen)
            scanner = self.table.scanner(
                columns=[*stored, *([ROW_VERSION] if self.has_stable_row_ids else [])],
                filter=where,
                with_row_id=True,
                with_row_address=True,
                batch_size=BLOB_BATCH_ROWS if blobs else BATCH_ROWS,
                **options,
            )
            for batch in scanner.to_batches():
                rows = pa.table(batch)
                for name in columns:
                    if name not in rows.column_names:
                        rows = rows.append_column(name, pa.nulls(rows.num_rows, schema.field(name).type))
                yield rows.select(schema.names).cast(schema)


def _only_at(batch: pa.Table, ascending: np.ndarray) -> pa.Table:
    """The rows of a batch at some of these addresses, which are in ascending order."""
    stored = batch["_rowaddr"].to_numpy()
    nearest = np.minimum(np.searchsorted(ascending, stored), len(ascending) - 1)
    return batch.filter(pa.array(ascending[nearest] == stored))
