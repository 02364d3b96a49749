"""Comparisons of a column with a number, converted to the column's own type.

Lance compares an integer column with integers of its width only. `exact` turns `i > 1.5` into `i > 1`, and returns
False for `i = 1.5`: its result is true for the same numbers, and null stays null. A float column is compared with
floats only: `exact` turns `d > 9007199254740993` into `d >= 9007199254740994.0`, the next float above.
"""

from __future__ import annotations

import struct
from math import ceil, floor
from typing import NamedTuple

from omnigraph.language.query.syntax.literals import F32_MAX, INTEGER_LIMITS


class Exact(NamedTuple):
    operator: str
    value: int | float


def exact(kind: str, operator: str, value: int | float) -> Exact | bool:
    """`column operator value` for a column of that kind: the equivalent comparison with a value of that kind.

    True if it holds for every number of that kind, False if for none; a null column still gives null, so neither may be
    used as a constant under `not`. A float compared with an F32 column is rounded as stored values are.
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
    """For an integer that no float equals: no float is between it and its neighbour. Python compares both exactly."""
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
    # Between two integers: below it means below the next integer, above it means above the previous one.
    return Exact("<", ceil(value)) if operator in ("<", "<=") else Exact(">", floor(value))


def _outside(operator: str, *, above: bool) -> bool:
    if operator in ("=", "!="):
        return operator == "!="
    return (operator in ("<", "<=")) == above
