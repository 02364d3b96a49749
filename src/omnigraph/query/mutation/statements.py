"""One statement on the state after the previous ones: the delta that it adds, the ids that it inserts, its rows.

| statement | delta                                                                                                    |
|-----------|----------------------------------------------------------------------------------------------------------|
| insert    | one row, or one for each row of the pattern. With a key it replaces the row of that key; rows of one     |
|           | statement that are equal are one, and two different ones of one key are refused                          |
| update    | new images of the rows for which the condition is true; all values are computed from the old images      |
| delete    | their ids, and the edges of deleted nodes                                                                |
| merge     | as update if there is a row of that key, or edges between these nodes (all of them); else as insert      |

Types, keys and required values are checked here, by the rules of all writes; everything that needs the graph is checked
once for the final image.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.errors import Violation
from omnigraph.language.query.model import Delete, Insert, Merge, Setting, Statement, Update
from omnigraph.language.schema.model import EntityType
from omnigraph.query.execution.evaluate import BoundRows
from omnigraph.query.mutation.state import State, columns_named, plain
from omnigraph.storage.lance.columns import arrow_schema
from omnigraph.storage.ulids import Ulids
from omnigraph.write import changes
from omnigraph.write.compare import unchanged_mask
from omnigraph.write.delta import TypeDelta, delta, first_positions, flat
from omnigraph.write.keys import canonical_ids
from omnigraph.write.rows import rows_to_table, value_array
from omnigraph.write.validate import cascade
from omnigraph.write.violations import refuse_if_any


@dataclass(frozen=True, eq=False)
class StatementResult:
    """`inserted_ids` are the ids of rows that the statement inserted or replaced as a whole."""

    inserted_ids: pa.Array
    returned: pa.Table | None = None


@dataclass(frozen=True, eq=False)
class _StatementDelta:
    """`affected` are the ids of all rows that the statement selected or inserted, whether it changed them or not."""

    delta: TypeDelta
    affected: pa.Array
    inserted_ids: pa.Array


NO_IDS = pa.array([], pa.string())


def run_statement(state: State, s: Statement, *, ulids: Ulids, returning: bool) -> StatementResult:
    """Run the statement and add its delta to the state."""
    t = state.view.type(s.target.name)
    if isinstance(s, Delete):
        return _delete(state, t, s, returning=returning)
    if isinstance(s, Insert):
        written = _insert(state, t, s, ulids)
    elif isinstance(s, Update):
        old = state.all_columns(t, state.matching(t, s.row, s.where))
        written = _changed(t, old, s.values, state.image(t, s.row, old))
    else:
        written = _merge(state, t, s, ulids)
    state.add({t.name: written.delta})
    returned = None
    if returning:
        current = state.rows(t, written.affected, columns_named(t, s.returning))
        returned = state.returned(t, s.row, s.returning, current)
    return StatementResult(written.inserted_ids, returned)


def _delete(state: State, t: EntityType, s: Delete, *, returning: bool) -> StatementResult:
    ids = state.matching(t, s.row, s.where)
    returned = None
    if returning:
        before = state.rows(t, ids, columns_named(t, s.returning))
        returned = state.returned(t, s.row, s.returning, before)
    state.add(cascade(state.view.schema, {t.name: delta(t, deleted=ids)}, state.reader))
    return StatementResult(NO_IDS, returned)


def _insert(state: State, t: EntityType, s: Insert, ulids: Ulids) -> _StatementDelta:
    rows = state.single() if s.pattern is None else state.matched(s.pattern)
    typed = rows_to_table(t, _columns(rows, s.values), ulids=ulids).checked()
    if s.upsert:
        typed = _equal_rows_once(typed)
        insert_delta = changes.upsert(t, typed, state.reader)
    else:
        insert_delta = changes.insert(t, typed, state.reader)
    ids = flat(typed["id"])
    return _StatementDelta(insert_delta, ids, ids)


def _changed(t: EntityType, old: pa.Table, values: Iterable[Setting], rows: BoundRows) -> _StatementDelta:
    """New images of existing rows."""
    new = old
    for name, column in _evaluated(rows, values).items():
        new = new.drop_columns([name]).append_column(name, column)
    typed = rows_to_table(t, new).checked()
    update_delta = delta(t, rows=typed.filter(pc.invert(unchanged_mask(old, typed))))
    return _StatementDelta(update_delta, flat(old["id"]), NO_IDS)


def _merge(state: State, t: EntityType, s: Merge, ulids: Ulids) -> _StatementDelta:
    keys = {k.name: state.single().column(k.value)[0].as_py() for k in s.keys}
    old = _rows_of_key(state, t, {name: value_array(t, name, [value]) for name, value in keys.items()})
    if old.num_rows:
        return _changed(t, old, s.values, state.image(t, s.row, old))
    columns = _columns(state.absent(s.row), (*s.keys, *s.values))
    typed = rows_to_table(t, columns, ulids=ulids)
    refuse_if_any([_of_new_row(t, keys, v) for v in typed.violations])
    ids = flat(typed.table["id"])
    return _StatementDelta(changes.insert(t, typed.table, state.reader), ids, ids)


def _of_new_row(t: EntityType, keys: Mapping[str, object], v: Violation) -> Violation:
    """The violation of a row that a merge has to insert, with the reason why it inserts."""
    if v.rule != "null":
        return v
    between = f"leads from {keys['src']!r} to {keys['dst']!r}" if t.kind == "edge" else "of this key exists"
    return replace(v, row=None, message=f"{v.message}, because no {t.name} {between}")


def _rows_of_key(state: State, t: EntityType, keys: dict[str, pa.Array]) -> pa.Table:
    """The node of that key, or the edges between these nodes."""
    names = arrow_schema(t).names
    if t.kind == "node":
        return state.all_columns(t, canonical_ids(t, pa.table(keys)))
    leaving = plain(t, state.reader.find(t, "src", keys["src"], names), names)
    return leaving.filter(pc.fill_null(pc.equal(leaving["dst"], keys["dst"][0]), False)).combine_chunks()


def _columns(rows: BoundRows, values: Iterable[Setting]) -> pa.Table:
    return pa.table(_evaluated(rows, values))


def _evaluated(rows: BoundRows, values: Iterable[Setting]) -> dict[str, pa.Array]:
    settings = list(values)
    rows.fetch([s.value for s in settings])
    return {s.name: rows.column(s.value) for s in settings}


def _equal_rows_once(rows: pa.Table) -> pa.Table:
    """Drop repeated equal rows of a pattern; different rows of one key stay, and are refused later."""
    firsts = first_positions(flat(rows["id"]))
    is_repeat = firsts != np.arange(len(firsts))
    if not is_repeat.any():
        return rows
    is_same = np.asarray(unchanged_mask(rows.take(pa.array(firsts)), rows))
    return rows.filter(pa.array(~(is_repeat & is_same))).combine_chunks()
