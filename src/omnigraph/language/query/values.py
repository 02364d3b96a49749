"""Comparisons of a column with a number, put into the column's own type.

A store compares an integer column with integers of its width only. `exact` turns `i > 1.5` into `i > 1`, and says of
`i = 1.5` that it never holds: whatever it returns is true for the same numbers, and null stays null. A float column is
compared with floats only: `exact` turns `d > 9007199254740993` into `d >= 9007199254740994.0`, the next float above.
"""

from __future__ import annotations

import struct
from math import ceil, floor
from typing import NamedTuple

from omnigraph.language.query.literals import F32_MAX, INTEGER_LIMITS


class Exact(NamedTuple):
    operator: str
    value: int | float


def exact(kind: str, operator: str, value: int | float) -> Exact | bool:
    """`column operator value` for a column of that kind: the same comparison with a value of it.

    True where it holds for every number of that kind, False where for none; a null column gives null all the same, so
    neither may be taken for a constant under `not`. A float beside an F32 column is rounded as stored ones were.
    """
    if kind in INTEGER_LIMITS:
        return _integer(*INTEGER_LIMITS[kind], operator, value)
    if kind == "F32" and abs(value) > F32_MAX:
        return _outside(operator, above=value > 0)
    try:
        nearest = float(value)
    except OverflowError:
        return _outside(operator, above=value > 0)
    if kind == "F32":
        nearest = struct.unpack("f", struct.pack("f", nearest))[0]
    if isinstance(value, float) or nearest == value:
        return Exact(operator, nearest)
    return _between_floats(operator, value, nearest)


def _between_floats(operator: str, value: int, neighbour: float) -> Exact | bool:
    """An integer that no float equals: none lies between it and its neighbour. Python compares the two exactly."""
    if operator in ("=", "!="):
        return operator == "!="
    if operator in ("<", "<="):
        return Exact("<" if neighbour > value else "<=", neighbour)
    return Exact(">=" if neighbour > value else ">", neighbour)


def _integer(low: int, high: int, operator: str, value: int | float) -> Exact | bool:
    if value != value or value in (float("inf"), float("-inf")):
        return operator == "!=" if value != value else _outside(operator, above=value > 0)
    if value > high or value < low:
        return _outside(operator, above=value > 0)
    if (operator in ("<", ">=") and value == low) or (operator in (">", "<=") and value == high):
        return operator in (">=", "<=")
    if value == int(value):
        return Exact(operator, int(value))
    if operator in ("=", "!="):
        return operator == "!="
    # Between two integers: below it is below the next one, above it is above the one before.
    return Exact("<", ceil(value)) if operator in ("<", "<=") else Exact(">", floor(value))


def _outside(operator: str, *, above: bool) -> bool:
    if operator in ("=", "!="):
        return operator == "!="
    return (operator in ("<", "<=")) == above
