"""Row ids of one table version, and their positions in order, by which arrays of whole columns are indexed."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True, eq=False)
class Numbering:
    """The row ids of a version in order, and the map from a row id to its position among them."""

    rowids: np.ndarray
    lookup: np.ndarray | None
    is_dense: bool

    @staticmethod
    def of(ordered: np.ndarray) -> Numbering:
        count = len(ordered)
        if count == 0 or int(ordered[-1]) == count - 1:
            return Numbering(ordered, None, True)
        lookup = None
        if int(ordered[-1]) < 4 * count + 4096:
            lookup = np.full(int(ordered[-1]) + 1, -1, dtype=np.int32)
            lookup[ordered] = np.arange(count, dtype=np.int32)
        return Numbering(ordered, lookup, False)

    @property
    def bytes(self) -> int:
        return int(self.rowids.nbytes + (0 if self.lookup is None else self.lookup.nbytes))

    def positions(self, rowids: np.ndarray) -> np.ndarray:
        """The positions of row ids that exist."""
        if self.is_dense:
            return rowids
        return self.lookup[rowids] if self.lookup is not None else np.searchsorted(self.rowids, rowids)
