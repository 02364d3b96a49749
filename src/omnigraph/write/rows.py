"""Rows of one type, as a caller gives them, to a table of the stored schema, strictly typed.

1. Fields are matched by name. A node row holds properties and, optionally, `id`; an edge row holds `from`, `to`,
   properties and, optionally, `id`. `src` and `dst`, as a read returns them, stand for `from` and `to`; they are the
   only way for an edge type with a property of that name. An unknown field is an error at once.
2. Each column is converted by `arrays`. A property that is absent takes its @default; a property that is given as
   null is null. What is then null and required breaks the rule `null`.
3. Ids: the canonical id of the key, which an `id` in the row must equal; without a key the given `id` or a new ULID.
4. All problems of all rows are collected; the table holds the rows without any.

Enum values, @range, @check and everything that needs the graph are checked by `validate`, on the delta.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.errors import UsageError, Violation
from omnigraph.language.schema.model import EntityType, Property
from omnigraph.rules.endpoints import ambiguous_endpoint, invalid_endpoint
from omnigraph.rules.fields import required
from omnigraph.rules.identity import changed_key, invalid_id, other_id
from omnigraph.rules.problem import Problem
from omnigraph.storage.lance.columns import arrow_schema, physical_columns
from omnigraph.storage.ulids import Ulids
from omnigraph.write.arrays import Found, arrow_column, python_column
from omnigraph.write.keys import TEXT, canonical_ids
from omnigraph.write.values import convert
from omnigraph.write.violations import refuse_if_any, unknown_property


@dataclass(frozen=True, eq=False)
class TypedRows:
    """The good rows, the position of each in the input, and what is wrong with the others."""

    table: pa.Table
    positions: np.ndarray
    violations: tuple[Violation, ...] = ()

    def checked(self) -> pa.Table:
        refuse_if_any(self.violations)
        return self.table


def rows_to_table(
    t: EntityType,
    rows: Iterable[Mapping[str, object]] | pa.Table,
    *,
    ulids: Ulids | None = None,
    already: Sequence[tuple[int, Problem]] = (),
) -> TypedRows:
    """Raises UnknownProperty for a field that the type does not have; everything else is told as violations.

    `already` are problems that whoever made an Arrow table found before, where the table now holds nulls.
    """
    found: Found = list(already)
    if isinstance(rows, pa.Table | pa.RecordBatch):
        count = rows.num_rows
        columns = _arrow_columns(t, rows, found)
    else:
        given = list(rows)
        count = len(given)
        columns = _python_columns(t, given, found)
    for p in t.properties:
        if not p.nullable:
            _mark_nulls(columns[p.name], p.name, found)
    if t.kind == "edge":
        for name, field in (("src", "from"), ("dst", "to")):
            _mark_nulls(columns[name], field, found, rule="endpoint")
    ids = _ids(t, columns, count, found, ulids)
    known = ids if t.key_properties else columns["id"]
    return _finished(t, {**columns, "id": ids}, known, found)


def set_to_table(t: EntityType, changes: Mapping[str, object], old: pa.Table) -> TypedRows:
    """The images `old` (of the stored schema) with some fields set to new values, the same ones in every row.

    Key properties and ids can't be set; an edge may be moved by `from` and `to`. A problem of the values concerns
    all rows alike and is told once, without a row.
    """
    found: Found = []
    table = old
    aliases = _aliases(t)
    for name, value in changes.items():
        if name == "id" or name in t.key_properties:
            found.append((-1, changed_key(name)))
            continue
        column = name if name in t.by_name else aliases.get(name)
        if column is None:
            raise unknown_property(t, name)
        p = t.by_name.get(column, Property(column, TEXT))
        array, problems = python_column(p.type, [value])
        found.extend((-1, problem.on(name)) for _, problem in problems)
        if value is None and not p.nullable:
            found.append((-1, required(name)))
        filled = pa.repeat(array[0], table.num_rows) if array.null_count == 0 else pa.nulls(table.num_rows, array.type)
        table = table.set_column(table.schema.get_field_index(column), table.schema.field(column), filled)
    violations = tuple(_violation(t, row, problem, None) for row, problem in found)
    return TypedRows(table=table, positions=np.arange(table.num_rows), violations=violations)


def value_array(t: EntityType, name: str, values: Sequence[object]) -> pa.Array:
    """Values to look a column up by, typed like the column; refused like values of a row."""
    p = t.by_name.get(name)
    column = name if p is not None else {**_aliases(t), "id": "id"}.get(name)
    if column is None:
        raise unknown_property(t, name)
    array, problems = python_column(TEXT if p is None else p.type, values)
    refuse_if_any([_violation(t, row, problem.on(name), None) for row, problem in problems])
    return array


def _aliases(t: EntityType) -> dict[str, str]:
    """The names by which a row may give an edge's endpoints."""
    if t.kind == "node":
        return {}
    names = {"from": "src", "to": "dst", "src": "src", "dst": "dst"}
    return {name: column for name, column in names.items() if name not in t.by_name}


