"""Messages of violations: which row, which rule, and which other row is involved.

The messages are those of `rules`. Rows are read from the staged tables, or from the graph if the other row is there.
Rows with equal digests are asserted to have equal texts.
"""

from __future__ import annotations

import bisect
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate
from typing import Any

import numpy as np
import pyarrow as pa

from omnigraph.errors import Violation
from omnigraph.language.schema.model import EdgeType, EntityType
from omnigraph.pipeline.bulk.compare import rows_by_id
from omnigraph.pipeline.bulk.context import ROW_BITS, Context
from omnigraph.pipeline.bulk.existing import open_pinned
from omnigraph.pipeline.bulk.input.read import LINE
from omnigraph.pipeline.bulk.rejects.violation_codes import NONE, Kind
from omnigraph.rules.cardinality import too_few_edges, too_many_edges
from omnigraph.rules.endpoints import ends, missing_node, rejected_node, removed_node
from omnigraph.rules.identity import existing_id, repeated_id
from omnigraph.rules.problem import Problem
from omnigraph.rules.unique import repeated_tuple, taken_tuple


@dataclass(frozen=True)
class Places:
    """Source and line number of the lines of pieces, as users count them."""

    pieces: Sequence[Mapping[str, Any]]
    segments: Sequence[Sequence[int]]

    @cached_property
    def _spans(self) -> tuple[list[int], list[tuple[str, int]]]:
        """The first line of every segment in the whole input, and its source with the lines of it that come before."""
        starts, about = [], []
        total = 0
        # One file may feed several types, and is then read once for each.
        seen: Counter[tuple[str, str]] = Counter()
        for piece, counts in zip(self.pieces, self.segments, strict=True):
            for segment, count in zip(piece["segments"], counts, strict=True):
                source = segment["source"]
                reading = (piece.get("type", ""), source)
                starts.append(total)
                about.append((source, seen[reading]))
                seen[reading] += count
                total += count
        return starts, about

    @cached_property
    def _before(self) -> list[int]:
        return [0, *accumulate(sum(counts) for counts in self.segments)]

    @cached_property
    def source_count(self) -> int:
        return len({segment["source"] for piece in self.pieces for segment in piece["segments"]})

    @property
    def total(self) -> int:
        return int(self._before[-1])

    def place(self, piece: int, line: int) -> tuple[str, int]:
        """The source of a line of a piece, and its number there, from 1."""
        starts, about = self._spans
        number = self._before[piece] + line - 1
        index = max(0, bisect.bisect_right(starts, number) - 1)
        source, before = about[index]
        return source, before + number - starts[index] + 1

    def text(self, piece: int, line: int) -> str:
        source, number = self.place(piece, line)
        return f"line {number}" if self.source_count == 1 else f"line {number} of {source}"


class Explainer:
    """Builds messages. Reads each staged table once."""

    def __init__(self, context: Context, places: Places, tables: Mapping[str, str], pins: Mapping[str, Any]) -> None:
        self._context = context
        self._places = places
        self._names = tables
        self._pins = pins
        self._tables: dict[str, pa.Table] = {}
        self._types = list(context.types.values())

    def violations(self, codes: np.ndarray) -> list[Violation]:
        return [self._violation([int(word) for word in row]) for row in codes]

    def _row(self, t: EntityType, name: int) -> tuple[dict[str, Any], int, int]:
        """A row of the input, its piece, and its line there."""
        piece, offset = name >> ROW_BITS, name & (2**ROW_BITS - 1)
        key = f"{piece}|{t.key}"
        table = self._tables.get(key)
        if table is None:
            table = self._tables[key] = self._context.staging.get_table(self._names[key])
        row = table.slice(offset, 1).to_pylist()[0]
        return row, piece, row[LINE]

    def _graph_row(self, t: EntityType, row_id: int, columns: Sequence[str]) -> dict[str, Any]:
        """A row of the graph."""
        table = open_pinned(self._context, self._pins[t.key])
        row: dict[str, Any] = rows_by_id(table, t, np.array([row_id], dtype=np.uint64), columns).to_pylist()[0]
        return row

    def _violation(self, words: Sequence[int]) -> Violation:
        _, number, sub, _, name, kind, other, extra = words
        t = self._types[number]
        if name == int(NONE):
            return self._of_the_graph(t, kind, sub, other, extra)
        row, piece, line = self._row(t, name)
        source, line_number = self._places.place(piece, line)
        problem = self._problem(t, row, kind, sub, other, extra)
        return problem.violation(t.key, entity_id=row["id"], line=line_number, source=source)

    def _problem(self, t: EntityType, row: Mapping[str, Any], kind: int, sub: int, other: int, extra: int) -> Problem:
        """Which rule an input row breaks, and why."""
        if kind == Kind.REPEATED:
            first, piece, line = self._row(t, other)
            assert first["id"] == row["id"], "two ids share a digest"
            return repeated_id(t, row["id"], self._places.text(piece, line))
        if kind == Kind.EXISTS:
            return existing_id(t, row["id"])
        if kind == Kind.NO_NODE:
            assert isinstance(t, EdgeType)
            return self._no_node(t, row, sub, other, extra)
        if kind in (Kind.UNIQUE_INPUT, Kind.UNIQUE_GRAPH):
            return self._not_unique(t, row, kind, sub, other)
        return self._degree(t, row, kind, sub, other, extra)

    def _no_node(self, e: EdgeType, row: Mapping[str, Any], sub: int, other: int, extra: int) -> Problem:
        end = ends(e)[sub]
        node_id = row[end.column]
        if extra == 0:
            return missing_node(end, node_id)
        if extra == 1:
            _, piece, line = self._row(self._context.schema.node[end.node], other)
        else:
            piece, line = other >> ROW_BITS, other & (2**ROW_BITS - 1)
        return rejected_node(end, node_id, self._places.text(piece, line))

    def _not_unique(self, t: EntityType, row: Mapping[str, Any], kind: int, sub: int, other: int) -> Problem:
        names = t.constraints[sub].properties
        values = [row[name] for name in names]
        if kind == Kind.UNIQUE_GRAPH:
            return taken_tuple(names, values, self._graph_row(t, other, ["id"])["id"])
        first, piece, line = self._row(t, other)
        return repeated_tuple(names, values, first["id"], self._places.text(piece, line))

    def _degree(self, t: EntityType, row: Mapping[str, Any], kind: int, sub: int, other: int, extra: int) -> Problem:
        if kind == Kind.TOO_FEW_NODE:
            e = self._types[sub]
            assert isinstance(e, EdgeType)
            return too_few_edges(e, row["id"], extra, of_node=True)
        assert isinstance(t, EdgeType)
        if kind == Kind.TOO_FEW_EDGE:
            return too_few_edges(t, self._graph_row(t, other, ["src"])["src"], extra)
        return too_many_edges(t, row["src"], extra)

    def _of_the_graph(self, t: EntityType, kind: int, sub: int, other: int, extra: int) -> Violation:
        """The violation of a row of the graph, which no input row is to blame for."""
        assert isinstance(t, EdgeType)
        if kind == Kind.TOO_FEW:
            return too_few_edges(t, self._graph_row(t, other, ["src"])["src"], extra).violation(t.key)
        edge = self._graph_row(t, other, ["id", "src", "dst"])
        end = ends(t)[sub]
        return removed_node(end, edge[end.column]).violation(t.key, entity_id=edge["id"])
