"""The rules that compare rows with other rows, on one bucket of digests: for bulk loads and for verify.

Rows are arrays whose first two columns are the digest of an id, an endpoint or a unique tuple. Equal texts have equal
digests, so the rows that a rule compares are in the same bucket.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from omnigraph.tasks.digest_index import Index


@dataclass(frozen=True, eq=False)
class Repeats:
    """For each row the number of the first row with the same digest, and whether that is an earlier row."""

    firsts: np.ndarray
    again: np.ndarray


def repeats(rows: np.ndarray) -> Repeats:
    """Identity and @unique: of rows with the same digest all but the first break the rule."""
    firsts = Index(rows).groups()
    return Repeats(firsts, firsts != np.arange(len(rows)))


def without_node(rows: np.ndarray, *nodes: Index) -> np.ndarray:
    """Endpoints: the rows whose digest none of the ids has."""
    for ids in nodes:
        rows = rows[ids.find(rows) < 0]
    return rows


class Degrees:
    """Cardinality: how many edges start at each source. A source is named by the number of its first row."""

    def __init__(self, sources: np.ndarray) -> None:
        self._index = Index(sources)
        self.groups = self._index.groups()

    @property
    def is_source(self) -> np.ndarray:
        """Which rows are the first of their source: a source that is there twice counts once."""
        return np.asarray(self.groups == np.arange(len(self.groups)))

    def count(self, edges: np.ndarray) -> np.ndarray:
        """Edges per source; edges of other sources are not counted."""
        positions = self._index.find(edges)
        return np.bincount(positions[positions >= 0], minlength=len(self.groups))


def too_many(counts: np.ndarray, card_max: int | None) -> np.ndarray:
    return np.zeros(len(counts), dtype=bool) if card_max is None else np.asarray(counts > card_max)


def too_few(counts: np.ndarray, card_min: int) -> np.ndarray:
    return np.asarray(counts < card_min)
