"""Adjacency of a new version from that of an older one, where little has changed between them.

1. base     the newest arrays of the same tables that are in the cache, with the versions they were made of
2. delta    edges added, changed and removed since, as Lance tells them; nodes removed since
3. apply    removed edges leave their slots, added ones are put behind the others of their nodes

None, and so a new build, where that does not hold: row ids that move, arrays by place instead of by row id, a base
version that was collected, more than a tenth of the edges changed, or a node removed that an edge still leads to
(it was removed and made again under its id, and its row id is another one now).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from omnigraph.errors import StorageError
from omnigraph.query.execution.frame import bounds_of, member, unique
from omnigraph.query.tables.tables import StoredTable, flat
from omnigraph.query.traversal.adjacency import Adjacency, Half, Index
from omnigraph.storage.lance import tables as tables_of

CHANGED_MAX = 0.1
CHANGED_MIN = 1000


@dataclass(frozen=True, eq=False)
class Base:
    """Arrays that were made, and of which versions."""

    edges: int
    sources: int
    targets: int
    arrays: Adjacency


@dataclass(frozen=True, eq=False)
class Changes:
    """Edges that are new or have new ends, and row ids of edges that are gone or were changed."""

    ids: np.ndarray
    src: pa.Array
    dst: pa.Array
    removed: np.ndarray


def renewed(base: Base, edges: StoredTable, sources: StoredTable, targets: StoredTable) -> Adjacency | None:
    arrays = base.arrays
    if arrays.sources.numbering is not None or arrays.targets.numbering is not None:
        return None
    if not edges.dataset.has_stable_row_ids or base.edges > edges.dataset.version:
        return None
    try:
        changes = _changes(edges, base.edges)
        gone = [_removed(sources, base.sources), _removed(targets, base.targets)]
    except StorageError:
        # The base version is no longer there.
        return None
    count = len(changes.ids) + len(changes.removed)
    if count > max(CHANGED_MIN, CHANGED_MAX * arrays.edges):
        return None
    start, end = (_grown(i, t) for i, t in ((arrays.sources, sources), (arrays.targets, targets)))
    src, dst = sources.resolve(changes.src), targets.resolve(changes.dst)
    if len(src) and (int(src.min()) < 0 or int(dst.min()) < 0 or src.max() >= start.size or dst.max() >= end.size):
        return None
    out = _applied(arrays.out, changes, src, dst, start.size)
    into = _applied(arrays.into, changes, dst, src, end.size)
    for half, removed in ((out, gone[0]), (into, gone[1])):
        if len(removed) and bool((half.degrees(removed[removed < len(half.offsets) - 1]) > 0).any()):
            return None
    return Adjacency(start, end, out, into)


def _changes(edges: StoredTable, since: int) -> Changes:
    if edges.dataset.version == since:
        none = np.empty(0, dtype=np.int64)
        return Changes(none, pa.array([], pa.string()), pa.array([], pa.string()), none)
    with tables_of.reading(edges.dataset, edges.type):
        delta = edges.dataset.delta(compared_against=since)
        inserted, updated = delta.get_inserted_rows().read_all(), delta.get_updated_rows().read_all()
        deleted = _ids(delta.get_deleted_row_ids().read_all())
    rows = pa.concat_tables([t.select(["src", "dst", "_rowid"]) for t in (inserted, updated)])
    ids = _ids(rows)
    removed = unique(np.concatenate([deleted, _ids(updated)]))
    return Changes(ids, flat(rows["src"]), flat(rows["dst"]), removed)


def _removed(nodes: StoredTable, since: int) -> np.ndarray:
    if nodes.dataset.version == since:
        return np.empty(0, dtype=np.int64)
    with tables_of.reading(nodes.dataset, nodes.type):
        return _ids(nodes.dataset.delta(compared_against=since).get_deleted_row_ids().read_all())


def _ids(rows: pa.Table) -> np.ndarray:
    return np.asarray(flat(rows["_rowid"])).astype(np.int64)


def _grown(index: Index, nodes: StoredTable) -> Index:
    """Room for nodes that have come since."""
    rowids = nodes.numbering().rowids
    return Index(max(index.size, int(rowids[-1]) + 1 if len(rowids) else 0), None)


def _applied(half: Half, changes: Changes, near: np.ndarray, far: np.ndarray, size: int) -> Half:
    keep = ~member(half.edges, changes.removed)
    degrees = np.zeros(size, dtype=np.int64)
    old = np.diff(half.offsets)
    degrees[: len(old)] = old
    nodes, edges = half.nodes, half.edges
    if not keep.all():
        lost = np.flatnonzero(~keep)
        owners = np.searchsorted(half.offsets, lost, side="right") - 1
        np.subtract.at(degrees, owners, 1)
        nodes, edges = nodes[keep], edges[keep]
    order = np.lexsort((far, near))
    near, far, ids = near[order], far[order], changes.ids[order]
    ends = bounds_of(degrees)[near + 1]
    nodes, edges = np.insert(nodes, ends, far.astype(nodes.dtype)), np.insert(edges, ends, ids)
    np.add.at(degrees, near, 1)
    made = Half(bounds_of(degrees), nodes, edges, half.is_simple)
    if made.is_simple and len(near):
        at, slots = made.slots(unique(near))
        pairs = unique(at * np.int64(int(nodes.max()) + 1) + nodes[slots])
        if len(pairs) < len(slots):
            made = Half(made.offsets, nodes, edges, False)
    return made
