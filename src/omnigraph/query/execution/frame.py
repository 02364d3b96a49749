"""Bound rows: for every variable a column of integer codes, which identify entities.

A code is the ordinal of the entity's type (types by kind and name), shifted by SHIFT bits, plus its row id. -1 is null.
A path variable holds the number of a path in `Paths`. Codes are valid only within the query that made them.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from omnigraph.query.execution.sorting import argsort, sort
from omnigraph.query.limits import checkpoint, reserve

SHIFT = 52
MASK = (1 << SHIFT) - 1
NULL = -1
TYPES_MAX = 1 << (63 - SHIFT)
ORIGIN = 0
"""The slot of the row's number in the outer pattern; slots of variables begin at 1."""


def pack(ordinal: int, rowids: np.ndarray) -> np.ndarray:
    return rowids + (ordinal << SHIFT) if ordinal else rowids


def ordinals(codes: np.ndarray) -> np.ndarray:
    """The ordinal of every code; -1 for null."""
    return codes >> SHIFT


def rowids(codes: np.ndarray) -> np.ndarray:
    return codes & MASK


@dataclass(frozen=True, eq=False)
class Paths:
    """Paths as concatenated codes of their nodes: path i is `codes[offsets[i]:offsets[i + 1]]`."""

    offsets: np.ndarray
    codes: np.ndarray

    @property
    def bytes(self) -> int:
        return int(self.offsets.nbytes + self.codes.nbytes)

    def taken(self, numbers: np.ndarray) -> Paths:
        starts = self.offsets[numbers]
        lengths = self.offsets[numbers + 1] - starts
        return Paths(bounds_of(lengths), self.codes[ranges(starts, lengths)])


NO_PATHS = Paths(np.zeros(1, dtype=np.int64), np.empty(0, dtype=np.int64))


@dataclass(frozen=True, eq=False)
class Frame:
    rows: int
    columns: Mapping[int, np.ndarray] = field(default_factory=dict)
    paths: Mapping[int, Paths] = field(default_factory=dict)

    @property
    def bytes(self) -> int:
        return sum(c.nbytes for c in self.columns.values()) + sum(p.bytes for p in self.paths.values())

    def take(self, index: np.ndarray) -> Frame:
        return Frame(len(index), {s: c[index] for s, c in self.columns.items()}, self.paths)

    def keep(self, mask: np.ndarray) -> Frame:
        if mask.all():
            return self
        return self.take(np.flatnonzero(mask))

    def slice(self, start: int, stop: int) -> Frame:
        stop = min(stop, self.rows)
        return Frame(max(0, stop - start), {s: c[start:stop] for s, c in self.columns.items()}, self.paths)

    def add(self, slot: int, codes: np.ndarray, paths: Paths | None = None) -> Frame:
        all_paths = {**self.paths, slot: paths} if paths is not None else self.paths
        return Frame(self.rows, {**self.columns, slot: codes}, all_paths)

    def only(self, slots: Sequence[int]) -> Frame:
        columns = {s: self.columns[s] for s in slots if s in self.columns}
        return Frame(self.rows, columns, {s: p for s, p in self.paths.items() if s in columns})

    def cross(self, slot: int, codes: np.ndarray, building: Building) -> Frame:
        """Every row with every code."""
        if self.rows == 1:
            building(len(codes), len(self.columns) + 1)
            columns = {s: np.full(len(codes), c[0], dtype=np.int64) for s, c in self.columns.items()}
            return Frame(len(codes), {**columns, slot: codes}, self.paths)
        zeros = np.zeros(self.rows, dtype=np.int64), np.zeros(len(codes), dtype=np.int64)
        return joined(self, *zeros, 1, {slot: codes}, building)


Building = Callable[[int, int], None]
"""Called with the number of rows and columns about to be built; raises if a limit forbids it."""


