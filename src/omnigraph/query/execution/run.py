"""Reading: a checked query and its parameters, on one pinned state.

1. match      the pattern: bound rows (`match`)
2. rank       scores that the query asks for, over all rows that match
3. group      aggregates or distinct rows become rows of their own (`aggregate`)
4. having     keeps some of them
5. order      total: keys, then ids or columns; offset and limit cut (`order`)
6. columns    the values of the rows that are left, and only of these

Nothing is written; whatever stops a query leaves nothing behind.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import cache, partial
from typing import Any

import numpy as np
import pyarrow as pa

from omnigraph.errors import UsageError
from omnigraph.graph.snapshot import Snapshot
from omnigraph.language.query.model import CheckedQuery, Column, Key, Read
from omnigraph.language.query.params import bind_params
from omnigraph.language.query.terms import Bm25, Expression, Fused, Nearest, Object, Output, Property, Variable
from omnigraph.query.execution import sorting
from omnigraph.query.execution.aggregate import Groups, key_numbers
from omnigraph.query.execution.evaluate import Evaluator, Rows
from omnigraph.query.execution.frame import UNIT, Frame, groups_of
from omnigraph.query.execution.match import Matcher
from omnigraph.query.execution.order import KeyOf, best_scores, directed, ordered
from omnigraph.query.execution.project import result_schema, values_of
from omnigraph.query.execution.ranking import ranked, ranked_parts
from omnigraph.query.execution.values import taken, truth
from omnigraph.query.limits import Options, Watch, enough_memory
from omnigraph.query.plan.analysis import Analysis, Wanted, aggregates_of
from omnigraph.query.result import Result
from omnigraph.query.search import Searcher
from omnigraph.query.tables.cache import Cache
from omnigraph.query.tables.source import Source

EAGER_ROWS = 65_536
"""Results of so many rows are made at once; larger ones when they are asked for."""
Ranked = dict[Expression, pa.Array]


def run_query(
    snapshot: Snapshot,
    checked: CheckedQuery,
    params: Mapping[str, Any],
    *,
    options: Options | None = None,
    cache: Cache | None = None,
    analysis: Analysis | None = None,
) -> Result:
    """The answer to a read query. QueryTimeout and ResourceLimit where it would go beyond the options."""
    body = checked.body
    if not isinstance(body, Read):
        raise UsageError(detail=f"{checked.name} writes; `mutate` runs it, `query` only reads.")
    options = (options or Options()).checked()
    watch = Watch(checked.name, options)
    source = Source(snapshot.view, cache if cache is not None else Cache(), watch)
    analysis = analysis if analysis is not None else Analysis(body)
    reading = _Reading(source, body, bind_params(checked, params), analysis)
    with enough_memory(checked.name), watch.running():
        made = reading.rows()
    watch.answer(made.count)
    schema = analysis.kept.get("schema")
    if schema is None:
        schema = analysis.kept["schema"] = result_schema(source, body.columns)

    def batch(start: int, stop: int) -> pa.RecordBatch:
        with enough_memory(checked.name), watch.running():
            arrays = made.values(start, stop)
            watch.memory(sum(a.nbytes for a in arrays))
            return pa.RecordBatch.from_arrays(arrays, schema=schema)

    steps = watch.steps
    result = Result(
        checked.name,
        schema,
        made.count,
        batch,
        branch=snapshot.branch,
        commit=snapshot.commit,
        steps=steps,
        seconds=0.0,
    )
    if made.count <= EAGER_ROWS:
        with watch.step("columns", [c.value for c in body.columns]) as step:
            step.rows = result.to_arrow().num_rows
    watch.tick()
    watch.stop()
    result.seconds = time.perf_counter() - watch.began
    return result


def bound_rows(
    source: Source, checked: CheckedQuery, pattern: Any, params: Mapping[str, Any], *, now: datetime | None = None
) -> Rows:
    """The rows of a pattern, every variable bound: what a statement that writes them works on.

    `params` are bound already. `source` may see rows that no commit holds yet. `Rows.column` gives the values of the
    statement's expressions, `Rows.frame` the entities.
    """
    evaluator = _evaluator(source, params, now)
    matcher = Matcher(source, evaluator, Analysis(checked.body))
    frame = matcher.run(pattern, Wanted(frozenset(v.slot for v in pattern.binds)), UNIT)
    return evaluator.over(frame)


def _evaluator(source: Source, params: Mapping[str, Any], now: datetime | None = None) -> Evaluator:
    moment = now or datetime.now(UTC)
    moment = moment.replace(microsecond=moment.microsecond // 1000 * 1000)
    searcher = Searcher(source, params)
    return Evaluator(source, params, moment, searcher)


@dataclass(frozen=True, eq=False)
class _Made:
    """Rows of the answer in their order: `values(start, stop)` gives their columns."""

    count: int
    values: Any


class _Reading:
    def __init__(self, source: Source, body: Read, params: Mapping[str, Any], analysis: Analysis) -> None:
        self.analysis = analysis
        self.source = source
        self.watch = source.watch
        self.body = body
        self.evaluator = _evaluator(source, params)
        self.matcher = Matcher(source, self.evaluator, analysis)

    def rows(self) -> _Made:
        frame = self.matcher.run(self.body.pattern, replace(self.analysis.wanted, rows_max=self._rows_max()))
        if self.body.aggregated:
            with self.watch.holding(frame.bytes):
                outputs = self._aggregated(frame)
            del frame
            return self._from_outputs(outputs)
        with self.watch.holding(frame.bytes):
            ranks = self._ranks(frame)
            if not self.body.distinct:
                return self._plain(frame, ranks)
            outputs = self._distinct(frame, ranks)
        del frame
        return self._from_outputs(outputs)

    def _rows_max(self) -> int | None:
        """The most rows of the pattern that give no more rows than allowed; None where that is not known before."""
        body, most = self.body, self.watch.options.max_rows
        if most is None or body.aggregated or body.distinct or body.having is not None:
            return None
        start, end = self._cuts()
        return None if end is not None and end - start <= most else start + most

    def _once(self, name: str, make: Callable[[], Any]) -> Any:
        """Something about the query that is found when it first runs."""
        kept = self.analysis.kept
        if name not in kept:
            kept[name] = make()
        return kept[name]

    # ---- 2 rank

    def _ranks(self, frame: Frame) -> Ranked:
        values = [*(c.value for c in self.body.columns), *(k.value for k in self.body.order)]
        terms: dict[Expression, None] = self._once(
            "ranks", lambda: dict.fromkeys(t for e in values for t in _outermost_ranks(e))
        )
        if not terms:
            return {}
        with self.watch.step("rank", list(terms)) as step:
            best = self._best()
            found: Ranked = {}
            for t in terms:
                assert isinstance(t, Nearest | Bm25 | Fused)
                first = best if self.body.order and self.body.order[0].value == t else None
                found[t] = self.evaluator.searcher.scores(t, frame, best=first)
            step.rows = frame.rows
        return found

    def _best(self) -> int | None:
        """How many rows the first key has to find, if that is all that its values are for."""
        body = self.body
        if body.having is not None or body.distinct or not body.order or body.order[0].descending:
            return None
        return self._cuts()[1]

    # ---- 3 group

    def _aggregated(self, frame: Frame) -> list[pa.Array]:
        body = self.body
        used = [
            *(c.value for c in body.columns),
            *([body.having] if body.having else ()),
            *(k.value for k in body.order),
        ]
        keys = [body.columns[i].value for i in body.group]
        aggregates = self._once("aggregates", lambda: aggregates_of(tuple(used)))
        with self.watch.step("aggregate", [*keys, *aggregates]) as step:
            rows = self.evaluator.over(frame)
            rows.fetch([a.operand for a in aggregates if a.operand is not None])
            groups = Groups(rows, keys)
            order = None
            if any(a.name == "collect" and not a.distinct for a in aggregates):
                with self.watch.holding(groups.bytes + frame.rows * 8):
                    order = ordered(np.arange(frame.rows), partial(self._ties, frame, body.pattern.binds), first=None)
            known: dict[Expression, Any] = {}
            with self.watch.holding(groups.bytes + (0 if order is None else order.nbytes)):
                for aggregate in aggregates:
                    self.watch.tick()
                    known[aggregate] = groups.value(aggregate, order)
            firsts = frame.take(groups.first) if keys else Frame(1)
            self.grouped = Rows(self.evaluator, firsts, known)
            step.rows = groups.count
            return values_of(self.grouped, body.columns)

    def _distinct(self, frame: Frame, ranks: Ranked) -> list[pa.Array]:
        with self.watch.step("distinct", [c.value for c in self.body.columns]) as step:
            rows = Rows(self.evaluator, frame, dict(ranks))
            entities = self._once("identified", self._identified)
            if not entities:
                rows.fetch([c.value for c in self.body.columns])
            numbers = [frame.columns[s] for s in entities] or [key_numbers(rows, c.value) for c in self.body.columns]
            first, _ = groups_of(numbers, frame.rows)
            index = pa.array(first)
            known: dict[Expression, Any] = {e: a.take(index) for e, a in ranks.items()}
            self.grouped = Rows(self.evaluator, frame.take(first), known)
            step.rows = len(first)
            return values_of(self.grouped, self.body.columns)

    def _identified(self) -> list[int]:
        """The variables that the columns are about, if each of them is told apart by a column: then equal rows are rows
        of the same entities. Otherwise none.
        """
        slots: dict[int, bool] = {}
        for column in self.body.columns:
            value = column.value
            if not isinstance(value, Property | Object) or len(value.variable.types) != 1:
                return []
            keys = self.source.table(value.variable.types[0]).type.key_properties
            is_key = isinstance(value, Object) or value.name == "id" or keys == (value.name,)
            slots[value.variable.slot] = is_key or slots.get(value.variable.slot, False)
        return list(slots) if all(slots.values()) else []

    # ---- 4 having, 5 order

    def _from_outputs(self, outputs: list[pa.Array]) -> _Made:
        """Rows that are columns already."""
        body, rows = self.body, self.grouped
        rows.outputs = outputs
        held_bytes = rows.frame.bytes + sum(o.nbytes for o in outputs)
        with self.watch.holding(held_bytes + rows.rows * 16):
            places = np.arange(rows.rows, dtype=np.int64)
            if body.having is not None:
                places = np.flatnonzero(truth(rows.column(body.having), rows.rows))
            start, first = self._cuts()
            with self.watch.step("order", body.order) as step:
                keys = [cache(partial(self._key_ranks, k, rows, outputs)) for k in body.order]
                for column, output in zip(body.columns, outputs, strict=True):
                    keys.append(cache(partial(self._column_ranks, column, output, rows)))
                at = partial(map, lambda ranks: partial(_ranks_at, ranks, places), keys)
                index = places[ordered(np.arange(len(places)), at, first=first)][start:]
                step.rows = len(index)
            if rows.rows <= 1 and len(index) == rows.rows:
                return _Made(len(index), lambda a, b: [o.slice(a, b - a) for o in outputs])
            keys.clear()
            rows_in_order = [taken(o, index) for o in outputs]
        return _Made(len(index), lambda a, b: [o.slice(a, b - a) for o in rows_in_order])

    def _key_ranks(self, k: Key, rows: Rows, outputs: Sequence[pa.Array]) -> np.ndarray:
        value = k.value
        if isinstance(value, Output):
            column = self.body.columns[value.index]
            ranks = self._column_ranks(column, outputs[value.index], rows)
            is_rank = isinstance(column.value, Nearest | Bm25 | Fused)
        else:
            ranks, is_rank = ranked(rows.column(value)), False
        return directed(ranks, descending=k.descending, nulls_last=is_rank)

    def _column_ranks(self, column: Column, output: pa.Array, rows: Rows) -> np.ndarray:
        if isinstance(column.value, Object):
            return self.source.ranks(rows.frame.columns[column.value.variable.slot])
        return ranked(output)

    def _plain(self, frame: Frame, ranks: Ranked) -> _Made:
        body = self.body
        if body.having is not None:
            self.watch.memory(frame.rows * 9)
            keep = np.flatnonzero(self._having(Rows(self.evaluator, frame, dict(ranks)), body.having))
            if len(keep) < frame.rows:
                self.watch.memory(len(keep) * 8 * (1 + len(frame.columns) + len(ranks)))
                frame, ranks = frame.take(keep), _taken(ranks, keep)
            del keep
        start, first = self._cuts()
        with self.watch.step("order", body.order or "ids") as step:

            def keys() -> Iterator[KeyOf]:
                for k in body.order:
                    yield partial(self._row_key, k, frame, ranks)
                yield from self._ties(frame, body.ties)

            with self.watch.holding(frame.rows * 8):
                index = ordered(self._candidates(frame, ranks, first), keys, first=first)[start:]
            step.rows = len(index)
        self.watch.memory(len(index) * 8 * (1 + len(frame.columns) + len(ranks)))
        frame, ranks = frame.take(index), _taken(ranks, index)

        def values(a: int, b: int) -> list[pa.Array]:
            part = {e: r.slice(a, b - a) for e, r in ranks.items()}
            return values_of(Rows(self.evaluator, frame.slice(a, b), part), body.columns)

        return _Made(frame.rows, values)

    def _having(self, rows: Rows, condition: Expression) -> np.ndarray:
        if rows.rows > sorting.PART_ROWS:
            return np.concatenate([self._having(part, condition) for part in rows.parts()])
        rows.outputs = values_of(rows, self.body.columns)
        return truth(rows.value(condition), rows.rows)

    def _candidates(self, frame: Frame, ranks: Ranked, first: int | None) -> np.ndarray:
        """All rows; by a score and a limit only those that can be among the first."""
        key = self.body.order[0] if self.body.order else None
        if first is None or key is None or key.value not in ranks:
            return np.arange(frame.rows, dtype=np.int64)
        return best_scores(ranks[key.value], first, descending=key.descending)

    def _row_key(self, k: Key, frame: Frame, ranks: Ranked, at: np.ndarray) -> np.ndarray:
        whole = len(at) == frame.rows
        part = frame if whole else frame.take(at)
        rows = Rows(self.evaluator, part, dict(ranks if whole else _taken(ranks, at)))
        self.watch.tick()
        if isinstance(k.value, Object):
            found = self.source.ranks(part.columns[k.value.variable.slot], among_rows=frame.rows)
        else:
            found = key_numbers(rows, k.value)
        self.watch.tick()
        is_rank = isinstance(k.value, Nearest | Bm25 | Fused)
        return directed(found, descending=k.descending, nulls_last=is_rank)

    def _ties(self, frame: Frame, variables: Sequence[Variable]) -> Iterator[KeyOf]:
        for variable in variables:
            if variable.kind == "path":
                yield partial(self._path_ranks, frame, variable)
            else:
                yield partial(self._id_ranks, frame.columns[variable.slot])

    def _id_ranks(self, codes: np.ndarray, at: np.ndarray) -> np.ndarray:
        self.watch.tick()
        return self.source.ranks(codes if len(at) == len(codes) else codes[at], among_rows=len(codes))

    def _path_ranks(self, frame: Frame, variable: Variable, at: np.ndarray) -> np.ndarray:
        rows = Rows(self.evaluator, frame.take(at))
        if rows.rows > sorting.PART_ROWS:
            return ranked_parts(part.path_nodes(variable.slot) for part in rows.parts())
        return ranked(rows.path_nodes(variable.slot))

    def _cuts(self) -> tuple[int, int | None]:
        body = self.body
        start = 0 if body.offset is None else int(self.evaluator.constant(body.offset))
        limit = None if body.limit is None else int(self.evaluator.constant(body.limit))
        return start, None if limit is None else start + limit


def _ranks_at(make: Callable[[], np.ndarray], places: np.ndarray, at: np.ndarray) -> np.ndarray:
    return np.asarray(make()[places[at]])


def _outermost_ranks(e: object) -> Iterator[Expression]:
    """Scores in an expression; those that a fused one is made of are its own affair."""
    if isinstance(e, Nearest | Bm25 | Fused):
        yield e
        return
    for name in getattr(type(e), "__slots__", ()):
        part = getattr(e, name)
        for p in part if isinstance(part, tuple) else (part,):
            if hasattr(type(p), "__slots__") and not isinstance(p, Variable):
                yield from _outermost_ranks(p)


def _taken(ranks: Ranked, index: np.ndarray) -> Ranked:
    at = pa.array(index)
    return {e: a.take(at) for e, a in ranks.items()}
