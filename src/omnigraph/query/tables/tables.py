"""Tables as a query reads them: rows by number, values by number, numbers by id. Stored or in memory.

A stored table is one exact version in Lance. A row's number is its row id. Values are read, cheapest first,

1. from the rows that the last scan of this query has read
2. from whole columns in the cache
3. by taking rows, if they are few
4. from a whole column that is read now and cached: above some per cent of the rows that is faster than taking them

A memory table (`memory_table`) holds the pending view of a transaction. A row's number is its position. Nothing is
written.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence, Set
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.language.schema.model import EntityType
from omnigraph.query.execution import sorting
from omnigraph.query.execution.frame import factorize
from omnigraph.query.execution.ranking import ranked
from omnigraph.query.execution.sorting import argsort, sort
from omnigraph.query.limits import Watch
from omnigraph.query.tables.cache import Cache
from omnigraph.query.tables.numbering import Numbering
from omnigraph.storage.files.footers import require_index_footers
from omnigraph.storage.lance import tables as tables_of
from omnigraph.storage.manifest.table import quote

if TYPE_CHECKING:
    from lance import LanceDataset

_INDEX = re.compile(r"\]@(\w+)\(")
"""How a Lance plan names an index that it uses."""
TAKE_SHARE = 0.04
"""Up to this share of the rows, rows are taken one by one; above, whole columns are read."""
TAKE_MIN = 64
IDS_PER_FILTER = 1000
BATCH_ROWS = 65_536
TAKES_MIN = 128
LOOKUPS_MIN = 64
"""After this many look-ups in one version, its ids are cached."""
RANKED_APART_MAX = 4096
"""Up to this many rows are ordered by their ids without reading the other ids of the table."""
ID_BYTES = 160
VALUE_BYTES = 40
FILTER_S_PER_VALUE = 5e-9
READ_S_PER_VALUE = 1e-7
"""Approximate time per row to evaluate a condition and to read a column."""


class Table(Protocol):
    type: EntityType
    ordinal: int

    @property
    def rows(self) -> int: ...

    @property
    def stored(self) -> StoredTable | None:
        """The stored table; None for rows in memory."""
        ...

    def scan(self, where: str | None = None, columns: Sequence[str] = ()) -> np.ndarray:
        """Numbers of the rows that satisfy the filter, ascending; `columns` will probably be read next."""
        ...

    def values(self, names: Sequence[str], numbers: np.ndarray) -> dict[str, pa.Array]: ...

    def resolve(self, ids: pa.Array) -> np.ndarray:
        """The numbers of the rows with these ids, -1 for an unknown id."""
        ...

    def at_ends(self, end: str, ids: pa.Array, where: str | None = None) -> pa.Table:
        """For an edge table: `src`, `dst` and `_rowid` of the edges whose end is one of the ids."""
        ...

    def id_ranks(self, numbers: np.ndarray, *, among_rows: int = 0) -> np.ndarray | None:
        """Integers in the order of the ids; None if it is cheaper to compare the ids.

        `among_rows`: the numbers are a part of that many, whose ranks will probably be needed as well.
        """
        ...


def flat(column: pa.ChunkedArray | pa.Array) -> pa.Array:
    if isinstance(column, pa.ChunkedArray):
        combined = column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()
        return pa.concat_arrays(combined.chunks) if isinstance(combined, pa.ChunkedArray) else combined
    return column


@dataclass(frozen=True)
class Scans:
    """How often a version was scanned for a condition, and how long that took in total."""

    count: int = 0
    seconds: float = 0.0


@dataclass(eq=False)
class StoredTable:
    type: EntityType
    ordinal: int
    key: tuple[str, int]
    """(folder, version): the prefix of the cache keys of this version."""
    dataset: LanceDataset
    cache: Cache
    watch: Watch
    known_rows: int | None = None
    text_bytes: int = 0
    graph: str | None = None
    """The folder of a local graph."""
    _scanned: tuple[np.ndarray, pa.Table] | None = field(default=None, repr=False)
    _read: dict[str, pa.Array] = field(default_factory=dict, repr=False)
    """Whole columns that this query has read."""

    @property
    def stored(self) -> StoredTable:
        return self

    @property
    def rows(self) -> int:
        if self.known_rows is None:
            with tables_of.reading(self.dataset, self.type):
                self.known_rows = int(self.dataset.count_rows())
        return self.known_rows

    # ---- rows

    def scan(self, where: str | None = None, columns: Sequence[str] = ()) -> np.ndarray:
        numbering = self.cache.get((*self.key, "numbering"))
        if where is None and isinstance(numbering, Numbering):
            return numbering.rowids
        if where is None and not columns:
            return self.numbering().rowids
        rows = pa.Table.from_batches(list(self._batches(list(columns), where)), schema=self._shape(columns))
        rowids = np.asarray(flat(rows["_rowid"])).astype(np.int64)
        if len(rowids) and not (rowids[1:] > rowids[:-1]).all():
            order = argsort(rowids)
            rowids, rows = rowids[order], rows.take(pa.array(order))
        if columns:
            self._scanned = (rowids, rows)
        return rowids

    def indices_for(self, where: str) -> list[str]:
        """The indices that Lance uses for a filter."""
        with tables_of.reading(self.dataset, self.type):
            require_index_footers(self.dataset, where)
            plan = self.dataset.scanner(columns=[], filter=where, with_row_id=True).explain_plan()
        return sorted(set(_INDEX.findall(plan)))

    def _shape(self, columns: Sequence[str]) -> pa.Schema:
        schema: Any = self.cache.get((*self.key, "schema"))
        if schema is None:
            schema = self.dataset.schema
            self.cache.put((*self.key, "schema"), schema, 4096)
        return pa.schema([*(schema.field(c).with_nullable(True) for c in columns), pa.field("_rowid", pa.uint64())])

    def _batches(self, columns: list[str], where: str | None) -> Iterator[pa.RecordBatch]:
        shape = self._shape(columns)
        with tables_of.reading(self.dataset, self.type):
            if where is not None:
                require_index_footers(self.dataset, where)
            scanner = self.dataset.scanner(columns=columns, filter=where, with_row_id=True, batch_size=BATCH_ROWS)
            for batch in scanner.to_batches():
                self.watch.tick()
                yield batch.select(shape.names).cast(shape)

    def numbering(self) -> Numbering:
        def make() -> tuple[Numbering, int]:
            parts = [np.asarray(b["_rowid"]).astype(np.int64) for b in self._batches([], None)]
            rowids = np.concatenate(parts) if parts else np.empty(0, dtype=np.int64)
            numbering = Numbering.of(sort(rowids))
            return numbering, numbering.bytes

        return self.cache.get_or_make((*self.key, "numbering"), make)

    # ---- values

    def values(self, names: Sequence[str], numbers: np.ndarray) -> dict[str, pa.Array]:
        from_scan = self._from_scan(names, numbers)
        if from_scan is not None:
            return from_scan
        columns: dict[str, Any] = {n: self._cached_column(n) for n in names}
        missing = [n for n, c in columns.items() if c is None]
        if missing and self._are_few(len(numbers)) and not self._taken_often(missing, len(numbers)):
            return self._taken(names, numbers)
        if missing:
            distinct = factorize(numbers)
            if self._are_few(len(distinct[0])) and not self._taken_often(missing, 0):
                taken = self._taken(names, distinct[0])
                index = pa.array(distinct[1])
                return {n: c.take(index) for n, c in taken.items()}
            columns.update(self._columns(missing))
        else:
            self.watch.use("column cache")
        index = pa.array(self.numbering().positions(numbers))
        return {n: c.take(index) for n, c in columns.items()}

    def _cached_column(self, name: str) -> pa.Array | None:
        column: Any = self.cache.get((*self.key, "column", name))
        return column if column is not None else self._read.get(name)

    def _are_few(self, count: int) -> bool:
        return count <= TAKE_MIN or count <= self.rows * TAKE_SHARE

    def _taken_often(self, names: Sequence[str], count: int) -> bool:
        """Whether enough rows of these columns were taken from this version to make reading whole columns worth it."""
        is_often = True
        for name in names:
            taken_before: Any = self.cache.get((*self.key, "taken", name))
            total = (taken_before or 0) + count
            self.cache.put((*self.key, "taken", name), total, 64)
            is_often = is_often and total > max(TAKES_MIN, self.rows // 1000)
        return is_often

    def _from_scan(self, names: Sequence[str], numbers: np.ndarray) -> dict[str, pa.Array] | None:
        if self._scanned is None:
            return None
        rowids, rows = self._scanned
        if not set(names) <= set(rows.column_names) or (len(rowids) == 0 and len(numbers)):
            return None
        positions = np.searchsorted(rowids, numbers)
        positions[positions == len(rowids)] = 0
        if len(numbers) and not (rowids[positions] == numbers).all():
            return None
        index = pa.array(positions)
        return {n: flat(rows[n]).take(index) for n in names}

    def _taken(self, names: Sequence[str], numbers: np.ndarray) -> dict[str, pa.Array]:
        shape = self._shape(names)
        if len(numbers) == 0:
            return {n: pa.array([], shape.field(n).type) for n in names}
        rows = tables_of.take_rows(self.dataset, self.type, numbers.tolist(), names)
        return {n: flat(rows[n]).cast(shape.field(n).type) for n in names}

    def _columns(self, names: Sequence[str]) -> dict[str, pa.Array]:
        """Whole columns in the order of row ids, read in one scan; they stay in the cache, and until the query ends."""
        shape = self._shape(names)
        batches, held_bytes = [], 0
        for batch in self._batches(list(names), None):
            batches.append(batch)
            held_bytes += batch.nbytes
            self.watch.memory(held_bytes)
        rows = pa.Table.from_batches(batches, schema=shape)
        rowids = np.asarray(flat(rows["_rowid"])).astype(np.int64)
        order = None if (rowids[1:] > rowids[:-1]).all() else argsort(rowids)
        numbering = Numbering.of(rowids if order is None else rowids[order])
        self.cache.put((*self.key, "numbering"), numbering, numbering.bytes)
        columns = {}
        for name in names:
            column = flat(rows[name])
            columns[name] = column if order is None else column.take(pa.array(order))
            self.cache.put((*self.key, "column", name), columns[name], columns[name].nbytes)
            if columns[name].nbytes > self.cache.max_bytes:
                self.watch.keep(columns[name].nbytes)
        # A query that reads values part by part must not read a column again that the cache has dropped.
        self._read.update(columns)
        return columns

    def has_columns(self, names: Iterable[str]) -> bool:
        """Whether all of them are cached."""
        return all(self._cached_column(n) is not None for n in names)

    def column(self, name: str) -> pa.Array:
        """The whole column, in the order of row ids."""
        column = self._cached_column(name)
        return column if column is not None else self._columns([name])[name]

    def filters_in_memory(self, columns: Set[str]) -> bool:
        """Whether conditions on these columns are evaluated faster in memory than by Lance."""
        names = sorted(columns)
        scans = self.cache.get((*self.key, "scans", tuple(names)))
        if not names or not isinstance(scans, Scans) or not self._is_narrow(names):
            return False
        is_slower = scans.seconds / scans.count > 2 * self.rows * len(names) * FILTER_S_PER_VALUE
        if not is_slower or scans.seconds < self.rows * len(names) * READ_S_PER_VALUE:
            return False
        if not self.has_columns(names):
            self._columns(names)
        self.watch.use("column cache")
        return True

    def note_scan(self, columns: Set[str], seconds: float) -> None:
        """Record the time of a scan with a filter on these columns."""
        key = (*self.key, "scans", tuple(sorted(columns)))
        cached = self.cache.get(key)
        scans = cached if isinstance(cached, Scans) else Scans()
        self.cache.put(key, Scans(scans.count + 1, scans.seconds + seconds), 64)

    def _is_narrow(self, names: Sequence[str]) -> bool:
        """Whether the columns hold scalar values, and are small compared to the cache."""
        if any(n.startswith("@") for n in names):
            return False
        shape = self._shape(names)
        if any(pa.types.is_nested(shape.field(n).type) for n in names):
            return False
        return self.rows * len(names) * VALUE_BYTES <= self.cache.max_bytes // 8

    def can_keep(self, row_bytes: int) -> bool:
        """Whether a column of that width fits into the cache."""
        return self.rows * row_bytes <= self.cache.max_bytes

    def stream(self, name: str) -> Iterator[tuple[np.ndarray, pa.Array]]:
        """(row ids, values) of a column, batch by batch in any order; not cached."""
        for batch in self._batches([name], None):
            yield np.asarray(batch["_rowid"]).astype(np.int64), batch[name]

    def whole(self, names: Sequence[str]) -> dict[str, pa.Array]:
        """Whole columns that are used once and not cached."""
        rows = pa.Table.from_batches(list(self._batches(list(names), None)), schema=self._shape(names))
        rowids = np.asarray(flat(rows["_rowid"])).astype(np.int64)
        order = argsort(rowids)
        numbering = Numbering.of(rowids[order])
        self.cache.put((*self.key, "numbering"), numbering, numbering.bytes)
        is_sorted = bool((rowids[1:] > rowids[:-1]).all())
        return {n: flat(rows[n]) if is_sorted else flat(rows[n]).take(pa.array(order)) for n in names}

    # ---- ids

    def resolve(self, ids: pa.Array) -> np.ndarray:
        whole: Any = self.cache.get((*self.key, "column", "id"))
        if len(ids) > IDS_PER_FILTER or (whole is not None and len(whole) < 50_000):
            indices = pc.index_in(ids, value_set=self.column("id"))
            positions = np.asarray(indices.fill_null(-1)).astype(np.int64)
            rowids = self.numbering().rowids
            return np.where(positions < 0, -1, rowids[np.maximum(positions, 0)]) if len(rowids) else positions
        if len(ids) == 0:
            return np.empty(0, dtype=np.int64)
        self.watch.use("id_btree")
        distinct_ids = pc.unique(ids)
        where = f"`id` IN ({','.join(quote(v) for v in distinct_ids.to_pylist())})"
        rows = pa.Table.from_batches(list(self._batches(["id"], where)), schema=self._shape(["id"]))
        id_positions = pc.index_in(ids, value_set=flat(rows["id"])).fill_null(-1)
        numbers = np.append(np.asarray(flat(rows["_rowid"])).astype(np.int64), -1)
        return np.asarray(numbers[np.asarray(id_positions)])

    def lookup(self, ids: Sequence[str]) -> np.ndarray | None:
        """The rows with these ids, in order, from memory; None if the ids of this version are not cached yet.

        They are cached after LOOKUPS_MIN look-ups in this version.
        """
        if self.rows * ID_BYTES > self.cache.max_bytes:
            return None  # does not fit into the cache
        row_of_id: Any = self.cache.get((*self.key, "ids"))
        if row_of_id is None:
            looked_up: Any = self.cache.get((*self.key, "looked up"))
            count = len(ids) + (looked_up or 0)
            self.cache.put((*self.key, "looked up"), count, 64)
            if count < LOOKUPS_MIN and not self.has_columns(["id"]):
                return None
            row_of_id = dict(zip(self.column("id").to_pylist(), self.numbering().rowids.tolist(), strict=True))
            self.cache.put((*self.key, "ids"), row_of_id, self.rows * ID_BYTES)
        self.watch.use("ids in memory")
        rowids = {row_of_id[i] for i in ids if i in row_of_id}
        return np.array(sorted(rowids), dtype=np.int64)

    def at_ends(self, end: str, ids: pa.Array, where: str | None = None) -> pa.Table:
        shape = self._shape(["src", "dst"])
        parts = []
        self.watch.use(f"{end}_btree")
        for start in range(0, len(ids), IDS_PER_FILTER):
            part = ids.slice(start, IDS_PER_FILTER).to_pylist()
            filter_ = f"`{end}` IN ({','.join(quote(v) for v in part)})"
            parts += list(self._batches(["src", "dst"], filter_ if where is None else f"({filter_}) AND ({where})"))
        return pa.Table.from_batches(parts, schema=shape)

    def id_ranks(self, numbers: np.ndarray, *, among_rows: int = 0) -> np.ndarray | None:
        count = among_rows if len(numbers) > RANKED_APART_MAX else len(numbers)
        if self._are_few(count) and self.cache.get((*self.key, "ranks")) is None:
            return None

        def make() -> tuple[np.ndarray, int]:
            ids = self.column("id")
            if len(ids) > sorting.PART_ROWS:
                ranks = ranked(ids).astype(np.int32)
            else:
                order = np.asarray(pc.array_sort_indices(ids))
                ranks = np.empty(len(order), dtype=np.int32)
                ranks[order] = np.arange(len(order), dtype=np.int32)
            return ranks, ranks.nbytes

        ranks = self.cache.get_or_make((*self.key, "ranks"), make)
        return np.asarray(ranks[self.numbering().positions(numbers)])
