"""Which rows are the same: decided for whole tables as for single Python values."""

from __future__ import annotations

import math
import struct

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from omnigraph.write.compare import unchanged_mask

TYPES: list[tuple[pa.DataType, st.SearchStrategy[object]]] = [
    (pa.string(), st.text(max_size=3)),
    (pa.int64(), st.integers(-3, 3)),
    (pa.bool_(), st.booleans()),
    (pa.float32(), st.sampled_from([0.0, -0.0, 1.5, math.nan, math.inf])),
    (pa.float64(), st.sampled_from([0.0, -0.0, 1.5, math.nan, math.inf])),
    (pa.date32(), st.dates()),
    (pa.timestamp("ms", "UTC"), st.integers(0, 3)),
    (pa.large_binary(), st.binary(max_size=2)),
    (pa.list_(pa.string()), st.lists(st.one_of(st.none(), st.text(max_size=1)), max_size=3)),
    (pa.list_(pa.float64()), st.lists(st.sampled_from([0.0, -0.0, math.nan]), max_size=3)),
    (pa.list_(pa.float32(), 2), st.lists(st.sampled_from([0.0, -0.0, math.nan, 1.0]), min_size=2, max_size=2)),
]


def same(a: object, b: object) -> bool:
    if isinstance(a, list) and isinstance(b, list):
        return len(a) == len(b) and all(same(x, y) for x, y in zip(a, b, strict=True))
    if isinstance(a, float) and isinstance(b, float):
        return struct.pack("d", a) == struct.pack("d", b) or (math.isnan(a) and math.isnan(b))
    return a == b


@pytest.mark.parametrize(("arrow", "values"), TYPES, ids=[str(t) for t, _ in TYPES])
@settings(deadline=None)
@given(data=st.data())
def test_a_row_is_unchanged_exactly_when_all_its_values_are_the_same(
    arrow: pa.DataType, values: st.SearchStrategy[object], data: st.DataObject
) -> None:
    pairs = data.draw(st.lists(st.tuples(st.one_of(st.none(), values), st.one_of(st.none(), values)), max_size=8))
    old, new = (pa.table({"x": pa.array([pair[i] for pair in pairs], arrow)}) for i in (0, 1))
    cut = data.draw(st.integers(0, len(pairs)))
    chunked = pa.concat_tables([old.slice(0, cut), old.slice(cut)])
    expected = [same(a, b) for a, b in zip(old["x"].to_pylist(), new["x"].to_pylist(), strict=True)]
    assert unchanged_mask(old, new).to_pylist() == expected
    assert unchanged_mask(chunked, new).to_pylist() == expected
    assert all(unchanged_mask(old, old).to_pylist())
    if cut:
        assert unchanged_mask(old.slice(cut), new.slice(cut)).to_pylist() == expected[cut:]


def test_one_changed_column_makes_a_changed_row() -> None:
    old = pa.table({"a": [1, 2], "b": ["x", "y"]})
    new = pa.table({"a": [1, 2], "b": ["x", "z"]})
    assert unchanged_mask(old, new).to_pylist() == [True, False]


def test_nan_with_other_bits_is_still_nan() -> None:
    other = np.frombuffer(struct.pack("<Q", 0x7FF8000000000001), dtype=np.float64)
    old, new = pa.table({"x": pa.array(np.array([math.nan]))}), pa.table({"x": pa.array(other)})
    assert unchanged_mask(old, new).to_pylist() == [True]
