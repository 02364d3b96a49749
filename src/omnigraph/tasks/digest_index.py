"""Look-ups in arrays of digests, and the rows of the input that no longer count."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from omnigraph.tasks.staging import Staging

DROPPED = 0
"""The phase of rows that are left out without blame: the graph has them so already, or a later row replaces them."""


class Index:
    """Digests with what goes with them, sorted; equal digests are neighbours, in the order they came in."""

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
        """For each digest the number of the first row, as it came in, with the same one; -1 if there is none."""
        found = np.full(len(keys), -1, dtype=np.int64)
        if len(self) == 0 or len(keys) == 0:
            return found
        wanted, second = np.ascontiguousarray(keys[:, 0]), keys[:, 1]
        at = self._places(wanted)
        active = np.flatnonzero(at < len(self))
        # One turn, except where two digests agree in their first half only.
        while len(active):
            place = at[active]
            same = self.first[place] == wanted[active]
            hit = same & (self.second[place] == second[active])
            found[active[hit]] = self.order[place[hit]]
            active = active[same & ~hit]
            at[active] += 1
            active = active[at[active] < len(self)]
        return found

    def _places(self, wanted: np.ndarray) -> np.ndarray:
        """Where each digest would stand, as `searchsorted` says; digests are spread evenly, so a guess is near."""
        bits = max(1, min(22, len(self).bit_length()))
        shift = np.uint64(64 - bits)
        if self._starts is None:
            self._starts = np.searchsorted(self.first >> shift, np.arange(2**bits, dtype=np.uint64)).astype(np.int64)
        at: np.ndarray = self._starts[wanted >> shift]
        last = len(self) - 1
        behind = np.flatnonzero((at <= last) & (self.first[np.minimum(at, last)] < wanted))
        while len(behind):
            at[behind] += 1
            here = at[behind]
            behind = behind[(here <= last) & (self.first[np.minimum(here, last)] < wanted[behind])]
        return at

    def groups(self) -> np.ndarray:
        """For each row, as it came in, the number of the first row with the same digest: its own if it is the first."""
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
    """Rows of the input that do not count any more, by type: refused in some phase, or dropped."""

    def __init__(self, staging: Staging, files: Mapping[str, Sequence[str]]) -> None:
        self._staging = staging
        self._files = files
        self._read: dict[str, tuple[np.ndarray, np.ndarray]] = {}

    def _of(self, type_key: str) -> tuple[np.ndarray, np.ndarray]:
        known = self._read.get(type_key)
        if known is None:
            parts = [self._staging.get_array(name, width=2) for name in self._files.get(type_key, ())]
            rows = np.concatenate(parts) if parts else np.empty((0, 2), dtype=np.uint64)
            # The first verdict on a row is the one that stands.
            rows = rows[np.lexsort((rows[:, 1], rows[:, 0]))]
            if len(rows) > 1:
                rows = rows[np.r_[True, rows[1:, 0] != rows[:-1, 0]]]
            known = self._read[type_key] = (np.ascontiguousarray(rows[:, 0]), rows[:, 1].astype(np.int64))
        return known

    def phases(self, type_key: str, names: np.ndarray) -> np.ndarray:
        """For each row the phase in which it went; -1 for rows that count."""
        rows, phases = self._of(type_key)
        found = np.full(len(names), -1, dtype=np.int64)
        if len(rows):
            at = np.minimum(np.searchsorted(rows, names), len(rows) - 1)
            hit = rows[at] == names
            found[hit] = phases[at[hit]]
        return found

    def live(self, type_key: str, names: np.ndarray) -> np.ndarray:
        if not self._files.get(type_key):
            return np.ones(len(names), dtype=bool)
        return np.asarray(self.phases(type_key, names) < 0)
