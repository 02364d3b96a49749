"""One table of the graph, opened at a pin: look-ups and scans, and the cache of open handles.

Reads never use versions above the pin. Blob columns are returned as bytes. A look-up by a long list of values reads the
column once and matches in memory; a short list goes to Lance as a filter.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.errors import StorageError
from omnigraph.language.schema.model import EntityType
from omnigraph.storage.files import truncated_versions
from omnigraph.storage.files.blob_values import blob_columns, require_own_blobs
from omnigraph.storage.files.footers import require_index_footers
from omnigraph.storage.files.missing_versions import absence, absence_of
from omnigraph.storage.lance import lance_api
from omnigraph.storage.lance.columns import arrow_schema, physical_columns
from omnigraph.storage.lance.embedding_marks import mark_fields
from omnigraph.storage.layout import Location
from omnigraph.storage.manifest.records import Pin
from omnigraph.storage.manifest.table import quote

if TYPE_CHECKING:
    from lance import LanceDataset

FILTER_MAX = 500
"""Look-ups of up to this many values go to Lance as `column IN (…)`."""
ROW_COLUMNS = ("_rowid", "_rowaddr")
_HANDLES_MAX = 256


def storage_schema(t: EntityType) -> pa.Schema:
    """The columns as Lance stores them: properties are nullable there, because higher layers check the schema's rules.
    The hidden embedding marks come last.
    """
    from lance import blob_field

    fields = []
    for field in arrow_schema(t):
        if pa.types.is_large_binary(field.type):
            fields.append(blob_field(field.name))
        else:
            fields.append(field.with_nullable(field.name not in physical_columns(t)))
    return pa.schema([*fields, *mark_fields(t)])


def to_storage(rows: pa.Table, t: EntityType) -> pa.Table:
    """Rows of `arrow_schema(t)` in the form that Lance stores, with embedding marks where the rows have them."""
    from lance import blob_array

    hidden = {field.name for field in mark_fields(t)} - set(rows.column_names)
    shape = pa.schema([field for field in storage_schema(t) if field.name not in hidden])
    columns = []
    for field in shape:
        column = rows[field.name]
        if isinstance(field.type, pa.BaseExtensionType):
            columns.append(blob_array(column.to_pylist()))
        else:
            columns.append(column.cast(field.type))
    return pa.table(columns, schema=shape)


class Tables:
    """Open handles of tables at exact versions, newest used last. One per graph handle; threads may share it."""

    def __init__(self, location: Location) -> None:
        self.location = location
        self._lock = threading.Lock()
        self._open: OrderedDict[tuple[str, int], LanceDataset] = OrderedDict()

    def open(self, pin: Pin, *, table_key: str = "") -> LanceDataset:
        key = (pin.path, pin.version)
        with self._lock:
            cached = self._open.get(key)
            if cached is not None:
                self._open.move_to_end(key)
                return cached
        try:
            table = lance_api.open_table(self.location, self.location.join(pin.path), version=pin.version)
        except lance_api.TableMissing as error:
            raise absence(self.location, pin.path, pin.version, table_key=table_key) from error
        self.keep(pin, table)
        return table

    def keep(self, pin: Pin, table: LanceDataset) -> None:
        """Cache a handle that a commit has just returned."""
        with self._lock:
            self._open[(pin.path, pin.version)] = table
            while len(self._open) > _HANDLES_MAX:
                self._open.popitem(last=False)

    def measured(self, pin: Pin) -> Pin:
        """The pin with the row and fragment counts of its version."""
        table = self.open(pin)
        with lance_api.reading(f"counting the rows of {pin.path}"):
            return replace(pin, rows=table.count_rows(), fragments=len(table.get_fragments()))

    def newest(self, pin: Pin) -> LanceDataset:
        """The table's newest version, which may be above the pin: only the commit protocol reads it."""
        return lance_api.open_newest(self.location, self.location.join(pin.path))

    def newest_version(self, pin: Pin) -> int:
        try:
            with lance_api.reading(f"looking for versions of {pin.path}"):
                return lance_api.newest_version(self.location, self.open(pin))
        except StorageError:
            truncated = truncated_versions.truncated_versions(self.location, self.location.join(pin.path))
            if truncated:
                return max(truncated)
            if lance_api.is_gone(self.open(pin)):
                raise absence(self.location, pin.path, pin.version) from None
            raise


@contextmanager
def reading(table: LanceDataset, t: EntityType) -> Iterator[None]:
    """Distinguish a version that was removed or lost during the read from a failing store."""
    try:
        with lance_api.reading(f"reading {t.key}", decodes=True):
            yield
    except StorageError:
        if lance_api.is_gone(table):
            raise absence_of(table, table_key=t.key) from None
        raise


