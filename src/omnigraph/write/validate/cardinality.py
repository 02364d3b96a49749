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
from omnigraph.write.delta import TypeDelta, distinct, flat, no_ids
from omnigraph.write.image import Image
from omnigraph.write.problems import shortened
from omnigraph.write.validate.fields import tell


@dataclass(frozen=True)
class _Count:
    """Sources that count, with the number of the delta's edges and of retained edges of each."""

    sources: pa.Array
    in_delta: np.ndarray
    retained: np.ndarray
    row_codes: np.ndarray


def check_cardinality(image: Image) -> list[Violation]:
    found: list[Violation] = []
    for e in image.schema.edges:
        if e.card_min > 0 or e.card_max is not None:
            found.extend(_check(image, e))
    return found


def _check(image: Image, e: EdgeType) -> Iterator[Violation]:
    d = image.of(e)
    source = image.schema.node[e.source]
    added = image.added(source) if e.card_min > 0 else no_ids()
    left = _vacated(image, e, d) if d is not None and e.card_min > 0 else _no_vacated()
    starts = no_ids() if d is None else flat(d.rows.column("src"))
    sources = distinct(starts, added, flat(left.column("src")))
    if len(sources) == 0:
        return
    sources = sources.filter(pc.invert(image.missing(source, sources)))
    count = _count(image, e, sources, starts)
    if d is not None and e.card_max is not None:
        yield from _too_many(e, d, count)
    if e.card_min > 0:
        yield from _too_few(image, e, count, added, left)


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


def _count(image: Image, e: EdgeType, sources: pa.Array, starts: pa.Array) -> _Count:
    kept = flat(image.retained(e, "src", sources, ["src"]).column("src"))
    codes = _codes(starts, sources)
    return _Count(
        sources=sources,
        in_delta=np.bincount(codes[codes >= 0], minlength=len(sources)),
        retained=np.bincount(_codes(kept, sources), minlength=len(sources)),
        row_codes=codes,
    )


def _codes(values: pa.Array, among: pa.Array) -> np.ndarray:
    return np.asarray(pc.index_in(values, value_set=among).fill_null(-1), dtype=np.int64)


def _too_many(e: EdgeType, d: TypeDelta, count: _Count) -> list[Violation]:
    assert e.card_max is not None
    total = count.in_delta + count.retained
    over = total > e.card_max
    if not over.any():
        return []
    rows = np.flatnonzero((count.row_codes >= 0) & over[count.row_codes])
    codes = count.row_codes[rows]
    order = np.argsort(codes, kind="stable")
    starts = np.r_[True, codes[order][1:] != codes[order][:-1]]
    first = np.maximum.accumulate(np.where(starts, np.arange(len(order)), 0))
    rank = np.empty(len(order), dtype=np.int64)
    rank[order] = np.arange(len(order)) - first
    room = np.maximum(e.card_max - count.retained, 0)

    def message(row: int) -> str:
        code = count.row_codes[row]
        return f"{_named(e.source, count.sources[code])} has {total[code]} {e.name} edges, at most {e.card_max} allowed"

    return tell(d, rows[rank >= room[codes]].tolist(), "cardinality", message, name="from")


def _too_few(image: Image, e: EdgeType, count: _Count, added: pa.Array, left: pa.Table) -> Iterator[Violation]:
    total = count.in_delta + count.retained
    under = np.flatnonzero(total < e.card_min)
    if len(under) == 0:
        return
    node, edge = image.of(image.schema.node[e.source]), image.of(e)
    node_rows = {} if node is None else _positions(node.ids)
    edge_rows = {} if edge is None else _positions(edge.ids)
    new = set(added.to_pylist())
    moved = {} if edge is None else _moved(edge, edge_rows, left)
    for code in under.tolist():
        source_id = count.sources[code].as_py()
        name = _named(e.source, count.sources[code])
        message = f"{name} has {total[code]} {e.name} edges, at least {e.card_min} needed"
        if source_id in new and node is not None:
            yield from tell(node, [node_rows[source_id]], "cardinality", message)
        elif source_id in moved and edge is not None:
            yield from tell(edge, [moved[source_id]], "cardinality", message, name="from")
        else:
            yield Violation(rule="cardinality", table_key=e.key, message=message, property="from")


def _moved(edge: TypeDelta, rows: dict[str, int], left: pa.Table) -> dict[str, int]:
    """For each source that an edge of the delta moved away from, the row of such an edge."""
    sources = edge.rows.column("src")
    before = zip(left.column("id").to_pylist(), left.column("src").to_pylist(), strict=True)
    return {src: rows[i] for i, src in before if i in rows and sources[rows[i]].as_py() != src}


def _positions(ids: pa.Array) -> dict[str, int]:
    return {i: row for row, i in enumerate(ids.to_pylist())}


def _named(type_name: str, entity_id: pa.Scalar) -> str:
    return f"{type_name} {shortened(repr(entity_id.as_py()))}"
