"""One statement on the state that those before it left: the delta that it adds, the ids that it gave, its rows.

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
from omnigraph.query.execution.evaluate import Rows
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
class Done:
    """`given` are the ids of rows that the statement inserted or replaced as a whole."""

    given: pa.Array
    returned: pa.Table | None = None


@dataclass(frozen=True, eq=False)
class _Written:
    """`affected` are the ids of all rows that the statement found or made, changed by it or not."""

    delta: TypeDelta
    affected: pa.Array
    given: pa.Array


NO_IDS = pa.array([], pa.string())


def run_statement(state: State, s: Statement, *, ulids: Ulids, returning: bool) -> Done:
    """Do it on the state, which then holds it."""
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
        now = state.rows(t, written.affected, columns_named(t, s.returning))
        returned = state.returned(t, s.row, s.returning, now)
    return Done(written.given, returned)


def _delete(state: State, t: EntityType, s: Delete, *, returning: bool) -> Done:
    ids = state.matching(t, s.row, s.where)
    returned = None
    if returning:
        before = state.rows(t, ids, columns_named(t, s.returning))
        returned = state.returned(t, s.row, s.returning, before)
    state.add(cascade(state.view.schema, {t.name: delta(t, deleted=ids)}, state.reader))
    return Done(NO_IDS, returned)


def _insert(state: State, t: EntityType, s: Insert, ulids: Ulids) -> _Written:
    rows = state.single() if s.pattern is None else state.matched(s.pattern)
    typed = rows_to_table(t, _columns(rows, s.values), ulids=ulids).checked()
    if s.upsert:
        typed = _equal_rows_once(typed)
        made = changes.upsert(t, typed, state.reader)
    else:
        made = changes.insert(t, typed, state.reader)
    ids = flat(typed["id"])
    return _Written(made, ids, ids)


def _changed(t: EntityType, old: pa.Table, values: Iterable[Setting], rows: Rows) -> _Written:
    """New images of existing rows."""
    new = old
    for name, column in _evaluated(rows, values).items():
        new = new.drop_columns([name]).append_column(name, column)
    typed = rows_to_table(t, new).checked()
    made = delta(t, rows=typed.filter(pc.invert(unchanged_mask(old, typed))))
    return _Written(made, flat(old["id"]), NO_IDS)


def _merge(state: State, t: EntityType, s: Merge, ulids: Ulids) -> _Written:
    keys = {k.name: state.single().column(k.value)[0].as_py() for k in s.keys}
    old = _found(state, t, {name: value_array(t, name, [value]) for name, value in keys.items()})
    if old.num_rows:
        return _changed(t, old, s.values, state.image(t, s.row, old))
    columns = _columns(state.absent(s.row), (*s.keys, *s.values))
    made = rows_to_table(t, columns, ulids=ulids)
    refuse_if_any([_of_new_row(t, keys, v) for v in made.violations])
    ids = flat(made.table["id"])
    return _Written(changes.insert(t, made.table, state.reader), ids, ids)


def _of_new_row(t: EntityType, keys: Mapping[str, object], v: Violation) -> Violation:
    """What a row lacks that a merge would not have to insert if there were one to change."""
    if v.rule != "null":
        return v
    between = f"leads from {keys['src']!r} to {keys['dst']!r}" if t.kind == "edge" else "of this key exists"
    return replace(v, row=None, message=f"{v.message}, because no {t.name} {between}")


def _found(state: State, t: EntityType, keys: dict[str, pa.Array]) -> pa.Table:
    """The node of that key, or the edges between these nodes."""
    names = arrow_schema(t).names
    if t.kind == "node":
        return state.all_columns(t, canonical_ids(t, pa.table(keys)))
    leaving = plain(t, state.reader.find(t, "src", keys["src"], names), names)
    return leaving.filter(pc.fill_null(pc.equal(leaving["dst"], keys["dst"][0]), False)).combine_chunks()


def _columns(rows: Rows, values: Iterable[Setting]) -> pa.Table:
    return pa.table(_evaluated(rows, values))


def _evaluated(rows: Rows, values: Iterable[Setting]) -> dict[str, pa.Array]:
    settings = list(values)
    rows.fetch([s.value for s in settings])
    return {s.name: rows.column(s.value) for s in settings}


def _equal_rows_once(rows: pa.Table) -> pa.Table:
    """A pattern that gives one row several times writes it once; rows of one key that differ stay, to be refused."""
    firsts = first_positions(flat(rows["id"]))
    repeats = firsts != np.arange(len(firsts))
    if not repeats.any():
        return rows
    same = np.asarray(unchanged_mask(rows.take(pa.array(firsts)), rows))
    return rows.filter(pa.array(~(repeats & same))).combine_chunks()
