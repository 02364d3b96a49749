"""Arrow types of the language as Spark types, and conversion of values.

| Arrow                  | Spark          |
|------------------------|----------------|
| uint32                 | bigint         |
| uint64                 | decimal(20,0)  |
| timestamp in ms        | timestamp      |
| fixed-size list        | array          |

All other types are the same on both sides.
"""

from __future__ import annotations

import pyarrow as pa
from pyspark.sql import types

_SCALARS: dict[pa.DataType, types.DataType] = {
    pa.string(): types.StringType(),
    pa.bool_(): types.BooleanType(),
    pa.int32(): types.IntegerType(),
    pa.int64(): types.LongType(),
    pa.uint32(): types.LongType(),
    pa.uint64(): types.DecimalType(20, 0),
    pa.float32(): types.FloatType(),
    pa.float64(): types.DoubleType(),
    pa.date32(): types.DateType(),
    pa.timestamp("ms", tz="UTC"): types.TimestampType(),
    pa.null(): types.NullType(),
}
_TRANSFER_TYPES: dict[pa.DataType, pa.DataType] = {
    pa.uint32(): pa.int64(),
    pa.uint64(): pa.decimal128(20, 0),
    pa.timestamp("ms", tz="UTC"): pa.timestamp("us", tz="UTC"),
}


def spark_type(t: pa.DataType) -> types.DataType:
    if pa.types.is_list(t) or pa.types.is_fixed_size_list(t):
        return types.ArrayType(spark_type(t.value_type), True)
    return _SCALARS[t]


def _transfer_type(t: pa.DataType) -> pa.DataType:
    """The Arrow type in which Spark sends and receives the values."""
    if pa.types.is_list(t) or pa.types.is_fixed_size_list(t):
        return pa.list_(_transfer_type(t.value_type))
    return _TRANSFER_TYPES.get(t, t)


def from_spark(values: pa.Array, target: pa.DataType) -> pa.Array:
    return values if values.type == target else values.cast(target)


def to_spark(values: pa.Array) -> pa.Array:
    target = _transfer_type(values.type)
    return values if values.type == target else values.cast(target)
