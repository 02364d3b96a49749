"""One hop: from nodes over edges to nodes, on adjacency arrays or on the index of an edge table. Both give the same.

Which of the two is chosen for every hop:

1. rows in memory (a transaction's) are matched there
2. arrays of this version that are there are used
3. otherwise the index, for few nodes, and until its look-ups have taken as long as making the arrays would; a small
   table and a hop from many nodes make them at once
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
"""So many nodes of one hop are looked up in the index."""
MAKING_S_PER_EDGE = 2.5e-7
"""What arrays take to be made, as measured."""
BYTES_PER_EDGE = 24
SMALL_EDGES = 20_000
"""A table of so few edges is made into arrays at once."""
VARIABLE = "OMNIGRAPH_TRAVERSE"
_FLIPPED = {"out": "in", "in": "out", "both": "both"}


@dataclass(frozen=True, eq=False)
class Found:
    """What a hop finds: `near[i]` is the place of a node among those asked for, `far[i]` a node, `edge[i]` between."""

    near: np.ndarray
    far: np.ndarray
    edge: np.ndarray | None
    is_once: bool = False
    """No pair is there twice, and they are ordered by `near`."""

    @staticmethod
    def joined(parts: Sequence[Found], *, edges: bool) -> Found:
        if len(parts) == 1:
            return parts[0]
        if not parts:
            none = np.empty(0, dtype=np.int64)
            return Found(none, none, none if edges else None)
        return Found(
            np.concatenate([p.near for p in parts]),
            np.concatenate([p.far for p in parts]),
            np.concatenate([p.edge for p in parts if p.edge is not None]) if edges else None,
        )


def reversed_step(s: Step) -> Step:
    return Step(s.edge, _FLIPPED[s.direction], s.ends, s.starts)  # type: ignore[arg-type]


class Hops:
    """The steps of one traversal, in the direction in which it is walked. `where` filters the edges, in SQL."""

    def __init__(self, source: Source, steps: Sequence[Step], *, edges: bool, where: str | None = None) -> None:
        self.source = source
        self.steps = steps
        self.edges = edges
        self.where = where
        self._forced = forced(source.watch.options.traverse)

    def arrays(self, step: Step, keys: int) -> Adjacency | None:
        """The arrays of the step's edges, if that is the way to go for so many nodes."""
        tables = [self.source.table(e) for e in self._ends(step)]
        stored = [t.stored for t in (self.source.table(step.edge), *tables)]
        if any(t is None for t in stored) or self._forced == "index":
            return None
        edges, sources, targets = (t for t in stored if t is not None)
        cache = self.source.cache
        known = known_adjacency(cache, edges, sources, targets)
        if known is not None:
            return known
        if is_kept(edges, sources, targets):
            return adjacency_of(cache, edges, sources, targets)
        if self._forced is None and self.where is not None and keys <= STEPPED_MAX:
            return None
        if self._forced is None and edges.rows > SMALL_EDGES and keys <= STEPPED_MAX:
            spent = cache.get((*edges.key, "stepped_s"))
            # Arrays that would not be kept are paid for by every query.
            is_kept_then = edges.rows * BYTES_PER_EDGE <= cache.most_bytes
            if not is_kept_then or not isinstance(spent, float) or spent < edges.rows * MAKING_S_PER_EDGE:
                return None
        return adjacency_of(cache, edges, sources, targets)

    @staticmethod
    def _ends(step: Step) -> tuple:  # type: ignore[type-arg]
        """The node types of the stored edge: source and target."""
        return (step.ends, step.starts) if step.direction == "in" else (step.starts, step.ends)

    def hop(self, codes: np.ndarray) -> Found:
        """From these nodes, each there once, over every step."""
        self.source.watch.tick()
        kinds = ordinals(codes)
        parts = []
        for step in self.steps:
            start = self.source.ordinal(step.starts)
            at = None if len(self.steps) == 1 and bool((kinds == start).all()) else np.flatnonzero(kinds == start)
            near = codes if at is None else codes[at]
            if len(near) == 0:
                continue
            found = self._step(step, near)
            parts.append(found if at is None else Found(at[found.near], found.far, found.edge, found.is_once))
        return Found.joined(parts, edges=self.edges)

    def _step(self, step: Step, codes: np.ndarray) -> Found:
        arrays = self.arrays(step, len(codes))
        if arrays is not None:
            self.source.watch.use(f"adjacency of {step.edge.name}")
        parts = []
        for direction in ("out", "in"):
            if step.direction not in (direction, "both"):
                continue
            if arrays is not None:
                found = self._by_arrays(step, arrays, direction, codes)
            else:
                found = self._timed_by_index(step, direction, codes)
            if step.direction == "both" and direction == "in":
                # A loop was crossed on the way out already.
                keep = found.far != codes[found.near]
                found = Found(found.near[keep], found.far[keep], None if found.edge is None else found.edge[keep])
            parts.append(found)
        return Found.joined(parts, edges=self.edges)

    # ---- arrays

    def _by_arrays(self, step: Step, arrays: Adjacency, direction: str, codes: np.ndarray) -> Found:
        half, near, far = _halves(arrays, direction)
        numbers = near.numbers(rowids(codes))
        degrees = half.degrees(numbers)
        self.source.watch.memory(int(degrees.sum()) * 32)
        at, slots = half.slots(numbers)
        nodes = pack(self.source.ordinal(step.ends), far.rowids(half.nodes[slots].astype(np.int64)))
        edge = pack(self.source.ordinal(step.edge), half.edges[slots]) if self.edges else None
        return Found(at, nodes, edge, half.is_simple)

    def some(self, codes: np.ndarray) -> np.ndarray:
        """Which of these nodes have an edge at all."""
        kinds = ordinals(codes)
        found = np.zeros(len(codes), dtype=bool)
        for step in self.steps:
            at = np.flatnonzero((kinds == self.source.ordinal(step.starts)) & ~found)
            arrays = self.arrays(step, len(at)) if len(at) else None
            if arrays is not None:
                self.source.watch.use(f"adjacency of {step.edge.name}")
            for direction in ("out", "in"):
                if len(at) == 0 or step.direction not in (direction, "both"):
                    continue
                if arrays is not None:
                    half, near, _ = _halves(arrays, direction)
                    found[at] |= half.degrees(near.numbers(rowids(codes[at]))) > 0
                else:
                    found[at[self._timed_by_index(step, direction, codes[at]).near]] = True
        return found

    def ends(self, codes: np.ndarray) -> np.ndarray:
        """The nodes that one hop from any of these leads to, each once and in order."""
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
        """The pairs of an origin and a node that one hop from a code of that origin leads to, each once.

        None where that is no matter of arrays. Ordered by origin, then by node.
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
        kinds, places = factorize(origins)
        order = np.argsort(places, kind="stable")
        bounds = bounds_of(np.bincount(places, minlength=len(kinds)))
        found = half.neighbours_of_parts(near.numbers(rowids(codes))[order], bounds, far.size, self.source.watch.memory)
        counts = np.array([len(part) for part in found], dtype=np.int64)
        nodes = far.rowids(np.concatenate(found).astype(np.int64))
        return np.repeat(kinds, counts), pack(self.source.ordinal(step.ends), nodes)

    # ---- index

    def _timed_by_index(self, step: Step, direction: str, codes: np.ndarray) -> Found:
        began = time.perf_counter()
        found = self._by_index(step, direction, codes)
        stored = self.source.table(step.edge).stored
        if stored is not None:
            key = (*stored.key, "stepped_s")
            before = self.source.cache.get(key)
            spent = time.perf_counter() - began + (before if isinstance(before, float) else 0.0)
            self.source.cache.put(key, spent, 64)
        return found

    def _by_index(self, step: Step, direction: str, codes: np.ndarray) -> Found:
        near_end, far_end = ("src", "dst") if direction == "out" else ("dst", "src")
        ids = self.source.table(step.starts).values(["id"], rowids(codes))["id"]
        rows = self.source.table(step.edge).at_ends(near_end, ids, self.where)
        self.source.watch.memory(rows.nbytes)
        at = np.asarray(pc.index_in(flat(rows[near_end]), value_set=ids)).astype(np.int64)
        ends = flat(rows[far_end])
        encoded = ends.dictionary_encode() if len(ends) else None
        if encoded is None:
            none = np.empty(0, dtype=np.int64)
            return Found(none, none, none if self.edges else None)
        numbers = self.source.table(step.ends).resolve(encoded.dictionary)[np.asarray(encoded.indices)]
        edge_ids = np.asarray(flat(rows["_rowid"])).astype(np.int64)
        if (numbers < 0).any():
            # Pending edges may be written before their nodes: they lead nowhere yet.
            there = numbers >= 0
            at, numbers, edge_ids = at[there], numbers[there], edge_ids[there]
        far = pack(self.source.ordinal(step.ends), numbers)
        return Found(at, far, pack(self.source.ordinal(step.edge), edge_ids) if self.edges else None)

    # ---- what a plan wants to know

    def degree(self) -> float:
        """How many edges a node has, on average."""
        found = 0.0
        for step in self.steps:
            nodes = max(1, self.source.table(step.starts).rows)
            found += self.source.table(step.edge).rows / nodes * (2 if step.direction == "both" else 1)
        return found


def _halves(arrays: Adjacency, direction: str) -> tuple[Half, Index, Index]:
    if direction == "out":
        return arrays.out, arrays.sources, arrays.targets
    return arrays.into, arrays.targets, arrays.sources


def forced(option: str | None) -> str | None:
    found = option or os.environ.get(VARIABLE) or None
    if found not in (None, "csr", "index"):
        raise UsageError(detail=f"{VARIABLE} is csr or index, not {found!r}.")
    return found


def pairs_once(found: Found) -> Found:
    """Each pair once, ordered by its place."""
    if len(found.near) < 2 or found.is_once:
        return Found(found.near, found.far, None, True)
    packing = Packing.of([found.near, found.far])
    if packing is not None:
        near, far = packing.unpack(unique(packing.pack([found.near, found.far])))
        return Found(near, far, None, True)
    order = np.lexsort((found.far, found.near))
    near, far = found.near[order], found.far[order]
    keep = np.empty(len(near), dtype=bool)
    keep[0] = True
    keep[1:] = (near[1:] != near[:-1]) | (far[1:] != far[:-1])
    return Found(near[keep], far[keep], None, True)
