"""Paths: every one without a repeated node, or one shortest per pair of ends. Level by level, all starts at once."""

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
class FoundPaths:
    """Path i leads from the start at place `near[i]` to the node `far[i]`."""

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
) -> FoundPaths:
    """Paths that visit no node twice, but may end where they start; with `goals` only those that end there.

    `walked` holds one unfinished path per row. A hop is made some rows at a time, since it may make very many of each.
    """
    near = np.arange(len(starts), dtype=np.int64)
    walked = starts.reshape(-1, 1)
    done: list[tuple[np.ndarray, np.ndarray]] = []
    held = done_bytes = 0
    for hop in range(1, high + 1):
        if len(near) == 0:
            break
        nodes, numbers = factorize(walked[:, -1])
        once = pairs_once(hops.hop(nodes))
        onwards: list[tuple[np.ndarray, np.ndarray]] = []
        for block in blocks(np.bincount(once.near, minlength=len(nodes))[numbers]):
            source.watch.tick()
            rows, hits = pairs_joined(numbers[block], once.near, len(nodes))
            source.watch.memory(held + len(rows) * 8 * (hop + 2) * 2)
            longer = np.column_stack([walked[block][rows], once.far[hits]])
            begun = near[block][rows]
            fresh = ~(longer[:, 1:-1] == longer[:, -1:]).any(axis=1)
            if hop >= low:
                ended = fresh if goals is None else fresh & member(longer[:, -1], goals)
                done.append((begun[ended], longer[ended]))
                held += done[-1][0].nbytes + done[-1][1].nbytes
                done_bytes += done[-1][0].nbytes + done[-1][1].nbytes
            if hop < high:
                open_ = fresh & (longer[:, -1] != longer[:, 0])
                onwards.append((begun[open_], longer[open_]))
                held += onwards[-1][0].nbytes + onwards[-1][1].nbytes
        held -= near.nbytes + walked.nbytes
        if not onwards:
            break
        source.watch.memory(2 * held - done_bytes)
        near = concatenated([n for n, _ in onwards])
        walked = concatenated([w for _, w in onwards])
    del near, walked
    source.watch.memory(3 * done_bytes)
    return _gathered(done, backwards=backwards)


def _gathered(done: list[tuple[np.ndarray, np.ndarray]], *, backwards: bool) -> FoundPaths:
    if not done:
        none = np.empty(0, dtype=np.int64)
        return FoundPaths(none, none, Paths(np.zeros(1, dtype=np.int64), none))
    near = concatenated([n for n, _ in done])
    far = concatenated([p[:, -1] for _, p in done])
    codes = concatenated([(p[:, ::-1] if backwards else p).reshape(-1) for _, p in done])
    offsets = np.zeros(len(near) + 1, dtype=np.int64)
    path = code = 0
    for _, part in done:
        checkpoint()
        count, nodes = part.shape
        offsets[path + 1 : path + count + 1] = np.arange(code + nodes, code + part.size + 1, nodes)
        path, code = path + count, code + part.size
    return FoundPaths(near, far, Paths(offsets, codes))


@dataclass(frozen=True, eq=False)
class _Level:
    """Pairs reached at one distance, in order of their starts. `before` is a pair's place in the level before, `rank`
    the order of its path among those of its start.
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
) -> FoundPaths:
    """One path of the fewest edges per pair; of several the one whose ids come first.

    All paths of a level have the same length. So the first path to a node goes over the node of the level before whose
    own path comes first, and paths of a level are ordered by that path and then by their last node.
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
        once = pairs_once(hops.hop(nodes))
        if hop == low:
            # Only where the node itself is too near does the way over its loop count.
            loops = np.flatnonzero(np.isin(numbers, once.near[nodes[once.near] == once.far]))
            ends.append((hop - 1, loops, True))
        parts: list[_Level] = []
        held = sum(level.bytes for level in levels)
        for block in blocks(np.bincount(once.near, minlength=len(nodes))[numbers], last.near):
            source.watch.tick()
            rows, hits = pairs_joined(numbers[block], once.near, len(nodes))
            source.watch.memory(held + len(rows) * 64)
            with source.watch.holding(held):
                parts.append(_onwards(source, last, rows + block.start, once.far[hits], seen))
            held += parts[-1].bytes
        source.watch.memory(held + sum(part.bytes for part in parts))
        levels.append(_Level.joined(parts))
        del parts
        seen.add(levels[-1].near, levels[-1].far)
        if hop >= low:
            ends.append((hop, np.arange(len(levels[-1].near)), False))
    with source.watch.holding(sum(level.bytes for level in levels)):
        return _traced(levels, ends, goals)


def _onwards(source: Source, last: _Level, rows: np.ndarray, far: np.ndarray, seen: Seen) -> _Level:
    """The pairs that a hop reaches first: each once, over the row of the level before whose path comes first."""
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


def _traced(levels: list[_Level], ends: list[tuple[int, np.ndarray, bool]], goals: np.ndarray | None) -> FoundPaths:
    done: list[tuple[np.ndarray, np.ndarray]] = []
    held = 0
    for depth, at, loop in ends:
        reserve(held + len(at) * 8 * (2 * depth + 6))
        level = levels[depth]
        if goals is not None:
            at = at[np.isin(level.far[at], goals)]
        near = level.near[at]
        columns = [level.far[at]] * (2 if loop else 1)
        for d in range(depth, 0, -1):
            at = levels[d].before[at]
            columns.append(levels[d - 1].far[at])
        done.append((near, np.column_stack(columns[::-1])))
        held += done[-1][0].nbytes + done[-1][1].nbytes
    reserve(3 * held)
    return _gathered([d for d in done if len(d[0])], backwards=False)
