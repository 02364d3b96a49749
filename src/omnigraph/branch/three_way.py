"""The truth table of a three-way merge, for many entities of one type at once.

For each entity: its image in the base, in theirs (the source) and in ours (the target); none where it does not exist.

| base | theirs  | ours    | result                                                                               |
|------|---------|---------|--------------------------------------------------------------------------------------|
| any  | = base  | any     | ours                                                                                 |
| any  | changed | = base  | theirs                                                                               |
| any  | x       | x       | ours: both sides made the same change                                                |
| none | x       | y       | divergent_insert                                                                     |
| x    | none    | changed | delete_vs_update                                                                     |
| x    | changed | none    | update_vs_delete                                                                     |
| x    | y       | z       | property by property; divergent_update if both changed one property differently      |

Some properties are changed together: both ends of an edge; a vector made by `@embed` and the mark of its text. A vector
that both sides computed is no conflict: the one that fits the merged text is kept.

`is_unknown` marks entities whose base is not known, because several merge bases conflict among themselves: there
everything that is not the same on both sides is a conflict.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.language.schema.model import EntityType
from omnigraph.storage.lance.columns import arrow_schema
from omnigraph.storage.lance.embedding_marks import (
    STALE,
    mark_column,
    marked_properties,
    pairs_of,
    source_of,
    text_digests,
)
from omnigraph.write.compare import equal_mask
from omnigraph.write.delta import flat

Grain = Literal["properties", "rows"]
Side = Literal["ours", "theirs"]
KEEP_OURS, TAKE_THEIRS, DELETE, COMBINE, CONFLICT = range(5)
"""What becomes of an entity. COMBINE: an image made from both sides."""
CONFLICT_KINDS = ("", "divergent_insert", "divergent_update", "delete_vs_update", "update_vs_delete")


@dataclass(frozen=True, eq=False)
class Images:
    """Images of the same entities in one state, row by row; where `exists` is false the row means nothing."""

    rows: pa.Table
    exists: np.ndarray

    @staticmethod
    def aligned(ids: pa.Array, rows: pa.Table) -> Images:
        """Rows in the order of the ids; ids without a row do not exist."""
        positions = pc.index_in(ids, value_set=flat(rows["id"]).cast(ids.type))
        return Images(rows.take(positions), np.asarray(positions.is_valid()))


@dataclass(frozen=True, eq=False)
class Decision:
    """Per entity the action and, for a conflict, its kind as an index of CONFLICT_KINDS."""

    actions: np.ndarray
    kinds: np.ndarray
    combined: pa.Table
    """Images, valid where the action is COMBINE; ours elsewhere."""
    clashing: dict[int, tuple[str, ...]] = field(default_factory=dict)
    """The properties in conflict, by entity."""


@dataclass(frozen=True, eq=False)
class _Comparison:
    """Per column whether two states hold the same value: theirs and base, ours and base, theirs and ours."""

    columns: list[str]
    theirs_base: dict[str, np.ndarray]
    ours_base: dict[str, np.ndarray]
    theirs_ours: dict[str, np.ndarray]

    @staticmethod
    def of(t: EntityType, base: Images, theirs: Images, ours: Images) -> _Comparison:
        columns = [c for c in arrow_schema(t).names if c != "id"]
        pairs = ((theirs, base), (ours, base), (theirs, ours))
        return _Comparison(columns, *({c: _same(a, b, c) for c in columns} for a, b in pairs))


def decide(
    t: EntityType,
    base: Images,
    theirs: Images,
    ours: Images,
    *,
    grain: Grain,
    is_unknown: np.ndarray | None = None,
    favour: Side | None = None,
) -> Decision:
    """`favour` decides what would be a conflict: the clashing properties of that side, else its whole image."""
    count = len(base.exists)
    unknown = np.zeros(count, dtype=bool) if is_unknown is None else is_unknown
    compared = _Comparison.of(t, base, theirs, ours)
    in_base, in_theirs, in_ours = base.exists & ~unknown, theirs.exists, ours.exists
    theirs_unchanged = ~unknown & _all(compared.theirs_base, count) & (in_theirs == in_base)
    ours_unchanged = ~unknown & _all(compared.ours_base, count) & (in_ours == in_base)
    same = (_all(compared.theirs_ours, count) & in_theirs & in_ours) | (~in_theirs & ~in_ours)
    actions = np.full(count, CONFLICT, dtype=np.int8)
    kinds = np.zeros(count, dtype=np.int8)
    take = ~theirs_unchanged & ours_unchanged & ~same
    actions[take & in_theirs] = TAKE_THEIRS
    actions[take & ~in_theirs] = DELETE
    actions[theirs_unchanged | same] = KEEP_OURS
    is_open = actions == CONFLICT
    kinds[is_open & in_theirs & in_ours & ~in_base & ~unknown] = 1
    kinds[is_open & in_theirs & in_ours & (in_base | unknown)] = 2
    kinds[is_open & ~in_theirs & in_ours] = 3
    kinds[is_open & in_theirs & ~in_ours] = 4
    decision = Decision(actions, kinds, ours.rows)
    both_updated = is_open & (kinds == 2) & ~unknown
    if both_updated.any():
        decision = _by_property(t, decision, compared, theirs, ours, both_updated, grain, favour)
    _favour(decision, favour, in_theirs)
    for row in np.flatnonzero(decision.actions == CONFLICT).tolist():
        if row not in decision.clashing:
            both = in_theirs[row] and in_ours[row]
            differ = (c for c in compared.columns if both and not compared.theirs_ours[c][row])
            decision.clashing[row] = tuple(differ)
    return decision


def _favour(decision: Decision, favour: Side | None, in_theirs: np.ndarray) -> None:
    open_rows = decision.actions == CONFLICT
    if favour is None or not open_rows.any():
        return
    if favour == "ours":
        decision.actions[open_rows] = KEEP_OURS
    else:
        decision.actions[open_rows] = np.where(in_theirs[open_rows], TAKE_THEIRS, DELETE)
    decision.kinds[open_rows] = 0


def _same(a: Images, b: Images, column: str) -> np.ndarray:
    both = a.exists & b.exists
    same: np.ndarray = a.exists == b.exists
    if both.any():
        rows = pa.array(np.flatnonzero(both))
        same[both] = equal_mask(flat(a.rows[column].take(rows)), flat(b.rows[column].take(rows)))
    return same


def _all(masks: dict[str, np.ndarray], count: int) -> np.ndarray:
    return np.asarray(np.logical_and.reduce([np.ones(count, dtype=bool), *masks.values()]))


# ---- both sides updated a row ----------------------------------------------------------------------------------------


def _by_property(
    t: EntityType,
    decision: Decision,
    compared: _Comparison,
    theirs: Images,
    ours: Images,
    both_updated: np.ndarray,
    grain: Grain,
    favour: Side | None,
) -> Decision:
    """Merge property by property: the properties in conflict, or the combined image."""
    columns = compared.columns
    if grain == "rows":
        clashes = {c: ~compared.theirs_ours[c] for c in columns}
        return _with_clashes(decision, columns, clashes, both_updated)
    from_theirs = {c: ~compared.theirs_base[c] & compared.ours_base[c] for c in columns}
    clashes = {c: ~compared.theirs_base[c] & ~compared.ours_base[c] & ~compared.theirs_ours[c] for c in columns}
    if t.kind == "edge":
        _join_endpoints(compared, clashes)
    for p in marked_properties(t):
        if mark_column(p) in ours.rows.column_names:
            _choose_vector(p.name, mark_column(p), source_of(p) or "", theirs, ours, from_theirs, clashes)
    if favour is not None:
        for c in columns:
            from_theirs[c] = np.where(clashes[c], favour == "theirs", from_theirs[c])
            clashes[c] = np.zeros(len(both_updated), dtype=bool)
    decision = _with_clashes(decision, columns, clashes, both_updated)
    clean = both_updated & ~np.logical_or.reduce(list(clashes.values()))
    if not clean.any():
        return decision
    decision.actions[clean] = COMBINE
    decision.kinds[clean] = 0
    combined = _combined(t, columns, theirs, ours, from_theirs)
    return Decision(decision.actions, decision.kinds, combined, decision.clashing)


def _with_clashes(decision: Decision, columns: list[str], clashes: dict[str, np.ndarray], rows: np.ndarray) -> Decision:
    clashing = rows & np.logical_or.reduce(list(clashes.values()))
    for row in np.flatnonzero(clashing).tolist():
        decision.clashing[row] = tuple(c for c in columns if clashes[c][row])
    return decision


def _join_endpoints(compared: _Comparison, clashes: dict[str, np.ndarray]) -> None:
    """Both ends of an edge are one value: moved on both sides to different places, they clash."""
    ends = ("src", "dst")
    theirs_moved = np.logical_or.reduce([~compared.theirs_base[c] for c in ends])
    ours_moved = np.logical_or.reduce([~compared.ours_base[c] for c in ends])
    differ = np.logical_or.reduce([~compared.theirs_ours[c] for c in ends])
    for c in ends:
        clashes[c] = theirs_moved & ours_moved & differ & ~compared.theirs_ours[c]


def _combined(
    t: EntityType, columns: list[str], theirs: Images, ours: Images, from_theirs: dict[str, np.ndarray]
) -> pa.Table:
    rows = ours.rows
    count = rows.num_rows
    for c in columns:
        if from_theirs[c].any():
            positions = np.where(from_theirs[c], np.arange(count) + count, np.arange(count))
            both = pa.concat_arrays([flat(ours.rows[c]), flat(theirs.rows[c])])
            column = both.take(pa.array(positions))
            rows = rows.set_column(rows.schema.get_field_index(c), rows.schema.field(c), column)
    for p in marked_properties(t):
        if mark_column(p) in rows.column_names:
            rows = _with_marks(rows, p.name, mark_column(p), source_of(p) or "", theirs, ours, from_theirs)
    return rows


def _choose_vector(
    vector: str,
    mark: str,
    text: str,
    theirs: Images,
    ours: Images,
    from_theirs: dict[str, np.ndarray],
    clashes: dict[str, np.ndarray],
) -> None:
    """A vector that both sides computed: the one made from the merged text; ours if that is both or neither."""
    both = clashes[vector]
    if not both.any():
        return
    marks_theirs, marks_ours = flat(theirs.rows[mark]), flat(ours.rows[mark])
    is_computed = np.asarray(marks_theirs.is_valid()) & np.asarray(marks_ours.is_valid())
    texts = np.where(
        from_theirs[text],
        np.asarray(theirs.rows[text].to_pylist(), dtype=object),
        np.asarray(ours.rows[text].to_pylist(), dtype=object),
    )
    digests = text_digests(texts.tolist())
    fits_theirs, fits_ours = (pairs_of(marks)[:, 1] == digests for marks in (marks_theirs, marks_ours))
    decided = both & is_computed
    from_theirs[vector] = np.where(decided, fits_theirs & ~fits_ours, from_theirs[vector])
    clashes[vector] = both & ~is_computed


def _with_marks(
    rows: pa.Table,
    vector: str,
    mark: str,
    text: str,
    theirs: Images,
    ours: Images,
    from_theirs: dict[str, np.ndarray],
) -> pa.Table:
    """The mark goes with its vector. A vector that its writer supplied is stale if the other side changed the text."""
    marks_theirs, marks_ours = flat(theirs.rows[mark]).to_pylist(), flat(ours.rows[mark]).to_pylist()
    texts_theirs, texts_ours = flat(theirs.rows[text]).to_pylist(), flat(ours.rows[text]).to_pylist()
    has_vector = np.asarray(flat(rows[vector]).is_valid())
    marks: list[bytes | None] = []
    for i, is_theirs in enumerate(from_theirs[vector].tolist()):
        kept, own_text = (marks_theirs[i], texts_theirs[i]) if is_theirs else (marks_ours[i], texts_ours[i])
        merged_text = texts_theirs[i] if from_theirs[text][i] else texts_ours[i]
        is_supplied = kept is None and has_vector[i]
        marks.append(STALE if is_supplied and own_text != merged_text else kept)
    position = rows.schema.get_field_index(mark)
    return rows.set_column(position, rows.schema.field(mark), pa.array(marks, rows.schema.field(mark).type))
