"""Order: total and repeatable. Keys in turn, then what breaks ties; null is smaller than any value.

Keys are computed only for rows that the keys before have left undecided, and with a limit only for rows that can still
be among the first: the ids of a million rows are not read to return ten.
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
"""Per row that is ordered, beside its place: its rank by the keys so far and by the next, and their order."""
COMPETING_MAX = 100_000
"""So few first rows are found part by part."""
KeyOf = Callable[[np.ndarray], np.ndarray]
"""From places of rows to whole numbers that are ordered as the rows are by this key."""


def ordered(places: np.ndarray, keys: Callable[[], Iterator[KeyOf]], *, first: int | None) -> np.ndarray:
    """These places of rows, which ascend, in order; only the first so many if that is given.

    Of many places and few that are asked for, the first of one part compete with the next part.
    """
    if first is None or len(places) <= sorting.PART_ROWS or first > COMPETING_MAX:
        return _ordered(places, keys(), first)
    best = places[:0]
    for part in sorting.parts(len(places)):
        # In the order of their places, by which equal rows are ordered.
        best = np.sort(_ordered(np.concatenate([best, places[part]]), keys(), first))
    return _ordered(best, keys(), first)


def _ordered(places: np.ndarray, keys: Iterator[KeyOf], first: int | None) -> np.ndarray:
    ranks: np.ndarray | None = None
    for key in keys:
        if len(places) < 2:
            break
        reserve(len(places) * ORDER_BYTES)
        more = key(places)
        checkpoint()
        if ranks is None:
            keep = _competing(more, first)
            places, more = (places, more) if keep is None else (places[keep], more[keep])
            ranks = factorize(more)[1]
        else:
            ranks = _joined(ranks, more)
        keep = _competing(ranks, first)
        places, ranks = (places, ranks) if keep is None else (places[keep], ranks[keep])
        if len(ranks) == 0 or _all_differ(ranks):
            break
    found = places if ranks is None else places[argsort(ranks)]
    return found if first is None else found[:first]


def best_scores(scores: pa.Array, first: int, *, descending: bool) -> np.ndarray:
    """The places of rows that can be among the first by a score; what has none comes last, either way."""
    values = np.asarray(scores.fill_null(np.nan))
    values = np.where(np.isnan(values), np.inf, -values if descending else values)
    if first >= len(values):
        return np.arange(len(values), dtype=np.int64)
    last = np.partition(values, max(first - 1, 0))[max(first - 1, 0)]
    return np.flatnonzero(values <= last)


def _competing(ranks: np.ndarray, first: int | None) -> np.ndarray | None:
    """Which rows can be among the first so many; None for all of them."""
    if first is None or first >= len(ranks):
        return None
    keep = ranks <= np.partition(ranks, first - 1)[first - 1] if first else np.zeros(len(ranks), dtype=bool)
    return None if keep.all() else keep


def _joined(ranks: np.ndarray, more: np.ndarray) -> np.ndarray:
    """Dense ranks by one key and then the other."""
    order = argsort_pairs(ranks, more)
    is_new = np.empty(len(order), dtype=bool)
    is_new[0] = False
    a, b = ranks[order], more[order]
    is_new[1:] = (a[1:] != a[:-1]) | (b[1:] != b[:-1])
    found = np.empty(len(order), dtype=np.int64)
    found[order] = np.cumsum(is_new)
    return found


def _all_differ(ranks: np.ndarray) -> bool:
    return int(ranks.max()) == len(ranks) - 1


def directed(ranks: np.ndarray, *, descending: bool, nulls_last: bool) -> np.ndarray:
    """Turned around if descending. Scores put what has none at the end, either way."""
    found = -ranks if descending else ranks
    if nulls_last:
        missing = ranks < 0
        if missing.any():
            found = found.copy()
            found[missing] = np.iinfo(np.int64).max
    return found
