"""The target's rows in the shape of the merged schema, for rules that are checked before its tables are reshaped."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa

from omnigraph.branch.diff.states import reshaped, stored_names
from omnigraph.commit.operation import View
from omnigraph.language.schema.identity import counterpart
from omnigraph.language.schema.model import EntityType, Schema
from omnigraph.storage.lance.columns import arrow_schema
from omnigraph.storage.lance.tables import ROW_COLUMNS
from omnigraph.write.pending_view import found_schema
from omnigraph.write.reader import Reader


@dataclass(frozen=True)
class MergedReader(Reader):
    view: View
    merged: Schema

    @property
    def schema(self) -> Schema:
        return self.merged

    def find(self, t: EntityType, column: str, values: pa.Array, columns: Sequence[str]) -> pa.Table:
        stored = counterpart(t, self.view.schema)
        names = [] if stored is None else stored_names(stored, t, [column])
        if stored is None or not names:
            return found_schema(t, columns).empty_table()
        rows = self.view.find(stored, names[0], values, stored_names(stored, t, list(columns)))
        images = reshaped(rows, stored, t, list(columns))
        for name in ROW_COLUMNS:
            images = images.append_column(name, rows[name])
        return images

    def count(self, t: EntityType) -> int:
        stored = counterpart(t, self.view.schema)
        return 0 if stored is None else self.view.count(stored)

    def scan(self, t: EntityType, columns: Sequence[str]) -> pa.RecordBatchReader:
        schema = pa.schema([arrow_schema(t).field(c).with_nullable(True) for c in columns])
        stored = counterpart(t, self.view.schema)
        if stored is None:
            return pa.RecordBatchReader.from_batches(schema, [])
        names = stored_names(stored, t, list(columns))

        def batches() -> Iterator[pa.RecordBatch]:
            for batch in self.view.scan(stored, names):
                yield from reshaped(pa.table(batch), stored, t, list(columns)).cast(schema).to_batches()

        return pa.RecordBatchReader.from_batches(schema, batches())
