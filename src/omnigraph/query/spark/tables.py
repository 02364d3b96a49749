"""Tables of the pinned commit as DataFrames: the columns that a query reads, the conditions that Lance evaluates.

A condition is pushed to Lance only if it is valid for the tables of all types of its variable; then Spark does not
evaluate it again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from omnigraph.graph.snapshot import Snapshot
from omnigraph.language.query.model import Read, Step, Where
from omnigraph.language.query.terms import Entity, Object, Property, Variable, variables_of, walk
from omnigraph.language.schema.model import EntityType
from omnigraph.query.execution.project import object_fields
from omnigraph.query.execution.values import type_of
from omnigraph.query.plan.pushdown import Pusher
from omnigraph.query.spark.types import from_spark, spark_type
from omnigraph.query.spark.values import Values, arrow_function, entity
from omnigraph.storage.lance.columns import arrow_type, physical_columns

NeededColumn = tuple[str, pa.DataType]
NEAR, FAR = "near", "far"
BROADCAST_ROWS = 10_000
"""Tables of up to this many rows are broadcast to every executor: Spark does not know their size."""


def needed_columns(types: Mapping[str, EntityType], body: Read) -> dict[int, dict[NeededColumn, None]]:
    """The columns that the query reads of every variable, by slot, without its id and the name of its type."""
    needed: dict[int, dict[NeededColumn, None]] = {}
    for term in walk(body):
        if isinstance(term, Property) and term.name not in ("id", "@type"):
            needed.setdefault(term.variable.slot, {})[term.name, type_of(term.type)] = None
        elif isinstance(term, Object):
            entity_types = [types[t.id] for t in term.variable.types]
            for f in object_fields(entity_types, term):
                if f.name != "id":
                    needed.setdefault(term.variable.slot, {})[f.name, f.type] = None
    return needed


@dataclass(frozen=True, eq=False)
class Tables:
    spark: Any
    snapshot: Snapshot
    types: Sequence[EntityType]
    needed: Mapping[int, Mapping[NeededColumn, None]]
    values: Values

    def ordinal(self, e: Entity) -> int:
        return next(i for i, t in enumerate(self.types) if t.id == e.id)

    def type(self, e: Entity) -> EntityType:
        return self.types[self.ordinal(e)]

    def rows(self, types: Sequence[Entity]) -> int:
        total = 0
        for e in types:
            pinned_rows = self.snapshot.view.pins[e.id].rows
            total += pinned_rows if pinned_rows is not None else self.snapshot.view.count(self.type(e))
        return total

    def hinted(self, table: DataFrame, types: Sequence[Entity]) -> DataFrame:
        """One side of a join, built from the tables of these types, with a broadcast hint if they are small."""
        return F.broadcast(table) if self.rows(types) <= BROADCAST_ROWS else table

    def columns(self, variable: Variable) -> list[str]:
        """All columns of a bound variable."""
        named = [self.values.names[variable.slot, n, t] for n, t in self.needed.get(variable.slot, {})]
        return [entity(variable.slot), *named]

    # ---- reading

    def _load(self, t: EntityType, columns: Sequence[str], where: str | None) -> DataFrame:
        location = self.snapshot.view.tables.location
        options = {
            "graph": location.uri,
            "type": t.name,
            "branch": self.snapshot.branch,
            "commit": self.snapshot.commit,
            "columns": ",".join(columns),
            **{f"storage.{k}": v for k, v in location.options.items()},
        }
        if where is not None:
            options["where"] = where
        rows = self.spark.read.format("omnigraph").options(**options).load()
        # By position, because Spark does not distinguish `Name` and `name`.
        return rows.toDF(*(f"c{i}" for i in range(len(columns))))

    def _typed(self, t: EntityType, variable: Variable, where: str | None) -> tuple[DataFrame, dict[str, Column]]:
        """A table with the needed columns of a variable: (rows, their columns by the names of the variable)."""
        physical = physical_columns(t)
        needed = self.needed.get(variable.slot, {})
        stored_names = [n for n in dict.fromkeys(n for n, _ in needed) if n in t.by_name]
        names = [*physical, *stored_names]
        loaded = self._load(t, names, where)
        column_of = {n: F.col(f"c{i}") for i, n in enumerate(names)}
        columns = {entity(variable.slot): self.key(t, column_of["id"])}
        for name, kind in needed:
            target = self.values.names[variable.slot, name, kind]
            if name not in column_of:
                columns[target] = F.lit(None).cast(spark_type(kind))
            else:
                stored = pa.string() if name in physical else arrow_type(t.by_name[name].type)
                columns[target] = _cast(column_of[name], stored, kind)
        return loaded, {**{f"@{n}": column_of[n] for n in physical}, **columns}

    def key(self, t: EntityType, identity: Column) -> Column:
        return F.struct(identity.alias("id"), F.lit(self.types.index(t)).alias("type"))

    def scan(self, variable: Variable, own: Sequence[Where]) -> tuple[DataFrame, list[Where]]:
        """(the entities of the variable's types, the conditions that were pushed down)."""
        sql, pushed = self.pushed(variable, own)
        parts = []
        for e in variable.types:
            loaded, columns = self._typed(self.type(e), variable, sql)
            parts.append(loaded.select(*(columns[n].alias(n) for n in self.columns(variable))))
        return _united(parts), pushed

    def hops(self, steps: Sequence[Step], edge: Variable | None, own: Sequence[Where]) -> tuple[DataFrame, list[Where]]:
        """(one row per edge and direction: its ends and its needed columns; the conditions that were pushed down)."""
        variable = edge if edge is not None else Variable("_", -1, "edge")
        sql, pushed = self.pushed(variable, own) if edge is not None else (None, [])
        parts = []
        for step in steps:
            loaded, columns = self._typed(self.type(step.edge), variable, sql)
            more = [columns[n].alias(n) for n in self.columns(variable)] if edge is not None else []
            starts, ends = self.type(step.starts), self.type(step.ends)
            for direction, near, far in (("out", "@src", "@dst"), ("in", "@dst", "@src")):
                if step.direction not in (direction, "both"):
                    continue
                rows = loaded
                if step.direction == "both" and direction == "in":
                    # A loop was counted with the outgoing edges already.
                    rows = rows.filter(columns["@src"] != columns["@dst"])
                near_key, far_key = self.key(starts, columns[near]), self.key(ends, columns[far])
                parts.append(rows.select(near_key.alias(NEAR), far_key.alias(FAR), *more))
        return _united(parts), pushed

    def pushed(self, variable: Variable, own: Sequence[Where]) -> tuple[str | None, list[Where]]:
        pusher = Pusher(variable, self.values.params, self.values.now)
        parts: list[str] = []
        pushed: list[Where] = []
        for clause in own:
            if set(variables_of(clause)) != {variable} or not self._has_all(variable, clause):
                continue
            sql = pusher.sql(clause.condition)
            if sql is not None:
                parts.append(sql)
                pushed.append(clause)
        return " AND ".join(parts) or None, pushed

    def _has_all(self, variable: Variable, clause: Where) -> bool:
        """Whether every type of the variable has the columns of the condition, with the Arrow types that it expects."""
        for term in walk(clause):
            if not isinstance(term, Property):
                continue
            for t in (self.type(e) for e in variable.types):
                if term.name in physical_columns(t):
                    continue
                if term.name not in t.by_name or arrow_type(t.by_name[term.name].type) != type_of(term.type):
                    return False
        return True


def _united(parts: Sequence[DataFrame]) -> DataFrame:
    united = parts[0]
    for part in parts[1:]:
        united = united.unionAll(part)
    return united


def _cast(column: Column, stored: pa.DataType, target: pa.DataType) -> Column:
    if stored == target:
        return column

    def cast(columns: Sequence[pa.Array]) -> pa.Array:
        return from_spark(columns[0], stored).cast(target)

    return arrow_function(cast, spark_type(target))(column)
