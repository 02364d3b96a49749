"""A Reader that sees pending changes: what a later statement of the same transaction reads.

Rows of the deltas come with null `_rowid` and `_rowaddr`, because no table holds them yet.
"""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from omnigraph.language.schema.model import EntityType, Schema
from omnigraph.storage.lance.columns import arrow_schema
from omnigraph.write.delta import Deltas, flat, is_in, not_in
from omnigraph.write.pending_view import Image, found_schema
from omnigraph.write.reader import Reader


class OverlayReader:
    """The graph of `reader` with `deltas` applied. Both may be another overlay's."""

    def __init__(self, reader: Reader, deltas: Deltas) -> None:
        self._image = Image(reader.schema, deltas, reader)

    @property
    def schema(self) -> Schema:
        return self._image.schema

    def find(self, t: EntityType, column: str, values: pa.Array, columns: Sequence[str]) -> pa.Table:
        d = self._image.of(t)
        reader = self._image.reader
        if d is None:
            return reader.find(t, column, values, columns)
        schema = found_schema(t, columns)
        committed = self._image.retained(t, column, values, columns).select(schema.names).cast(schema)
        rows = d.rows.filter(is_in(flat(d.rows.column(column)), values)).select(list(columns))
        for name in schema.names[len(columns) :]:
            rows = rows.append_column(name, pa.nulls(rows.num_rows, pa.uint64()))
        return pa.concat_tables([committed, rows.cast(schema)])

    def count(self, t: EntityType) -> int:
        d = self._image.of(t)
        if d is None:
            return self._image.reader.count(t)
        if d.replaces_all:
            return int(d.rows.num_rows)
        touched = pa.concat_arrays([d.ids, d.deleted])
        replaced = self._image.reader.find(t, "id", touched, ["id"]).num_rows if len(touched) else 0
        return int(self._image.reader.count(t) - replaced + d.rows.num_rows)

    def scan(self, t: EntityType, columns: Sequence[str]) -> pa.RecordBatchReader:
        d = self._image.of(t)
        reader = self._image.reader
        if d is None:
            return reader.scan(t, columns)
        schema = pa.schema([arrow_schema(t).field(name) for name in columns])
        parts = [d.rows.select(list(columns)).cast(schema)]
        if not d.replaces_all:
            wanted = list(dict.fromkeys([*columns, "id"]))
            committed = reader.scan(t, wanted).read_all()
            ids = flat(committed.column("id"))
            kept = is_in(ids, not_in(ids, pa.concat_arrays([d.ids, d.deleted])))
            parts.insert(0, committed.filter(kept).select(list(columns)).cast(schema))
        return pa.concat_tables(parts).to_reader()
