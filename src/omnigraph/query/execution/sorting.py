"""Sorting of large integer arrays in parts, so that a query can be stopped in the middle of a sort.

A numpy sort is one call, which takes a second for ten million rows. Above `PART_ROWS` rows a sample sort is used:

1. splitters   quantiles of a random sample cut the range of the values
2. partition   part by part of the rows, each row goes to the bucket between two splitters, or to that of the values
               that equal a splitter; rows of a bucket stay in their order
3. sort        bucket by bucket; one of equal values is sorted already, so frequent values make no large bucket

The result is that of a stable sort of the whole, whatever the sample. `checkpoint` is called between all parts.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence

import numpy as np

from omnigraph.query.limits import checkpoint, reserve

PART_ROWS = 500_000
"""Rows that are sorted, ranked or evaluated between two checks of the limits."""
SAMPLES_PER_SPLITTER = 32
SPLITTERS_MAX = 8192


def parts(rows: int) -> Iterator[slice]:
    """All rows, `PART_ROWS` at a time, with a checkpoint before each part."""
    for start in range(0, rows, PART_ROWS):
        checkpoint()
        yield slice(start, min(start + PART_ROWS, rows))


def concatenated(arrays: Sequence[np.ndarray]) -> np.ndarray:
    """The concatenation of at least one array, with a checkpoint before each."""
    whole = np.empty((sum(len(a) for a in arrays), *arrays[0].shape[1:]), dtype=arrays[0].dtype)
    start = 0
    for array in arrays:
        checkpoint()
        whole[start : start + len(array)] = array
        start += len(array)
    return whole


def argsort(values: np.ndarray) -> np.ndarray:
    """The positions of the values in ascending order; a stable sort."""
    if len(values) <= PART_ROWS:
        return np.argsort(values, kind="stable")
    if is_ascending(values):
        return np.arange(len(values))
    order, buckets = _partition(values)
    for bucket in buckets:
        checkpoint()
        positions = order[bucket]
        order[bucket] = positions[np.argsort(values[positions], kind="stable")]
    return order


def sort(values: np.ndarray) -> np.ndarray:
    """The values in ascending order."""
    if len(values) <= PART_ROWS:
        return np.sort(values)
    if is_ascending(values):
        return values
    order, buckets = _partition(values)
    ascending = values[order]
    for bucket in buckets:
        checkpoint()
        ascending[bucket].sort()
    return np.asarray(ascending)


def argsort_pairs(major: np.ndarray, minor: np.ndarray) -> np.ndarray:
    """As `np.lexsort((minor, major))`: by `major`, then by `minor`, then by position."""
    if len(major) <= PART_ROWS:
        return np.lexsort((minor, major))
    low, size = int(minor.min()), int(minor.max()) - int(minor.min()) + 1
    lowest, count = int(major.min()), int(major.max()) - int(major.min()) + 1
    if size * count < 1 << 62:
        reserve(len(major) * 8)
        keys = major - lowest
        keys *= size
        keys += minor
        keys -= low
        return argsort(keys)
    order = argsort(minor)
    return np.asarray(order[argsort(major[order])])


def is_ascending(values: np.ndarray) -> bool:
    """Checked part by part: most sequences that are not in order fail in the first part."""
    return all(bool((values[p][1:] >= values[p][:-1]).all()) for p in parts(len(values))) and bool(
        (values[PART_ROWS::PART_ROWS] >= values[PART_ROWS - 1 : -1 : PART_ROWS]).all()
    )


def _partition(values: np.ndarray) -> tuple[np.ndarray, list[slice]]:
    """(positions by bucket, the buckets that have to be sorted). Buckets are in order of their values."""
    rows = len(values)
    reserve(rows * 18)
    splitters = _splitters(values)
    count = 2 * len(splitters) + 1
    bucket_of = np.empty(rows, dtype=np.uint16)
    sizes = []
    for part in parts(rows):
        # Even numbers lie between two splitters, odd ones equal a splitter.
        below = np.searchsorted(splitters, values[part], side="left")
        bucket_of[part] = below + np.searchsorted(splitters, values[part], side="right")
        sizes.append(np.bincount(bucket_of[part], minlength=count))
    bounds = np.zeros(count + 1, dtype=np.int64)
    np.cumsum(np.sum(sizes, axis=0), out=bounds[1:])
    order = np.empty(rows, dtype=np.int64)
    next_free = bounds[:-1].copy()
    for part, size in zip(parts(rows), sizes, strict=True):
        positions = np.argsort(bucket_of[part], kind="stable") + part.start
        start = 0
        for bucket in np.flatnonzero(size).tolist():
            stop = start + int(size[bucket])
            order[next_free[bucket] : next_free[bucket] + stop - start] = positions[start:stop]
            start = stop
        next_free += size
    between = [slice(a, b) for i, (a, b) in enumerate(itertools.pairwise(bounds.tolist())) if i % 2 == 0 and b - a > 1]
    return order, between


def _splitters(values: np.ndarray) -> np.ndarray:
    count = min(2 * len(values) // PART_ROWS + 1, SPLITTERS_MAX)
    sampled = np.random.default_rng(0).integers(0, len(values), count * SAMPLES_PER_SPLITTER)
    sample = np.sort(values[sampled])
    return np.unique(sample[SAMPLES_PER_SPLITTER // 2 :: SAMPLES_PER_SPLITTER])
