"""Aggregates of Spark, finished so that they equal those of `execution.aggregate` bit by bit.

| aggregate            | on Spark                                                                        |
|----------------------|---------------------------------------------------------------------------------|
| count, min, max      | Spark's own; minus zero counts as zero                                          |
| sum, avg of integers | a decimal sum, which is exact; then checked, or divided as Python divides       |
| sum, avg of decimals | the values of a group in order, added by numpy as in the process                |
| collect              | the values of a group in the order of the rows; distinct ones in their own      |

So the decimals and the collected values of one group have to fit into the memory of a task.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import Column
from pyspark.sql import functions as F

from omnigraph.errors import QueryValueError
from omnigraph.language.query.terms import Aggregate
from omnigraph.language.query.types import Type
from omnigraph.query.execution.frame import bounds_of
from omnigraph.query.execution.values import type_of
from omnigraph.query.spark.types import spark_type
from omnigraph.query.spark.values import arrow_function

Finish = Callable[[Sequence[pa.Array]], pa.Array]


def plain(column: Column, t: Type) -> Column:
    """The column for comparisons: minus zero becomes zero."""
    if t.kind not in ("F32", "F64"):
        return column
    return column + F.lit(0.0).cast("float" if t.kind == "F32" else "double")


def parts_of(e: Aggregate, operand: Column | None, position: Column) -> list[Column]:
    """The Spark aggregates that `finished` needs. `place`: a struct in the order of the rows."""
    if operand is None:
        return [F.count(F.lit(1))]
    assert e.operand is not None
    t = e.operand.type
    value = operand if t.kind in ("Node", "Edge") else plain(operand, t)
    if e.name == "count":
        return [F.count_distinct(value) if e.distinct else F.count(value)]
    if e.name in ("min", "max"):
        return [F.min(value) if e.name == "min" else F.max(value)]
    if e.name == "collect" and not e.distinct:
        return [F.collect_list(F.when(operand.isNotNull(), F.struct(position.alias("place"), operand.alias("value"))))]
    if e.name == "collect":
        return [F.collect_set(value)]
    if t.is_integer:
        whole = operand.cast("decimal(20,0)")
        if e.distinct:
            return [F.sum_distinct(whole), F.count_distinct(whole)]
        return [F.sum(whole), F.count(whole)]
    number = value.cast("double")
    return [F.collect_set(number) if e.distinct else F.collect_list(number)]


def finished(e: Aggregate, parts: Sequence[Column]) -> Column:
    if e.name == "collect":
        ordered = F.sort_array(parts[0])
        return ordered if e.distinct else ordered.getField("value")
    if e.name not in ("sum", "avg"):
        return parts[0]
    assert e.operand is not None
    finish: Finish
    if e.operand.type.is_integer:
        finish = _whole_sum if e.name == "sum" else _whole_mean
    else:
        parts = [F.sort_array(parts[0])]
        finish = _sum if e.name == "sum" else _mean
    return arrow_function(finish, spark_type(type_of(e.type)))(*parts)


def _whole_sum(columns: Sequence[pa.Array]) -> pa.Array:
    totals = [None if t is None else int(t) for t in columns[0].to_pylist()]
    for total in totals:
        if total is not None and not -(1 << 63) <= total < 1 << 63:
            raise QueryValueError(detail=f"the sum {total} does not fit into 64 bits.")
    return pa.array(totals, pa.int64())


def _whole_mean(columns: Sequence[pa.Array]) -> pa.Array:
    pairs = zip(columns[0].to_pylist(), columns[1].to_pylist(), strict=True)
    return pa.array([None if t is None or n == 0 else int(t) / n for t, n in pairs], pa.float64())


def _sum(columns: Sequence[pa.Array]) -> pa.Array:
    return _added(columns[0], mean=False)


def _mean(columns: Sequence[pa.Array]) -> pa.Array:
    return _added(columns[0], mean=True)


def _added(lists: pa.Array, *, mean: bool) -> pa.Array:
    counts = np.asarray(pc.list_value_length(lists).fill_null(0)).astype(np.int64)
    numbers = np.asarray(lists.flatten())
    empty = counts == 0
    sums = np.zeros(len(counts))
    if len(numbers):
        with np.errstate(over="ignore", invalid="ignore"):
            sums[~empty] = np.add.reduceat(numbers, bounds_of(counts)[:-1][~empty])
    if mean:
        sums = np.divide(sums, counts, out=np.zeros(len(counts)), where=~empty)
    return pa.array(sums, mask=empty | ~np.isfinite(sums))
