"""Adjacency of one edge table at one version: for every node its neighbours, in both directions, as plain arrays.

`offsets[i]` to `offsets[i + 1]` are the slots of node i; `nodes[slot]` is the node at the other end and `edges[slot]`
the edge between them. Slots of a node are ordered by the node at the other end, so parallel edges are adjacent. The
number of a node is its row id where row ids are dense, otherwise its position among the row ids of the version. The
arrays of a new version are made from those of an older one and the changes since (`adjacency_update`).
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
"""Row ids are node numbers where the largest is at most this many times the number of nodes."""
PART_SLOTS = 16_384


@dataclass(frozen=True, eq=False)
class Index:
    """Maps the row ids of a node table to the node numbers of the arrays, and back."""

    size: int
    numbering: Numbering | None
    """None where the row ids are the node numbers."""

    @staticmethod
    def of(numbering: Numbering) -> Index:
        top = int(numbering.rowids[-1]) + 1 if len(numbering.rowids) else 0
        if top <= DENSE * len(numbering.rowids) + 4096:
            return Index(top, None)
        return Index(len(numbering.rowids), numbering)

    def numbers(self, rowids: np.ndarray) -> np.ndarray:
        return rowids if self.numbering is None else self.numbering.positions(rowids)

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
        """The distinct nodes at the other ends, in order; `size` is the number of nodes."""
        starts = self.offsets[numbers]
        lengths = self.offsets[numbers + 1] - starts
        total = int(lengths.sum())
        if total < 4096:
            return unique(self.nodes[ranges(starts, lengths)].astype(np.int64))
        is_neighbour = np.zeros(size, dtype=bool)
        if total > 64 * len(numbers):
            for start, stop in zip(starts.tolist(), (starts + lengths).tolist(), strict=True):
                is_neighbour[self.nodes[start:stop]] = True
        else:
            is_neighbour[self.nodes[ranges(starts, lengths)]] = True
        return np.flatnonzero(is_neighbour)

    def neighbours_of_parts(
        self, numbers: np.ndarray, bounds: np.ndarray, size: int, memory: Callable[[int], None]
    ) -> list[np.ndarray]:
        """The same for every part of the numbers; `bounds` are the starts of the parts and the end."""
        slots_before = np.append(0, np.cumsum(self.degrees(numbers)))[bounds]
        neighbours: list[np.ndarray] = []
        start, held_bytes = 0, 0
        while start < len(bounds) - 1:
            # Several small parts share one sort of up to PART_SLOTS slots; a large part uses a mask over all nodes.
            stop = max(
                start + 1, int(np.searchsorted(slots_before, slots_before[start] + PART_SLOTS, side="right")) - 1
            )
            part_numbers = numbers[bounds[start] : bounds[stop]]
            if stop == start + 1:
                neighbours.append(self.neighbours(part_numbers, size))
            else:
                part = np.repeat(np.arange(stop - start), np.diff(bounds[start : stop + 1]))
                positions, slots = self.slots(part_numbers)
                keys = unique(part[positions] * size + self.nodes[slots])
                of_part = keys // size
                nodes = keys - of_part * size
                neighbours += np.split(nodes, np.searchsorted(of_part, np.arange(1, stop - start)))
            held_bytes += sum(p.nbytes for p in neighbours[start:])
            memory(2 * held_bytes)
            start = stop
        return neighbours

    def slots(self, numbers: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """(position in `numbers`, slot), ordered by position."""
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

    adjacency = known_adjacency(cache, edges, sources, targets)
    if adjacency is None:
        adjacency = _load_or_build(cache, edges, sources, targets)
        cache.put((*edges.key, "adjacency", sources.key, targets.key), adjacency, adjacency.bytes)
    return adjacency


def known_adjacency(cache: Cache, edges: StoredTable, sources: StoredTable, targets: StoredTable) -> Adjacency | None:
    adjacency = cache.get((*edges.key, "adjacency", sources.key, targets.key))
    return adjacency if isinstance(adjacency, Adjacency) else None


def _load_or_build(cache: Cache, edges: StoredTable, sources: StoredTable, targets: StoredTable) -> Adjacency:
    """From disk, from the arrays of an older version, otherwise from the tables."""
    from omnigraph.query.traversal import adjacency_files
    from omnigraph.query.traversal.adjacency_update import Base, updated_adjacency

    # Keyed by path: a fork assigns the same row ids to other rows.
    key = ("newest adjacency", edges.key[0], sources.key[0], targets.key[0])
    base = cache.get(key)
    adjacency = updated_adjacency(base, edges, sources, targets) if isinstance(base, Base) else None
    if adjacency is not None:
        edges.watch.use("arrays renewed")
    else:
        adjacency = adjacency_files.loaded(edges, sources, targets)
        edges.watch.use("arrays built" if adjacency is None else "arrays on disk")
        if adjacency is None:
            adjacency = _build(edges, sources, targets)
            adjacency_files.keep(adjacency, edges, sources, targets)
    if not isinstance(base, Base) or base.edges <= edges.key[1]:
        # Counted a second time, so that old arrays do not stay beyond the budget.
        newest = Base(edges.key[1], sources.key[1], targets.key[1], adjacency)
        cache.put(key, newest, adjacency.bytes)
    return adjacency


def _build(edges: StoredTable, sources: StoredTable, targets: StoredTable) -> Adjacency:
    start = Index.of(sources.numbering())
    end = start if targets is sources else Index.of(targets.numbering())
    rows = edges.whole(["src", "dst"])
    heads = start.numbers(_resolved(sources, rows["src"]))
    tails = end.numbers(_resolved(targets, rows["dst"]))
    ids = edges.numbering().rowids
    return Adjacency(start, end, _half(heads, tails, ids, start.size), _half(tails, heads, ids, end.size))


def _resolved(nodes: StoredTable, ids: pa.Array) -> np.ndarray:
    # No commit leaves an edge without its nodes; a damaged file may.
    known_ids = nodes.column("id")
    # Every call hashes all node ids again: so the parts are large compared to them.
    size = max(4 * len(known_ids), sorting.PART_ROWS)
    parts = []
    for start in range(0, max(len(ids), 1), size):
        checkpoint()
        parts.append(
            np.asarray(pc.index_in(ids.slice(start, size), value_set=known_ids).fill_null(-1)).astype(np.int64)
        )
    positions = np.concatenate(parts)
    if len(positions) and int(positions.min()) < 0:
        raise StorageError(doing="following edges", detail="an edge has an end that is no node; `verify` names it")
    return nodes.numbering().rowids[positions] if len(positions) else positions


def _half(near: np.ndarray, far: np.ndarray, edges: np.ndarray, size: int) -> Half:
    order = argsort_pairs(near, far)
    near, far = near[order], far[order]
    offsets = bounds_of(np.bincount(near, minlength=size) if len(near) else np.zeros(size, dtype=np.int64))
    is_parallel = (near[1:] == near[:-1]) & (far[1:] == far[:-1])
    node_type = np.int32 if size < 2**31 and (len(far) == 0 or int(far.max()) < 2**31) else np.int64
    return Half(offsets, far.astype(node_type), edges[order], not bool(is_parallel.any()))
