"""Order: total and repeatable. Keys in turn, then what breaks ties; null is smaller than any value.

Keys are computed only for rows that the keys before have left undecided, and with a limit only for rows that can still
be among the first: the ids of a million rows are not read to return ten.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

KeyOf = Callable[[np.ndarray], np.ndarray]
"""From places of rows to whole numbers that are ordered as the rows are by this key."""


def ordered(places: np.ndarray, keys: Iterator[KeyOf], *, first: int | None) -> np.ndarray:
    """These places of rows in order; only the first so many if that is given."""
    ranks = np.zeros(len(places), dtype=np.int64)
    for key in keys:
        if len(places) < 2:
            break
        if first is not None and first < len(places):
            places, ranks = _cut(places, ranks, first)
        more = key(places)
        ranks = _joined(ranks, more)
        if len(ranks) == 0 or _all_differ(ranks):
            break
    order = np.argsort(ranks, kind="stable")
    found = places[order]
    return found if first is None else found[:first]


def best_scores(scores: pa.Array, first: int, *, descending: bool) -> np.ndarray:
    """The places of rows that can be among the first by a score; what has none comes last, either way."""
    values = np.asarray(scores.fill_null(np.nan))
    values = np.where(np.isnan(values), np.inf, -values if descending else values)
    if first >= len(values):
        return np.arange(len(values), dtype=np.int64)
    last = np.partition(values, max(first - 1, 0))[max(first - 1, 0)]
    return np.flatnonzero(values <= last)


def _cut(places: np.ndarray, ranks: np.ndarray, first: int) -> tuple[np.ndarray, np.ndarray]:
    if first == 0:
        return places[:0], ranks[:0]
    last = np.partition(ranks, first - 1)[first - 1]
    keep = ranks <= last
    return (places, ranks) if keep.all() else (places[keep], ranks[keep])


def _joined(ranks: np.ndarray, more: np.ndarray) -> np.ndarray:
    """Dense ranks by one key and then the other."""
    if len(ranks) == 0:
        return ranks
    if not ranks.any():
        return dense(more)
    order = np.lexsort((more, ranks))
    is_new = np.empty(len(order), dtype=bool)
    is_new[0] = False
    a, b = ranks[order], more[order]
    is_new[1:] = (a[1:] != a[:-1]) | (b[1:] != b[:-1])
    found = np.empty(len(order), dtype=np.int64)
    found[order] = np.cumsum(is_new)
    return found


def dense(values: np.ndarray) -> np.ndarray:
    if len(values) == 0:
        return values.astype(np.int64)
    order = np.argsort(values, kind="stable")
    a = values[order]
    found = np.empty(len(values), dtype=np.int64)
    is_new = np.zeros(len(values), dtype=bool)
    is_new[1:] = a[1:] != a[:-1]
    found[order] = np.cumsum(is_new)
    return found


def _all_differ(ranks: np.ndarray) -> bool:
    return int(ranks.max()) == len(ranks) - 1


def ranked(values: pa.Array) -> np.ndarray:
    """Whole numbers that are ordered as the values are, -1 for null. Lists compare item by item."""
    if pa.types.is_nested(values.type):
        return _ranked_lists(values)
    if pa.types.is_floating(values.type):
        values = pc.add(values, pa.scalar(0.0, values.type))  # minus zero is zero
    encoded = values.dictionary_encode()
    order = np.asarray(pc.array_sort_indices(encoded.dictionary))
    ranks = np.empty(len(order) + 1, dtype=np.int64)
    ranks[order] = np.arange(len(order))
    ranks[-1] = -1
    return np.asarray(ranks[np.asarray(encoded.indices.fill_null(-1))])


def _ranked_lists(values: pa.Array) -> np.ndarray:
    items = [None if v is None else tuple(v) for v in values.to_pylist()]
    known = {v: i for i, v in enumerate(sorted({v for v in items if v is not None}))}
    return np.array([-1 if v is None else known[v] for v in items], dtype=np.int64)


def directed(ranks: np.ndarray, *, descending: bool, nulls_last: bool) -> np.ndarray:
    """Turned around if descending. Scores put what has none at the end, either way."""
    found = -ranks if descending else ranks
    if nulls_last:
        missing = ranks < 0
        if missing.any():
            found = found.copy()
            found[missing] = np.iinfo(np.int64).max
    return found
