"""Paths: all without a repeated node, or one shortest per pair of ends. Level by level, all starts at once."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from omnigraph.query.execution.frame import Paths, blocks, factorize, member, pairs_joined
from omnigraph.query.execution.sorting import concatenated
from omnigraph.query.limits import checkpoint, reserve
from omnigraph.query.tables.source import Source
from omnigraph.query.traversal.hops import Hops, pairs_once

if TYPE_CHECKING:
    from omnigraph.query.traversal.expand import Seen


@dataclass(frozen=True, eq=False)
class WalkedPaths:
    """Path i leads from the start at position `near[i]` to the node `far[i]`."""

    near: np.ndarray
    far: np.ndarray
    paths: Paths


def all_paths(
    source: Source,
    hops: Hops,
    starts: np.ndarray,
    low: int,
    high: int,
    *,
    backwards: bool,
    goals: np.ndarray | None,
) -> WalkedPaths:
    """Paths that visit no node twice, but may end where they start; with `goals` only those that end there.

    `walked` holds one unfinished path per row. A hop extends a block of rows at a time, since each may become very
    many.
    """
    near = np.arange(len(starts), dtype=np.int64)
    walked = starts.reshape(-1, 1)
    finished: list[tuple[np.ndarray, np.ndarray]] = []
    held_bytes = finished_bytes = 0
    for hop in range(1, high + 1):
        if len(near) == 0:
            break
        nodes, numbers = factorize(walked[:, -1])
        hop_pairs = pairs_once(hops.hop(nodes))
        unfinished: list[tuple[np.ndarray, np.ndarray]] = []
        for block in blocks(np.bincount(hop_pairs.near, minlength=len(nodes))[numbers]):
            source.watch.tick()
            rows, hits = pairs_joined(numbers[block], hop_pairs.near, len(nodes))
            source.watch.memory(held_bytes + len(rows) * 8 * (hop + 2) * 2)
            longer = np.column_stack([walked[block][rows], hop_pairs.far[hits]])
            origin = near[block][rows]
            fresh = ~(longer[:, 1:-1] == longer[:, -1:]).any(axis=1)
            if hop >= low:
                is_finished = fresh if goals is None else fresh & member(longer[:, -1], goals)
                finished.append((origin[is_finished], longer[is_finished]))
                held_bytes += finished[-1][0].nbytes + finished[-1][1].nbytes
                finished_bytes += finished[-1][0].nbytes + finished[-1][1].nbytes
            if hop < high:
                is_open = fresh & (longer[:, -1] != longer[:, 0])
                unfinished.append((origin[is_open], longer[is_open]))
                held_bytes += unfinished[-1][0].nbytes + unfinished[-1][1].nbytes
        held_bytes -= near.nbytes + walked.nbytes
        if not unfinished:
            break
        source.watch.memory(2 * held_bytes - finished_bytes)
        near = concatenated([n for n, _ in unfinished])
        walked = concatenated([w for _, w in unfinished])
    del near, walked
    source.watch.memory(3 * finished_bytes)
    return _concatenated_paths(finished, backwards=backwards)


def _concatenated_paths(parts: list[tuple[np.ndarray, np.ndarray]], *, backwards: bool) -> WalkedPaths:
    if not parts:
        empty = np.empty(0, dtype=np.int64)
        return WalkedPaths(empty, empty, Paths(np.zeros(1, dtype=np.int64), empty))
    near = concatenated([n for n, _ in parts])
    far = concatenated([p[:, -1] for _, p in parts])
    codes = concatenated([(p[:, ::-1] if backwards else p).reshape(-1) for _, p in parts])
    offsets = np.zeros(len(near) + 1, dtype=np.int64)
    path = code = 0
    for _, part in parts:
        checkpoint()
        count, nodes = part.shape
        offsets[path + 1 : path + count + 1] = np.arange(code + nodes, code + part.size + 1, nodes)
        path, code = path + count, code + part.size
    return WalkedPaths(near, far, Paths(offsets, codes))


@dataclass(frozen=True, eq=False)
class _Level:
    """Pairs reached at one distance, in order of their starts. `before` is the position of the pair's predecessor in
    the previous level, `rank` the order of its path among those of its start.
    """

    near: np.ndarray
    far: np.ndarray
    before: np.ndarray
    rank: np.ndarray

    @property
    def bytes(self) -> int:
        return self.near.nbytes * 4

    @staticmethod
    def joined(parts: list[_Level]) -> _Level:
        return _Level(
            concatenated([p.near for p in parts]),
            concatenated([p.far for p in parts]),
            concatenated([p.before for p in parts]),
            concatenated([p.rank for p in parts]),
        )


def shortest_paths(
    source: Source, hops: Hops, starts: np.ndarray, low: int, high: int | None, *, goals: np.ndarray | None
) -> WalkedPaths:
    """One path of the fewest edges per pair; among several the first by the ids of its nodes.

    All paths of a level have the same length. So the first path to a node goes over the node of the previous level
    whose own path comes first, and paths of a level are ordered by that path and then by their last node.
    """
    from omnigraph.query.traversal.expand import Seen

    count = len(starts)
    first = np.arange(count, dtype=np.int64)
    levels = [_Level(first, starts, np.full(count, -1), np.zeros(count, dtype=np.int64))]
    seen = Seen(count)
    seen.add(first, starts)
    ends: list[tuple[int, np.ndarray, bool]] = []
    while len(levels[-1].near) and (high is None or len(levels) <= high):
        hop, last = len(levels), levels[-1]
        nodes, numbers = factorize(last.far)
        hop_pairs = pairs_once(hops.hop(nodes))
        if hop == low:
            # The path over a node's own loop counts only where the node itself is nearer than `low`.
            loops = np.flatnonzero(np.isin(numbers, hop_pairs.near[nodes[hop_pairs.near] == hop_pairs.far]))
            ends.append((hop - 1, loops, True))
        parts: list[_Level] = []
        held_bytes = sum(level.bytes for level in levels)
        for block in blocks(np.bincount(hop_pairs.near, minlength=len(nodes))[numbers], last.near):
            source.watch.tick()
            rows, hits = pairs_joined(numbers[block], hop_pairs.near, len(nodes))
            source.watch.memory(held_bytes + len(rows) * 64)
            with source.watch.holding(held_bytes):
                parts.append(_next_level(source, last, rows + block.start, hop_pairs.far[hits], seen))
            held_bytes += parts[-1].bytes
        source.watch.memory(held_bytes + sum(part.bytes for part in parts))
        levels.append(_Level.joined(parts))
        del parts
        seen.add(levels[-1].near, levels[-1].far)
        if hop >= low:
            ends.append((hop, np.arange(len(levels[-1].near)), False))
    with source.watch.holding(sum(level.bytes for level in levels)):
        return _traced(levels, ends, goals)


def _next_level(source: Source, last: _Level, rows: np.ndarray, far: np.ndarray, seen: Seen) -> _Level:
    """The pairs that this hop reaches for the first time, each over the row of the previous level whose path comes
    first.
    """
    near = last.near[rows]
    order = np.lexsort((last.rank[rows], far, near))
    near, far, rows = near[order], far[order], rows[order]
    keep = np.ones(len(near), dtype=bool)
    keep[1:] = (near[1:] != near[:-1]) | (far[1:] != far[:-1])
    near, far, rows = near[keep], far[keep], rows[keep]
    fresh = seen.fresh(near, far)
    near, far, rows = near[fresh], far[fresh], rows[fresh]
    by_path = np.lexsort((source.ranks(far), last.rank[rows]))
    rank = np.empty(len(near), dtype=np.int64)
    rank[by_path] = np.arange(len(near))
    return _Level(near, far, rows, rank)


def _traced(levels: list[_Level], ends: list[tuple[int, np.ndarray, bool]], goals: np.ndarray | None) -> WalkedPaths:
    paths: list[tuple[np.ndarray, np.ndarray]] = []
    held_bytes = 0
    for depth, positions, loop in ends:
        reserve(held_bytes + len(positions) * 8 * (2 * depth + 6))
        level = levels[depth]
        if goals is not None:
            positions = positions[np.isin(level.far[positions], goals)]
        near = level.near[positions]
        columns = [level.far[positions]] * (2 if loop else 1)
        for d in range(depth, 0, -1):
            positions = levels[d].before[positions]
            columns.append(levels[d - 1].far[positions])
        paths.append((near, np.column_stack(columns[::-1])))
        held_bytes += paths[-1][0].nbytes + paths[-1][1].nbytes
    reserve(3 * held_bytes)
    return _concatenated_paths([d for d in paths if len(d[0])], backwards=False)
