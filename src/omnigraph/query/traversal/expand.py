"""Traversals: from bound rows over one `Expand` clause to more or fewer bound rows.

1. ends     the walk starts at the bound end, or at the one with fewer distinct nodes; from each node once
2. walk     by mode: pairs (breadth first), edges (one hop), paths and shortest (`paths`)
3. join     the pairs with the rows of their starts; where both ends are bound, only pairs that are rows remain
"""

from __future__ import annotations

from collections.abc import Set
from dataclasses import dataclass
from functools import partial

import numpy as np

from omnigraph.language.query.model import Expand
from omnigraph.query.execution.frame import (
    NULL,
    Frame,
    Packing,
    Paths,
    blocks,
    factorize,
    joined,
    member,
    pairs_joined,
)
from omnigraph.query.execution.sorting import sort
from omnigraph.query.limits import reserve
from omnigraph.query.tables.source import Source
from omnigraph.query.traversal.hops import HopPairs, Hops, pairs_once, reversed_step
from omnigraph.query.traversal.paths import all_paths, shortest_paths


@dataclass(frozen=True, eq=False)
class Walked:
    """`near[i]` is the position of a start, `far[i]` a node reached from there."""

    near: np.ndarray
    far: np.ndarray
    edge: np.ndarray | None = None
    paths: Paths | None = None

    @property
    def bytes(self) -> int:
        arrays = (self.near, self.far, self.edge)
        return sum(a.nbytes for a in arrays if a is not None) + (0 if self.paths is None else self.paths.bytes)


def expand(
    source: Source,
    clause: Expand,
    frame: Frame,
    *,
    edge_where: str | None = None,
    live: Set[int] | None = None,
    distinct: bool = False,
    rows_max: int | None = None,
) -> Frame:
    """Bind the free variables of the clause. `live`: the variables used later. `distinct`: equal rows count once.

    `rows_max`: see `Watch.building`.
    """
    ends = (clause.source.slot, clause.target.slot)
    bound = [s for s in ends if s in frame.columns]
    assert bound, "a traversal starts at a bound variable"
    frame = frame.keep(np.all([frame.columns[s] != NULL for s in bound], axis=0))
    both = ends[0] in frame.columns and ends[1] in frame.columns
    backwards = ends[0] not in frame.columns
    if both and clause.mode in ("pairs", "edges") and ends[0] != ends[1]:
        counts = [len(factorize(frame.columns[s])[0]) for s in ends]
        backwards = counts[1] * 4 < counts[0]
    near_slot, far_slot = (ends[1], ends[0]) if backwards else ends
    if distinct and not both and live is not None and clause.path is None:
        shortened = _shortened(source, clause, frame, near_slot, far_slot, live, backwards=backwards)
        if shortened is not None:
            return shortened
    starts, of_row = factorize(frame.columns[near_slot])
    goals = factorize(frame.columns[far_slot])[0] if both else None
    pairs_max = None if both else rows_max
    walked = _walk(source, clause, starts, backwards=backwards, goals=goals, edge_where=edge_where, pairs_max=pairs_max)
    left, right, size = of_row, walked.near, len(starts)
    if both:
        left, right, size = _pair_keys(of_row, frame.columns[far_slot], walked)
    if live is not None:
        frame = frame.only([s for s in frame.columns if s in live or s in ends])
    columns = {} if both else {far_slot: walked.far}
    if clause.edge is not None:
        assert walked.edge is not None
        columns[clause.edge.slot] = walked.edge
    if clause.path is not None:
        columns[clause.path.slot] = np.arange(len(walked.near), dtype=np.int64)
    with source.watch.holding(walked.bytes):
        frame_joined = joined(frame, left, right, size, columns, partial(source.watch.building, rows_max=rows_max))
    if clause.path is None or walked.paths is None:
        return frame_joined
    return frame_joined.add(clause.path.slot, frame_joined.columns[clause.path.slot], walked.paths)