def _python_columns(t: EntityType, rows: Sequence[Mapping[str, object]], found: Found) -> dict[str, pa.Array]:
    mappings: list[Mapping[str, object]] = []
    for i, row in enumerate(rows):
        if isinstance(row, Mapping):
            mappings.append(row)
        else:
            found.append((i, Problem("record", f"a row is a mapping from names to values, not {type(row).__name__}")))
            mappings.append({})
    aliases = _aliases(t)
    _refuse_unknown(t, aliases, set(chain.from_iterable(mappings)))

    columns: dict[str, pa.Array] = {}
    for p in t.properties:
        filler = _default(p)
        values = [row.get(p.name, filler) for row in mappings]
        columns[p.name], problems = python_column(p.type, values)
        found.extend((i, problem.on(p.name)) for i, problem in problems)
    columns["id"], problems = python_column(TEXT, [row.get("id") for row in mappings])
    found.extend((i, invalid_id(problem)) for i, problem in problems)
    if t.kind == "edge":
        for column, field in (("src", "from"), ("dst", "to")):
            values = _endpoints(mappings, [name for name in aliases if aliases[name] == column], found)
            columns[column], problems = python_column(TEXT, values)
            found.extend((i, invalid_endpoint(field, problem)) for i, problem in problems)
    return columns


def _endpoints(rows: Sequence[Mapping[str, object]], names: Sequence[str], found: Found) -> list[object]:
    values: list[object] = []
    for i, row in enumerate(rows):
        given = [row[name] for name in names if name in row]
        if len(given) > 1 and given[0] != given[1]:
            found.append((i, ambiguous_endpoint(names)))
        values.append(given[0] if given else None)
    return values


def _arrow_columns(t: EntityType, rows: pa.Table | pa.RecordBatch, found: Found) -> dict[str, pa.Array]:
    names = rows.schema.names
    if len(set(names)) != len(names):
        raise UsageError(detail=f"the Arrow table for {t.key} has two columns of one name")
    try:
        rows.validate(full=True)
    except pa.ArrowInvalid as e:
        raise UsageError(detail=f"the Arrow table for {t.key} is not valid: {e}") from e
    aliases = _aliases(t)
    _refuse_unknown(t, aliases, set(names))

    columns: dict[str, pa.Array] = {}
    for p in t.properties:
        if p.name in names:
            columns[p.name], problems = arrow_column(p.type, rows.column(p.name))
        else:
            columns[p.name], problems = _filled(p, rows.num_rows)
        found.extend((i, problem.on(p.name)) for i, problem in problems)
    sources = {"id": "id", **aliases}
    for column in physical_columns(t):
        given = [name for name in sources if name in names and sources[name] == column]
        if len(given) > 1:
            raise UsageError(detail=f"the Arrow table for {t.key} has both {given[0]} and {given[1]}")
        source = rows.column(given[0]) if given else pa.nulls(rows.num_rows)
        columns[column], problems = arrow_column(TEXT, source)
        for i, problem in problems:
            found.append((i, invalid_id(problem) if column == "id" else invalid_endpoint(given[0], problem)))
    return columns


def _refuse_unknown(t: EntityType, aliases: Mapping[str, str], names: Iterable[object]) -> None:
    unknown = set(names) - t.by_name.keys() - aliases.keys() - {"id"}
    if unknown:
        raise unknown_property(t, min(unknown, key=str))


def _default(p: Property) -> object:
    """What an absent property holds: the literal of @default, as a caller would give it, or None."""
    literal = p.default
    return convert(p.type, literal, from_json=True) if literal is not None and p.type.kind == "Blob" else literal


def _filled(p: Property, count: int) -> tuple[pa.Array, Found]:
    one, problems = python_column(p.type, [_default(p)])
    filled = pa.nulls(count, one.type) if one.null_count else pa.repeat(one[0], count)
    return filled, [(-1, problem) for _, problem in problems]


def _mark_nulls(column: pa.Array, name: str, found: Found, *, rule: str = "null") -> None:
    """Tell of nulls in a required column, but not where the null only stands for a value that was refused."""
    if column.null_count == 0:
        return
    refused = {row for row, problem in found if problem.property == name}
    if -1 in refused:
        return
    for row in pc.indices_nonzero(column.is_null()).to_pylist():
        if row not in refused:
            found.append((row, required(name, rule=rule)))


def _ids(t: EntityType, columns: Mapping[str, pa.Array], count: int, found: Found, ulids: Ulids | None) -> pa.Array:
    given = columns["id"]
    if not t.key_properties:
        if given.null_count == 0:
            return given
        fresh = (ulids or Ulids.fresh()).ids(np.arange(count))
        return fresh if given.null_count == count else pc.coalesce(given, fresh)
    ids = canonical_ids(t, pa.table({name: columns[name] for name in t.key_properties}))
    if given.null_count < count:
        for row in pc.indices_nonzero(pc.fill_null(pc.not_equal(given, ids), False)).to_pylist():
            found.append((row, other_id(given[row].as_py(), ids[row].as_py())))
    return ids


def _violation(t: EntityType, row: int, problem: Problem, ids: pa.Array | None) -> Violation:
    entity_id = None if ids is None or row < 0 else ids[row].as_py()
    return problem.violation(t.key, entity_id=entity_id, row=None if row < 0 else row)


def _finished(t: EntityType, columns: Mapping[str, pa.Array], known_ids: pa.Array, found: Found) -> TypedRows:
    schema = arrow_schema(t)
    count = len(known_ids)
    table = pa.table([columns[name] for name in schema.names], schema=schema)
    if not found:
        return TypedRows(table=table, positions=np.arange(count))
    keep = np.ones(count, dtype=bool)
    refused = [row for row, _ in found if row >= 0]
    keep[refused] = False
    if len(refused) < len(found):
        keep[:] = False
    violations = tuple(_violation(t, row, problem, known_ids) for row, problem in sorted(found, key=lambda f: f[0]))
    return TypedRows(table=table.filter(pa.array(keep)), positions=np.flatnonzero(keep), violations=violations)
