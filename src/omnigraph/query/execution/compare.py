"""Comparisons: numbers by their mathematical value whatever their types, text by code points, time, entities.

Arrow compares within one type. Numbers of two types are cast to one that holds both exactly; rows for which there is
none (large integers and floats, U64 beyond I64) are compared one by one in Python.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.language.query.terms import Constant, Expression, Parameter
from omnigraph.language.query.values import exact
from omnigraph.query.execution.values import Values, spread

ARROW: dict[str, Callable[[Values, Values], Values]] = {
    "=": pc.equal,
    "!=": pc.not_equal,
    "<": pc.less,
    "<=": pc.less_equal,
    ">": pc.greater,
    ">=": pc.greater_equal,
}
PYTHON: dict[str, Callable[[Any, Any], bool]] = {
    "=": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
FLIPPED = {"=": "=", "!=": "!=", "<": ">", "<=": ">=", ">": "<", ">=": "<="}
WHOLE_FLOATS = 1 << 53
"""Up to this size every integer is exact as a float."""


def compare(op: str, left: Values, right: Values, left_term: Expression, right_term: Expression) -> Values:
    if left_term.type.is_number and right_term.type.is_number:
        if isinstance(right_term, Constant | Parameter) and not isinstance(left_term, Constant | Parameter):
            return with_number(op, left, left_term.type.kind, right)
        if isinstance(left_term, Constant | Parameter) and not isinstance(right_term, Constant | Parameter):
            return with_number(FLIPPED[op], right, right_term.type.kind, left)
        return numbers(op, left, right)
    return ARROW[op](left, right)


def with_number(op: str, column: Values, kind: str, value: pa.Scalar) -> Values:
    """Compare a column with a constant, converted exactly to the column's type."""
    if not value.is_valid:
        return pa.scalar(None, pa.bool_())
    converted = exact(kind, op, value.as_py())
    if isinstance(converted, bool):
        return pc.if_else(pc.is_valid(column), pa.scalar(converted), pa.scalar(None, pa.bool_()))
    return ARROW[converted.operator](column, pa.scalar(converted.value, column.type))


def numbers(op: str, left: Values, right: Values) -> Values:
    if left.type == right.type:
        return ARROW[op](left, right)
    if pa.types.is_floating(left.type) and pa.types.is_floating(right.type):
        return ARROW[op](left.cast(pa.float64()), right.cast(pa.float64()))
    common = pa.int64() if _is_integer(left) and _is_integer(right) else pa.float64()
    compared = ARROW[op](left.cast(common, safe=False), right.cast(common, safe=False))
    lengths = [len(v) for v in (left, right) if isinstance(v, pa.Array)]
    rows = lengths[0] if lengths else 1
    inexact = np.flatnonzero(_is_inexact(left, common, rows) | _is_inexact(right, common, rows))
    if not len(inexact):
        return compared
    exactly = np.asarray(spread(compared, rows).to_numpy(zero_copy_only=False), dtype=object)
    index = pa.array(inexact)
    for i, a, b in zip(inexact, spread(left, rows).take(index), spread(right, rows).take(index), strict=True):
        exactly[i] = PYTHON[op](a.as_py(), b.as_py()) if a.is_valid and b.is_valid else None
    corrected = pa.array(exactly, pa.bool_())
    return corrected if lengths else corrected[0]


def _is_integer(values: Values) -> bool:
    return bool(pa.types.is_integer(values.type))


def _is_inexact(values: Values, common: pa.DataType, rows: int) -> np.ndarray:
    """A mask of the rows whose number the common type may not hold exactly."""
    if not _is_integer(values) or values.type.bit_width < 64 or values.type == common:
        return np.zeros(rows, dtype=bool)
    low, high = (-WHOLE_FLOATS, WHOLE_FLOATS) if pa.types.is_floating(common) else (-(1 << 63), (1 << 63) - 1)
    column = np.asarray(spread(values, rows).fill_null(0))
    beyond = column > high
    return beyond if column.dtype.kind == "u" else beyond | (column < low)


def among(needle: Values, kind: str, items: Sequence[Any], item_type: pa.DataType) -> Values:
    """`needle in items` for constant items, none of them null."""
    values: list[Any] = list(items)
    if pa.types.is_integer(needle.type) or pa.types.is_floating(needle.type):
        converted = [exact(kind, "=", v) for v in values]
        values = [s.value for s in converted if not isinstance(s, bool)]
        # Minus zero equals zero, but is_in takes them for different values.
        is_in: Values = pa.scalar(False)
        if pa.types.is_floating(needle.type) and 0 in values:
            is_in = pc.equal(needle, pa.scalar(0, needle.type))
        hits = pc.is_in(needle, value_set=pa.array(values, needle.type))
        is_in = pc.or_(hits, pc.fill_null(is_in, False))
    else:
        is_in = pc.is_in(needle, value_set=pa.array(values, item_type))
    return pc.if_else(pc.is_valid(needle), is_in, pa.scalar(None, pa.bool_()))


def in_lists(needle: Values, kind: str, lists: pa.Array, item_kind: str, rows: int) -> pa.Array:
    """`needle in list` row by row, for a column of lists."""
    needles = spread(needle, rows)
    parents = pc.list_parent_indices(lists)
    inner = lists.flatten()
    if isinstance(needle, pa.Scalar) and needle.is_valid and pa.types.is_primitive(inner.type):
        hits = with_number("=", inner, item_kind, needle) if _is_number(inner) else pc.equal(inner, needle)
    elif _is_number(inner):
        hits = numbers("=", inner, needles.take(parents))
    else:
        hits = pc.equal(inner, needles.take(parents))
    is_in = np.zeros(rows, dtype=bool)
    is_in[np.asarray(parents)[np.asarray(hits.fill_null(False))]] = True
    is_known = np.asarray(needles.is_valid()) & np.asarray(lists.is_valid())
    return pa.array(is_in, mask=~is_known)


def _is_number(values: Values) -> bool:
    return bool(pa.types.is_integer(values.type) or pa.types.is_floating(values.type))
