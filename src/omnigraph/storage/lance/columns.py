"""The Arrow columns of a node or edge type: what is stored for each declared property.

A node table is `id`, then its properties; an edge table is `id, src, dst`, then its properties, in declared order.
Physical columns are never null; a property is nullable as declared.
"""

from __future__ import annotations

import pyarrow as pa

from omnigraph.language.schema.model import EntityType, PropertyType

_SCALARS: dict[str, pa.DataType] = {
    "String": pa.string(),
    "Enum": pa.string(),
    "Blob": pa.large_binary(),
    "Bool": pa.bool_(),
    "I32": pa.int32(),
    "I64": pa.int64(),
    "U32": pa.uint32(),
    "U64": pa.uint64(),
    "F32": pa.float32(),
    "F64": pa.float64(),
    "Date": pa.date32(),
    "DateTime": pa.timestamp("ms", tz="UTC"),
}


def arrow_type(p: PropertyType) -> pa.DataType:
    if p.kind == "List":
        assert p.item is not None
        return pa.list_(_SCALARS[p.item])
    if p.kind == "Vector":
        assert p.dimension is not None
        return pa.list_(pa.float32(), p.dimension)
    return _SCALARS[p.kind]


def physical_columns(t: EntityType) -> tuple[str, ...]:
    return ("id",) if t.kind == "node" else ("id", "src", "dst")


def arrow_schema(t: EntityType) -> pa.Schema:
    physical = [pa.field(name, pa.string(), nullable=False) for name in physical_columns(t)]
    return pa.schema(physical + [pa.field(p.name, arrow_type(p.type), nullable=p.nullable) for p in t.properties])
