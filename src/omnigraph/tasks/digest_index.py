"""Look-ups in arrays of digests, and the removed rows of an input."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from omnigraph.tasks.staging import Staging

DROPPED = 0
"""The phase of rows that are removed and not refused: the graph has equal ones, or a later row replaces them."""


class Index:
    """Digests with their payload, sorted; equal digests are consecutive, in the order of the input."""

    def __init__(self, rows: np.ndarray) -> None:
        order = np.argsort(rows[:, 0])
        first = np.ascontiguousarray(rows[order, 0])
        if len(first) > 1 and (first[1:] == first[:-1]).any():
            order = np.lexsort((np.arange(len(rows)), rows[:, 1], rows[:, 0]))
            first = np.ascontiguousarray(rows[order, 0])
        self.order = order
        self.first = first
        self.second = np.ascontiguousarray(rows[order, 1])
        self._starts: np.ndarray | None = None

    def __len__(self) -> int:
        return len(self.first)

    def find(self, keys: np.ndarray) -> np.ndarray:
        """For each digest the number of the first input row with the same digest; -1 if there is none."""
        row_numbers = np.full(len(keys), -1, dtype=np.int64)
        if len(self) == 0 or len(keys) == 0:
            return row_numbers
        first_words, second_words = np.ascontiguousarray(keys[:, 0]), keys[:, 1]
        positions = self._positions(first_words)
        active = np.flatnonzero(positions < len(self))
        # One iteration, except where two digests are equal in their first half only.
        while len(active):
            current = positions[active]
            same = self.first[current] == first_words[active]
            hit = same & (self.second[current] == second_words[active])
            row_numbers[active[hit]] = self.order[current[hit]]
            active = active[same & ~hit]
            positions[active] += 1
            active = active[positions[active] < len(self)]
        return row_numbers

    def _positions(self, first_words: np.ndarray) -> np.ndarray:
        """The insertion point of each digest, as of `searchsorted`; digests are uniform, so an estimate is close."""
        bits = max(1, min(22, len(self).bit_length()))
        shift = np.uint64(64 - bits)
        if self._starts is None:
            self._starts = np.searchsorted(self.first >> shift, np.arange(2**bits, dtype=np.uint64)).astype(np.int64)
        positions: np.ndarray = self._starts[first_words >> shift]
        last = len(self) - 1
        behind = np.flatnonzero((positions <= last) & (self.first[np.minimum(positions, last)] < first_words))
        while len(behind):
            positions[behind] += 1
            next_positions = positions[behind]
            behind = behind[
                (next_positions <= last) & (self.first[np.minimum(next_positions, last)] < first_words[behind])
            ]
        return positions

    def groups(self) -> np.ndarray:
        """For each input row the number of the first row with the same digest: its own if it is the first."""
        count = len(self)
        firsts = np.arange(count)
        if count < 2:
            return firsts
        new = np.ones(count, dtype=bool)
        new[1:] = (self.first[1:] != self.first[:-1]) | (self.second[1:] != self.second[:-1])
        if new.all():
            return firsts
        starts = np.maximum.accumulate(np.where(new, np.arange(count), 0))
        firsts[self.order] = self.order[starts]
        return firsts


class RemovedRows:
    """Removed rows of the input, by type: refused in some phase, or dropped."""

    def __init__(self, staging: Staging, files: Mapping[str, Sequence[str]]) -> None:
        self._staging = staging
        self._files = files
        self._read: dict[str, tuple[np.ndarray, np.ndarray]] = {}

    def _of(self, type_key: str) -> tuple[np.ndarray, np.ndarray]:
        cached = self._read.get(type_key)
        if cached is None:
            parts = [self._staging.get_array(name, width=2) for name in self._files.get(type_key, ())]
            rows = np.concatenate(parts) if parts else np.empty((0, 2), dtype=np.uint64)
            # The first phase that removed a row counts.
            rows = rows[np.lexsort((rows[:, 1], rows[:, 0]))]
            if len(rows) > 1:
                rows = rows[np.r_[True, rows[1:, 0] != rows[:-1, 0]]]
            cached = self._read[type_key] = (np.ascontiguousarray(rows[:, 0]), rows[:, 1].astype(np.int64))
        return cached

    def phases(self, type_key: str, names: np.ndarray) -> np.ndarray:
        """For each row the phase in which it was removed; -1 for rows that count."""
        rows, phases = self._of(type_key)
        result = np.full(len(names), -1, dtype=np.int64)
        if len(rows):
            positions = np.minimum(np.searchsorted(rows, names), len(rows) - 1)
            hit = rows[positions] == names
            result[hit] = phases[positions[hit]]
        return result

    def live(self, type_key: str, names: np.ndarray) -> np.ndarray:
        if not self._files.get(type_key):
            return np.ones(len(names), dtype=bool)
        return np.asarray(self.phases(type_key, names) < 0)
