"""States of a graph as diff and merge read them: types and properties by identity, rows in the shape of another state.

A property is matched by its identity, so a rename is no difference. What a state does not have reads as null, or as the
default with which the property was added.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache

import numpy as np
import pyarrow as pa

from omnigraph.commit.operation import View
from omnigraph.language.schema.identity import counterpart
from omnigraph.language.schema.model import EntityType, Property
from omnigraph.storage.diff.column_diff import UnsharedColumn
from omnigraph.storage.diff.table_version import TableVersion
from omnigraph.storage.lance.columns import arrow_schema, physical_columns
from omnigraph.storage.lance.embedding_marks import mark_fields
from omnigraph.write.compare import equal_mask
from omnigraph.write.delta import flat
from omnigraph.write.rows import value_array


def table_version(view: View, t: EntityType) -> TableVersion | None:
    """The pinned version of a type of any state in this state; None if this state does not have the type."""
    same = counterpart(t, view.schema)
    pin = None if same is None else view.pins.get(same.id)
    return None if pin is None or same is None else TableVersion.open(view.tables, pin, same)


def stored_columns(version: TableVersion) -> list[str]:
    """All columns of a type, and the hidden marks of its vectors that the table has."""
    hidden = [f.name for f in mark_fields(version.type)]
    stored = set(version.table.schema.names) if hidden else set()
    return [*arrow_schema(version.type).names, *(name for name in hidden if name in stored)]


def reshaped(rows: pa.Table, stored: EntityType, t: EntityType, columns: list[str]) -> pa.Table:
    """Rows of the type `stored` in the columns of `t`; other columns of `rows` are left out."""
    schema = full_schema(t)
    arrays: list[pa.ChunkedArray] = []
    for name in columns:
        field_type = schema.field(name).type
        p = t.by_name.get(name)
        source = name if p is None else name if stored == t else stored_name(p, stored)
        if source is not None and source in rows.column_names:
            column = rows[source]
            arrays.append(column if column.type == field_type else column.cast(field_type))
        elif p is None or source is not None:
            arrays.append(pa.chunked_array([pa.nulls(rows.num_rows, field_type)]))
        else:
            arrays.append(default_column(t, p, rows.num_rows))
    return pa.table(arrays, schema=pa.schema([schema.field(c).with_nullable(True) for c in columns]))


def stored_names(stored: EntityType, t: EntityType, columns: list[str]) -> list[str]:
    """The columns of `stored` from which these columns of `t` are read; those that it does not have are left out."""
    if stored == t:
        return list(columns)
    physical = set(physical_columns(t))
    names = (c if c in physical or c not in t.by_name else stored_name(t.by_name[c], stored) for c in columns)
    hidden = {f.name for f in mark_fields(stored)}
    known = {*arrow_schema(stored).names, *hidden}
    return [name for name in names if name is not None and name in known]


def stored_name(p: Property, stored: EntityType) -> str | None:
    """What `stored` calls this property; None if it does not have it."""
    known = counterpart(p, stored)
    return None if known is None else known.name


def default_column(t: EntityType, p: Property, count: int) -> pa.ChunkedArray:
    """What rows of a state without the property read there."""
    field_type = full_schema(t).field(p.name).type
    if p.default is None:
        return pa.chunked_array([pa.nulls(count, field_type)])
    value = value_array(t, p.name, [p.default])[0]
    return pa.chunked_array([pa.repeat(value, count).cast(field_type)])


@lru_cache(maxsize=256)
def full_schema(t: EntityType) -> pa.Schema:
    """The columns of a type with the hidden marks of its vectors."""
    return pa.schema([*arrow_schema(t), *mark_fields(t)])


def row_width_bytes(t: EntityType) -> int:
    """About how many bytes a row of a type takes in memory."""
    return 64 + sum(4 * (p.type.dimension or 0) + (4096 if p.type.kind == "Blob" else 24) for p in t.properties)


def unshared_columns(old: TableVersion, new: TableVersion) -> list[UnsharedColumn]:
    """Columns of the newer version that the older one does not have under the same field id."""
    if old.field_properties == new.field_properties:
        return []
    field_ids = {version: {name: n for n, name in version.field_properties.items()} for version in (old, new)}
    columns = []
    for p in new.type.properties:
        before = counterpart(p, old.type)
        if before is None:
            columns.append(UnsharedColumn(p.name, (None, p.id), _filled(new.type, p)))
        elif before.id != p.id or field_ids[old].get(p.id) != field_ids[new].get(p.id):
            columns.append(UnsharedColumn(p.name, (before.id, p.id)))
    return columns


def _filled(t: EntityType, p: Property) -> Callable[[pa.ChunkedArray], np.ndarray] | None:
    if p.default is None:
        return None
    return lambda values: ~equal_mask(flat(values), flat(default_column(t, p, len(values))))
