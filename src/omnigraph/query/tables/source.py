"""What one query reads: every type's table at one state, and the caches and the ledger that go with it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.commit.operation import View
from omnigraph.language.query.terms import Entity
from omnigraph.language.schema.model import EntityType, Schema
from omnigraph.query.execution import sorting
from omnigraph.query.execution.frame import NULL, SHIFT, TYPES_MAX, factorize, ordinals, rowids
from omnigraph.query.execution.ranking import ranked_parts
from omnigraph.query.limits import Watch
from omnigraph.query.tables.cache import Cache
from omnigraph.query.tables.memory_table import HeldTable, held_table
from omnigraph.query.tables.tables import StoredTable, Table

if TYPE_CHECKING:
    from omnigraph.write.reader import Reader


class Source:
    """`pending` is a reader that sees rows which no commit holds yet, `touched` the types that it sees differently."""

    def __init__(
        self,
        view: View,
        cache: Cache,
        watch: Watch,
        *,
        pending: Reader | None = None,
        touched: Sequence[str] = (),
    ) -> None:
        self.view = view
        self.cache = cache
        self.watch = watch
        self._pending = pending
        self._touched = frozenset(touched)
        self._tables: dict[int, Table] = {}
        self._known: tuple[list[EntityType], dict[str, int]] | None = None

    @property
    def schema(self) -> Schema:
        return self.view.schema

    @property
    def types(self) -> list[EntityType]:
        """By kind and name: a type's place here is its ordinal."""
        return self._typed()[0]

    def _typed(self) -> tuple[list[EntityType], dict[str, int]]:
        def make() -> tuple[tuple[list[EntityType], dict[str, int]], int]:
            types = sorted(self.schema.types(), key=lambda t: (t.kind, t.name))
            assert len(types) < TYPES_MAX, "a code has room for so many types"
            return (types, {t.id: i for i, t in enumerate(types)}), 1024

        if self._known is None:
            self._known = self.cache.made(("types", self.view.head.schema), make)
        return self._known

    def ordinal(self, entity: Entity) -> int:
        return self._typed()[1][entity.id]

    def table(self, entity: Entity) -> Table:
        return self.at(self.ordinal(entity))

    def at(self, ordinal: int) -> Table:
        found = self._tables.get(ordinal)
        if found is None:
            found = self._tables[ordinal] = self._open(self.types[ordinal], ordinal)
        return found

    def _open(self, t: EntityType, ordinal: int) -> Table:
        if self._pending is not None and t.name in self._touched:
            columns = [p.name for p in t.properties if p.type.kind != "Blob"]
            physical = ["id"] if t.kind == "node" else ["id", "src", "dst"]
            return held_table(t, ordinal, self._pending.scan(t, [*physical, *columns]))
        pin = self.view.pins[t.id]
        dataset = self.view.open(t)
        location = self.view.tables.location
        return StoredTable(
            t,
            ordinal,
            (pin.path, pin.version),
            dataset,
            self.cache,
            self.watch,
            pin.rows,
            graph=location.uri if location.is_local else None,
        )

    def is_held(self, entity: Entity) -> bool:
        return isinstance(self.table(entity), HeldTable)

    # ---- values by code

    def values(self, names: Sequence[str], codes: np.ndarray, types: dict[str, pa.DataType]) -> dict[str, pa.Array]:
        """Columns of the entities, null for a null code and for a type that lacks the column.

        `@type` is the name of the entity's type. `types` says what the columns are made of.
        """
        kinds = ordinals(codes)
        first = int(kinds[0]) if len(kinds) else NULL
        if first >= 0 and bool((kinds == first).all()):
            return self._of_one(names, first, rowids(codes), types)
        parts: dict[str, list[pa.Array]] = {n: [pa.nulls(1, types[n])] for n in names}
        index = np.zeros(len(codes), dtype=np.int64)
        total = 1
        for kind in factorize(kinds)[0].tolist():
            if kind == NULL:
                continue
            at = np.flatnonzero(kinds == kind)
            index[at] = total + np.arange(len(at))
            total += len(at)
            for name, column in self._of_one(names, kind, rowids(codes[at]), types).items():
                parts[name].append(column)
        taken = pa.array(index)
        return {n: pa.concat_arrays(p).take(taken) for n, p in parts.items()}

    def _of_one(
        self, names: Sequence[str], ordinal: int, numbers: np.ndarray, types: dict[str, pa.DataType]
    ) -> dict[str, pa.Array]:
        table = self.at(ordinal)
        physical = ("id",) if table.type.kind == "node" else ("id", "src", "dst")
        there = [n for n in names if n in table.type.by_name or n in physical]
        found = table.values(there, numbers) if there else {}
        for name in names:
            if name == "@type":
                found[name] = pa.repeat(pa.scalar(table.type.name, pa.string()), len(numbers))
            elif name not in found:
                found[name] = pa.nulls(len(numbers), types[name])
            elif found[name].type != types[name]:
                found[name] = found[name].cast(types[name])
        return found

    def ids(self, codes: np.ndarray) -> pa.Array:
        return self.values(["id"], codes, {"id": pa.string()})["id"]

    def ranks(self, codes: np.ndarray, *, among_rows: int = 0) -> np.ndarray:
        """Whole numbers that are ordered as entities are: null first, then by id, then by the name of the type.

        `among_rows`: the codes are a part of so many, and the others are likely to be asked for as well.
        """
        kinds = ordinals(codes)
        first = int(kinds[0]) if len(kinds) else NULL
        if first >= 0 and bool((kinds == first).all()):
            known = self.at(first).id_ranks(rowids(codes), among_rows=among_rows)
            if known is not None:
                return known
        distinct, numbers = factorize(codes)
        there = distinct[distinct >= 0]
        if len(there) > sorting.PART_ROWS:
            ids = ranked_parts(self.ids(there[part]) for part in sorting.parts(len(there)))
            in_order = sorting.argsort_pairs(ids, there >> SHIFT)
        else:
            order = pa.table({"id": self.ids(there), "type": pa.array(there >> SHIFT)})
            in_order = np.asarray(pc.sort_indices(order, sort_keys=[("id", "ascending"), ("type", "ascending")]))
        ranks = np.full(len(distinct), NULL, dtype=np.int64)
        ranks[in_order + (len(distinct) - len(there))] = np.arange(len(there))
        return np.asarray(ranks[numbers])
