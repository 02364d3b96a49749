"""Values of expressions as Arrow: the Arrow type of each type of the language, and constants of it.

| kind                   | Arrow                                         |
|------------------------|-----------------------------------------------|
| scalars of the schema  | as they are stored                            |
| Enum                   | string                                        |
| Duration               | int64, milliseconds                           |
| Node, Edge             | int64, the code of the entity                 |
| Null                   | null                                          |
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import date, datetime, timedelta
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa

from omnigraph.language.query.types import Type
from omnigraph.language.schema.model import PropertyType
from omnigraph.query.execution import sorting
from omnigraph.query.limits import reserve
from omnigraph.storage.lance.columns import arrow_type

Values: TypeAlias = Any
"""A pa.Array with one value per row, or a pa.Scalar for all rows."""
DAY_MS = 86_400_000
# Years 1 to 9999, in which all dates of the language lie.
DATE_LOW, DATE_HIGH = (
    date.min.toordinal() - date(1970, 1, 1).toordinal(),
    date.max.toordinal() - date(1970, 1, 1).toordinal(),
)
TIME_LOW_MS, TIME_HIGH_MS = DATE_LOW * DAY_MS, (DATE_HIGH + 1) * DAY_MS - 1


def type_of(t: Type) -> pa.DataType:
    if t.kind in ("Duration", "Node", "Edge", "Path"):
        return pa.int64()
    if t.kind == "Null":
        return pa.null()
    if t.kind == "List":
        return pa.list_(pa.string() if t.item in (None, "Enum") else arrow_type(PropertyType(t.item or "String")))
    return arrow_type(PropertyType(t.kind, dimension=t.dimension))


def scalar(value: Any, t: Type) -> pa.Scalar:
    """A constant or the value of a parameter."""
    if isinstance(value, timedelta):
        value = value // timedelta(milliseconds=1)
    elif isinstance(value, tuple):
        value = list(value)
    return pa.scalar(value, type_of(t))


def spread(values: Values, rows: int) -> pa.Array:
    """One value per row."""
    if not isinstance(values, pa.Scalar):
        return values
    if not values.is_valid:
        return pa.nulls(rows, values.type)
    if pa.types.is_nested(values.type):
        return pa.array([values.as_py()], values.type).take(pa.array(np.zeros(rows, dtype=np.int64)))
    return pa.repeat(values, rows)


def concatenated(arrays: Iterable[pa.Array]) -> pa.Array:
    """The concatenated arrays; their size is checked as they arrive."""
    parts: list[pa.Array] = []
    held_bytes = 0
    for array in arrays:
        parts.append(array)
        held_bytes += array.nbytes
        reserve(2 * held_bytes)
    return pa.concat_arrays(parts)


def taken(values: pa.Array, index: np.ndarray) -> pa.Array:
    """The values at these positions; many of them part by part."""
    if len(index) <= sorting.PART_ROWS:
        return values.take(pa.array(index))
    return concatenated(values.take(pa.array(index[part])) for part in sorting.parts(len(index)))


def is_time(value: object) -> bool:
    return isinstance(value, datetime)


def truth(values: Values, rows: int) -> np.ndarray:
    """A mask of the rows where a condition is true; null counts as false."""
    array = spread(values, rows)
    return np.asarray(array.fill_null(False)) if rows else np.empty(0, dtype=bool)