def find(table: LanceDataset, t: EntityType, column: str, values: pa.Array, columns: Sequence[str]) -> pa.Table:
    """Rows whose `column` is in `values`, with the given columns and the row's id and address."""
    values = values.drop_null()
    shape = result_schema(t, columns)
    if len(values) == 0:
        return shape.empty_table()
    literals = _literals(values) if len(values) <= FILTER_MAX else None
    if literals is not None:
        with reading(table, t):
            require_index_footers(table, column)
        return _read(table, t, columns, where=f"{name_of(column)} IN ({literals})").cast(shape)
    with reading(table, t):
        keys = table.to_table(columns=[column], with_row_id=True, with_row_address=True)
    hits = keys.filter(pc.is_in(keys[column], pc.unique(values.cast(keys.schema.field(column).type))))
    other_columns = [c for c in columns if c != column]
    if not other_columns:
        return hits.select([*columns, *ROW_COLUMNS]).cast(shape)
    if hits.num_rows * 8 > keys.num_rows:
        return _read(table, t, columns, where=None).filter(_mask(table, keys, column, values)).cast(shape)
    return take(table, t, hits["_rowid"].combine_chunks(), columns).cast(shape)


def _mask(table: LanceDataset, keys: pa.Table, column: str, values: pa.Array) -> pa.ChunkedArray:
    # Both scans are of one version and in its order, so positions agree.
    return pc.is_in(keys[column], pc.unique(values.cast(keys.schema.field(column).type)))


def take(table: LanceDataset, t: EntityType, row_ids: pa.Array, columns: Sequence[str]) -> pa.Table:
    """Rows by row id, in no particular order."""
    parts = []
    for start in range(0, len(row_ids), 4096):
        ids = ",".join(str(i) for i in row_ids.slice(start, 4096).to_pylist())
        parts.append(_read(table, t, columns, where=f"_rowid IN ({ids})"))
    return pa.concat_tables(parts) if parts else result_schema(t, columns).empty_table()


def take_rows(table: LanceDataset, t: EntityType, row_ids: Sequence[int], columns: Sequence[str]) -> pa.Table:
    """Rows by row id, in that order, with these columns in Lance's types. Not for blobs."""
    with reading(table, t):
        return table._take_rows(list(row_ids), columns=list(columns))


def scan(table: LanceDataset, t: EntityType, columns: Sequence[str]) -> pa.RecordBatchReader:
    """All rows, batch by batch, in the table's own order."""
    shape = pa.schema([arrow_schema(t).field(c).with_nullable(True) for c in columns])
    blobs = blob_columns(t, columns)
    options: dict[str, Any] = {"blob_handling": "all_binary"} if blobs else {}
    scanner = table.scanner(columns=list(columns), batch_size=1024 if blobs else 16_384, **options)

    def batches() -> Iterator[pa.RecordBatch]:
        with reading(table, t):
            require_own_blobs(table, t, columns)
            for batch in scanner.to_batches():
                yield from pa.table(batch).select(shape.names).cast(shape).to_batches()

    return pa.RecordBatchReader.from_batches(shape, batches())


def result_schema(t: EntityType, columns: Sequence[str]) -> pa.Schema:
    shape = pa.schema([*arrow_schema(t), *mark_fields(t)])
    rows = [pa.field(c, pa.uint64()) for c in ROW_COLUMNS]
    return pa.schema([*(shape.field(c).with_nullable(True) for c in columns), *rows])


def _read(table: LanceDataset, t: EntityType, columns: Sequence[str], *, where: str | None) -> pa.Table:
    options: dict[str, Any] = {"blob_handling": "all_binary"} if blob_columns(t, columns) else {}
    with reading(table, t):
        require_own_blobs(table, t, columns, where=where)
        rows = table.to_table(columns=list(columns), filter=where, with_row_id=True, with_row_address=True, **options)
    return _as_nullable(rows, result_schema(t, columns))


def _as_nullable(rows: pa.Table, shape: pa.Schema) -> pa.Table:
    return rows.select(shape.names).cast(pa.schema([f.with_nullable(True) for f in shape]))


def name_of(column: str) -> str:
    """A column's name in Lance's SQL; quoted, because property names may be upper-case or words of SQL."""
    return f"`{column}`"


def _literals(values: pa.Array) -> str | None:
    """The values as SQL literals; None where their type has no literal form that is exact."""
    if pa.types.is_string(values.type) or pa.types.is_large_string(values.type):
        return ",".join(quote(v) for v in values.to_pylist())
    if pa.types.is_signed_integer(values.type):
        return ",".join(str(v) for v in values.to_pylist())
    return None
