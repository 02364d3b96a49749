"""Vectors: exact cosine distances. The result does not depend on an index.

All vectors of a column are cached in memory when they are first needed, where a product with one vector takes
milliseconds; it selects the rows that can be among the best. Their distances are computed again in double precision,
each by itself, so that the order does not depend on which rows were computed in one call. A column too large for the
cache is streamed once per query.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from omnigraph.query.limits import checkpoint
from omnigraph.query.tables.tables import StoredTable, Table

CHUNK_ROWS = 16_384
ROUGH_ROWS = 1024
"""Up to this many rows are computed exactly at once, without a rough pass."""
MARGIN = 1e-4
"""An upper bound of the error of 32-bit floats."""


def distances(
    table: Table, column: str, query: np.ndarray, numbers: np.ndarray, *, best: int | None = None
) -> pa.Array:
    """1 - cosine per row; null without a vector or with one of length zero.

    With `best`, rows that are certainly not among that many best may have less exact values.
    """
    goal = query.astype(np.float64)
    size = float(np.sqrt((goal * goal).sum()))
    if size == 0.0 or len(numbers) == 0:
        return pa.nulls(len(numbers), pa.float64())
    stored = table.stored
    if stored is not None and _is_many(stored, numbers) and not stored.can_keep(len(goal) * 4):
        return _streamed(stored, column, goal, size, numbers)
    rows, is_valid = _matrix(table, column, numbers)
    if best is not None and 0 < best < len(numbers) and len(numbers) > ROUGH_ROWS:
        rough = _rough(table, column, rows, numbers, (goal / size).astype(np.float32))
        rough[~is_valid] = np.inf
        usable = int(is_valid.sum())
        if usable > best:
            limit = np.partition(rough, best - 1)[best - 1] + MARGIN
            close = np.flatnonzero(rough <= limit)
            distances_found = rough.astype(np.float64)
            distances_found[close] = _exact(rows.take(close), goal, size)
            return pa.array(distances_found, mask=~is_valid | ~np.isfinite(distances_found))
    distances_found = _exact(rows.take(np.arange(len(numbers))), goal, size)
    return pa.array(distances_found, mask=~is_valid | ~np.isfinite(distances_found))


def _is_many(stored: StoredTable, numbers: np.ndarray) -> bool:
    return len(numbers) > max(256, 0.02 * stored.rows)


def _streamed(stored: StoredTable, column: str, goal: np.ndarray, size: float, numbers: np.ndarray) -> pa.Array:
    """As `distances`, for rows in order of their numbers, of a column that does not fit into the cache."""
    result = np.full(len(numbers), np.nan)
    stored.watch.use("vectors read past")
    for numbered, vectors in stored.stream(column):
        positions = np.searchsorted(numbers, numbered)
        positions[positions == len(numbers)] = 0
        selected = np.flatnonzero((numbers[positions] == numbered) & np.asarray(vectors.is_valid()))
        result[positions[selected]] = _exact(_view(vectors)[selected], goal, size)
    return pa.array(result, mask=~np.isfinite(result))


class _MatrixRows:
    """Some rows of a matrix, copied only when needed. `is_column`: the matrix is that of the whole column."""

    def __init__(self, matrix: np.ndarray, positions: np.ndarray | None, *, is_column: bool) -> None:
        self.matrix = matrix
        self.positions = positions
        self.is_column = is_column

    def take(self, index: np.ndarray) -> np.ndarray:
        if self.positions is None and len(index) == len(self.matrix):
            return self.matrix
        return np.asarray(self.matrix[index if self.positions is None else self.positions[index]])


def _matrix(table: Table, column: str, numbers: np.ndarray) -> tuple[_MatrixRows, np.ndarray]:
    stored = table.stored
    if isinstance(stored, StoredTable) and (stored.has_columns([column]) or _is_many(stored, numbers)):
        whole = stored.column(column)
        stored.watch.use("vectors in memory")
        positions = stored.numbering().positions(numbers)
        is_valid = np.asarray(whole.is_valid())[positions] if whole.null_count else np.ones(len(numbers), dtype=bool)
        is_all = len(numbers) == len(whole) and bool((positions[1:] > positions[:-1]).all())
        return _MatrixRows(_view(whole), None if is_all else positions, is_column=True), is_valid
    taken = table.values([column], numbers)[column]
    return _MatrixRows(_view(taken), None, is_column=False), np.asarray(taken.is_valid())


def _view(vectors: pa.Array) -> np.ndarray:
    size = vectors.type.list_size
    flat = np.asarray(vectors.values)[vectors.offset * size : (vectors.offset + len(vectors)) * size]
    return flat.reshape(-1, size)


def _rough(table: Table, column: str, rows: _MatrixRows, numbers: np.ndarray, goal: np.ndarray) -> np.ndarray:
    norms = _norms(table, column, rows, numbers)
    vectors = rows.take(np.arange(len(numbers)))
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        rough_distances = np.float32(1) - (vectors @ goal) / norms
    return np.where(np.isfinite(rough_distances), rough_distances, np.inf)


def _norms(table: Table, column: str, rows: _MatrixRows, numbers: np.ndarray) -> np.ndarray:
    stored = table.stored

    def lengths(matrix: np.ndarray) -> np.ndarray:
        with np.errstate(over="ignore", invalid="ignore"):
            return np.asarray(np.sqrt(np.einsum("ij,ij->i", matrix, matrix)))

    if not isinstance(stored, StoredTable) or not rows.is_column:
        return lengths(rows.take(np.arange(len(numbers))))

    def make() -> tuple[np.ndarray, int]:
        norms = lengths(_view(stored.column(column)))
        return norms, norms.nbytes

    whole = stored.cache.get_or_make((*stored.key, "norms", column), make)
    return whole if rows.positions is None else np.asarray(whole[rows.positions])


def _exact(vectors: np.ndarray, goal: np.ndarray, size: float) -> np.ndarray:
    exact = np.empty(len(vectors))
    for start in range(0, len(vectors), CHUNK_ROWS):
        checkpoint()
        part = np.ascontiguousarray(vectors[start : start + CHUNK_ROWS], dtype=np.float64)
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            lengths = np.sqrt((part * part).sum(axis=1))
            exact[start : start + CHUNK_ROWS] = 1.0 - (part * goal).sum(axis=1) / (lengths * size)
    return exact
