"""Columns of a result: their Arrow types, and their values over bound rows."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from omnigraph.language.query.model import Column
from omnigraph.language.query.terms import Expression, Object
from omnigraph.language.schema.model import EntityType
from omnigraph.query.execution.evaluate import BoundRows
from omnigraph.query.execution.values import concatenated, spread, type_of
from omnigraph.query.tables.source import Source
from omnigraph.storage.lance.columns import arrow_type


def result_schema(source: Source, columns: Sequence[Column]) -> pa.Schema:
    return pa.schema([pa.field(c.name, column_type(source, c.value), nullable=True) for c in columns])


def column_type(source: Source, e: Expression) -> pa.DataType:
    return pa.struct(list(_fields(source, e))) if isinstance(e, Object) else type_of(e.type)


def _fields(source: Source, e: Object) -> list[pa.Field]:
    return object_fields([source.table(entity).type for entity in e.variable.types], e)


def object_fields(types: Sequence[EntityType], e: Object) -> list[pa.Field]:
    """The fields of an object that may be of any of these types."""
    names = ["id", *(("src", "dst") if e.variable.kind == "edge" else ()), *e.properties]
    return [pa.field(n, _field_type(types, n)) for n in names]


def _field_type(of: Sequence[EntityType], name: str) -> pa.DataType:
    types = {}
    for entity in of:
        p = entity.by_name.get(name)
        if p is not None:
            types[str(arrow_type(p.type))] = arrow_type(p.type)
    # Two types may use one name with different property types; an object that may be either shows both as text.
    return next(iter(types.values())) if len(types) == 1 else pa.string()


def values_of(rows: BoundRows, columns: Sequence[Column]) -> list[pa.Array]:
    rows.fetch([c.value for c in columns])
    return [value_of(rows, c.value) for c in columns]


def value_of(rows: BoundRows, e: Expression) -> pa.Array:
    if rows.in_parts(e):
        return concatenated(value_of(part, e) for part in rows.parts())
    if isinstance(e, Object) and e not in rows.known:
        return _objects(rows, e)
    values = spread(rows.value(e), rows.rows)
    result_type = type_of(e.type)
    if isinstance(e, Object):
        return values
    return values if values.type == result_type else values.cast(result_type)


def _objects(rows: BoundRows, e: Object) -> pa.Array:
    source = rows.evaluator.source
    codes = rows.frame.columns[e.variable.slot]
    fields = _fields(source, e)
    types = {f.name: f.type for f in fields}
    values = source.values(list(types), codes, types)
    return pa.StructArray.from_arrays([values[f.name] for f in fields], fields=fields, mask=pa.array(codes < 0))
