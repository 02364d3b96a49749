"""The graph after the statements so far, as the next statement reads it.

Unchanged rows are matched in the stored tables, by the same matcher as in reads; changed rows are matched in memory. So
a condition on one type costs as much as a query, whatever the previous statements did. Only the pattern of an `insert …
from match` reads changed types into memory as a whole.

A row variable is evaluated over Arrow rows of its type, with all columns that an expression can name.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, cast

import numpy as np
import pyarrow as pa

from omnigraph.commit.operation import View
from omnigraph.language.query.model import CheckedQuery, Column, Pattern, Scan, Where
from omnigraph.language.query.terms import Expression, Property, Variable, walk
from omnigraph.language.query.types import STRING
from omnigraph.language.schema.model import EntityType
from omnigraph.query.execution.evaluate import BoundRows
from omnigraph.query.execution.frame import NULL, Frame
from omnigraph.query.execution.project import result_schema, values_of
from omnigraph.query.execution.run import bound_rows
from omnigraph.query.limits import Watch
from omnigraph.query.tables.cache import Cache
from omnigraph.query.tables.source import Source
from omnigraph.storage.lance.columns import arrow_schema
from omnigraph.write import changes
from omnigraph.write.delta import Deltas, TypeDelta, distinct, flat, not_in
from omnigraph.write.pending_reader import OverlayReader
from omnigraph.write.reader import Reader

NOTHING = Pattern((), (), ())
"""The pattern of a single row without variables."""


class State:
    """`deltas` are the pending changes so far. Nothing here changes the graph."""

    def __init__(
        self,
        view: View,
        checked: CheckedQuery,
        params: Mapping[str, Any],
        *,
        now: datetime,
        cache: Cache,
        watch: Watch,
    ) -> None:
        self.view = view
        self.checked = checked
        self.params = params
        self.now = now
        self.cache = cache
        self.watch = watch
        self.deltas: dict[str, TypeDelta] = {}

    @property
    def reader(self) -> Reader:
        return OverlayReader(self.view, self.deltas) if self.deltas else self.view

    def add(self, deltas: Deltas) -> None:
        self.deltas = changes.coalesce(self.deltas, deltas)

    # ---- rows by pattern, by condition, by id

    def matched(self, pattern: Pattern) -> BoundRows:
        """The rows of a pattern in the pending view."""
        touched = [name for name, d in self.deltas.items() if not d.is_empty]
        return self._bound(Source(self.view, self.cache, self.watch, pending=self.reader, touched=touched), pattern)

    def matching(self, t: EntityType, row: Variable, where: Expression) -> pa.Array:
        """The distinct ids of the rows of one type for which the condition is true."""
        pattern = Pattern((row,), (), (Scan(row), Where(where)))
        d = self.deltas.get(t.name)
        stored = self._ids(Source(self.view, self.cache, self.watch), pattern, row)
        if d is None:
            return distinct(stored)
        pending = self._ids(self._source_of(t, d.rows), pattern, row)
        return distinct(not_in(not_in(stored, d.ids), d.deleted), pending)

    def rows(self, t: EntityType, ids: pa.Array, columns: Sequence[str]) -> pa.Table:
        """The current rows with these ids, in the stored types, in no particular order."""
        rows = self.reader.find(t, "id", ids, columns)
        return plain(t, rows, columns)

    def all_columns(self, t: EntityType, ids: pa.Array) -> pa.Table:
        return self.rows(t, ids, arrow_schema(t).names)

    # ---- evaluating

    def single(self) -> BoundRows:
        """One row without variables, for values that depend on none."""
        return self._bound(Source(self.view, self.cache, self.watch), NOTHING)

    def image(self, t: EntityType, row: Variable, table: pa.Table) -> BoundRows:
        """Bind a variable to the rows of a table of its type, in their order."""
        return self._bound(self._source_of(t, table), Pattern((row,), (), (Scan(row),)))

    def absent(self, row: Variable) -> BoundRows:
        """Bind a variable to null in one row: its properties are null."""
        return self.single().evaluator.over(Frame(1, {row.slot: np.array([NULL], dtype=np.int64)}))

    def returned(self, t: EntityType, row: Variable, columns: Sequence[Column], table: pa.Table) -> pa.Table:
        """The columns of `returning` over the rows of a table, ordered by id."""
        rows = self.image(t, row, table.sort_by("id"))
        schema = result_schema(rows.evaluator.source, columns)
        return pa.Table.from_arrays(values_of(rows, columns), schema=schema)

    # ---- helpers

    def _bound(self, source: Source, pattern: Pattern) -> BoundRows:
        return bound_rows(source, self.checked, pattern, self.params, now=self.now)

    def _ids(self, source: Source, pattern: Pattern, row: Variable) -> pa.Array:
        return flat(self._bound(source, pattern).column(Property(row, "id", STRING)))

    def _source_of(self, t: EntityType, table: pa.Table) -> Source:
        return Source(self.view, self.cache, self.watch, pending=cast("Reader", _TableReader(table)), touched=[t.name])


class _TableReader:
    """The part of a Reader that a Source uses, over an Arrow table of one type."""

    def __init__(self, table: pa.Table) -> None:
        self._table = table

    def scan(self, t: EntityType, columns: Sequence[str]) -> pa.RecordBatchReader:
        return self._table.select([c for c in columns if c in self._table.column_names]).to_reader()


def plain(t: EntityType, rows: pa.Table, columns: Sequence[str]) -> pa.Table:
    """The rows of a reader, in the stored types and as one chunk."""
    schema = arrow_schema(t)
    return rows.select(list(columns)).cast(pa.schema([schema.field(c) for c in columns])).combine_chunks()


def columns_named(t: EntityType, columns: Sequence[Column]) -> list[str]:
    """The stored columns of the row that these expressions read, and `id`."""
    named = {term.name for term in walk(tuple(c.value for c in columns)) if isinstance(term, Property)}
    return [name for name in arrow_schema(t).names if name == "id" or name in named]
