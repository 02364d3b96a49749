"""Digests of whole rows, a batch at a time: equal rows have equal digests, whatever the file they are read from.

Equal means what `write/compare.py` means: same nulls, NaN like NaN, zeros with their sign, lists and vectors member by
member, blobs byte by byte. Digests are compared within one run and are never stored.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.tasks.digests import digests

_U = np.uint64
_NULL = _U(0xA0761D6478BD642F)
_STEP = _U(0x9E3779B97F4A7C15)
_LAST = (_U(0xFF51AFD7ED558CCD), _U(0xC4CEB9FE1A85EC53))


def id_digests(ids: pa.ChunkedArray) -> np.ndarray:
    """128 bits per id, shape (n, 2). A null, which only a foreign client writes, counts as the empty text."""
    return digests(_flat(ids).fill_null(""))


def row_digests(rows: pa.Table) -> np.ndarray:
    """64 bits per row, over all columns in their order."""
    digests = np.full(rows.num_rows, _STEP, dtype=np.uint64)
    for column in rows.columns:
        digests = _mixed(digests * _STEP ^ _values(_flat(column)))
    return digests


def _flat(column: pa.ChunkedArray) -> pa.Array:
    whole = column.combine_chunks()
    if isinstance(whole, pa.ChunkedArray):
        whole = whole.chunk(0) if whole.num_chunks else pa.array([], whole.type)
    return whole.storage if isinstance(whole, pa.ExtensionArray) else whole


def _mixed(values: np.ndarray) -> np.ndarray:
    for multiplier in _LAST:
        values = (values ^ (values >> _U(33))) * multiplier
    return np.asarray(values ^ (values >> _U(29)))


def _values(array: pa.Array) -> np.ndarray:
    nulls = np.asarray(array.is_null())
    if not nulls.any():
        return _plain(array)
    values = np.full(len(array), _NULL, dtype=np.uint64)
    values[~nulls] = _plain(array.drop_null())
    return values


def _plain(array: pa.Array) -> np.ndarray:
    """The same for arrays without nulls at the top level."""
    t = array.type
    if pa.types.is_fixed_size_list(t):
        members = _values(array.flatten())
        return _joined(members, np.full(len(array), t.list_size))
    if pa.types.is_list(t) or pa.types.is_large_list(t):
        return _joined(_values(array.flatten()), np.asarray(pc.list_value_length(array)))
    if pa.types.is_string(t) or pa.types.is_large_string(t):
        return digests(array.cast(pa.string()))[:, 0]
    if pa.types.is_binary(t) or pa.types.is_large_binary(t) or pa.types.is_fixed_size_binary(t):
        return digests(array.cast(pa.binary()).view(pa.string()))[:, 0]
    if pa.types.is_boolean(t):
        return np.asarray(array.cast(pa.uint8())).astype(np.uint64)
    if pa.types.is_floating(t):
        numbers = np.asarray(array)
        bits = numbers.view(f"u{numbers.dtype.itemsize}").astype(np.uint64)
        return np.where(np.isnan(numbers), _U(0x7FF8000000000000), bits)
    if pa.types.is_temporal(t):
        return np.asarray(array.view(pa.int32() if t.bit_width == 32 else pa.int64())).astype(np.uint64)
    return np.asarray(array).astype(np.uint64)


def _joined(members: np.ndarray, lengths: np.ndarray) -> np.ndarray:
    """One digest per list, of its members in their order."""
    lengths = lengths.astype(np.int64)
    starts = np.cumsum(lengths) - lengths
    places = (np.arange(len(members)) - np.repeat(starts, lengths)).astype(np.uint64)
    weighted = _mixed(members * _STEP ^ _mixed(places + _U(1)))
    sums = np.concatenate([np.zeros(1, dtype=np.uint64), np.cumsum(weighted, dtype=np.uint64)])
    return _mixed(sums[starts + lengths] - sums[starts] ^ lengths.astype(np.uint64))
