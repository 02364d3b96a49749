"""Adjacency of one edge table at one version: for every node its neighbours, both ways, as plain arrays.

`offsets[i]` to `offsets[i + 1]` are the slots of node i; `nodes[slot]` is the node at the other end and `edges[slot]`
the edge between them. Slots of a node are ordered by the node at the other end, so parallel edges lie side by side.
Nodes are numbered by row id where these are dense, otherwise by their place among the row ids of the version. A new
version takes over the arrays of the one before it with what has changed (`renew`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.errors import StorageError
from omnigraph.query.execution import sorting
from omnigraph.query.execution.frame import bounds_of, ranges, unique
from omnigraph.query.execution.sorting import argsort_pairs
from omnigraph.query.limits import checkpoint
from omnigraph.query.tables.cache import Cache
from omnigraph.query.tables.numbering import Numbering
from omnigraph.query.tables.tables import StoredTable

DENSE = 4
"""Row ids are node numbers where there are at most so many times more of them than nodes."""
PART_SLOTS = 16_384


@dataclass(frozen=True, eq=False)
class Index:
    """Between the row ids of a node table and the numbers that arrays are made of."""

    size: int
    numbering: Numbering | None
    """None where row ids are the numbers themselves."""

    @staticmethod
    def of(numbering: Numbering) -> Index:
        top = int(numbering.rowids[-1]) + 1 if len(numbering.rowids) else 0
        if top <= DENSE * len(numbering.rowids) + 4096:
            return Index(top, None)
        return Index(len(numbering.rowids), numbering)

    def numbers(self, rowids: np.ndarray) -> np.ndarray:
        return rowids if self.numbering is None else self.numbering.places(rowids)

    def rowids(self, numbers: np.ndarray) -> np.ndarray:
        return numbers if self.numbering is None else self.numbering.rowids[numbers]


@dataclass(frozen=True, eq=False)
class Half:
    """One direction. `is_simple`: no two slots of a node lead to the same node."""

    offsets: np.ndarray
    nodes: np.ndarray
    edges: np.ndarray
    is_simple: bool

    @property
    def bytes(self) -> int:
        return int(self.offsets.nbytes + self.nodes.nbytes + self.edges.nbytes)

    def degrees(self, numbers: np.ndarray) -> np.ndarray:
        return np.asarray(self.offsets[numbers + 1] - self.offsets[numbers])

    def neighbours(self, numbers: np.ndarray, size: int) -> np.ndarray:
        """All nodes at the other ends, each once and in order; `size` is how many nodes there are."""
        starts = self.offsets[numbers]
        lengths = self.offsets[numbers + 1] - starts
        total = int(lengths.sum())
        if total < 4096:
            return unique(self.nodes[ranges(starts, lengths)].astype(np.int64))
        there = np.zeros(size, dtype=bool)
        if total > 64 * len(numbers):
            for a, b in zip(starts.tolist(), (starts + lengths).tolist(), strict=True):
                there[self.nodes[a:b]] = True
        else:
            there[self.nodes[ranges(starts, lengths)]] = True
        return np.flatnonzero(there)

    def neighbours_of_parts(
        self, numbers: np.ndarray, bounds: np.ndarray, size: int, memory: Callable[[int], None]
    ) -> list[np.ndarray]:
        """The same of every part of the numbers: `bounds` says where they begin and end."""
        reached = np.append(0, np.cumsum(self.degrees(numbers)))[bounds]
        found: list[np.ndarray] = []
        start, held = 0, 0
        while start < len(bounds) - 1:
            # Small parts go together, as many as one sort takes well; a large one is a look at all nodes.
            stop = max(start + 1, int(np.searchsorted(reached, reached[start] + PART_SLOTS, side="right")) - 1)
            some = numbers[bounds[start] : bounds[stop]]
            if stop == start + 1:
                found.append(self.neighbours(some, size))
            else:
                part = np.repeat(np.arange(stop - start), np.diff(bounds[start : stop + 1]))
                at, slots = self.slots(some)
                keys = unique(part[at] * size + self.nodes[slots])
                of_part = keys // size
                nodes = keys - of_part * size
                found += np.split(nodes, np.searchsorted(of_part, np.arange(1, stop - start)))
            held += sum(p.nbytes for p in found[start:])
            memory(2 * held)
            start = stop
        return found

    def slots(self, numbers: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """(which of the numbers, slot), by number."""
        starts = self.offsets[numbers]
        lengths = self.offsets[numbers + 1] - starts
        return np.repeat(np.arange(len(numbers)), lengths), ranges(starts, lengths)


@dataclass(frozen=True, eq=False)
class Adjacency:
    sources: Index
    targets: Index
    out: Half
    into: Half

    @property
    def bytes(self) -> int:
        return self.out.bytes + self.into.bytes

    @property
    def edges(self) -> int:
        return len(self.out.nodes)


def adjacency_of(cache: Cache, edges: StoredTable, sources: StoredTable, targets: StoredTable) -> Adjacency:
    """The adjacency of these versions, from the cache or built."""

    found = known_adjacency(cache, edges, sources, targets)
    if found is None:
        found = _made(cache, edges, sources, targets)
        cache.put((*edges.key, "adjacency", sources.key, targets.key), found, found.bytes)
    return found


def known_adjacency(cache: Cache, edges: StoredTable, sources: StoredTable, targets: StoredTable) -> Adjacency | None:
    found = cache.get((*edges.key, "adjacency", sources.key, targets.key))
    return found if isinstance(found, Adjacency) else None


def _made(cache: Cache, edges: StoredTable, sources: StoredTable, targets: StoredTable) -> Adjacency:
    """From disk, from the arrays of an older version, otherwise from the tables."""
    from omnigraph.query.traversal import adjacency_files
    from omnigraph.query.traversal.adjacency_update import Base, renewed

    # Only one path is the same table: a fork hands out the same row ids for other rows.
    key = ("newest adjacency", edges.key[0], sources.key[0], targets.key[0])
    base = cache.get(key)
    found = renewed(base, edges, sources, targets) if isinstance(base, Base) else None
    if found is not None:
        edges.watch.use("arrays renewed")
    else:
        found = adjacency_files.loaded(edges, sources, targets)
        edges.watch.use("arrays built" if found is None else "arrays on disk")
        if found is None:
            found = _build(edges, sources, targets)
            adjacency_files.keep(found, edges, sources, targets)
    if not isinstance(base, Base) or base.edges <= edges.key[1]:
        # Counted once more, so that nothing old stays beyond the budget.
        made = Base(edges.key[1], sources.key[1], targets.key[1], found)
        cache.put(key, made, found.bytes)
    return found


def _build(edges: StoredTable, sources: StoredTable, targets: StoredTable) -> Adjacency:
    start = Index.of(sources.numbering())
    end = start if targets is sources else Index.of(targets.numbering())
    rows = edges.whole(["src", "dst"])
    heads = start.numbers(_resolved(sources, rows["src"]))
    tails = end.numbers(_resolved(targets, rows["dst"]))
    ids = edges.numbering().rowids
    return Adjacency(start, end, _half(heads, tails, ids, start.size), _half(tails, heads, ids, end.size))


def _resolved(nodes: StoredTable, ids: pa.Array) -> np.ndarray:
    # No commit leaves an edge without its nodes: a damaged file does.
    known = nodes.column("id")
    # Every call hashes the known ids anew: so the parts are large beside these.
    size = max(4 * len(known), sorting.PART_ROWS)
    parts = []
    for start in range(0, max(len(ids), 1), size):
        checkpoint()
        parts.append(np.asarray(pc.index_in(ids.slice(start, size), value_set=known).fill_null(-1)).astype(np.int64))
    places = np.concatenate(parts)
    if len(places) and int(places.min()) < 0:
        raise StorageError(doing="following edges", detail="an edge has an end that is no node; `verify` names it")
    return nodes.numbering().rowids[places] if len(places) else places


def _half(near: np.ndarray, far: np.ndarray, edges: np.ndarray, size: int) -> Half:
    order = argsort_pairs(near, far)
    near, far = near[order], far[order]
    offsets = bounds_of(np.bincount(near, minlength=size) if len(near) else np.zeros(size, dtype=np.int64))
    twice = (near[1:] == near[:-1]) & (far[1:] == far[:-1])
    narrow = np.int32 if size < 2**31 and (len(far) == 0 or int(far.max()) < 2**31) else np.int64
    return Half(offsets, far.astype(narrow), edges[order], not bool(twice.any()))
