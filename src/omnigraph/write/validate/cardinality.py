"""@card(min..max): how many edges of a type start at a source node of the final image.

Only sources that the write touches are counted: those of new or rewritten edges, those that an edge left (deleted,
moved or overwritten), and nodes that are new. A source that goes away itself does not count.

Too many: the violation is told of the delta's edges beyond the limit, the later ones. Too few: it is told of the new
node, or of the edge that moved away; without a row where edges were only removed.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.errors import Violation
from omnigraph.language.schema.model import EdgeType
from omnigraph.rules.cardinality import beyond_limit, is_bounded, too_few_edges, too_many_edges
from omnigraph.rules.problem import Problem
from omnigraph.write.delta import TypeDelta, distinct, flat, no_ids
from omnigraph.write.pending_view import Image
from omnigraph.write.validate.fields import row_violations


@dataclass(frozen=True)
class _Count:
    """Sources that are touched, with the number of the delta's edges and of retained edges of each."""

    sources: pa.Array
    in_delta: np.ndarray
    retained: np.ndarray
    row_codes: np.ndarray

    @property
    def total(self) -> np.ndarray:
        return np.asarray(self.in_delta + self.retained)


def check_cardinality(image: Image) -> list[Violation]:
    found: list[Violation] = []
    for e in image.schema.edges:
        if is_bounded(e):
            found.extend(_check(image, e))
    return found


def _check(image: Image, e: EdgeType) -> Iterator[Violation]:
    d = image.of(e)
    added = image.added(image.schema.node[e.source]) if e.card_min > 0 else no_ids()
    left = _vacated(image, e, d) if d is not None and e.card_min > 0 else _no_vacated()
    starts = no_ids() if d is None else flat(d.rows.column("src"))
    count = _count(image, e, starts, pa.concat_arrays([added, flat(left.column("src"))]))
    if d is not None and e.card_max is not None:
        over = _standing(image, e, count, count.total > e.card_max)
        if over.any():
            yield from _too_many(e, d, count, over)
    under = _standing(image, e, count, count.total < e.card_min)
    if under.any():
        yield from _too_few(image, e, count, np.flatnonzero(under), added, left)


def _standing(image: Image, e: EdgeType, count: _Count, mask: np.ndarray) -> np.ndarray:
    """The marked sources without those that are no nodes of the final image: these do not count."""
    if not mask.any():
        return mask
    marked = np.flatnonzero(mask)
    missing = image.missing(image.schema.node[e.source], count.sources.take(pa.array(marked)))
    result = np.zeros(len(mask), dtype=bool)
    result[marked] = ~np.asarray(missing)
    return result


def _no_vacated() -> pa.Table:
    return pa.table({"id": no_ids(), "src": no_ids()})


def _vacated(image: Image, e: EdgeType, d: TypeDelta) -> pa.Table:
    """Committed edges that this write rewrites or takes away, with the source they had."""
    if image.reader.count(e) == 0:
        return _no_vacated()
    if d.replaces_all:
        return image.reader.scan(e, ["id", "src"]).read_all()
    touched = distinct(d.ids, d.deleted)
    return image.reader.find(e, "id", touched, ["id", "src"]) if len(touched) else _no_vacated()


def _count(image: Image, e: EdgeType, starts: pa.Array, others: pa.Array) -> _Count:
    encoded = starts.dictionary_encode()
    sources = encoded.dictionary
    if len(others):
        sources = distinct(sources, others)
    codes = np.asarray(encoded.indices, dtype=np.int64)
    retained = np.zeros(len(sources), dtype=np.int64)
    if len(sources) and image.reader.count(e):
        kept = flat(image.retained(e, "src", sources, ["src"]).column("src"))
        held = np.asarray(pc.index_in(kept, value_set=sources), dtype=np.int64)
        retained = np.bincount(held, minlength=len(sources))
    return _Count(sources, np.bincount(codes, minlength=len(sources)), retained, codes)


def _too_many(e: EdgeType, d: TypeDelta, count: _Count, over: np.ndarray) -> list[Violation]:
    assert e.card_max is not None
    total = count.total
    rows = np.flatnonzero(over[count.row_codes])
    room = np.maximum(e.card_max - count.retained, 0)
    late = rows[beyond_limit(count.row_codes[rows], room)]

    def problem(row: int) -> Problem:
        code = count.row_codes[row]
        return too_many_edges(e, count.sources[code].as_py(), total[code])

    return row_violations(d, late.tolist(), problem)


def _too_few(
    image: Image, e: EdgeType, count: _Count, under: np.ndarray, added: pa.Array, left: pa.Table
) -> Iterator[Violation]:
    total = count.total
    node, edge = image.of(image.schema.node[e.source]), image.of(e)
    node_rows = {} if node is None else _positions(node.ids)
    edge_rows = {} if edge is None else _positions(edge.ids)
    new = set(added.to_pylist())
    moved = {} if edge is None else _moved(edge, edge_rows, left)
    for code in under.tolist():
        source_id = count.sources[code].as_py()
        if source_id in new and node is not None:
            problem = too_few_edges(e, source_id, total[code], of_node=True)
            yield from row_violations(node, [node_rows[source_id]], problem)
            continue
        problem = too_few_edges(e, source_id, total[code])
        if source_id in moved and edge is not None:
            yield from row_violations(edge, [moved[source_id]], problem)
        else:
            yield problem.violation(e.key)


def _moved(edge: TypeDelta, rows: dict[str, int], left: pa.Table) -> dict[str, int]:
    """For each source that an edge of the delta moved away from, the row of such an edge."""
    sources = edge.rows.column("src")
    before = zip(left.column("id").to_pylist(), left.column("src").to_pylist(), strict=True)
    return {src: rows[i] for i, src in before if i in rows and sources[rows[i]].as_py() != src}


def _positions(ids: pa.Array) -> dict[str, int]:
    return {i: row for row, i in enumerate(ids.to_pylist())}
