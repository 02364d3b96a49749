"""Arithmetic and functions: integers exactly in 64 bits, decimals as 64-bit floats, time in milliseconds.

An integer out of range is an error of the query; a decimal that is not finite is null, and so is a division by zero.
Dates and times are within the years 1 to 9999.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.errors import QueryValueError
from omnigraph.language.query.terms import Arithmetic, Function
from omnigraph.language.query.types import Type
from omnigraph.query.execution.values import (
    DATE_HIGH,
    DATE_LOW,
    DAY_MS,
    TIME_HIGH_MS,
    TIME_LOW_MS,
    Values,
    spread,
    type_of,
)

UNITS_MS = {"weeks": 7 * DAY_MS, "days": DAY_MS, "hours": 3_600_000, "minutes": 60_000, "seconds": 1000}
_CHECKED: dict[str, Callable[[Values, Values], Values]] = {
    "+": pc.add_checked,
    "-": pc.subtract_checked,
    "*": pc.multiply_checked,
}
_PYTHON: dict[str, Callable[[Any, Any], Any]] = {
    "+": lambda a, b: a + b,
    "-": lambda a, b: a - b,
    "*": lambda a, b: a * b,
}
_I64_LOW, _I64_HIGH = -(1 << 63), (1 << 63) - 1


def arithmetic(e: Arithmetic, left: Values, right: Values) -> Values:
    kinds = (e.left.type.kind, e.right.type.kind)
    if e.type.kind in ("Date", "DateTime"):
        return _moved(e.operator, left, right, e.left.type, e.type)
    if kinds[0] in ("Date", "DateTime"):
        return _integers("-", _ms(left, kinds[0]), _ms(right, kinds[1]))
    if e.type.kind == "Duration":
        return _durations(e.operator, left, right, kinds)
    if e.operator == "/":
        return _divided(left, right)
    if e.type.kind == "I64":
        return _integers(e.operator, left, right)
    result = {"+": pc.add, "-": pc.subtract, "*": pc.multiply}[e.operator](_float(left), _float(right))
    return _finite(result)


def _float(values: Values) -> Values:
    # Integers beyond 2**53 are rounded, as Python rounds them.
    return values if values.type == pa.float64() else values.cast(pa.float64(), safe=False)


def _finite(values: Values) -> Values:
    return pc.if_else(pc.is_finite(values), values, pa.scalar(None, pa.float64()))


def _divided(left: Values, right: Values) -> Values:
    divisor = _float(right)
    usable = pc.if_else(pc.equal(divisor, 0.0), pa.scalar(None, pa.float64()), divisor)
    return _finite(pc.divide(_float(left), usable))


def _integers(op: str, left: Values, right: Values) -> Values:
    try:
        return _CHECKED[op](left.cast(pa.int64()), right.cast(pa.int64()))
    except pa.ArrowInvalid:
        # A result is out of range; or only a 64-bit unsigned operand is.
        return _one_by_one(_PYTHON[op], left, right)


def _one_by_one(make: Callable[[Any, Any], Any], left: Values, right: Values) -> Values:
    arrays = [v for v in (left, right) if isinstance(v, pa.Array)]
    rows = len(arrays[0]) if arrays else 1
    results = []
    for a, b in zip(spread(left, rows).to_pylist(), spread(right, rows).to_pylist(), strict=True):
        value = None if a is None or b is None else make(a, b)
        if value is not None and not _I64_LOW <= value <= _I64_HIGH:
            raise QueryValueError(detail=f"{value} does not fit into 64 bits.")
        results.append(value)
    array = pa.array(results, pa.int64())
    return array if arrays else array[0]


# ---- time ------------------------------------------------------------------------------------------------------------


def _ms(values: Values, kind: str) -> Values:
    """Milliseconds since 1970; a date means its midnight."""
    if kind == "Date":
        days = values.cast(pa.int32()).cast(pa.int64())
        return pc.multiply(days, pa.scalar(DAY_MS))
    return values.cast(pa.int64())


def _moved(op: str, left: Values, right: Values, moved: Type, result: Type) -> Values:
    shifted_ms = _integers(op, _ms(left, moved.kind), right)
    if result.kind == "Date":
        return to_date(shifted_ms)
    return _checked_time(shifted_ms).cast(type_of(result))


def to_date(ms: Values) -> Values:
    days = _map(ms, lambda v: v // DAY_MS)
    _within(days, DATE_LOW, DATE_HIGH, "a date")
    return days.cast(pa.int32()).cast(pa.date32())


def _checked_time(ms: Values) -> Values:
    _within(ms, TIME_LOW_MS, TIME_HIGH_MS, "a moment")
    return ms


def _within(values: Values, low: int, high: int, what: str) -> None:
    present = np.asarray(spread(values, 1).drop_null())
    if len(present) and (present.min() < low or present.max() > high):
        raise QueryValueError(detail=f"{what} lies outside of the years 1 to 9999.")


def _map(values: Values, make: Callable[[np.ndarray], np.ndarray]) -> Values:
    """Apply a numpy function to integers; null stays null."""
    array = spread(values, 1)
    mapped = pa.array(make(np.asarray(array.fill_null(0))), mask=np.asarray(array.is_null()))
    return mapped if isinstance(values, pa.Array) else mapped[0]


def _durations(op: str, left: Values, right: Values, kinds: tuple[str, str]) -> Values:
    if kinds == ("Duration", "Duration"):
        return _integers(op, left, right)
    if kinds[1] == "Duration":
        left, right = right, left
    if op == "*" and pa.types.is_integer(right.type):
        return _integers(op, left, right)
    result = pc.multiply(_float(left), _float(right)) if op == "*" else _divided(left, right)
    return _whole_ms(result)


def _whole_ms(values: Values) -> Values:
    """Rounded to the millisecond."""
    present = np.asarray(spread(values, 1).drop_null())
    if len(present) and not (np.abs(present) < 2.0**62).all():
        raise QueryValueError(detail="a duration does not fit into 64 bits of milliseconds.")
    return pc.round(values, round_mode="half_to_even").cast(pa.int64())


# ---- functions -------------------------------------------------------------------------------------------------------


def function(e: Function, arguments: list[Values]) -> Values:
    name = e.name
    if name in UNITS_MS:
        (number,) = arguments
        if pa.types.is_integer(number.type):
            return _integers("*", number, pa.scalar(UNITS_MS[name]))
        return _whole_ms(pc.multiply(_float(number), pa.scalar(float(UNITS_MS[name]))))
    if name == "coalesce":
        result_type = type_of(e.type)
        return pc.coalesce(*(widened(a, result_type) for a in arguments))
    if name in ("lower", "upper"):
        return _case(name, arguments[0])
    if name == "length":
        (value,) = arguments
        length = pc.list_value_length(value) if pa.types.is_list(value.type) else pc.utf8_length(value)
        return length.cast(pa.int64())
    if name == "concat":
        return pc.binary_join_element_wise(*arguments, "")
    if name == "date":
        return to_date(_ms(arguments[0], "DateTime"))
    assert name == "datetime", name
    return _checked_time(_ms(arguments[0], "Date")).cast(type_of(e.type))


def widened(values: Values, target: pa.DataType) -> Values:
    """Cast to a type that `types.common` gives: integers beyond 2**53 are rounded to floats."""
    if values.type == target:
        return values
    try:
        return values.cast(target, safe=not pa.types.is_floating(target))
    except pa.ArrowInvalid as error:
        raise QueryValueError(detail="an unsigned number does not fit into 64 bits with a sign.") from error


def _case(name: str, texts: Values) -> Values:
    plain = pc.all(pc.string_is_ascii(spread(texts, 1))).as_py()
    if plain is not False:
        return pc.utf8_lower(texts) if name == "lower" else pc.utf8_upper(texts)
    # Arrow converts character by character; some letters become two.
    change = str.lower if name == "lower" else str.upper
    changed = pa.array([None if t is None else change(t) for t in spread(texts, 1).to_pylist()], pa.string())
    return changed if isinstance(texts, pa.Array) else changed[0]
