"""One hop: from nodes over edges to nodes, on adjacency arrays or on the index of an edge table, with equal results.

The method is chosen for every hop:

1. pending rows of a transaction are matched in memory
2. arrays of this version are used if they exist
3. otherwise the index, for few nodes, until its look-ups have taken as long as building the arrays would; for a small
   table and for a hop from many nodes the arrays are built at once
"""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow.compute as pc

from omnigraph.errors import UsageError
from omnigraph.language.query.model import Step
from omnigraph.query.execution.frame import Packing, bounds_of, factorize, ordinals, pack, rowids, unique
from omnigraph.query.tables.source import Source
from omnigraph.query.tables.tables import flat
from omnigraph.query.traversal.adjacency import Adjacency, Half, Index, adjacency_of, known_adjacency
from omnigraph.query.traversal.adjacency_files import is_kept

STEPPED_MAX = 3000
"""Max nodes of one hop that are looked up in the index."""
MAKING_S_PER_EDGE = 2.5e-7
"""Measured time to build arrays."""
BYTES_PER_EDGE = 24
SMALL_EDGES = 20_000
"""Arrays of a table of at most this many edges are built at once."""
VARIABLE = "OMNIGRAPH_TRAVERSE"
_FLIPPED = {"out": "in", "in": "out", "both": "both"}


@dataclass(frozen=True, eq=False)
class HopPairs:
    """The pairs of a hop: `near[i]` is the position of a start node, `far[i]` the node at the other end, `edge[i]` the
    edge.
    """

    near: np.ndarray
    far: np.ndarray
    edge: np.ndarray | None
    is_once: bool = False
    """No pair occurs twice, and they are ordered by `near`."""

    @staticmethod
    def joined(parts: Sequence[HopPairs], *, edges: bool) -> HopPairs:
        if len(parts) == 1:
            return parts[0]
        if not parts:
            empty = np.empty(0, dtype=np.int64)
            return HopPairs(empty, empty, empty if edges else None)
        return HopPairs(
            np.concatenate([p.near for p in parts]),
            np.concatenate([p.far for p in parts]),
            np.concatenate([p.edge for p in parts if p.edge is not None]) if edges else None,
        )


def reversed_step(s: Step) -> Step:
    return Step(s.edge, _FLIPPED[s.direction], s.ends, s.starts)  # type: ignore[arg-type]


