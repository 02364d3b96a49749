"""Sorts and ranks in parts are those of the whole, whatever the values and the size of the parts."""

from __future__ import annotations

import random
from collections.abc import Callable

import numpy as np
import pyarrow as pa
import pytest

from omnigraph.query.execution import ranking, sorting

TEXTS = ["", "a", "a\0", "a\0\0", "ab", "person-1", "person-12", "é", "x" * 7, "x" * 8, "x" * 20, "x" * 20 + "y"]
LONG = ["zz" * 300, "zz" * 300 + "b", "\U0001f600"]
FLOATS = [0.0, -0.0, 1.5, -3.0, 1e300, -1e300, float("inf"), float("-inf"), float("nan")]
Make = Callable[[random.Random], object]
COLUMNS: list[tuple[pa.DataType, Make]] = [
    (pa.string(), lambda r: r.choice([*TEXTS, *LONG])),
    (pa.string(), lambda r: "".join(r.choice("ab\0é") for _ in range(r.randrange(12)))),
    (pa.binary(), lambda r: r.randbytes(r.randrange(10))),
    (pa.float64(), lambda r: r.choice(FLOATS)),
    (pa.float32(), lambda r: r.choice(FLOATS[:4])),
    (pa.uint64(), lambda r: r.randrange(1 << 64)),
    (pa.int8(), lambda r: r.randrange(-5, 5)),
    (pa.bool_(), lambda r: r.random() < 0.5),
    (pa.date32(), lambda r: r.randrange(-500, 500)),
    (pa.timestamp("ms", "UTC"), lambda r: r.randrange(-500, 500)),
    (pa.list_(pa.string()), lambda r: [r.choice(TEXTS) for _ in range(r.randrange(4))]),
    (pa.list_(pa.float64()), lambda r: [r.choice(FLOATS[:4]) for _ in range(r.randrange(4))]),
]


@pytest.mark.parametrize("part_rows", [1, 3, 7, 50])
def test_a_sort_in_parts_is_the_stable_sort_of_the_whole(monkeypatch: pytest.MonkeyPatch, part_rows: int) -> None:
    monkeypatch.setattr(sorting, "PART_ROWS", part_rows)
    rng = np.random.default_rng(part_rows)
    for size in (0, 1, 2, part_rows, part_rows + 1, 60, 200):
        for spread in (1, 3, 50, 1 << 62):
            values, other = rng.integers(-spread, spread, size), rng.integers(0, 5, size)
            for given in (values, np.sort(values)):
                assert sorting.argsort(given).tolist() == np.argsort(given, kind="stable").tolist()
                assert sorting.sort(given).tolist() == np.sort(given).tolist()
                assert sorting.argsort_pairs(other, given).tolist() == np.lexsort((given, other)).tolist()


@pytest.mark.parametrize("part_rows", [1, 3, 50])
@pytest.mark.parametrize("column", range(len(COLUMNS)))
def test_ranks_in_parts_are_those_of_the_whole(monkeypatch: pytest.MonkeyPatch, column: int, part_rows: int) -> None:
    type_, make = COLUMNS[column]
    rng = random.Random(column)
    for size in (2, 10, 120):
        values = pa.array([None if rng.random() < 0.1 else make(rng) for _ in range(size)], type_)
        for some in (values, values[size // 3 :]):
            whole = ranking.ranked(some)
            with monkeypatch.context() as patch:
                patch.setattr(sorting, "PART_ROWS", part_rows)
                assert ranking.ranked(some).tolist() == whole.tolist()