def joined(
    frame: Frame,
    left: np.ndarray,
    right: np.ndarray,
    size: int,
    columns: Mapping[int, np.ndarray],
    building: Building,
) -> Frame:
    """Every row i of the frame with every row j of the columns where left[i] == right[j], which are numbers below
    `size`.

    Ordered by i. A large result is written block by block, with a call of `building` before each.
    """
    counts = np.bincount(right, minlength=size)
    lengths = counts[left]
    total = int(lengths.sum())
    building(total, len(frame.columns) + len(columns) + (2 if total <= BLOCK_ROWS else 0))
    if total <= BLOCK_ROWS:
        index, hits = pairs_joined(left, right, size)
        taken = frame.take(index)
        return Frame(taken.rows, {**taken.columns, **{s: c[hits] for s, c in columns.items()}}, frame.paths)
    order = None if bool((right[1:] >= right[:-1]).all()) else argsort(right)
    starts = bounds_of(counts)
    result_columns = {s: np.empty(total, dtype=np.int64) for s in (*frame.columns, *columns)}
    start = 0
    for block in blocks(lengths):
        building(total, len(result_columns))
        index = np.repeat(np.arange(block.start, block.stop), lengths[block])
        hits = ranges(starts[left[block]], lengths[block])
        hits = hits if order is None else order[hits]
        for source, index_of_block in ((frame.columns, index), (columns, hits)):
            for slot, column in source.items():
                np.take(
                    column, index_of_block, out=result_columns[slot][start : start + len(index_of_block)], mode="clip"
                )
        start += len(index)
    return Frame(total, result_columns, frame.paths)


UNIT = Frame(1)
"""The single row of a pattern without bound variables."""


# ---- integer arrays --------------------------------------------------------------------------------------------------


def bounds_of(lengths: np.ndarray) -> np.ndarray:
    """The start of each part of these lengths, and the end of the last."""
    bounds = np.zeros(len(lengths) + 1, dtype=np.int64)
    np.cumsum(lengths, out=bounds[1:])
    return bounds


def ranges(starts: np.ndarray, lengths: np.ndarray) -> np.ndarray:
    """The numbers `start … start + length - 1` of every pair, concatenated."""
    ends = np.cumsum(lengths, dtype=np.int64)
    total = int(ends[-1]) if len(ends) else 0
    if total == 0:
        return np.empty(0, dtype=np.int64)
    return np.repeat(starts - (ends - lengths), lengths) + np.arange(total, dtype=np.int64)


def unique(values: np.ndarray) -> np.ndarray:
    """The distinct values, sorted. np.unique hashes, which is many times slower for large arrays."""
    if len(values) < 2 or bool((values[1:] > values[:-1]).all()):
        return values
    ordered = sort(values)
    keep = np.empty(len(ordered), dtype=bool)
    keep[0] = True
    np.not_equal(ordered[1:], ordered[:-1], out=keep[1:])
    return ordered if keep.all() else ordered[keep]