class Hops:
    """The steps of one traversal, in the direction of the walk. `where` filters the edges, in SQL."""

    def __init__(self, source: Source, steps: Sequence[Step], *, edges: bool, where: str | None = None) -> None:
        self.source = source
        self.steps = steps
        self.edges = edges
        self.where = where
        self._forced = forced(source.watch.options.traverse)

    def arrays(self, step: Step, keys: int) -> Adjacency | None:
        """The arrays of the step's edges, if they are the method for that many nodes."""
        tables = [self.source.table(e) for e in self._ends(step)]
        stored = [t.stored for t in (self.source.table(step.edge), *tables)]
        if any(t is None for t in stored) or self._forced == "index":
            return None
        edges, sources, targets = (t for t in stored if t is not None)
        cache = self.source.cache
        adjacency = known_adjacency(cache, edges, sources, targets)
        if adjacency is not None:
            return adjacency
        if is_kept(edges, sources, targets):
            return adjacency_of(cache, edges, sources, targets)
        if self._forced is None and self.where is not None and keys <= STEPPED_MAX:
            return None
        if self._forced is None and edges.rows > SMALL_EDGES and keys <= STEPPED_MAX:
            spent_s = cache.get((*edges.key, "stepped_s"))
            # Arrays that do not fit into the cache would be built by every query.
            fits_cache = edges.rows * BYTES_PER_EDGE <= cache.max_bytes
            if not fits_cache or not isinstance(spent_s, float) or spent_s < edges.rows * MAKING_S_PER_EDGE:
                return None
        return adjacency_of(cache, edges, sources, targets)

    @staticmethod
    def _ends(step: Step) -> tuple:  # type: ignore[type-arg]
        """The node types of the stored edge: source and target."""
        return (step.ends, step.starts) if step.direction == "in" else (step.starts, step.ends)

    def hop(self, codes: np.ndarray) -> HopPairs:
        """From these nodes, which are distinct, over every step."""
        self.source.watch.tick()
        kinds = ordinals(codes)
        parts = []
        for step in self.steps:
            start = self.source.ordinal(step.starts)
            positions = (
                None if len(self.steps) == 1 and bool((kinds == start).all()) else np.flatnonzero(kinds == start)
            )
            near = codes if positions is None else codes[positions]
            if len(near) == 0:
                continue
            pairs = self._step(step, near)
            parts.append(
                pairs if positions is None else HopPairs(positions[pairs.near], pairs.far, pairs.edge, pairs.is_once)
            )
        return HopPairs.joined(parts, edges=self.edges)

    def _step(self, step: Step, codes: np.ndarray) -> HopPairs:
        arrays = self.arrays(step, len(codes))
        if arrays is not None:
            self.source.watch.use(f"adjacency of {step.edge.name}")
        parts = []
        for direction in ("out", "in"):
            if step.direction not in (direction, "both"):
                continue
            if arrays is not None:
                pairs = self._by_arrays(step, arrays, direction, codes)
            else:
                pairs = self._timed_by_index(step, direction, codes)
            if step.direction == "both" and direction == "in":
                # A loop was counted with the outgoing edges already.
                keep = pairs.far != codes[pairs.near]
                pairs = HopPairs(pairs.near[keep], pairs.far[keep], None if pairs.edge is None else pairs.edge[keep])
            parts.append(pairs)
        return HopPairs.joined(parts, edges=self.edges)

    # ---- arrays

    def _by_arrays(self, step: Step, arrays: Adjacency, direction: str, codes: np.ndarray) -> HopPairs:
        half, near, far = _halves(arrays, direction)
        numbers = near.numbers(rowids(codes))
        degrees = half.degrees(numbers)
        self.source.watch.memory(int(degrees.sum()) * 32)
        positions, slots = half.slots(numbers)
        nodes = pack(self.source.ordinal(step.ends), far.rowids(half.nodes[slots].astype(np.int64)))
        edge = pack(self.source.ordinal(step.edge), half.edges[slots]) if self.edges else None
        return HopPairs(positions, nodes, edge, half.is_simple)

    def some(self, codes: np.ndarray) -> np.ndarray:
        """Which of these nodes have at least one edge."""
        kinds = ordinals(codes)
        has_edge = np.zeros(len(codes), dtype=bool)
        for step in self.steps:
            positions = np.flatnonzero((kinds == self.source.ordinal(step.starts)) & ~has_edge)
            arrays = self.arrays(step, len(positions)) if len(positions) else None
            if arrays is not None:
                self.source.watch.use(f"adjacency of {step.edge.name}")
            for direction in ("out", "in"):
                if len(positions) == 0 or step.direction not in (direction, "both"):
                    continue
                if arrays is not None:
                    half, near, _ = _halves(arrays, direction)
                    has_edge[positions] |= half.degrees(near.numbers(rowids(codes[positions]))) > 0
                else:
                    has_edge[positions[self._timed_by_index(step, direction, codes[positions]).near]] = True
        return has_edge

    def ends(self, codes: np.ndarray) -> np.ndarray:
        """The distinct nodes that one hop from any of these leads to, in order."""
        if len(self.steps) == 1 and self.steps[0].direction != "both" and len(codes):
            step = self.steps[0]
            arrays = self.arrays(step, len(codes))
            near_codes = codes[ordinals(codes) == self.source.ordinal(step.starts)]
            if arrays is not None:
                self.source.watch.use(f"adjacency of {step.edge.name}")
                half, near, far = _halves(arrays, step.direction)
                numbers = half.neighbours(near.numbers(rowids(near_codes)), far.size)
                return pack(self.source.ordinal(step.ends), far.rowids(numbers))
        return unique(self.hop(codes).far)

    def ends_by(self, origins: np.ndarray, codes: np.ndarray) -> tuple[np.ndarray, np.ndarray] | None:
        """The distinct pairs of an origin and a node that one hop from a code of that origin leads to.

        None if arrays are not used. Ordered by origin, then by node.
        """
        if len(self.steps) != 1 or self.steps[0].direction == "both" or len(codes) == 0:
            return None
        step = self.steps[0]
        arrays = (
            self.arrays(step, len(codes)) if bool((ordinals(codes) == self.source.ordinal(step.starts)).all()) else None
        )
        if arrays is None:
            return None
        self.source.watch.use(f"adjacency of {step.edge.name}")
        half, near, far = _halves(arrays, step.direction)
        kinds, positions = factorize(origins)
        order = np.argsort(positions, kind="stable")
        bounds = bounds_of(np.bincount(positions, minlength=len(kinds)))
        parts = half.neighbours_of_parts(near.numbers(rowids(codes))[order], bounds, far.size, self.source.watch.memory)
        counts = np.array([len(part) for part in parts], dtype=np.int64)
        nodes = far.rowids(np.concatenate(parts).astype(np.int64))
        return np.repeat(kinds, counts), pack(self.source.ordinal(step.ends), nodes)

    # ---- index

    def _timed_by_index(self, step: Step, direction: str, codes: np.ndarray) -> HopPairs:
        started_s = time.perf_counter()
        pairs = self._by_index(step, direction, codes)
        stored = self.source.table(step.edge).stored
        if stored is not None:
            key = (*stored.key, "stepped_s")
            spent_before_s = self.source.cache.get(key)
            spent_s = time.perf_counter() - started_s + (spent_before_s if isinstance(spent_before_s, float) else 0.0)
            self.source.cache.put(key, spent_s, 64)
        return pairs

    def _by_index(self, step: Step, direction: str, codes: np.ndarray) -> HopPairs:
        near_end, far_end = ("src", "dst") if direction == "out" else ("dst", "src")
        ids = self.source.table(step.starts).values(["id"], rowids(codes))["id"]
        rows = self.source.table(step.edge).at_ends(near_end, ids, self.where)
        self.source.watch.memory(rows.nbytes)
        positions = np.asarray(pc.index_in(flat(rows[near_end]), value_set=ids)).astype(np.int64)
        ends = flat(rows[far_end])
        encoded = ends.dictionary_encode() if len(ends) else None
        if encoded is None:
            empty = np.empty(0, dtype=np.int64)
            return HopPairs(empty, empty, empty if self.edges else None)
        numbers = self.source.table(step.ends).resolve(encoded.dictionary)[np.asarray(encoded.indices)]
        edge_ids = np.asarray(flat(rows["_rowid"])).astype(np.int64)
        if (numbers < 0).any():
            # Pending edges may be written before their nodes: drop those without.
            resolved = numbers >= 0
            positions, numbers, edge_ids = positions[resolved], numbers[resolved], edge_ids[resolved]
        far = pack(self.source.ordinal(step.ends), numbers)
        return HopPairs(positions, far, pack(self.source.ordinal(step.edge), edge_ids) if self.edges else None)

    # ---- estimates

    def degree(self) -> float:
        """The average number of edges of a node."""
        degree = 0.0
        for step in self.steps:
            nodes = max(1, self.source.table(step.starts).rows)
            degree += self.source.table(step.edge).rows / nodes * (2 if step.direction == "both" else 1)
        return degree


def _halves(arrays: Adjacency, direction: str) -> tuple[Half, Index, Index]:
    if direction == "out":
        return arrays.out, arrays.sources, arrays.targets
    return arrays.into, arrays.targets, arrays.sources


def forced(option: str | None) -> str | None:
    method = option or os.environ.get(VARIABLE) or None
    if method not in (None, "csr", "index"):
        raise UsageError(detail=f"{VARIABLE} is csr or index, not {method!r}.")
    return method


def pairs_once(pairs: HopPairs) -> HopPairs:
    """The distinct pairs, ordered by `near`, then by `far`."""
    if len(pairs.near) < 2 or pairs.is_once:
        return HopPairs(pairs.near, pairs.far, None, True)
    packing = Packing.of([pairs.near, pairs.far])
    if packing is not None:
        near, far = packing.unpack(unique(packing.pack([pairs.near, pairs.far])))
        return HopPairs(near, far, None, True)
    order = np.lexsort((pairs.far, pairs.near))
    near, far = pairs.near[order], pairs.far[order]
    keep = np.empty(len(near), dtype=bool)
    keep[0] = True
    keep[1:] = (near[1:] != near[:-1]) | (far[1:] != far[:-1])
    return HopPairs(near[keep], far[keep], None, True)
