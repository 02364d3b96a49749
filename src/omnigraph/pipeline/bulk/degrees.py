"""Cardinality in one bucket: how many edges of a type start at each source that the load touches.

Touched are the sources of the input's edges, new nodes, and sources that lose an edge because it is replaced or
overwritten. A source that is no node afterwards does not count. Too many edges are a violation of the input's later
edges; too few of the new node, or of the edge that moved away, or of no row.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from omnigraph.language.schema.model import EdgeType, NodeType
from omnigraph.pipeline.bulk.rejects.violation_codes import NONE, Kind, Phase
from omnigraph.rules.buckets import Degrees, too_few, too_many
from omnigraph.rules.cardinality import beyond_limit
from omnigraph.tasks.digest_index import Index

if TYPE_CHECKING:
    from omnigraph.pipeline.bulk.check import Bucket


def check_degrees(bucket: Bucket, e: EdgeType) -> None:
    n = bucket.context.schema.node[e.source]
    starts = bucket.rows("src", e)
    kept = bucket.kept("src", e)
    added = _added(bucket, n) if e.card_min > 0 else starts[:0]
    vacated = _vacated(bucket, e) if e.card_min > 0 else np.empty((0, 4), dtype=np.uint64)
    touched = np.concatenate([starts[:, :2], added[:, :2], vacated[:, :2]])
    if len(touched) == 0:
        return
    degrees = Degrees(touched)
    own = degrees.groups[: len(starts)]
    in_load = np.bincount(own, minlength=len(touched))
    in_graph = degrees.count(kept)
    total = in_load + in_graph
    is_source = degrees.is_source
    input_ids, graph_ids = bucket.final_nodes(n)
    is_node = is_source.copy()
    positions = np.flatnonzero(is_source)
    is_node[positions] = (input_ids.find(touched[positions]) >= 0) | (graph_ids.find(touched[positions]) >= 0)
    if e.card_max is not None:
        _too_many(bucket, e, starts, own, total, in_graph, is_node & too_many(total, e.card_max))
    under = np.flatnonzero(is_node & too_few(total, e.card_min))
    if len(under):
        _too_few(bucket, e, n, touched, under, total, added, vacated)


def _added(bucket: Bucket, n: NodeType) -> np.ndarray:
    rows = bucket.rows("id", n)
    return rows[Index(bucket.existing("id", n)).find(rows) < 0]


def _vacated(bucket: Bucket, e: EdgeType) -> np.ndarray:
    """Edges of the graph that the load replaces or removes, with the source they had."""
    rows = bucket.existing("src", e)
    if e.key in bucket.overwritten:
        return rows
    replaced = bucket.replaced(e)[:, 0]
    if len(replaced) == 0 or len(rows) == 0:
        return rows[:0]
    positions = np.minimum(np.searchsorted(replaced, rows[:, 2]), len(replaced) - 1)
    vacated: np.ndarray = rows[replaced[positions] == rows[:, 2]]
    return vacated


def _too_many(
    bucket: Bucket,
    e: EdgeType,
    starts: np.ndarray,
    own: np.ndarray,
    total: np.ndarray,
    in_graph: np.ndarray,
    over: np.ndarray,
) -> None:
    assert e.card_max is not None
    rows = np.flatnonzero(over[own])
    if len(rows) == 0:
        return
    room = np.maximum(e.card_max - in_graph, 0)
    late = rows[beyond_limit(own[rows], room)]
    extra = total[own[late]].astype(np.uint64)
    bucket.violations.add(e, Phase.CARDINALITY, Kind.TOO_MANY, starts[late, 2], extra=extra)


def _too_few(
    bucket: Bucket,
    e: EdgeType,
    n: NodeType,
    touched: np.ndarray,
    under: np.ndarray,
    total: np.ndarray,
    added: np.ndarray,
    vacated: np.ndarray,
) -> None:
    number = bucket.context.type_index(e.key)
    sources, counts = touched[under], total[under].astype(np.uint64)
    new = Index(added).find(sources)
    hit = new >= 0
    bucket.violations.add(
        n, Phase.CARDINALITY, Kind.TOO_FEW_NODE, added[new[hit], 2], sub=number, part=1, extra=counts[hit]
    )
    sources, counts = sources[~hit], counts[~hit]
    moved, replaced_ids = _moved(bucket, e, vacated)
    positions = Index(moved).find(sources)
    hit = positions >= 0
    bucket.violations.add(
        e,
        Phase.CARDINALITY,
        Kind.TOO_FEW_EDGE,
        moved[positions[hit], 2],
        part=2,
        other=replaced_ids[positions[hit]],
        extra=counts[hit],
    )
    sources, counts = sources[~hit], counts[~hit]
    positions = Index(vacated).find(sources)
    no_row = np.full(len(sources), NONE, dtype=np.uint64)
    bucket.violations.add(e, Phase.CARDINALITY, Kind.TOO_FEW, no_row, part=3, other=vacated[positions, 2], extra=counts)


def _moved(bucket: Bucket, e: EdgeType, vacated: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Edges of the input that moved away from a source, the last first, with the row id each replaces."""
    replaced = bucket.replaced(e)
    if len(replaced) == 0 or len(vacated) == 0:
        return np.empty((0, 3), dtype=np.uint64), np.empty(0, dtype=np.uint64)
    positions = np.searchsorted(replaced[:, 0], vacated[:, 2])
    names = replaced[positions, 1]
    # If the edge still starts there, this bucket has a start with the same digest and name.
    starts = bucket.rows("src", e)
    stays = {(a, b, c) for a, b, c in starts.tolist()} if len(starts) else set()
    rows = np.column_stack([vacated[:, :2], names])
    is_gone = np.array([(a, b, c) not in stays for a, b, c in rows.tolist()], dtype=bool)
    order = np.argsort(vacated[is_gone, 2])[::-1]
    return rows[is_gone][order], vacated[is_gone, 2][order]
