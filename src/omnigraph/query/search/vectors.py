"""Vectors: cosine distances, exact. Whatever index there is, the nearest rows are the nearest.

All vectors of a column are kept in memory once they are needed, where a product with one vector takes milliseconds; it
finds the rows that can be among the best. Those are computed again with twice the digits, each by itself, so that the
order does not hang on which rows were computed together. A column that is too large to be kept is read past once.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from omnigraph.query.limits import checkpoint
from omnigraph.query.tables.tables import StoredTable, Table

CHUNK_ROWS = 16_384
ROUGH_ROWS = 1024
"""So few rows are computed exactly at once."""
MARGIN = 1e-4
"""More than what 32 bits can be wrong by."""


def distances(
    table: Table, column: str, query: np.ndarray, numbers: np.ndarray, *, best: int | None = None
) -> pa.Array:
    """1 - cosine per row; null without a vector or with one of length zero.

    With `best`, rows that are surely not among the best so many may have less exact values.
    """
    goal = query.astype(np.float64)
    size = float(np.sqrt((goal * goal).sum()))
    if size == 0.0 or len(numbers) == 0:
        return pa.nulls(len(numbers), pa.float64())
    stored = table.stored
    if stored is not None and _is_many(stored, numbers) and not stored.can_keep(len(goal) * 4):
        return _streamed(stored, column, goal, size, numbers)
    rows, there = _matrix(table, column, numbers)
    if best is not None and 0 < best < len(numbers) and len(numbers) > ROUGH_ROWS:
        rough = _rough(table, column, rows, numbers, (goal / size).astype(np.float32))
        rough[~there] = np.inf
        usable = int(there.sum())
        if usable > best:
            limit = np.partition(rough, best - 1)[best - 1] + MARGIN
            close = np.flatnonzero(rough <= limit)
            found = rough.astype(np.float64)
            found[close] = _exact(rows.take(close), goal, size)
            return pa.array(found, mask=~there | ~np.isfinite(found))
    found = _exact(rows.take(np.arange(len(numbers))), goal, size)
    return pa.array(found, mask=~there | ~np.isfinite(found))


def _is_many(stored: StoredTable, numbers: np.ndarray) -> bool:
    return len(numbers) > max(256, 0.02 * stored.rows)


def _streamed(stored: StoredTable, column: str, goal: np.ndarray, size: float, numbers: np.ndarray) -> pa.Array:
    """As `distances`, for rows in order of their numbers, of a column that does not fit into the cache."""
    found = np.full(len(numbers), np.nan)
    stored.watch.use("vectors read past")
    for numbered, vectors in stored.passing(column):
        at = np.searchsorted(numbers, numbered)
        at[at == len(numbers)] = 0
        wanted = np.flatnonzero((numbers[at] == numbered) & np.asarray(vectors.is_valid()))
        found[at[wanted]] = _exact(_view(vectors)[wanted], goal, size)
    return pa.array(found, mask=~np.isfinite(found))


class _Rows:
    """Some rows of a matrix that is not copied until it must be. `is_column`: it is that of the whole column."""

    def __init__(self, matrix: np.ndarray, places: np.ndarray | None, *, is_column: bool) -> None:
        self.matrix = matrix
        self.places = places
        self.is_column = is_column

    def take(self, at: np.ndarray) -> np.ndarray:
        if self.places is None and len(at) == len(self.matrix):
            return self.matrix
        return np.asarray(self.matrix[at if self.places is None else self.places[at]])


def _matrix(table: Table, column: str, numbers: np.ndarray) -> tuple[_Rows, np.ndarray]:
    stored = table.stored
    if isinstance(stored, StoredTable) and (stored.has_columns([column]) or _is_many(stored, numbers)):
        whole = stored.column(column)
        stored.watch.use("vectors in memory")
        places = stored.numbering().places(numbers)
        there = np.asarray(whole.is_valid())[places] if whole.null_count else np.ones(len(numbers), dtype=bool)
        is_all = len(numbers) == len(whole) and bool((places[1:] > places[:-1]).all())
        return _Rows(_view(whole), None if is_all else places, is_column=True), there
    taken = table.values([column], numbers)[column]
    return _Rows(_view(taken), None, is_column=False), np.asarray(taken.is_valid())


def _view(vectors: pa.Array) -> np.ndarray:
    size = vectors.type.list_size
    flat = np.asarray(vectors.values)[vectors.offset * size : (vectors.offset + len(vectors)) * size]
    return flat.reshape(-1, size)


def _rough(table: Table, column: str, rows: _Rows, numbers: np.ndarray, goal: np.ndarray) -> np.ndarray:
    norms = _norms(table, column, rows, numbers)
    some = rows.take(np.arange(len(numbers)))
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        found = np.float32(1) - (some @ goal) / norms
    return np.where(np.isfinite(found), found, np.inf)


def _norms(table: Table, column: str, rows: _Rows, numbers: np.ndarray) -> np.ndarray:
    stored = table.stored

    def lengths(matrix: np.ndarray) -> np.ndarray:
        with np.errstate(over="ignore", invalid="ignore"):
            return np.asarray(np.sqrt(np.einsum("ij,ij->i", matrix, matrix)))

    if not isinstance(stored, StoredTable) or not rows.is_column:
        return lengths(rows.take(np.arange(len(numbers))))

    def make() -> tuple[np.ndarray, int]:
        found = lengths(_view(stored.column(column)))
        return found, found.nbytes

    whole = stored.cache.made((*stored.key, "norms", column), make)
    return whole if rows.places is None else np.asarray(whole[rows.places])


def _exact(vectors: np.ndarray, goal: np.ndarray, size: float) -> np.ndarray:
    found = np.empty(len(vectors))
    for start in range(0, len(vectors), CHUNK_ROWS):
        checkpoint()
        part = np.ascontiguousarray(vectors[start : start + CHUNK_ROWS], dtype=np.float64)
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            lengths = np.sqrt((part * part).sum(axis=1))
            found[start : start + CHUNK_ROWS] = 1.0 - (part * goal).sum(axis=1) / (lengths * size)
    return found
