"""Small writes: statements in order, one graph commit, all or nothing.

1. type      the rows of each statement against the branch's schema
2. build     each statement's delta, reading through the statements before it; node deletes take their edges along
3. validate  the final image of what changes, and nothing else
4. apply     the deltas as uncommitted table work; the door does the rest

A write is a function of the state it meets: when another writer was quicker it is prepared again on the newer state, so
that two writers of different keys never notice each other. What a transaction has read and shown to its caller is
different: if that has changed, the write is refused.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import pyarrow as pa

from omnigraph.commit.operation import Prepared, View
from omnigraph.errors import ReadSetConflict
from omnigraph.language.schema.model import EntityType, NodeType
from omnigraph.storage.lance.columns import arrow_schema
from omnigraph.storage.manifest.records import Pin
from omnigraph.write import changes
from omnigraph.write.apply import apply_deltas
from omnigraph.write.compare import unchanged_mask
from omnigraph.write.delta import TypeDelta, flat
from omnigraph.write.pending_reader import OverlayReader
from omnigraph.write.reader import Reader
from omnigraph.write.rows import rows_to_table
from omnigraph.write.validate import cascade, validate
from omnigraph.write.violations import refuse_if_any

Rows = Any
"""A sequence of mappings from names to values, or an Arrow table."""
QUICK_ROWS_MAX = 2_000
KEPT_IDS_MAX = 64


@dataclass(frozen=True, eq=False)
class Put:
    """New or replaced entities of one type."""

    type_name: str
    rows: Rows
    mode: Literal["insert", "upsert"]
    typed: dict[str, pa.Table] = field(default_factory=dict, repr=False)
    """Typed rows by schema id: generated ids stay the same when the write is prepared again."""

    def delta(self, t: EntityType, view: View, reader: Reader) -> TypeDelta:
        table = self.typed.get(view.head.schema)
        if table is None:
            table = self.typed[view.head.schema] = rows_to_table(t, self.rows).checked()
        return changes.insert(t, table, reader) if self.mode == "insert" else changes.upsert(t, table, reader)


@dataclass(frozen=True, eq=False)
class Change:
    """Some properties of existing entities, found by id or by value."""

    type_name: str
    values: Mapping[str, object]
    ids: Sequence[str] | None = None
    where: Mapping[str, object] | None = None

    def delta(self, t: EntityType, view: View, reader: Reader) -> TypeDelta:
        return changes.update(t, self.values, reader, ids=self.ids, where=self.where)


@dataclass(frozen=True, eq=False)
class Remove:
    """Entities, by id or by value; edges of removed nodes go with them."""

    type_name: str
    ids: Sequence[str] | None = None
    where: Mapping[str, object] | None = None

    def delta(self, t: EntityType, view: View, reader: Reader) -> TypeDelta:
        return changes.delete(t, reader, ids=self.ids, where=self.where)


Statement = Put | Change | Remove


@dataclass(frozen=True, eq=False)
class Seen:
    """Something that a transaction has read: one entity by id, or a whole type (`entity_id` None)."""

    type_id: str
    table_key: str
    pin: Pin
    entity_id: str | None
    rows: pa.Table | None


@dataclass(frozen=True, eq=False)
class Write:
    """The operation behind insert, upsert, update, delete and transactions of them."""

    statements: tuple[Statement, ...]
    seen: tuple[Seen, ...] = ()
    kind: str = "write"

    @property
    def quick(self) -> bool:
        return all(not isinstance(s, Put) or len(s.rows) <= QUICK_ROWS_MAX for s in self.statements)

    def scope(self, view: View) -> frozenset[str]:
        named = [view.type(s.type_name) for s in self.statements]
        incident = [
            e
            for s, t in zip(self.statements, named, strict=True)
            if isinstance(s, Remove) and isinstance(t, NodeType)
            for e in view.schema.incident_edges(t.name)
        ]
        return frozenset(t.id for t in (*named, *incident))

    def prepare(self, view: View) -> Prepared:
        _require_unchanged(view, self.seen)
        deltas: dict[str, TypeDelta] = {}
        for statement in self.statements:
            reader: Reader = OverlayReader(view, deltas) if deltas else view
            t = view.type(statement.type_name)
            one = {t.name: statement.delta(t, view, reader)}
            if isinstance(statement, Remove):
                one = cascade(view.schema, one, reader)
            deltas = changes.coalesce(deltas, one)
        if len(self.statements) > 1:
            deltas = {name: changes.without_unchanged(d, view) for name, d in deltas.items()}
        deltas = {name: d for name, d in deltas.items() if not d.is_empty}
        refuse_if_any(validate(view.schema, deltas, view))
        applied = apply_deltas(view, deltas)
        counts = applied.counts.to_json()
        return Prepared(
            view=view,
            tables=applied.tables,
            reads=consulted(view, deltas) | {s.type_id for s in self.seen},
            summary={**counts, **self._generated(view)},
            result={**counts, "ids": self._ids(view)},
        )

    def _ids(self, view: View) -> dict[str, list[str]]:
        found: dict[str, list[str]] = {}
        for s in self.statements:
            if isinstance(s, Put):
                found.setdefault(s.type_name, []).extend(s.typed[view.head.schema]["id"].to_pylist())
        return found

    def _generated(self, view: View) -> dict[str, Any]:
        """Ids that are no function of the rows, if they are few: whoever repeats the operation shall learn them."""
        ids = {name: found for name, found in self._ids(view).items() if not view.type(name).key_properties}
        return {"ids": ids} if 0 < sum(map(len, ids.values())) <= KEPT_IDS_MAX else {}


def consulted(view: View, deltas: Mapping[str, TypeDelta]) -> frozenset[str]:
    """The tables that validation may have asked: of edges their endpoints, of nodes that go away their edges."""
    found: set[str] = set()
    for delta in deltas.values():
        t = delta.type
        found.add(t.id)
        if isinstance(t, NodeType):
            if len(delta.deleted) or delta.replaces_all or any(e.card_min for e in view.schema.incident_edges(t.name)):
                found.update(e.id for e in view.schema.incident_edges(t.name))
        else:
            found.update(view.schema.node[name].id for name in (t.source, t.target))
    return frozenset(found)


def look(view: View, t: EntityType, entity_id: str | None) -> Seen:
    """Read one entity, or all of a type, in a way that can be checked later."""
    columns = arrow_schema(t).names
    if entity_id is None:
        rows = view.scan(t, columns).read_all()
    else:
        rows = view.find(t, "id", pa.array([entity_id]), columns).select(columns)
    return Seen(type_id=t.id, table_key=t.key, pin=view.pins[t.id], entity_id=entity_id, rows=rows)


def _require_unchanged(view: View, seen: Sequence[Seen]) -> None:
    for read in seen:
        if view.pins.get(read.type_id) == read.pin:
            continue
        t: Any = view.schema.by_id.get(read.type_id)
        member = read.table_key if read.entity_id is None else f"{read.table_key} {read.entity_id!r}"
        if t is None or read.entity_id is None or not _same(look(view, t, read.entity_id).rows, read.rows):
            raise ReadSetConflict(member=member, table_key=read.table_key, entity_id=read.entity_id)


def _same(now: pa.Table | None, then: pa.Table | None) -> bool:
    assert now is not None
    assert then is not None
    if now.num_rows != then.num_rows or now.schema.names != then.schema.names:
        return False
    return now.num_rows == 0 or bool(flat(unchanged_mask(then, now)).to_pylist()[0])
