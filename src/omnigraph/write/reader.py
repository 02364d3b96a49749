"""What the write package may ask of the graph: three questions about committed rows, answered on one snapshot."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import pyarrow as pa

from omnigraph.language.schema.model import EntityType, Schema

ROW_COLUMNS = ("_rowid", "_rowaddr")


class Reader(Protocol):
    @property
    def schema(self) -> Schema: ...

    def find(self, t: EntityType, column: str, values: pa.Array, columns: Sequence[str]) -> pa.Table:
        """Rows of `t` whose `column` is in `values`, with the given physical columns, then `_rowid` and `_rowaddr`.

        Nulls never match. The order is unspecified. Cheap for few values, a scan for many. `_rowid` and `_rowaddr`
        (uint64) are null for rows that are pending in a transaction and not committed yet.
        """
        ...

    def count(self, t: EntityType) -> int: ...

    def scan(self, t: EntityType, columns: Sequence[str]) -> pa.RecordBatchReader: ...
