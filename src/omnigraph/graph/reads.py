"""Reading one type of one snapshot as Arrow, without Spark: which type, which columns, which rows.

1. name    the type and the columns as the schema has them; a name that it does not have is an error with a suggestion
2. filter  a text in Lance's SQL, or a mapping from properties to the values they must hold (None: null)
3. scan    the table at its pin, batch by batch; the columns are the logical ones, in the order asked for

Nothing is written; a crash leaves nothing.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import pyarrow as pa

from omnigraph.errors import UnknownProperty, UnknownType, UsageError
from omnigraph.graph.snapshot import Snapshot
from omnigraph.language.schema.model import EntityType, Schema
from omnigraph.storage.lance import filters
from omnigraph.storage.lance.columns import arrow_schema
from omnigraph.storage.lance.scan import scan
from omnigraph.write.rows import value_array
from omnigraph.write.violations import nearest

Kind = Literal["node", "edge"]
Where = str | Mapping[str, object]


@dataclass(frozen=True)
class Condition:
    """A filter as Lance takes it; `shown` is the text that its author wrote, None if it is made from values."""

    sql: str | None = None
    shown: str | None = None


def read_rows(
    snapshot: Snapshot,
    type_name: str,
    *,
    kind: Kind | None = None,
    columns: Sequence[str] | None = None,
    where: Where | None = None,
    limit: int | None = None,
) -> pa.RecordBatchReader:
    t = type_of(snapshot.schema, type_name, kind=kind)
    if limit is not None and limit < 0:
        raise UsageError(detail=f"limit is a number of rows, not {limit}.")
    names = columns_of(t, columns)
    condition = condition_of(t, where)
    table = snapshot.view.open(t)
    return scan(table, t, names, where=condition.sql, shown=condition.shown, limit=limit)


def type_of(schema: Schema, name: str, *, kind: Kind | None = None) -> EntityType:
    """The type of this name, of this kind if one is asked for; UnknownType with a suggestion."""
    known: dict[str, EntityType] = {t.name: t for t in schema.types() if kind in (None, t.kind)}
    found = known.get(name)
    if found is not None:
        return found
    suggestion = nearest(name, known)
    shown = None if suggestion is None else repr(suggestion)
    if name in schema.node or name in schema.edge:
        shown = f"graph.{'edges' if kind == 'node' else 'nodes'}({name!r})"
    fields = {"kind": kind or "node or edge", "type_name": name}
    raise UnknownType(**fields) if shown is None else UnknownType(**fields, suggestion=shown)


def columns_of(t: EntityType, columns: Sequence[str] | None) -> list[str]:
    """The columns asked for, all of them by default; UnknownProperty with a suggestion."""
    known = arrow_schema(t).names
    if columns is None:
        return list(known)
    if isinstance(columns, str):
        raise UsageError(detail=f"columns is a list of names, as [{columns!r}].")
    names = list(columns)
    for name in names:
        require_column(t, name, known)
    if not names or len(set(names)) < len(names):
        raise UsageError(detail=f"columns of {t.key} needs at least one name, and each name once.")
    return names


def require_column(t: EntityType, name: str, known: Collection[str]) -> None:
    if name not in known:
        suggestion = nearest(str(name), known)
        fields = {"table_key": t.key, "property": str(name)}
        raise UnknownProperty(**fields) if suggestion is None else UnknownProperty(**fields, suggestion=suggestion)


def condition_of(t: EntityType, where: Where | None) -> Condition:
    if where is None:
        return Condition()
    known = arrow_schema(t).names
    if isinstance(where, str):
        return Condition(filters.quoted(where, known, table_key=t.key), where)
    if not isinstance(where, Mapping):
        raise UsageError(detail="where is a filter text, or a mapping from properties to values.")
    stored: dict[str, object] = {}
    for name, value in where.items():
        require_column(t, name, known)
        stored[name] = None if value is None else value_array(t, name, [value])[0].as_py()
    return Condition(filters.equality(t, stored) or None)
