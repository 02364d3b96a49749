"""From typed rows to deltas: insert, upsert, overwrite, update, delete; several statements as one write.

| verb      | meaning                                                                                              |
|-----------|------------------------------------------------------------------------------------------------------|
| insert    | new entities; an id that exists is a KeyConflict                                                     |
| upsert    | new or replaced entities, by id. A row is the full image: a nullable property that it leaves out     |
|           | becomes null (or takes its @default), also where the entity had a value. To change some properties   |
|           | and keep the others is `update`. A vector declared @embed that is left out stays while its text does. |
| overwrite | the rows are all that the type has afterwards                                                        |
| update    | some properties of existing entities, found by id or by the values of properties                     |
| delete    | entities, by id or by the values of properties; of nodes, `cascade` adds the edges                   |

An id twice in one call is refused for a @key (each row gives the whole entity, so one would be lost) and for inserts;
in an upsert of edges or unkeyed nodes the last one wins. Rows that are already as they should be are left out of the
delta: a write that changes nothing makes no commit. `coalesce` puts a later statement's deltas on top of earlier ones;
statements read through an `OverlayReader` and so see what came before them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.errors import KeyConflict, UsageError, Violation
from omnigraph.language.schema.model import EntityType
from omnigraph.rules.identity import existing_id, repeated_id
from omnigraph.rules.problem import Problem
from omnigraph.storage.lance.columns import arrow_schema
from omnigraph.write.compare import unchanged_mask
from omnigraph.write.delta import Deltas, TypeDelta, delta, distinct, first_positions, flat, is_in, not_in
from omnigraph.write.embedding_carryover import keep_vectors, kept_columns
from omnigraph.write.reader import Reader
from omnigraph.write.rows import set_to_table, value_array
from omnigraph.write.validate.fields import row_violations
from omnigraph.write.violations import refuse_if_any


def insert(t: EntityType, rows: pa.Table, reader: Reader) -> TypeDelta:
    """Strict: an id that is there already, or twice among the rows, is refused."""
    d = delta(t, rows=rows)
    refuse_if_any(repeated_ids(d))
    existing = existing_ids(d, reader)
    if len(existing):
        first = existing[0].as_py()
        raise KeyConflict(table_key=t.key, entity_id=first, count=len(existing))
    return replace(d, all_new=True)


def upsert(t: EntityType, rows: pa.Table, reader: Reader) -> TypeDelta:
    d = delta(t, rows=rows)
    if t.key_properties:
        refuse_if_any(repeated_ids(d))
    return merged(d, reader)


def overwrite(t: EntityType, rows: pa.Table) -> TypeDelta:
    d = delta(t, rows=rows, replaces_all=True)
    refuse_if_any(repeated_ids(d))
    return d


def update(
    t: EntityType,
    changes: Mapping[str, object],
    reader: Reader,
    *,
    ids: Sequence[str] | None = None,
    where: Mapping[str, object] | None = None,
) -> TypeDelta:
    """Ids that do not exist are passed over; the delta's rows say how many were changed."""
    old = _selected(t, reader, ids, where, arrow_schema(t).names)
    new = set_to_table(t, changes, old).checked()
    return delta(t, rows=new.filter(pc.invert(unchanged_mask(old, new))))


def delete(
    t: EntityType, reader: Reader, *, ids: Sequence[str] | None = None, where: Mapping[str, object] | None = None
) -> TypeDelta:
    """Only ids that exist, each once."""
    return delta(t, deleted=distinct(flat(_selected(t, reader, ids, where, ["id"]).column("id"))))


def _selected(
    t: EntityType,
    reader: Reader,
    ids: Sequence[str] | None,
    where: Mapping[str, object] | None,
    columns: Sequence[str],
) -> pa.Table:
    """Existing rows with one of the ids, or with all of the given values; a null is never equal to anything."""
    if (ids is None) == (where is None) or (where is not None and not where):
        raise UsageError(detail=f"say which {t.name} entities: by ids, or by the values of some properties")
    if ids is not None:
        return _plain(reader.find(t, "id", value_array(t, "id", list(ids)), columns), t, columns)
    assert where is not None
    for name in where:
        p = t.by_name.get(name)
        if p is not None and p.type.kind in ("List", "Vector", "Blob"):
            raise UsageError(detail=f"{t.name} can't be selected by {name}, which is a {p.type}")
    values = {_column(t, name): value_array(t, name, [value]) for name, value in where.items()}
    by = "id" if "id" in values else next(iter(values))
    wanted = list(dict.fromkeys([*columns, *values]))
    found = reader.find(t, by, values[by], wanted)
    for name, value in values.items():
        if name != by:
            found = found.filter(pc.fill_null(pc.equal(found.column(name), value[0]), False))
    return _plain(found, t, columns)


def _column(t: EntityType, name: str) -> str:
    return name if name in t.by_name else {"from": "src", "to": "dst"}.get(name, name)


