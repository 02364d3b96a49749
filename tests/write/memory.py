"""A Reader over Arrow tables in memory: the committed state that the pure rules are tested against."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.language.schema.model import EntityType, Schema
from omnigraph.storage.lance.columns import arrow_schema
from omnigraph.write.delta import Deltas
from omnigraph.write.rows import rows_to_table


class MemoryReader:
    def __init__(self, schema: Schema, rows: Mapping[str, Sequence[Mapping[str, object]]] | None = None) -> None:
        self.schema = schema
        types = {t.name: t for t in schema.types()}
        self.tables = {name: arrow_schema(t).empty_table() for name, t in types.items()}
        for name, given in (rows or {}).items():
            self.tables[name] = rows_to_table(types[name], given).checked()

    def find(self, t: EntityType, column: str, values: pa.Array, columns: Sequence[str]) -> pa.Table:
        table = self.tables[t.name]
        assert values.type == table.schema.field(column).type, (column, values.type)
        numbered = table.append_column("_rowid", pa.array(range(table.num_rows), pa.uint64()))
        numbered = numbered.append_column("_rowaddr", numbered.column("_rowid"))
        mask = pc.is_in(numbered.column(column), value_set=values, skip_nulls=True)
        return numbered.filter(mask).select([*columns, "_rowid", "_rowaddr"])

    def count(self, t: EntityType) -> int:
        return int(self.tables[t.name].num_rows)

    def scan(self, t: EntityType, columns: Sequence[str]) -> pa.RecordBatchReader:
        return self.tables[t.name].select(list(columns)).to_reader()

    def applied(self, deltas: Deltas) -> MemoryReader:
        """The state after a write, made row by row in Python: the oracle for everything that predicts it."""
        after = MemoryReader(self.schema)
        after.tables = dict(self.tables)
        for name, d in deltas.items():
            rows = {} if d.replaces_all else {r["id"]: r for r in self.tables[name].to_pylist()}
            rows.update({r["id"]: r for r in d.rows.to_pylist()})
            for gone in d.deleted.to_pylist():
                rows.pop(gone, None)
            after.tables[name] = pa.Table.from_pylist(list(rows.values()), schema=arrow_schema(d.type))
        return after