def _shortened(
    source: Source,
    clause: Expand,
    frame: Frame,
    near_slot: int,
    far_slot: int,
    live: Set[int],
    *,
    backwards: bool,
) -> Frame | None:
    """The rows without building every pair, if only the existence of a pair or the reached nodes matter; else None."""
    if clause.mode not in ("pairs", "edges") or clause.minimum != 1:
        return None
    if clause.edge is not None and clause.edge.slot in live:
        return None
    steps = tuple(reversed_step(s) for s in clause.steps) if backwards else clause.steps
    target = clause.source if backwards else clause.target
    typed = {s.ends for s in steps} <= set(target.types)
    hops = Hops(source, steps, edges=False)
    unbound = {} if clause.edge is None else {clause.edge.slot: NULL}
    if far_slot not in live and typed:
        starts, of_row = factorize(frame.columns[near_slot])
        kept = frame.keep(hops.some(starts)[of_row])
        for slot in (far_slot, *unbound):
            kept = kept.add(slot, np.full(kept.rows, NULL, dtype=np.int64))
        return kept
    others = [s for s in frame.columns if s in live and s != far_slot]
    if len(others) > 1 or clause.maximum != 1:
        return None
    if others:
        pairs = None if others[0] == near_slot else hops.ends_by(frame.columns[others[0]], frame.columns[near_slot])
        if pairs is None:
            return None
        reached = Frame(len(pairs[1]), {others[0]: pairs[0], far_slot: pairs[1]}, frame.paths)
    else:
        ends = hops.ends(factorize(frame.columns[near_slot])[0])
        reached = Frame(len(ends), {far_slot: ends})
    for slot in (near_slot, *unbound):
        reached = reached.add(slot, np.full(reached.rows, NULL, dtype=np.int64))
    return reached


def _pair_keys(of_row: np.ndarray, far_of_row: np.ndarray, walked: Walked) -> tuple[np.ndarray, np.ndarray, int]:
    """Keys that are equal where a row and a pair agree in both ends: (keys of rows, keys of pairs, number of keys)."""
    nodes, numbers = factorize(np.concatenate([far_of_row, walked.far]))
    size = max(1, len(nodes))
    left = of_row * size + numbers[: len(of_row)]
    right = walked.near * size + numbers[len(of_row) :]
    keys, both = factorize(np.concatenate([left, right]))
    return both[: len(left)], both[len(left) :], len(keys)


def _walk(
    source: Source,
    clause: Expand,
    starts: np.ndarray,
    *,
    backwards: bool,
    goals: np.ndarray | None,
    edge_where: str | None,
    pairs_max: int | None,
) -> Walked:
    steps = tuple(reversed_step(s) for s in clause.steps) if backwards else clause.steps
    hops = Hops(source, steps, edges=clause.mode == "edges", where=edge_where)
    if clause.mode == "edges":
        pairs = hops.hop(starts)
        return Walked(pairs.near, pairs.far, pairs.edge)
    if clause.mode == "paths":
        assert clause.maximum is not None
        paths = all_paths(source, hops, starts, clause.minimum, clause.maximum, backwards=backwards, goals=goals)
        return Walked(paths.near, paths.far, paths=paths.paths)
    if clause.mode == "shortest":
        return _shortest(source, clause, hops, starts, backwards=backwards, goals=goals)
    pairs = _pairs(hops, starts, clause.minimum, clause.maximum, backwards=backwards, pairs_max=pairs_max)
    return Walked(pairs.near, pairs.far)


def _shortest(
    source: Source, clause: Expand, hops: Hops, starts: np.ndarray, *, backwards: bool, goals: np.ndarray | None
) -> Walked:
    """Walk forwards: only so is the first path by ids chosen among equally short ones."""
    if not backwards:
        paths = shortest_paths(source, hops, starts, clause.minimum, clause.maximum, goals=goals)
        return Walked(paths.near, paths.far, paths=paths.paths)
    pairs = _pairs(hops, starts, clause.minimum, clause.maximum, backwards=True)
    begins = factorize(pairs.far)[0]
    forward = Hops(source, clause.steps, edges=False)
    paths = shortest_paths(source, forward, begins, clause.minimum, clause.maximum, goals=starts)
    positions = np.searchsorted(starts, paths.far)
    return Walked(positions, begins[paths.near], paths=paths.paths)


# ---- pairs -----------------------------------------------------------------------------------------------------------


def _pairs(
    hops: Hops, starts: np.ndarray, low: int, high: int | None, *, backwards: bool, pairs_max: int | None = None
) -> HopPairs:
    if low == high == 1:
        return pairs_once(hops.hop(starts))
    return reach(hops, starts, low, high, backwards=backwards, pairs_max=pairs_max)


