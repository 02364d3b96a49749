"""Adjacency of a new version from that of an older one, if few rows changed between them.

1. base     the newest cached arrays of the same tables, with the versions they were built from
2. delta    edges added, changed and removed since, from Lance's delta; nodes removed since
3. apply    slots of removed edges are deleted, added edges are inserted after the others of their nodes

The result is None, and the caller builds the arrays, if row ids are not stable, the arrays are by position instead of
by row id, the base version was removed by cleanup, more than a tenth of the edges changed, or a node was removed that
an edge still leads to (it was inserted again with the same id, and now has another row id).
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
    """Arrays, and the versions they were built from."""

    edges: int
    sources: int
    targets: int
    arrays: Adjacency


@dataclass(frozen=True, eq=False)
class Changes:
    """Edges that are new or have new ends, and row ids of edges that were removed or changed."""

    ids: np.ndarray
    src: pa.Array
    dst: pa.Array
    removed: np.ndarray


def updated_adjacency(base: Base, edges: StoredTable, sources: StoredTable, targets: StoredTable) -> Adjacency | None:
    arrays = base.arrays
    if arrays.sources.numbering is not None or arrays.targets.numbering is not None:
        return None
    if not edges.dataset.has_stable_row_ids or base.edges > edges.dataset.version:
        return None
    try:
        changes = _changes(edges, base.edges)
        removed_nodes = [_removed(sources, base.sources), _removed(targets, base.targets)]
    except StorageError:
        # The base version no longer exists.
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
    for half, removed in ((out, removed_nodes[0]), (into, removed_nodes[1])):
        if len(removed) and bool((half.degrees(removed[removed < len(half.offsets) - 1]) > 0).any()):
            return None
    return Adjacency(start, end, out, into)


def _changes(edges: StoredTable, since: int) -> Changes:
    if edges.dataset.version == since:
        empty = np.empty(0, dtype=np.int64)
        return Changes(empty, pa.array([], pa.string()), pa.array([], pa.string()), empty)
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
    """The index, extended for nodes added since."""
    rowids = nodes.numbering().rowids
    return Index(max(index.size, int(rowids[-1]) + 1 if len(rowids) else 0), None)


def _applied(half: Half, changes: Changes, near: np.ndarray, far: np.ndarray, size: int) -> Half:
    keep = ~member(half.edges, changes.removed)
    degrees = np.zeros(size, dtype=np.int64)
    old_degrees = np.diff(half.offsets)
    degrees[: len(old_degrees)] = old_degrees
    nodes, edges = half.nodes, half.edges
    if not keep.all():
        removed_slots = np.flatnonzero(~keep)
        owners = np.searchsorted(half.offsets, removed_slots, side="right") - 1
        np.subtract.at(degrees, owners, 1)
        nodes, edges = nodes[keep], edges[keep]
    order = np.lexsort((far, near))
    near, far, ids = near[order], far[order], changes.ids[order]
    ends = bounds_of(degrees)[near + 1]
    nodes, edges = np.insert(nodes, ends, far.astype(nodes.dtype)), np.insert(edges, ends, ids)
    np.add.at(degrees, near, 1)
    applied = Half(bounds_of(degrees), nodes, edges, half.is_simple)
    if applied.is_simple and len(near):
        positions, slots = applied.slots(unique(near))
        pairs = unique(positions * np.int64(int(nodes.max()) + 1) + nodes[slots])
        if len(pairs) < len(slots):
            applied = Half(applied.offsets, nodes, edges, False)
    return applied
