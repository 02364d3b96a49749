"""One value of a property: from what the user gave to what is stored, or why not. Strict: nothing is guessed.

| property     | accepted                                                                                            |
|--------------|-----------------------------------------------------------------------------------------------------|
| String, enum | a string (the values of an enum are checked with the constraints, not here)                         |
| Bool         | a boolean                                                                                           |
| I32 … U64    | an integer in range; never a boolean, never a number with a fraction or exponent, never text        |
| F32, F64     | an integer or a finite number, rounded once to the stored width; never a boolean, NaN or infinity   |
| Date         | a date, or text as `temporal` defines it; never a datetime or a number                              |
| DateTime     | a datetime, or text as `temporal` defines it                                                        |
| Blob         | bytes; from JSON, base64 text                                                                       |
| list         | a list, tuple or one-dimensional array of such items, without null                                  |
| Vector(n)    | a list, tuple or one-dimensional array of n finite numbers                                          |

A converter returns the stored value (an int for Date and DateTime) or a Problem; it never raises.
"""

from __future__ import annotations

import base64
import binascii
import math
import re
from collections.abc import Callable, Sequence
from datetime import UTC, date, datetime
from typing import Any

import numpy as np
import pyarrow as pa

from omnigraph.language.schema.model import INTEGERS, PropertyType
from omnigraph.rules.problem import Problem, shortened
from omnigraph.write import temporal

INTEGER_BOUNDS = {
    "I32": (-(2**31), 2**31 - 1),
    "I64": (-(2**63), 2**63 - 1),
    "U32": (0, 2**32 - 1),
    "U64": (0, 2**64 - 1),
}

_INTEGER_TEXT = re.compile(r"-?[0-9]{1,40}")
STRING_BYTES_MAX = 2**31 - 2
"""What one value of Arrow's string type holds."""


class JsonNumber(str):
    """The text of a JSON number, kept as written, so that it is rounded once, to the width of its property."""

    __slots__ = ()


def convert(p: PropertyType, value: object, *, from_json: bool = False) -> object:
    """The stored value or a Problem. `value` is not None. `from_json` says that text of a Blob is base64."""
    if p.kind == "List":
        assert p.item is not None
        return _list(p.item, value, from_json)
    if p.kind == "Vector":
        assert p.dimension is not None
        return _vector(p.dimension, value)
    return _scalar(p.kind, value, from_json)


def named(value: object) -> str:
    """A value as a message shows it."""
    if value is None:
        return "null"
    if isinstance(value, JsonNumber):
        return f"the number {shortened(value)}"
    if isinstance(value, str):
        return f"the string {shortened(repr(value))}"
    if isinstance(value, bool | np.bool_):
        return f"the boolean {str(bool(value)).lower()}"
    if isinstance(value, int | float | np.number):
        return f"the number {shortened(_number_text(value))}"
    if isinstance(value, dict):
        return "an object"
    if isinstance(value, list | tuple | np.ndarray):
        return "a list"
    return f"a Python {type(value).__name__}"


def _number_text(value: Any) -> str:
    # int() of Python refuses to print more than 4,300 digits.
    return str(value) if not isinstance(value, int) or abs(value) < 10**40 else "of more than 40 digits"


def _wrong(kind: str, value: object) -> Problem:
    return Problem("type", f"expected {kind}, not {named(value)}")


def _scalar(kind: str, value: object, from_json: bool) -> object:
    if kind == "Blob":
        return _blob(value, from_json)
    return _CONVERTERS[kind](kind, value)


def _string(kind: str, value: object) -> object:
    if not isinstance(value, str) or isinstance(value, JsonNumber):
        return _wrong("String", value)
    try:
        size = len(value.encode())
    except UnicodeEncodeError:
        return Problem("type", "the text holds half of a surrogate pair, which is no character")
    if size > STRING_BYTES_MAX:
        return Problem("type", f"the text has {size:,} bytes, and a String holds up to {STRING_BYTES_MAX:,}")
    return value


def _bool(kind: str, value: object) -> object:
    return bool(value) if isinstance(value, bool | np.bool_) else _wrong(kind, value)


def _integer(kind: str, value: object) -> object:
    if isinstance(value, JsonNumber):
        if not _INTEGER_TEXT.fullmatch(value):
            exact = value.removeprefix("-").isdigit()
            return _out_of_range(kind, value) if exact else _wrong(kind, value)
        number = int(value)
    elif isinstance(value, int | np.integer) and not isinstance(value, bool):
        number = int(value)
    else:
        return _wrong(kind, value)
    low, high = INTEGER_BOUNDS[kind]
    return number if low <= number <= high else _out_of_range(kind, value)