def reach(
    hops: Hops, starts: np.ndarray, low: int, high: int | None, *, backwards: bool, pairs_max: int | None = None
) -> HopPairs:
    """Breadth first from all starts at once; a node is entered once per start. `pairs_max`: see `Watch.building`.

    Forwards, the hop that crosses a loop reaches its node again. Backwards, the loop of a start counts instead: every
    node is reached again by the hop after the one that has reached it.
    """
    count = len(starts)
    seen = Seen(count)
    near, far = np.arange(count, dtype=np.int64), starts
    seen.add(near, far)
    loop_starts = np.empty(0, dtype=np.int64)
    parts: list[tuple[np.ndarray, np.ndarray]] = []
    hop = reached = 0
    while len(near) and (high is None or hop < high):
        hop += 1
        with hops.source.watch.holding(seen.bytes):
            pairs, loops = _across(hops, near, far)
        if backwards and hop == 1:
            loop_starts = np.sort(loops[0])
        if backwards and hop >= low:
            # The nodes of the previous hop are reached again over the loop of the start.
            loops_again = member(near, loop_starts)
            parts.append((near[loops_again], far[loops_again]))
        elif not backwards and hop >= low:
            parts.append(loops)
        with hops.source.watch.holding(seen.bytes + 2 * pairs.near.nbytes):
            fresh = seen.fresh(pairs.near, pairs.far)
        near, far = pairs.near[fresh], pairs.far[fresh]
        del pairs
        seen.add(near, far)
        if hop >= low:
            parts.append((near, far))
            reached += len(near)
            hops.source.watch.building(reached, 2, rows_max=pairs_max)
    if not parts:
        empty = np.empty(0, dtype=np.int64)
        return HopPairs(empty, empty, None)
    hops.source.watch.memory(sum(len(p[0]) for p in parts) * 60)
    return pairs_once(HopPairs(np.concatenate([p[0] for p in parts]), np.concatenate([p[1] for p in parts]), None))


def _across(hops: Hops, near: np.ndarray, far: np.ndarray) -> tuple[HopPairs, tuple[np.ndarray, np.ndarray]]:
    """One hop of many starts: the distinct pairs that it reaches, and those that cross a loop."""
    nodes, numbers = factorize(far)
    hop_pairs = pairs_once(hops.hop(nodes))
    is_loop = nodes[hop_pairs.near] == hop_pairs.far
    looping = np.flatnonzero(member(numbers, np.sort(hop_pairs.near[is_loop])))
    parts, held_bytes = [], 0
    for block in blocks(np.bincount(hop_pairs.near, minlength=len(nodes))[numbers], near):
        hops.source.watch.tick()
        rows, hits = pairs_joined(numbers[block], hop_pairs.near, len(nodes))
        hops.source.watch.memory(held_bytes + len(rows) * 48)
        parts.append(pairs_once(HopPairs(near[block][rows], hop_pairs.far[hits], None)))
        held_bytes += parts[-1].near.nbytes * 2
    hops.source.watch.memory(2 * held_bytes)
    # All rows of one start are in one block: no pair is in two blocks.
    pairs = HopPairs(np.concatenate([p.near for p in parts]), np.concatenate([p.far for p in parts]), None, True)
    return pairs, (near[looping], far[looping])


class Seen:
    """The (start, node) pairs reached so far, hop by hop. Pairs are added in order of their starts."""

    def __init__(self, starts: int) -> None:
        self.starts = starts
        self._parts: list[tuple[np.ndarray, np.ndarray]] = []
        self.bytes = 0

    def add(self, near: np.ndarray, far: np.ndarray) -> None:
        if len(near):
            self._parts.append((near, far))
            self.bytes += near.nbytes + far.nbytes

    def fresh(self, near: np.ndarray, far: np.ndarray) -> np.ndarray:
        """Which of these distinct pairs were not reached before."""
        keep = np.ones(len(near), dtype=bool)
        for starts, nodes in self._parts:
            if len(near):
                low, high = np.searchsorted(starts, near[0]), np.searchsorted(starts, near[-1], side="right")
                keep &= ~_pairs_among((near, far), (starts[low:high], nodes[low:high]))
        return keep


def _pairs_among(pairs: tuple[np.ndarray, np.ndarray], others: tuple[np.ndarray, np.ndarray]) -> np.ndarray:
    reserve((len(others[0]) + len(pairs[0])) * 40)
    both = [np.concatenate(columns) for columns in zip(others, pairs, strict=True)]
    packing = Packing.of(both)
    if packing is None:
        both[1] = factorize(both[1])[1]
        packing = Packing.of(both)
        assert packing is not None, "two factorized columns fit into 63 bits"
    keys = packing.pack(both)
    return member(keys[len(others[0]) :], sort(keys[: len(others[0])]))
