"""Order: total and repeatable. By the keys in turn, then by tie breakers; null is smaller than any value.

Keys are computed only for rows that previous keys have not decided, and with a limit only for rows that can still be
among the first: the ids of a million rows are not read to return ten.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
import pyarrow as pa

from omnigraph.query.execution import sorting
from omnigraph.query.execution.frame import factorize
from omnigraph.query.execution.sorting import argsort, argsort_pairs
from omnigraph.query.limits import checkpoint, reserve

ORDER_BYTES = 32
"""Memory per ordered row in addition to its position: its rank by the keys so far and by the next, and their order."""
COMPETING_MAX = 100_000
"""Max number of first rows that are selected part by part."""
KeyOf = Callable[[np.ndarray], np.ndarray]
"""From positions of rows to integers in the order of the rows by this key."""


def ordered(positions: np.ndarray, keys: Callable[[], Iterator[KeyOf]], *, first: int | None) -> np.ndarray:
    """These ascending positions of rows, in the order of the keys; with `first`, only that many.

    Where there are many positions and `first` is small, the first of each part compete with the next part.
    """
    if first is None or len(positions) <= sorting.PART_ROWS or first > COMPETING_MAX:
        return _ordered(positions, keys(), first)
    best = positions[:0]
    for part in sorting.parts(len(positions)):
        # In the order of their positions, by which equal rows are ordered.
        best = np.sort(_ordered(np.concatenate([best, positions[part]]), keys(), first))
    return _ordered(best, keys(), first)


def _ordered(positions: np.ndarray, keys: Iterator[KeyOf], first: int | None) -> np.ndarray:
    ranks: np.ndarray | None = None
    for key in keys:
        if len(positions) < 2:
            break
        reserve(len(positions) * ORDER_BYTES)
        next_ranks = key(positions)
        checkpoint()
        if ranks is None:
            keep = _competing(next_ranks, first)
            positions, next_ranks = (positions, next_ranks) if keep is None else (positions[keep], next_ranks[keep])
            ranks = factorize(next_ranks)[1]
        else:
            ranks = _joined(ranks, next_ranks)
        keep = _competing(ranks, first)
        positions, ranks = (positions, ranks) if keep is None else (positions[keep], ranks[keep])
        if len(ranks) == 0 or _all_differ(ranks):
            break
    ordered_positions = positions if ranks is None else positions[argsort(ranks)]
    return ordered_positions if first is None else ordered_positions[:first]


def best_scores(scores: pa.Array, first: int, *, descending: bool) -> np.ndarray:
    """The positions of rows that can be among the first by a score; rows without one come last in both directions."""
    values = np.asarray(scores.fill_null(np.nan))
    values = np.where(np.isnan(values), np.inf, -values if descending else values)
    if first >= len(values):
        return np.arange(len(values), dtype=np.int64)
    last = np.partition(values, max(first - 1, 0))[max(first - 1, 0)]
    return np.flatnonzero(values <= last)


def _competing(ranks: np.ndarray, first: int | None) -> np.ndarray | None:
    """A mask of the rows that can be among the first ones; None for all rows."""
    if first is None or first >= len(ranks):
        return None
    keep = ranks <= np.partition(ranks, first - 1)[first - 1] if first else np.zeros(len(ranks), dtype=bool)
    return None if keep.all() else keep


def _joined(ranks: np.ndarray, minor: np.ndarray) -> np.ndarray:
    """Dense ranks by `ranks`, then by `minor`."""
    order = argsort_pairs(ranks, minor)
    is_new = np.empty(len(order), dtype=bool)
    is_new[0] = False
    a, b = ranks[order], minor[order]
    is_new[1:] = (a[1:] != a[:-1]) | (b[1:] != b[:-1])
    joined_ranks = np.empty(len(order), dtype=np.int64)
    joined_ranks[order] = np.cumsum(is_new)
    return joined_ranks


def _all_differ(ranks: np.ndarray) -> bool:
    return int(ranks.max()) == len(ranks) - 1


def directed(ranks: np.ndarray, *, descending: bool, nulls_last: bool) -> np.ndarray:
    """Negated if descending. With `nulls_last`, nulls come last in both directions."""
    directed_ranks = -ranks if descending else ranks
    if nulls_last:
        missing = ranks < 0
        if missing.any():
            directed_ranks = directed_ranks.copy()
            directed_ranks[missing] = np.iinfo(np.int64).max
    return directed_ranks
