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
from omnigraph.write.delta import Deltas, Places, TypeDelta, delta, distinct, flat
from omnigraph.write.pending_view import Image
from omnigraph.write.reader import Reader
from omnigraph.write.validate.fields import tell
from omnigraph.write.violations import shortened

# Nodes that were taken out of this write, by (type name, id), with their line, if any: what points to them goes, too.
Rejected = Mapping[tuple[str, str], int | None]


def ends(e: EdgeType) -> tuple[tuple[str, str, str], tuple[str, str, str]]:
    """(column, field, node type) of both ends."""
    return ("src", "from", e.source), ("dst", "to", e.target)


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
    for (column, field, node), mask in zip(ends(e), masks, strict=True):
        if not mask.any():
            continue
        told = _teller(field, node, columns[column], rejected, d.places)
        yield from tell(d, np.flatnonzero(mask).tolist(), "endpoint", told, name=field)


def _teller(field: str, node: str, ids: pa.Array, rejected: Rejected, places: Places) -> Callable[[int], str]:
    return lambda row: f"{field}: {_absence(node, ids[row].as_py(), rejected, places)}"


def _absence(node: str, node_id: str, rejected: Rejected, places: Places) -> str:
    name = f"{node} {shortened(repr(node_id))}"
    if (node, node_id) not in rejected:
        return f"there is no {name}"
    line = rejected[node, node_id]
    where = "" if line is None else f" ({places.text(line)})"
    return f"{name} was rejected{where}"


def _edges_losing_node(image: Image, n: NodeType, removed: pa.Array) -> Iterator[Violation]:
    for e in image.schema.incident_edges(n.name):
        for column, field, node in ends(e):
            if node != n.name:
                continue
            edges = image.retained(e, column, removed, [column])
            pairs = zip(edges.column("id").to_pylist(), edges.column(column).to_pylist(), strict=True)
            for edge_id, node_id in sorted(pairs):
                yield Violation(
                    rule="endpoint",
                    table_key=e.key,
                    message=f"{field}: the write removes {node} {shortened(repr(node_id))} and keeps this edge",
                    entity_id=edge_id,
                    property=field,
                )


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