def _out_of_range(kind: str, value: object) -> Problem:
    low, high = INTEGER_BOUNDS[kind]
    return Problem("type", f"{named(value)} is outside of the range of {kind}, {low} to {high}")


def _float(kind: str, value: object) -> object:
    if isinstance(value, JsonNumber):
        number = _rounded_text(kind, value)
    elif isinstance(value, int | float | np.integer | np.floating) and not isinstance(value, bool):
        number = _rounded(kind, value)
    else:
        return _wrong(kind, value)
    return number if math.isfinite(number) else Problem("type", f"{named(value)} is not a finite {kind}")


def _rounded_text(kind: str, text: str) -> float:
    if kind == "F64":
        return float(text)
    number: float = pa.scalar(str(text)).cast(pa.float32()).as_py()
    return number


def _rounded(kind: str, value: Any) -> float:
    try:
        number = float(value)
    except OverflowError:
        return math.inf
    if kind == "F64":
        return number
    with np.errstate(over="ignore"):
        return float(np.float32(number))


def _date(kind: str, value: object) -> object:
    if isinstance(value, date) and not isinstance(value, datetime):
        return temporal.day_of_date(value)
    if isinstance(value, str) and not isinstance(value, JsonNumber):
        day = temporal.day_of_text(value)
        return day if day is not None else Problem("type", f"{named(value)} is not a date like 2024-02-29")
    return _wrong(kind, value)


def _datetime(kind: str, value: object) -> object:
    ms: int | None
    if isinstance(value, datetime):
        ms = temporal.ms_of_datetime(value)
        ms = ms if temporal.MS_MIN <= ms <= temporal.MS_MAX else None
    elif isinstance(value, str) and not isinstance(value, JsonNumber):
        ms = temporal.ms_of_text(value)
    else:
        return _wrong(kind, value)
    return ms if ms is not None else Problem("type", f"{named(value)} is not a datetime like 2024-02-29T12:30:00Z")


def _blob(value: object, from_json: bool) -> object:
    if from_json:
        if not isinstance(value, str) or isinstance(value, JsonNumber):
            return _wrong("Blob as base64 text", value)
        try:
            return binascii.a2b_base64(value.encode("ascii"), strict_mode=True)
        except (binascii.Error, UnicodeEncodeError):
            return Problem("type", "the text is not base64")
    return bytes(value) if isinstance(value, bytes | bytearray | memoryview) else _wrong("Blob as bytes", value)


_CONVERTERS: dict[str, Callable[[str, object], object]] = {
    "String": _string,
    "Enum": _string,
    "Bool": _bool,
    **dict.fromkeys(INTEGERS, _integer),
    "F32": _float,
    "F64": _float,
    "Date": _date,
    "DateTime": _datetime,
}


def _sequence(value: object) -> Sequence[object] | None:
    if isinstance(value, np.ndarray):
        return list(value) if value.ndim == 1 else None
    return value if isinstance(value, list | tuple) else None


def _list(item: str, value: object, from_json: bool) -> object:
    items = _sequence(value)
    if items is None:
        return _wrong(f"[{item}]", value)
    stored: list[object] = []
    for i, each in enumerate(items):
        if each is None:
            return Problem("list", f"item {i} is null")
        converted = _scalar(item, each, from_json)
        if isinstance(converted, Problem):
            return Problem("list", f"item {i}: {converted.message}")
        stored.append(converted)
    return stored


def _vector(dimension: int, value: object) -> object:
    items = _sequence(value)
    if items is None:
        return Problem("vector", f"expected Vector({dimension}), not {named(value)}")
    if len(items) != dimension:
        return Problem("vector", f"expected {dimension} numbers, not {len(items)}")
    quick = _quick_vector(value)
    if quick is not None:
        return quick
    stored: list[object] = []
    for i, each in enumerate(items):
        if each is None:
            return Problem("vector", f"item {i} is null")
        converted = _float("F32", each)
        if isinstance(converted, Problem):
            return Problem("vector", f"item {i}: {converted.message}")
        stored.append(converted)
    return np.array(stored, dtype=np.float32)


def _quick_vector(value: object) -> np.ndarray | None:
    """The vector in one step where all members are plainly numbers; None sends it through item by item."""
    is_array = isinstance(value, np.ndarray) and value.dtype.kind in "iuf"
    if not is_array and not (isinstance(value, list | tuple) and set(map(type, value)) <= {float}):
        return None
    with np.errstate(over="ignore"):
        vector = np.asarray(value, dtype=np.float64).astype(np.float32)
    return vector if np.isfinite(vector).all() else None


def json_value(value: Any) -> Any:
    """What JSON has no form for: bytes as base64, times in ISO form with milliseconds. `convert` takes both back."""
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, datetime):
        return value.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    if isinstance(value, date):
        return value.isoformat()
    raise TypeError(type(value).__name__)
