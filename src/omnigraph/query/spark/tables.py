"""Tables of the pinned commit as DataFrames: the columns that a query looks at, the conditions that Lance takes.

A condition goes to Lance only if the tables of all types of its variable take it; then Spark need not see it again.
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

Wanted = tuple[str, pa.DataType]
NEAR, FAR = "near", "far"
BROADCAST_ROWS = 10_000
"""Tables of so few rows are sent to every executor: Spark does not know how small they are."""


def wanted_columns(types: Mapping[str, EntityType], body: Read) -> dict[int, dict[Wanted, None]]:
    """Of every variable the columns that are neither its id nor the name of its type."""
    found: dict[int, dict[Wanted, None]] = {}
    for term in walk(body):
        if isinstance(term, Property) and term.name not in ("id", "@type"):
            found.setdefault(term.variable.slot, {})[term.name, type_of(term.type)] = None
        elif isinstance(term, Object):
            held = [types[t.id] for t in term.variable.types]
            for f in object_fields(held, term):
                if f.name != "id":
                    found.setdefault(term.variable.slot, {})[f.name, f.type] = None
    return found


@dataclass(frozen=True, eq=False)
class Tables:
    spark: Any
    snapshot: Snapshot
    types: Sequence[EntityType]
    wanted: Mapping[int, Mapping[Wanted, None]]
    values: Values

    def ordinal(self, e: Entity) -> int:
        return next(i for i, t in enumerate(self.types) if t.id == e.id)

    def type(self, e: Entity) -> EntityType:
        return self.types[self.ordinal(e)]

    def rows(self, types: Sequence[Entity]) -> int:
        found = 0
        for e in types:
            known = self.snapshot.view.pins[e.id].rows
            found += known if known is not None else self.snapshot.view.count(self.type(e))
        return found

    def hinted(self, table: DataFrame, types: Sequence[Entity]) -> DataFrame:
        """What is made of the tables of these types, as one side of a join."""
        return F.broadcast(table) if self.rows(types) <= BROADCAST_ROWS else table

    def columns(self, variable: Variable) -> list[str]:
        """All columns of a bound variable."""
        named = [self.values.names[variable.slot, n, t] for n, t in self.wanted.get(variable.slot, {})]
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
        found = self.spark.read.format("omnigraph").options(**options).load()
        # By place, because Spark does not tell `Name` from `name`.
        return found.toDF(*(f"c{i}" for i in range(len(columns))))

    def _typed(self, t: EntityType, variable: Variable, where: str | None) -> tuple[DataFrame, dict[str, Column]]:
        """A table with what is wanted of a variable: (rows, their columns by the names of the variable)."""
        physical = physical_columns(t)
        wanted = self.wanted.get(variable.slot, {})
        there = [n for n in dict.fromkeys(n for n, _ in wanted) if n in t.by_name]
        names = [*physical, *there]
        loaded = self._load(t, names, where)
        at = {n: F.col(f"c{i}") for i, n in enumerate(names)}
        found = {entity(variable.slot): self.key(t, at["id"])}
        for name, kind in wanted:
            target = self.values.names[variable.slot, name, kind]
            if name not in at:
                found[target] = F.lit(None).cast(spark_type(kind))
            else:
                stored = pa.string() if name in physical else arrow_type(t.by_name[name].type)
                found[target] = _cast(at[name], stored, kind)
        return loaded, {**{f"@{n}": at[n] for n in physical}, **found}

    def key(self, t: EntityType, identity: Column) -> Column:
        return F.struct(identity.alias("id"), F.lit(self.types.index(t)).alias("type"))

    def scan(self, variable: Variable, own: Sequence[Where]) -> tuple[DataFrame, list[Where]]:
        """(the entities that a variable can be, the conditions that they fulfil already)."""
        sql, taken = self.pushed(variable, own)
        parts = []
        for e in variable.types:
            loaded, columns = self._typed(self.type(e), variable, sql)
            parts.append(loaded.select(*(columns[n].alias(n) for n in self.columns(variable))))
        return _united(parts), taken

    def hops(self, steps: Sequence[Step], edge: Variable | None, own: Sequence[Where]) -> tuple[DataFrame, list[Where]]:
        """(one row per edge and way to cross it: its ends and what is wanted of it; the conditions it fulfils)."""
        variable = edge if edge is not None else Variable("_", -1, "edge")
        sql, taken = self.pushed(variable, own) if edge is not None else (None, [])
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
                    # A loop was crossed on the way out already.
                    rows = rows.filter(columns["@src"] != columns["@dst"])
                near_key, far_key = self.key(starts, columns[near]), self.key(ends, columns[far])
                parts.append(rows.select(near_key.alias(NEAR), far_key.alias(FAR), *more))
        return _united(parts), taken

    def pushed(self, variable: Variable, own: Sequence[Where]) -> tuple[str | None, list[Where]]:
        pusher = Pusher(variable, self.values.params, self.values.now)
        parts: list[str] = []
        taken: list[Where] = []
        for clause in own:
            if set(variables_of(clause)) != {variable} or not self._has_all(variable, clause):
                continue
            sql = pusher.sql(clause.condition)
            if sql is not None:
                parts.append(sql)
                taken.append(clause)
        return " AND ".join(parts) or None, taken

    def _has_all(self, variable: Variable, clause: Where) -> bool:
        """A filter names columns: every type has them, in the type that the condition was made for."""
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
    found = parts[0]
    for part in parts[1:]:
        found = found.unionAll(part)
    return found


def _cast(column: Column, stored: pa.DataType, wanted: pa.DataType) -> Column:
    if stored == wanted:
        return column

    def cast(columns: Sequence[pa.Array]) -> pa.Array:
        return from_spark(columns[0], stored).cast(wanted)

    return arrow_function(cast, spark_type(wanted))(column)
