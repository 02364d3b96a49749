"""Which rows of two aligned tables are the same, so that rewriting an identical row is not a change.

Same means: same nulls, same values, NaN like NaN, zeros with their sign, lists and vectors member by member, blobs byte
by byte.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.write.delta import flat


def unchanged_mask(old: pa.Table, new: pa.Table) -> pa.Array:
    """For each row whether it is the same in both; the tables have one schema and one length."""
    assert old.schema.equals(new.schema), (old.schema, new.schema)
    assert old.num_rows == new.num_rows
    same = np.ones(old.num_rows, dtype=bool)
    # The widest columns come last, for the rows that are still equal.
    order = sorted(old.schema.names, key=lambda name: _cost(old.schema.field(name).type))
    for name in order:
        rows = np.flatnonzero(same)
        if len(rows) == 0:
            break
        picked = pa.array(rows)
        same[rows] = equal_mask(flat(old.column(name)).take(picked), flat(new.column(name)).take(picked))
    return pa.array(same)


def _cost(t: pa.DataType) -> int:
    if pa.types.is_large_binary(t):
        return 3
    if pa.types.is_list(t) or pa.types.is_fixed_size_list(t):
        return 2
    return 1 if pa.types.is_string(t) else 0


def equal_mask(a: pa.Array, b: pa.Array) -> np.ndarray:
    """Element by element, null like null."""
    both = np.asarray(pc.and_(a.is_valid(), b.is_valid()))
    result = np.asarray(pc.and_(a.is_null(), b.is_null())).copy()
    if both.all():
        return _equal_values(a, b)
    mask = pa.array(both)
    result[both] = _equal_values(a.filter(mask), b.filter(mask))
    return result


def _equal_values(a: pa.Array, b: pa.Array) -> np.ndarray:
    """The same for arrays without nulls at the top level."""
    if pa.types.is_fixed_size_list(a.type):
        members = equal_mask(a.flatten(), b.flatten())
        return np.asarray(members.reshape(len(a), a.type.list_size).all(axis=1))
    if pa.types.is_list(a.type):
        return _equal_lists(a, b)
    if pa.types.is_floating(a.type):
        x, y = np.asarray(a), np.asarray(b)
        bits = f"u{x.dtype.itemsize}"
        return np.asarray((x.view(bits) == y.view(bits)) | (np.isnan(x) & np.isnan(y)))
    return np.asarray(pc.equal(a, b))


def _equal_lists(a: pa.Array, b: pa.Array) -> np.ndarray:
    lengths = np.asarray(pc.list_value_length(a))
    same: np.ndarray = lengths == np.asarray(pc.list_value_length(b))
    mask = pa.array(same)
    members = equal_mask(a.filter(mask).flatten(), b.filter(mask).flatten())
    # Differences per list: the running count of unequal members at each list's end minus that at its start.
    unequal = np.concatenate([[0], np.cumsum(~members)])
    stops = np.cumsum(lengths[same])
    same[same] = unequal[stops] == unequal[stops - lengths[same]]
    return same