def factorize(values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(the distinct values in order, for each value its index among them)."""
    count = len(values)
    if count == 0:
        return values, np.empty(0, dtype=np.int64)
    steps = values[1:] > values[:-1]
    if steps.all():
        return values, np.arange(count)
    reserve(count * 16)
    low, high = int(values.min()), int(values.max())
    if high - low <= 4 * count + 1024:
        is_present = np.zeros(high - low + 1, dtype=bool)
        positions = values - low
        is_present[positions] = True
        checkpoint()
        distinct = np.flatnonzero(is_present)
        numbers = np.empty(len(is_present), dtype=np.int64)
        numbers[distinct] = np.arange(len(distinct))
        checkpoint()
        return distinct + low, numbers[positions]
    order = argsort(values)
    reserve(count * 34)
    ordered = values[order]
    is_new = _first_of_equals(ordered)
    all_numbers = np.empty(count, dtype=np.int64)
    checkpoint()
    all_numbers[order] = np.cumsum(is_new) - 1
    return ordered[is_new], all_numbers


def _first_of_equals(ordered: np.ndarray) -> np.ndarray:
    is_first = np.empty(len(ordered), dtype=bool)
    is_first[:1] = True
    np.not_equal(ordered[1:], ordered[:-1], out=is_first[1:])
    return is_first


@dataclass(frozen=True)
class Packing:
    """Packs several integer columns into one of the same order; `of` gives None if 63 bits are not enough."""

    lows: tuple[int, ...]
    sizes: tuple[int, ...]

    @staticmethod
    def of(columns: Sequence[np.ndarray]) -> Packing | None:
        lows = [int(c.min()) if len(c) else 0 for c in columns]
        sizes = [(int(c.max()) if len(c) else 0) - low + 1 for c, low in zip(columns, lows, strict=True)]
        total = 1
        for size in sizes:
            total *= size
        return Packing(tuple(lows), tuple(sizes)) if total < 1 << 62 else None

    def pack(self, columns: Sequence[np.ndarray]) -> np.ndarray:
        packed = columns[0] - self.lows[0]
        for column, low, size in zip(columns[1:], self.lows[1:], self.sizes[1:], strict=True):
            checkpoint()
            packed *= size
            packed += column
            packed -= low
        return packed

    def unpack(self, packed: np.ndarray) -> list[np.ndarray]:
        columns = []
        for low, size in zip(self.lows[:0:-1], self.sizes[:0:-1], strict=True):
            rest = packed // size
            columns.append(packed - rest * size + low)
            packed = rest
        return [packed + self.lows[0], *columns[::-1]]


def distinct_rows(columns: Sequence[np.ndarray]) -> list[np.ndarray]:
    """The distinct rows, in order."""
    packing = Packing.of(columns)
    if packing is not None:
        reserve(len(columns[0]) * 16)
        packed = packing.pack(columns)
        distinct = unique(packed)
        return list(columns) if distinct is packed else packing.unpack(distinct)
    first, _ = groups_of(columns, len(columns[0]))
    return [c[first] for c in columns]


def groups_of(columns: Sequence[np.ndarray], rows: int) -> tuple[np.ndarray, np.ndarray]:
    """Groups of rows equal in all columns: (the first row of each group, for each row the number of its group)."""
    if not columns or rows == 0:
        return np.zeros(min(rows, 1), dtype=np.int64), np.zeros(rows, dtype=np.int64)
    packing = Packing.of(columns)
    if packing is None:
        columns = [factorize(c)[1] for c in columns]
        packing = Packing.of(columns)
    reserve(rows * 32)
    if packing is not None:
        numbers = packing.pack(columns)
    else:
        numbers = columns[0]
        for column in columns[1:]:
            numbers = factorize(numbers)[1] * (int(column.max()) + 1) + column
    distinct, numbers = factorize(numbers)
    checkpoint()
    first = np.empty(len(distinct), dtype=np.int64)
    # Backwards, so that the first row of a group is written last.
    first[numbers[::-1]] = np.arange(rows - 1, -1, -1)
    return first, numbers


def pairs_joined(left: np.ndarray, right: np.ndarray, size: int) -> tuple[np.ndarray, np.ndarray]:
    """All (i, j) with left[i] == right[j], which are numbers below `size`. Ordered by i."""
    is_sorted = bool((right[1:] >= right[:-1]).all())
    if is_sorted and len(left) == size and bool((left[1:] > left[:-1]).all()):
        # Every number occurs once and in order: the pairs are in the order of the rows already.
        return right, np.arange(len(right))
    counts = np.bincount(right, minlength=size)
    starts = bounds_of(counts)
    lengths = counts[left]
    index = np.repeat(np.arange(len(left)), lengths)
    hits = ranges(starts[left], lengths)
    return index, hits if is_sorted else argsort(right)[hits]


BLOCK_ROWS = 250_000
"""Rows between two checks of time and memory."""


def blocks(lengths: np.ndarray, keys: np.ndarray | None = None) -> Iterator[slice]:
    """Blocks of rows that make about BLOCK_ROWS rows, where row i makes `lengths[i]`; rows of one key share a block.

    `keys` are in order. A single row, or the rows of one key, may make more.
    """
    ends = np.cumsum(lengths)
    total = int(ends[-1]) if len(ends) else 0
    cuts = np.searchsorted(ends, np.arange(BLOCK_ROWS, total, BLOCK_ROWS)) + 1
    if keys is not None:
        cuts = np.searchsorted(keys, keys[cuts - 1], side="right")
    bounds = [0, *np.unique(cuts[cuts < len(lengths)]).tolist(), len(lengths)]
    for start, stop in itertools.pairwise(bounds):
        yield slice(start, stop)


def member(values: np.ndarray, among: np.ndarray) -> np.ndarray:
    """Which values are in `among`, which is sorted and distinct."""
    if len(among) == 0 or len(values) == 0:
        return np.zeros(len(values), dtype=bool)
    positions = np.searchsorted(among, values)
    positions[positions == len(among)] = 0
    return np.asarray(among[positions] == values)