def _plain(found: pa.Table, t: EntityType, columns: Sequence[str]) -> pa.Table:
    schema = arrow_schema(t)
    return found.select(list(columns)).cast(pa.schema([schema.field(name) for name in columns])).combine_chunks()


# ---- ids within one write, and against the graph ---------------------------------------------------------------------


def repeated_ids(d: TypeDelta) -> list[Violation]:
    """A violation for each row whose id an earlier row has."""
    firsts = first_positions(d.ids)
    repeats = np.flatnonzero(firsts != np.arange(len(firsts))).tolist()

    def problem(row: int) -> Problem:
        first = int(firsts[row])
        where = d.places.text(d.lines[first].as_py()) if d.lines is not None else f"row {first}"
        return repeated_id(d.type, d.ids[row].as_py(), where)

    return row_violations(d, repeats, problem)


def last_wins(d: TypeDelta) -> TypeDelta:
    """Of rows with one id only the last."""
    ids = d.ids
    reverse = pa.array(np.arange(len(ids))[::-1])
    lasts = first_positions(ids.take(reverse)) == np.arange(len(ids))
    return d if lasts.all() else d.kept(pa.array(lasts[::-1]))


def existing_ids(d: TypeDelta, reader: Reader) -> pa.Array:
    """The ids of the delta's rows that the graph has already, in the order of the rows."""
    if d.all_new or d.rows.num_rows == 0 or reader.count(d.type) == 0:
        return d.ids.slice(0, 0)
    found = flat(reader.find(d.type, "id", d.ids, ["id"]).column("id"))
    return d.ids.filter(is_in(d.ids, found))


def conflicts(d: TypeDelta, reader: Reader) -> list[Violation]:
    """What `insert` refuses, as violations of rows, for loads that put bad lines aside."""
    existing = existing_ids(d, reader)
    rows = pc.indices_nonzero(is_in(d.ids, existing)).to_pylist() if len(existing) else []
    return row_violations(d, rows, lambda row: existing_id(d.type, d.ids[row].as_py()))


def merged(d: TypeDelta, reader: Reader) -> TypeDelta:
    """What an upsert still has to do: the last row of each id, with the vectors that it keeps, if that changes it."""
    return without_unchanged(_with_kept_vectors(last_wins(d), reader), reader)


def _with_kept_vectors(d: TypeDelta, reader: Reader) -> TypeDelta:
    names = kept_columns(d.type)
    if not names or d.replaces_all or d.all_new or d.rows.num_rows == 0 or reader.count(d.type) == 0:
        return d
    old = _plain(reader.find(d.type, "id", d.ids, ["id", *names]), d.type, ["id", *names])
    # A row that replaces nothing is set against nulls.
    beside = old.take(pc.index_in(d.ids, value_set=flat(old.column("id"))))
    return replace(d, rows=keep_vectors(d.type, beside, d.rows))


def without_unchanged(d: TypeDelta, reader: Reader) -> TypeDelta:
    """The delta without rows that the graph has exactly so."""
    if d.replaces_all or d.all_new or d.rows.num_rows == 0 or reader.count(d.type) == 0:
        return d
    names = arrow_schema(d.type).names
    old = _plain(reader.find(d.type, "id", d.ids, names), d.type, names)
    if old.num_rows == 0:
        return d
    index = pc.index_in(d.ids, value_set=flat(old.column("id")))
    known = pc.is_valid(index)
    same = unchanged_mask(old.take(pc.drop_null(index)), d.rows.filter(known))
    keep = np.ones(d.rows.num_rows, dtype=bool)
    keep[np.asarray(known)] = ~np.asarray(same)
    return d if keep.all() else d.kept(pa.array(keep))


# ---- several statements, one write -----------------------------------------------------------------------------------


def coalesce(first: Deltas, then: Deltas) -> dict[str, TypeDelta]:
    """One write that does what `first` and then `then` do."""
    result = dict(first)
    for name, d in then.items():
        before = result.get(name)
        result[name] = d if before is None or d.replaces_all else _on_top(before, d)
    return result


def _on_top(before: TypeDelta, d: TypeDelta) -> TypeDelta:
    gone = pa.concat_arrays([d.ids, d.deleted])
    kept = before.kept(pc.invert(is_in(before.ids, gone)))
    rows = pa.concat_tables([kept.rows, d.rows])
    # What replaces everything has nothing else to delete.
    deleted = kept.deleted.slice(0, 0) if before.replaces_all else distinct(not_in(before.deleted, d.ids), d.deleted)
    both = kept.lines is not None and d.lines is not None
    lines = pa.concat_arrays([kept.lines, d.lines]) if both else None
    # What the second statement found new may have an id that the first one took away.
    all_new = before.all_new and d.all_new and not before.replaces_all and len(before.deleted) == 0
    return replace(kept, rows=rows, deleted=deleted, lines=lines, all_new=all_new)
