"""A whole column of a property: from Python values or from any Arrow column to the stored Arrow type, strictly.

Both ways accept exactly what `values.convert` accepts. A value that is refused becomes a null in the result and is told
as `(position, Problem)`; position -1 means the column as a whole (an Arrow column of a type that can't be taken).
Where all values are plainly right, the column is made in one step; the converters run only where that fails.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.language.schema.model import INTEGERS, PropertyType
from omnigraph.rules.problem import Problem
from omnigraph.storage.lance.columns import arrow_type
from omnigraph.write import temporal
from omnigraph.write.delta import flat
from omnigraph.write.values import INTEGER_BOUNDS, convert

Found = list[tuple[int, Problem]]

_EXACT: dict[str, set[type]] = {
    "String": {str},
    "Enum": {str},
    "Bool": {bool},
    **{kind: {int} for kind in INTEGERS},
    "F32": {float},
    "F64": {float},
    "Blob": {bytes},
}


def python_column(p: PropertyType, values: Sequence[object], *, from_json: bool = False) -> tuple[pa.Array, Found]:
    if not (from_json and p.kind == "Blob"):
        quick = _quick(p, values)
        if quick is not None:
            return quick, []
    stored: list[object] = []
    found: Found = []
    for i, value in enumerate(values):
        converted = None if value is None else convert(p, value, from_json=from_json)
        if isinstance(converted, Problem):
            found.append((i, converted))
            converted = None
        stored.append(converted)
    return pa.array(stored, type=arrow_type(p)), found


def _quick(p: PropertyType, values: Sequence[object]) -> pa.Array | None:
    exact = _EXACT.get(p.kind)
    if exact is None or not set(map(type, values)) <= exact | {type(None)}:
        return None
    try:
        column = pa.array(values, type=arrow_type(p))
    except (pa.ArrowInvalid, pa.ArrowCapacityError, OverflowError, UnicodeEncodeError):
        return None
    return column if p.kind not in ("F32", "F64") or all_finite(column) else None


def all_finite(column: pa.Array) -> bool:
    return bool(pc.all(pc.is_finite(column)).as_py() in (True, None))


def arrow_column(p: PropertyType, column: pa.ChunkedArray | pa.Array) -> tuple[pa.Array, Found]:
    array = flat(column)
    if pa.types.is_dictionary(array.type):
        array = array.dictionary_decode()
    target = arrow_type(p)
    if pa.types.is_null(array.type):
        return pa.nulls(len(array), target), []
    if p.kind in INTEGERS and pa.types.is_integer(array.type):
        return _integers(p, array)
    if p.kind in ("F32", "F64") and (pa.types.is_floating(array.type) or pa.types.is_integer(array.type)):
        return _floats(p, array)
    if p.kind == "Date" and pa.types.is_date32(array.type):
        return _dates(array)
    if p.kind == "DateTime" and pa.types.is_timestamp(array.type):
        return _timestamps(array)
    if p.kind == "Vector" and _is_list(array.type) and pa.types.is_floating(array.type.value_type):
        return _vectors(p, array)
    if p.kind == "List" and array.type == target:
        return _lists(p, array)
    if _castable(p, array.type):
        return array.cast(target), []
    if _listable(p, array.type):
        return python_column(p, array.to_pylist())
    return pa.nulls(len(array), target), [(-1, Problem("type", f"expected {p}, not an Arrow column of {array.type}"))]


def _is_text(t: pa.DataType) -> bool:
    return bool(pa.types.is_string(t) or pa.types.is_large_string(t) or pa.types.is_string_view(t))


def _is_list(t: pa.DataType) -> bool:
    return bool(pa.types.is_list(t) or pa.types.is_large_list(t) or pa.types.is_fixed_size_list(t))


def _castable(p: PropertyType, t: pa.DataType) -> bool:
    if p.kind in ("String", "Enum"):
        return _is_text(t)
    if p.kind == "Blob":
        kinds = (pa.types.is_binary, pa.types.is_large_binary, pa.types.is_fixed_size_binary, pa.types.is_binary_view)
        return any(kind(t) for kind in kinds)
    return p.kind == "Bool" and bool(pa.types.is_boolean(t))


def _listable(p: PropertyType, t: pa.DataType) -> bool:
    """Types whose Python values the converters understand; slow, and rare enough."""
    if p.kind in ("Date", "DateTime"):
        return _is_text(t)
    return p.kind in ("List", "Vector") and _is_list(t)


def _marked(stored: pa.Array, bad: pa.Array, told: Callable[[int], Problem]) -> tuple[pa.Array, Found]:
    """`stored` with nulls where `bad` holds, and what is told of each such position."""
    positions = pc.indices_nonzero(bad).to_pylist()
    if not positions:
        return stored, []
    keep = pa.array(np.flatnonzero(~np.asarray(bad)))
    slots = np.full(len(stored), -1, dtype=np.int64)
    slots[np.asarray(keep)] = np.arange(len(keep))
    empty = pa.array(slots, mask=slots < 0)
    return stored.take(keep).take(empty), [(i, told(i)) for i in positions]


def _problem(p: PropertyType, value: object) -> Problem:
    problem = convert(p, value)
    assert isinstance(problem, Problem), (p, value)
    return problem


def _floats(p: PropertyType, array: pa.Array) -> tuple[pa.Array, Found]:
    stored = array.cast(arrow_type(p), safe=False)
    bad = pc.fill_null(pc.invert(pc.is_finite(stored)), False)
    return _marked(stored, bad, lambda i: _problem(p, array[i].as_py()))


def _dates(array: pa.Array) -> tuple[pa.Array, Found]:
    days = array.cast(pa.int32())
    bad = pc.or_(pc.less(days, temporal.DAY_MIN), pc.greater(days, temporal.DAY_MAX))
    return _marked(
        array, pc.fill_null(bad, False), lambda _: Problem("type", "the date is outside of the years 1 to 9999")
    )


def _integers(p: PropertyType, array: pa.Array) -> tuple[pa.Array, Found]:
    low, high = INTEGER_BOUNDS[p.kind]
    bits = array.type.bit_width
    signed = pa.types.is_signed_integer(array.type)
    own_low, own_high = (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1) if signed else (0, 2**bits - 1)
    bad = pa.repeat(pa.scalar(False), len(array))
    if own_low < low:
        bad = pc.or_(bad, pc.fill_null(pc.less(array, pa.scalar(low, array.type)), False))
    if own_high > high:
        bad = pc.or_(bad, pc.fill_null(pc.greater(array, pa.scalar(high, array.type)), False))
    stored = array.cast(arrow_type(p), safe=False)
    return _marked(stored, bad, lambda i: _problem(p, array[i].as_py()))


def _timestamps(array: pa.Array) -> tuple[pa.Array, Found]:
    """Any unit to milliseconds, finer digits cut off; without a zone the column is in UTC."""
    ticks = np.asarray(array.cast(pa.int64()).fill_null(0))
    per_ms = {"ns": 1_000_000, "us": 1_000, "ms": 1}.get(array.type.unit)
    if per_ms is None:
        bad = (ticks < temporal.MS_MIN // 1000) | (ticks > temporal.MS_MAX // 1000)
        ms = np.where(bad, 0, ticks) * 1000
    else:
        ms = ticks // per_ms
        bad = (ms < temporal.MS_MIN) | (ms > temporal.MS_MAX)
    mask = np.asarray(array.is_null())
    stored = pa.array(ms, mask=mask).cast(pa.timestamp("ms", tz="UTC"))
    told = Problem("type", "the datetime is outside of the years 1 to 9999")
    return _marked(stored, pa.array(bad & ~mask), lambda i: told)


def _lists(p: PropertyType, array: pa.Array) -> tuple[pa.Array, Found]:
    items = array.flatten()
    _, found = arrow_column(PropertyType(p.item or ""), items)
    if not found and items.null_count == 0:
        return array, []
    problems = dict(found) | {i: Problem("list", "") for i in pc.indices_nonzero(items.is_null()).to_pylist()}
    stops = np.cumsum(np.asarray(pc.list_value_length(array).fill_null(0), dtype=np.int64))
    told: dict[int, Problem] = {}
    for item in sorted(problems):
        row = int(np.searchsorted(stops, item, side="right"))
        place = item - int(stops[row - 1]) if row else item
        text = f"item {place}: {problems[item].message}" if problems[item].message else f"item {place} is null"
        told.setdefault(row, Problem("list", text))
    bad = np.zeros(len(array), dtype=bool)
    bad[list(told)] = True
    return _marked(array, pa.array(bad), told.__getitem__)


def _vectors(p: PropertyType, array: pa.Array) -> tuple[pa.Array, Found]:
    assert p.dimension is not None
    lengths = pc.fill_null(pc.list_value_length(array), p.dimension)
    items = array.flatten()
    plain = items.null_count == 0 and bool(pc.all(pc.equal(lengths, p.dimension)).as_py() in (True, None))
    stored = items.cast(pa.float32(), safe=False)
    if not plain or not all_finite(stored):
        return python_column(p, array.to_pylist())
    return vectors_of(stored, p.dimension, array.is_valid()), []


def vectors_of(items: pa.Array, dimension: int, is_valid: pa.Array) -> pa.Array:
    """Fixed-size lists from the members of the valid rows, with nulls in the places of the others."""
    dense = pa.FixedSizeListArray.from_arrays(items, dimension)
    valid = np.asarray(is_valid)
    if valid.all():
        return dense
    slots = np.cumsum(valid) - 1
    return dense.take(pa.array(slots, mask=~valid))
