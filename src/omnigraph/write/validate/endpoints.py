"""Edges and their nodes: every edge of the final image has both, and what goes with a deleted node.

1. New or rewritten edges: `src` and `dst` must be nodes of the final image.
2. Removed nodes: no retained edge may point to them. The violation names the edge and has no row, since the edge is
   not in the delta. Deletes are extended by `cascade` first; an overwrite is not.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace

import numpy as np
import pyarrow as pa

from omnigraph.errors import Violation
from omnigraph.language.schema.model import EdgeType, NodeType, Schema
from omnigraph.rules.endpoints import End, ends, missing_node, rejected_node, removed_node
from omnigraph.rules.problem import Problem
from omnigraph.write.delta import Deltas, TypeDelta, delta, distinct, flat
from omnigraph.write.pending_view import Image
from omnigraph.write.reader import Reader
from omnigraph.write.validate.fields import row_violations

# Nodes that were taken out of this write, by (type name, id), with their line, if any: what points to them goes, too.
Rejected = Mapping[tuple[str, str], int | None]


def check_endpoints(image: Image, rejected: Rejected | None = None) -> list[Violation]:
    found: list[Violation] = []
    for e in image.schema.edges:
        d = image.of(e)
        if d is not None and d.rows.num_rows:
            found.extend(_dangling(image, e, d, rejected or {}))
    for n in image.schema.nodes:
        removed = image.removed(n)
        if len(removed):
            found.extend(_edges_losing_node(image, n, removed))
    return found


def _dangling(image: Image, e: EdgeType, d: TypeDelta, rejected: Rejected) -> Iterator[Violation]:
    columns = {column: flat(d.rows.column(column)) for column, _, _ in ends(e)}
    if e.source == e.target:
        missing = np.asarray(image.missing(image.schema.node[e.source], pa.concat_arrays(list(columns.values()))))
        masks = np.split(missing, 2)
    else:
        masks = [np.asarray(image.missing(image.schema.node[n], columns[column])) for column, _, n in ends(e)]
    for end, mask in zip(ends(e), masks, strict=True):
        if mask.any():
            problem = _problem_of(d, end, columns[end.column], rejected)
            yield from row_violations(d, np.flatnonzero(mask).tolist(), problem)


def _problem_of(d: TypeDelta, end: End, ids: pa.Array, rejected: Rejected) -> Callable[[int], Problem]:
    def problem(row: int) -> Problem:
        node_id = ids[row].as_py()
        if (end.node, node_id) not in rejected:
            return missing_node(end, node_id)
        line = rejected[end.node, node_id]
        return rejected_node(end, node_id, None if line is None else d.places.text(line))

    return problem


def _edges_losing_node(image: Image, n: NodeType, removed: pa.Array) -> Iterator[Violation]:
    for e in image.schema.incident_edges(n.name):
        for end in ends(e):
            if end.node != n.name:
                continue
            edges = image.retained(e, end.column, removed, [end.column])
            pairs = zip(edges.column("id").to_pylist(), edges.column(end.column).to_pylist(), strict=True)
            for edge_id, node_id in sorted(pairs):
                yield removed_node(end, node_id).violation(e.key, entity_id=edge_id)


def cascade(schema: Schema, deltas: Deltas, reader: Reader) -> dict[str, TypeDelta]:
    """The same write with the edges of deleted nodes deleted as well. Edges in the delta's own rows are left alone:
    to write an edge to a node that goes away is a mistake, which validation tells."""
    image = Image(schema, deltas, reader)
    result = dict(deltas)
    for n in schema.nodes:
        d = image.of(n)
        if d is None or len(d.deleted) == 0:
            continue
        for e in schema.incident_edges(n.name):
            columns = [column for column, _, node in ends(e) if node == n.name]
            incident = [flat(image.retained(e, c, d.deleted, []).column("id")) for c in columns]
            if not any(len(ids) for ids in incident):
                continue
            before = result.get(e.name, delta(e))
            result[e.name] = replace(before, deleted=distinct(before.deleted, *incident))
    return result
