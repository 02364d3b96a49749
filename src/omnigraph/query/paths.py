"""Paths: every one without a repeated node, or one shortest per pair of ends. Level by level, all starts at once."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from omnigraph.query.frame import Paths, factorize, pairs_joined
from omnigraph.query.hops import Hops, pairs_once
from omnigraph.query.source import Source


@dataclass(frozen=True, eq=False)
class FoundPaths:
    """Path i leads from the start at place `near[i]` to the node `far[i]`."""

    near: np.ndarray
    far: np.ndarray
    paths: Paths


def all_paths(source: Source, hops: Hops, starts: np.ndarray, low: int, high: int, *, backwards: bool) -> FoundPaths:
    """Paths that visit no node twice, but may end where they start. `walked` holds one unfinished path per row."""
    near = np.arange(len(starts), dtype=np.int64)
    walked = starts.reshape(-1, 1)
    done: list[tuple[np.ndarray, np.ndarray]] = []
    for hop in range(1, high + 1):
        if len(near) == 0:
            break
        nodes, numbers = factorize(walked[:, -1])
        once = pairs_once(hops.hop(nodes))
        rows, hits = pairs_joined(numbers, once.near, len(nodes))
        source.watch.memory(len(rows) * 8 * (hop + 2) * 2)
        source.watch.tick()
        longer = np.column_stack([walked[rows], once.far[hits]])
        near = near[rows]
        closes = longer[:, -1] == longer[:, 0]
        again = (longer[:, 1:-1] == longer[:, -1:]).any(axis=1) if hop > 1 else np.zeros(len(rows), dtype=bool)
        if hop >= low:
            done.append((near[~again], longer[~again]))
        walked, near = longer[~again & ~closes], near[~again & ~closes]
    return _gathered(done, backwards=backwards)


def _gathered(done: list[tuple[np.ndarray, np.ndarray]], *, backwards: bool) -> FoundPaths:
    if not done:
        none = np.empty(0, dtype=np.int64)
        return FoundPaths(none, none, Paths(np.zeros(1, dtype=np.int64), none))
    near = np.concatenate([n for n, _ in done])
    far = np.concatenate([p[:, -1] for _, p in done])
    lengths = np.concatenate([np.full(len(p), p.shape[1], dtype=np.int64) for _, p in done])
    codes = np.concatenate([(p[:, ::-1] if backwards else p).ravel() for _, p in done])
    offsets = np.zeros(len(lengths) + 1, dtype=np.int64)
    np.cumsum(lengths, out=offsets[1:])
    return FoundPaths(near, far, Paths(offsets, codes))


@dataclass(frozen=True, eq=False)
class _Level:
    """Pairs reached at one distance. `before` is a pair's place in the level before, `rank` the order of its path."""

    near: np.ndarray
    far: np.ndarray
    before: np.ndarray
    rank: np.ndarray


def shortest_paths(
    source: Source, hops: Hops, starts: np.ndarray, low: int, high: int | None, *, goals: np.ndarray | None
) -> FoundPaths:
    """One path of the fewest edges per pair; of several the one whose ids come first.

    All paths of a level have the same length. So the first path to a node goes over the node of the level before whose
    own path comes first, and paths of a level are ordered by that path and then by their last node.
    """
    from omnigraph.query.traverse import Seen

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
        rows, hits = pairs_joined(numbers, once.near, len(nodes))
        source.watch.memory(len(rows) * 64)
        near, far = last.near[rows], once.far[hits]
        order = np.lexsort((last.rank[rows], far, near))
        near, far, rows = near[order], far[order], rows[order]
        keep = np.ones(len(near), dtype=bool)
        keep[1:] = (near[1:] != near[:-1]) | (far[1:] != far[:-1])
        near, far, rows = near[keep], far[keep], rows[keep]
        fresh = seen.fresh(near, far)
        near, far, rows = near[fresh], far[fresh], rows[fresh]
        seen.add(near, far)
        by_path = np.lexsort((source.ranks(far), last.rank[rows]))
        rank = np.empty(len(near), dtype=np.int64)
        rank[by_path] = np.arange(len(near))
        levels.append(_Level(near, far, rows, rank))
        if hop >= low:
            ends.append((hop, np.arange(len(near)), False))
    return _traced(levels, ends, goals)


def _traced(levels: list[_Level], ends: list[tuple[int, np.ndarray, bool]], goals: np.ndarray | None) -> FoundPaths:
    done: list[tuple[np.ndarray, np.ndarray]] = []
    for depth, at, loop in ends:
        level = levels[depth]
        if goals is not None:
            at = at[np.isin(level.far[at], goals)]
        near = level.near[at]
        columns = [level.far[at]] * (2 if loop else 1)
        for d in range(depth, 0, -1):
            at = levels[d].before[at]
            columns.append(levels[d - 1].far[at])
        done.append((near, np.column_stack(columns[::-1])))
    return _gathered([d for d in done if len(d[0])], backwards=False)
