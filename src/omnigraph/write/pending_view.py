"""The graph as it will be after a write, asked without being built.

Rows of a type after the write: the delta's rows, and the committed rows that the delta neither replaces nor removes
("retained"). Every question goes to the delta first; the reader sees only what the delta can't answer.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.language.schema.model import EntityType, NodeType, Schema
from omnigraph.storage.lance.columns import arrow_schema
from omnigraph.write.delta import Deltas, TypeDelta, flat, is_in, no_ids, not_in
from omnigraph.write.reader import ROW_COLUMNS, Reader


@dataclass(frozen=True)
class Image:
    schema: Schema
    deltas: Deltas
    reader: Reader

    def of(self, t: EntityType) -> TypeDelta | None:
        return self.deltas.get(t.name)

    def retained(self, t: EntityType, column: str, values: pa.Array, columns: Sequence[str]) -> pa.Table:
        """Committed rows of `t` whose `column` is in `values` and which this write leaves as they are; with `id`."""
        d = self.of(t)
        wanted = list(dict.fromkeys(["id", *columns]))
        if len(values) == 0 or (d is not None and d.replaces_all):
            return found_schema(t, wanted).empty_table()
        found = self.reader.find(t, column, values, wanted)
        if d is None or found.num_rows == 0:
            return found
        ids = flat(found.column("id"))
        gone = pc.or_(is_in(ids, d.ids), is_in(ids, d.deleted))
        return found.filter(pc.invert(gone))

    def missing(self, t: NodeType, ids: pa.Array) -> pa.Array:
        """For each id whether the graph will have no such node."""
        d = self.of(t)
        absent = pc.invert(is_in(ids, no_ids() if d is None else d.ids))
        if d is not None and d.replaces_all:
            return absent
        open_ids = pc.unique(ids.filter(absent))
        if d is not None:
            open_ids = not_in(open_ids, d.deleted)
        if len(open_ids) == 0:
            return absent
        committed = flat(self.reader.find(t, "id", open_ids, ["id"]).column("id"))
        return pc.and_(absent, pc.invert(is_in(ids, committed)))

    def removed(self, t: EntityType) -> pa.Array:
        """Ids of `t` that this write takes away."""
        d = self.of(t)
        if d is None:
            return no_ids()
        if not d.replaces_all:
            return d.deleted
        return not_in(flat(self.reader.scan(t, ["id"]).read_all().column("id")), d.ids)

    def added(self, t: EntityType) -> pa.Array:
        """Ids of `t` in the delta's rows that the graph did not have before."""
        d = self.of(t)
        if d is None or d.rows.num_rows == 0:
            return no_ids()
        if d.all_new or self.reader.count(t) == 0:
            return d.ids
        return not_in(d.ids, flat(self.reader.find(t, "id", d.ids, ["id"]).column("id")))


def found_schema(t: EntityType, columns: Sequence[str]) -> pa.Schema:
    """The schema of what `Reader.find` returns for these columns."""
    schema = arrow_schema(t)
    rows = [pa.field(name, pa.uint64()) for name in ROW_COLUMNS]
    return pa.schema([schema.field(name) for name in columns] + rows)
