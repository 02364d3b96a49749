"""All rows of a type in memory: the pending view of a transaction."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.language.schema.model import EntityType
from omnigraph.query.tables.tables import flat
from omnigraph.storage.lance.columns import arrow_schema


@dataclass(eq=False)
class MemoryTable:
    """All rows of one type in memory."""

    type: EntityType
    ordinal: int
    data: pa.Table

    @property
    def stored(self) -> None:
        return None

    @property
    def rows(self) -> int:
        return int(self.data.num_rows)

    def scan(self, where: str | None = None, columns: Sequence[str] = ()) -> np.ndarray:
        assert where is None, "a memory table takes no SQL filter"
        return np.arange(self.rows, dtype=np.int64)

    def values(self, names: Sequence[str], numbers: np.ndarray) -> dict[str, pa.Array]:
        index = pa.array(numbers)
        return {n: flat(self.data[n]).take(index) for n in names}

    def resolve(self, ids: pa.Array) -> np.ndarray:
        positions = pc.index_in(ids, value_set=flat(self.data["id"]))
        return np.asarray(positions.fill_null(-1)).astype(np.int64)

    def at_ends(self, end: str, ids: pa.Array, where: str | None = None) -> pa.Table:
        assert where is None, "a memory table takes no SQL filter"
        numbered = self.data.select(["src", "dst"]).append_column("_rowid", pa.array(np.arange(self.rows), pa.uint64()))
        return numbered.filter(pc.is_in(self.data[end], value_set=pc.unique(ids)))

    def id_ranks(self, numbers: np.ndarray, *, among_rows: int = 0) -> np.ndarray | None:
        return None


def memory_table(t: EntityType, ordinal: int, rows: pa.RecordBatchReader) -> MemoryTable:
    columns = [f.name for f in arrow_schema(t)]
    table = rows.read_all()
    return MemoryTable(t, ordinal, table.select([c for c in columns if c in table.column_names]))
