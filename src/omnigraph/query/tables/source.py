"""What one query reads: the tables of all types at one state, with the cache and the limits of the query."""

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
from omnigraph.query.tables.memory_table import MemoryTable, memory_table
from omnigraph.query.tables.tables import StoredTable, Table

if TYPE_CHECKING:
    from omnigraph.write.reader import Reader


class Source:
    """`pending` is a reader of the pending view of a transaction, `touched` the types that differ in it."""

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
        self._types_cache: tuple[list[EntityType], dict[str, int]] | None = None

    @property
    def schema(self) -> Schema:
        return self.view.schema

    @property
    def types(self) -> list[EntityType]:
        """Sorted by kind and name: the position of a type is its ordinal."""
        return self._typed()[0]

    def _typed(self) -> tuple[list[EntityType], dict[str, int]]:
        def make() -> tuple[tuple[list[EntityType], dict[str, int]], int]:
            types = sorted(self.schema.types(), key=lambda t: (t.kind, t.name))
            assert len(types) < TYPES_MAX, "the ordinals of types fit into a code"
            return (types, {t.id: i for i, t in enumerate(types)}), 1024

        if self._types_cache is None:
            self._types_cache = self.cache.get_or_make(("types", self.view.head.schema), make)
        return self._types_cache

    def ordinal(self, entity: Entity) -> int:
        return self._typed()[1][entity.id]

    def table(self, entity: Entity) -> Table:
        return self.at(self.ordinal(entity))

    def at(self, ordinal: int) -> Table:
        table = self._tables.get(ordinal)
        if table is None:
            table = self._tables[ordinal] = self._open(self.types[ordinal], ordinal)
        return table

    def _open(self, t: EntityType, ordinal: int) -> Table:
        if self._pending is not None and t.name in self._touched:
            columns = [p.name for p in t.properties if p.type.kind != "Blob"]
            physical = ["id"] if t.kind == "node" else ["id", "src", "dst"]
            return memory_table(t, ordinal, self._pending.scan(t, [*physical, *columns]))
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

    def is_in_memory(self, entity: Entity) -> bool:
        return isinstance(self.table(entity), MemoryTable)

    # ---- values by code

    def values(self, names: Sequence[str], codes: np.ndarray, types: dict[str, pa.DataType]) -> dict[str, pa.Array]:
        """Columns of the entities, null for a null code and for a type that lacks the column.

        `@type` is the name of the entity's type. `types` are the Arrow types of the columns.
        """
        kinds = ordinals(codes)
        first = int(kinds[0]) if len(kinds) else NULL
        if first >= 0 and bool((kinds == first).all()):
            return self._of_type(names, first, rowids(codes), types)
        parts: dict[str, list[pa.Array]] = {n: [pa.nulls(1, types[n])] for n in names}
        index = np.zeros(len(codes), dtype=np.int64)
        total = 1
        for kind in factorize(kinds)[0].tolist():
            if kind == NULL:
                continue
            positions = np.flatnonzero(kinds == kind)
            index[positions] = total + np.arange(len(positions))
            total += len(positions)
            for name, column in self._of_type(names, kind, rowids(codes[positions]), types).items():
                parts[name].append(column)
        take_index = pa.array(index)
        return {n: pa.concat_arrays(p).take(take_index) for n, p in parts.items()}

    def _of_type(
        self, names: Sequence[str], ordinal: int, numbers: np.ndarray, types: dict[str, pa.DataType]
    ) -> dict[str, pa.Array]:
        table = self.at(ordinal)
        physical = ("id",) if table.type.kind == "node" else ("id", "src", "dst")
        stored_names = [n for n in names if n in table.type.by_name or n in physical]
        columns = table.values(stored_names, numbers) if stored_names else {}
        for name in names:
            if name == "@type":
                columns[name] = pa.repeat(pa.scalar(table.type.name, pa.string()), len(numbers))
            elif name not in columns:
                columns[name] = pa.nulls(len(numbers), types[name])
            elif columns[name].type != types[name]:
                columns[name] = columns[name].cast(types[name])
        return columns

    def ids(self, codes: np.ndarray) -> pa.Array:
        return self.values(["id"], codes, {"id": pa.string()})["id"]

    def ranks(self, codes: np.ndarray, *, among_rows: int = 0) -> np.ndarray:
        """Integers in the order of the entities: null first, then by id, then by the name of the type.

        `among_rows`: the codes are a part of that many, whose ranks will probably be needed as well.
        """
        kinds = ordinals(codes)
        first = int(kinds[0]) if len(kinds) else NULL
        if first >= 0 and bool((kinds == first).all()):
            id_ranks = self.at(first).id_ranks(rowids(codes), among_rows=among_rows)
            if id_ranks is not None:
                return id_ranks
        distinct, numbers = factorize(codes)
        present = distinct[distinct >= 0]
        if len(present) > sorting.PART_ROWS:
            ids = ranked_parts(self.ids(present[part]) for part in sorting.parts(len(present)))
            in_order = sorting.argsort_pairs(ids, present >> SHIFT)
        else:
            order = pa.table({"id": self.ids(present), "type": pa.array(present >> SHIFT)})
            in_order = np.asarray(pc.sort_indices(order, sort_keys=[("id", "ascending"), ("type", "ascending")]))
        ranks = np.full(len(distinct), NULL, dtype=np.int64)
        ranks[in_order + (len(distinct) - len(present))] = np.arange(len(present))
        return np.asarray(ranks[numbers])
