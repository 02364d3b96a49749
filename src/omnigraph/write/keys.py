"""Entity ids: the canonical text of a key, or a ULID where the type has none.

1. Each key property has one canonical text: integers in decimal; `true`/`false`; a Date as its epoch day; a DateTime as
   its epoch millisecond; strings and enums as they are; floats in the shortest digits that give the stored width back,
   without exponent, and `0` for both zeros. Floats that are not finite never get here.
2. A key of one property is that text. A key of several is a compact JSON array of those texts, in the order of the
   properties' stable ids, so that renaming a property changes no id.
3. Without a key, ids are ULIDs (`storage/ulids`).

The texts also serve to compare @unique tuples: two tuples are equal when their texts are.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import date, datetime

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.language.schema.model import EntityType, PropertyType
from omnigraph.write.delta import flat
from omnigraph.write.temporal import day_of_date, ms_of_datetime

TEXT = PropertyType("String")

_NEEDS_ESCAPE = r'["\\\x00-\x1f]'


def canonical_ids(t: EntityType, table: pa.Table) -> pa.Array:
    """The ids that the key gives, for a table that holds the key columns; null where a member is null."""
    assert t.key_properties, f"{t.key} has no key"
    return tuple_texts([(t.by_name[name].type, table.column(name)) for name in t.key_properties])


def canonical_id(t: EntityType, values: Mapping[str, object]) -> str:
    """The id for one entity's stored values: as Arrow's `as_py` gives them, or an int for a Date or DateTime."""
    parts = [_text(t.by_name[name].type.kind, values[name]) for name in t.key_properties]
    return parts[0] if len(parts) == 1 else json.dumps(parts, ensure_ascii=False, separators=(",", ":"))


def _text(kind: str, value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        return _positional(np.float32(value) if kind == "F32" else np.float64(value))
    if isinstance(value, datetime):
        return str(ms_of_datetime(value))
    return str(day_of_date(value)) if isinstance(value, date) else str(value)


def tuple_texts(members: Sequence[tuple[PropertyType, pa.ChunkedArray | pa.Array]]) -> pa.Array:
    """One text per row that two rows share exactly when all members are equal; null where a member is null."""
    columns = [texts(p, flat(column)) for p, column in members]
    if len(columns) == 1:
        return columns[0]
    quoted = [_quoted(column) for column in columns]
    inner = pc.binary_join_element_wise(*quoted, ",")
    return pc.binary_join_element_wise("[", inner, "]", "")


def texts(p: PropertyType, column: pa.Array) -> pa.Array:
    if p.kind in ("String", "Enum"):
        return column
    if p.kind in ("F32", "F64"):
        return _float_texts(column)
    if p.kind == "Date":
        column = column.cast(pa.int32())
    elif p.kind == "DateTime":
        column = column.cast(pa.int64())
    assert p.kind not in ("List", "Vector", "Blob"), f"{p} can't be part of a key or a unique tuple"
    return column.cast(pa.string())


def _quoted(column: pa.Array) -> pa.Array:
    """Each text as a JSON string: what must be escaped is rare, so it is looked for first."""
    special = pc.match_substring_regex(column, _NEEDS_ESCAPE)
    if pc.any(special).as_py():
        escaped = (None if s is None else json.dumps(s, ensure_ascii=False) for s in column.to_pylist())
        return pa.array(escaped, pa.string())
    return pc.binary_join_element_wise('"', column, '"', "")


def _float_texts(column: pa.Array) -> pa.Array:
    assert pc.all(pc.is_finite(column)).as_py() is not False, "a key holds a float that is not finite"
    # Adding zero turns -0.0 into 0.0 and changes nothing else.
    shortest = pc.add(column, pa.scalar(0.0, column.type)).cast(pa.string())
    if not pc.any(pc.match_substring(shortest, "e")).as_py():
        return shortest
    scalar = np.float32 if column.type == pa.float32() else np.float64
    return pa.array([None if v is None else _positional(scalar(v)) for v in column.to_pylist()], pa.string())


def _positional(value: np.float32 | np.float64) -> str:
    return "0" if value == 0 else np.format_float_positional(value, unique=True, trim="-")
