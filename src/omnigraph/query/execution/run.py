"""Reading: a checked query and its parameters, on one pinned state.

1. match      the pattern: bound rows (`match`)
2. rank       scores that the query asks for, over all rows that match
3. group      aggregates or distinct rows become rows of their own (`aggregate`)
4. having     filters them
5. order      total: keys, then ids or columns; offset and limit cut (`order`)
6. columns    the values of the remaining rows only

Nothing is written; a query that is stopped leaves nothing behind.
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
from omnigraph.query.execution.evaluate import BoundRows, Evaluator
from omnigraph.query.execution.frame import UNIT, Frame, groups_of
from omnigraph.query.execution.match import Matcher
from omnigraph.query.execution.order import KeyOf, best_scores, directed, ordered
from omnigraph.query.execution.project import result_schema, values_of
from omnigraph.query.execution.ranking import ranked, ranked_parts
from omnigraph.query.execution.values import taken, truth
from omnigraph.query.limits import Options, Watch, enough_memory
from omnigraph.query.plan.analysis import Analysis, Needs, aggregates_of
from omnigraph.query.result import Result
from omnigraph.query.search import Searcher
from omnigraph.query.tables.cache import Cache
from omnigraph.query.tables.source import Source

EAGER_ROWS = 65_536
"""Results of up to this many rows are built at once; larger ones when they are read."""
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
    """Run a read query. Raises QueryTimeout and ResourceLimit where it exceeds the options."""
    body = checked.body
    if not isinstance(body, Read):
        raise UsageError(detail=f"{checked.name} writes; `mutate` runs it, `query` only reads.")
    options = (options or Options()).checked()
    watch = Watch(checked.name, options)
    source = Source(snapshot.view, cache if cache is not None else Cache(), watch)
    analysis = analysis if analysis is not None else Analysis(body)
    reading = _Reading(source, body, bind_params(checked, params), analysis)
    with enough_memory(checked.name), watch.running():
        answer = reading.rows()
    watch.answer(answer.count)
    schema = analysis.memo.get("schema")
    if schema is None:
        schema = analysis.memo["schema"] = result_schema(source, body.columns)

    def batch(start: int, stop: int) -> pa.RecordBatch:
        with enough_memory(checked.name), watch.running():
            arrays = answer.values(start, stop)
            watch.memory(sum(a.nbytes for a in arrays))
            return pa.RecordBatch.from_arrays(arrays, schema=schema)

    steps = watch.steps
    result = Result(
        checked.name,
        schema,
        answer.count,
        batch,
        branch=snapshot.branch,
        commit=snapshot.commit,
        steps=steps,
        seconds=0.0,
    )
    if answer.count <= EAGER_ROWS:
        with watch.step("columns", [c.value for c in body.columns]) as step:
            step.rows = result.to_arrow().num_rows
    watch.tick()
    watch.stop()
    result.seconds = time.perf_counter() - watch.began
    return result


def bound_rows(
    source: Source, checked: CheckedQuery, pattern: Any, params: Mapping[str, Any], *, now: datetime | None = None
) -> BoundRows:
    """The rows of a pattern, with every variable bound, for a statement that writes them.

    `params` are bound already. `source` may include uncommitted rows. `BoundRows.column` gives the values of the
    statement's expressions, `BoundRows.frame` the entities.
    """
    evaluator = _evaluator(source, params, now)
    matcher = Matcher(source, evaluator, Analysis(checked.body))
    frame = matcher.run(pattern, Needs(frozenset(v.slot for v in pattern.binds)), UNIT)
    return evaluator.over(frame)


def _evaluator(source: Source, params: Mapping[str, Any], now: datetime | None = None) -> Evaluator:
    moment = now or datetime.now(UTC)
    moment = moment.replace(microsecond=moment.microsecond // 1000 * 1000)
    searcher = Searcher(source, params)
    return Evaluator(source, params, moment, searcher)


@dataclass(frozen=True, eq=False)
class _AnswerRows:
    """The rows of the answer in order: `values(start, stop)` gives their columns."""

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

    def rows(self) -> _AnswerRows:
        frame = self.matcher.run(self.body.pattern, replace(self.analysis.needs, rows_max=self._rows_max()))
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
        """The largest number of pattern rows that gives an allowed number of result rows; None if not known before."""
        body, limit = self.body, self.watch.options.max_rows
        if limit is None or body.aggregated or body.distinct or body.having is not None:
            return None
        start, end = self._cuts()
        return None if end is not None and end - start <= limit else start + limit

    def _once(self, name: str, make: Callable[[], Any]) -> Any:
        """A property of the query, computed by its first run."""
        memo = self.analysis.memo
        if name not in memo:
            memo[name] = make()
        return memo[name]

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
            scores: Ranked = {}
            for t in terms:
                assert isinstance(t, Nearest | Bm25 | Fused)
                first = best if self.body.order and self.body.order[0].value == t else None
                scores[t] = self.evaluator.searcher.scores(t, frame, best=first)
            step.rows = frame.rows
        return scores

    def _best(self) -> int | None:
        """The number of best rows that the first key has to return, if its values serve nothing else."""
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
            self.grouped = BoundRows(self.evaluator, firsts, known)
            step.rows = groups.count
            return values_of(self.grouped, body.columns)

    def _distinct(self, frame: Frame, ranks: Ranked) -> list[pa.Array]:
        with self.watch.step("distinct", [c.value for c in self.body.columns]) as step:
            rows = BoundRows(self.evaluator, frame, dict(ranks))
            entities = self._once("identified", self._identified)
            if not entities:
                rows.fetch([c.value for c in self.body.columns])
            numbers = [frame.columns[s] for s in entities] or [key_numbers(rows, c.value) for c in self.body.columns]
            first, _ = groups_of(numbers, frame.rows)
            index = pa.array(first)
            known: dict[Expression, Any] = {e: a.take(index) for e, a in ranks.items()}
            self.grouped = BoundRows(self.evaluator, frame.take(first), known)
            step.rows = len(first)
            return values_of(self.grouped, self.body.columns)

    def _identified(self) -> list[int]:
        """The slots of the columns' variables, if a column identifies each of them: then equal rows are rows of the
        same entities. Otherwise none.
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

    def _from_outputs(self, outputs: list[pa.Array]) -> _AnswerRows:
        """Order and cut rows whose columns are computed already."""
        body, rows = self.body, self.grouped
        rows.outputs = outputs
        held_bytes = rows.frame.bytes + sum(o.nbytes for o in outputs)
        with self.watch.holding(held_bytes + rows.rows * 16):
            positions = np.arange(rows.rows, dtype=np.int64)
            if body.having is not None:
                positions = np.flatnonzero(truth(rows.column(body.having), rows.rows))
            start, first = self._cuts()
            with self.watch.step("order", body.order) as step:
                keys = [cache(partial(self._key_ranks, k, rows, outputs)) for k in body.order]
                for column, output in zip(body.columns, outputs, strict=True):
                    keys.append(cache(partial(self._column_ranks, column, output, rows)))
                keys_of_rows = partial(map, lambda ranks: partial(_ranks_at, ranks, positions), keys)
                index = positions[ordered(np.arange(len(positions)), keys_of_rows, first=first)][start:]
                step.rows = len(index)
            if rows.rows <= 1 and len(index) == rows.rows:
                return _AnswerRows(len(index), lambda a, b: [o.slice(a, b - a) for o in outputs])
            keys.clear()
            rows_in_order = [taken(o, index) for o in outputs]
        return _AnswerRows(len(index), lambda a, b: [o.slice(a, b - a) for o in rows_in_order])

    def _key_ranks(self, k: Key, rows: BoundRows, outputs: Sequence[pa.Array]) -> np.ndarray:
        value = k.value
        if isinstance(value, Output):
            column = self.body.columns[value.index]
            ranks = self._column_ranks(column, outputs[value.index], rows)
            is_rank = isinstance(column.value, Nearest | Bm25 | Fused)
        else:
            ranks, is_rank = ranked(rows.column(value)), False
        return directed(ranks, descending=k.descending, nulls_last=is_rank)

    def _column_ranks(self, column: Column, output: pa.Array, rows: BoundRows) -> np.ndarray:
        if isinstance(column.value, Object):
            return self.source.ranks(rows.frame.columns[column.value.variable.slot])
        return ranked(output)

    def _plain(self, frame: Frame, ranks: Ranked) -> _AnswerRows:
        body = self.body
        if body.having is not None:
            self.watch.memory(frame.rows * 9)
            keep = np.flatnonzero(self._having(BoundRows(self.evaluator, frame, dict(ranks)), body.having))
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
            return values_of(BoundRows(self.evaluator, frame.slice(a, b), part), body.columns)

        return _AnswerRows(frame.rows, values)

    def _having(self, rows: BoundRows, condition: Expression) -> np.ndarray:
        if rows.rows > sorting.PART_ROWS:
            return np.concatenate([self._having(part, condition) for part in rows.parts()])
        rows.outputs = values_of(rows, self.body.columns)
        return truth(rows.value(condition), rows.rows)

    def _candidates(self, frame: Frame, ranks: Ranked, first: int | None) -> np.ndarray:
        """All rows; with a score as first key and a limit only those that can be among the first."""
        key = self.body.order[0] if self.body.order else None
        if first is None or key is None or key.value not in ranks:
            return np.arange(frame.rows, dtype=np.int64)
        return best_scores(ranks[key.value], first, descending=key.descending)

    def _row_key(self, k: Key, frame: Frame, ranks: Ranked, positions: np.ndarray) -> np.ndarray:
        is_all = len(positions) == frame.rows
        part = frame if is_all else frame.take(positions)
        rows = BoundRows(self.evaluator, part, dict(ranks if is_all else _taken(ranks, positions)))
        self.watch.tick()
        if isinstance(k.value, Object):
            key_ranks = self.source.ranks(part.columns[k.value.variable.slot], among_rows=frame.rows)
        else:
            key_ranks = key_numbers(rows, k.value)
        self.watch.tick()
        is_rank = isinstance(k.value, Nearest | Bm25 | Fused)
        return directed(key_ranks, descending=k.descending, nulls_last=is_rank)

    def _ties(self, frame: Frame, variables: Sequence[Variable]) -> Iterator[KeyOf]:
        for variable in variables:
            if variable.kind == "path":
                yield partial(self._path_ranks, frame, variable)
            else:
                yield partial(self._id_ranks, frame.columns[variable.slot])

    def _id_ranks(self, codes: np.ndarray, positions: np.ndarray) -> np.ndarray:
        self.watch.tick()
        return self.source.ranks(codes if len(positions) == len(codes) else codes[positions], among_rows=len(codes))

    def _path_ranks(self, frame: Frame, variable: Variable, positions: np.ndarray) -> np.ndarray:
        rows = BoundRows(self.evaluator, frame.take(positions))
        if rows.rows > sorting.PART_ROWS:
            return ranked_parts(part.path_nodes(variable.slot) for part in rows.parts())
        return ranked(rows.path_nodes(variable.slot))

    def _cuts(self) -> tuple[int, int | None]:
        body = self.body
        start = 0 if body.offset is None else int(self.evaluator.constant(body.offset))
        limit = None if body.limit is None else int(self.evaluator.constant(body.limit))
        return start, None if limit is None else start + limit


def _ranks_at(make: Callable[[], np.ndarray], all_positions: np.ndarray, positions: np.ndarray) -> np.ndarray:
    return np.asarray(make()[all_positions[positions]])


def _outermost_ranks(e: object) -> Iterator[Expression]:
    """Scores in an expression, without those inside a fused one."""
    if isinstance(e, Nearest | Bm25 | Fused):
        yield e
        return
    for name in getattr(type(e), "__slots__", ()):
        part = getattr(e, name)
        for p in part if isinstance(part, tuple) else (part,):
            if hasattr(type(p), "__slots__") and not isinstance(p, Variable):
                yield from _outermost_ranks(p)


def _taken(ranks: Ranked, index: np.ndarray) -> Ranked:
    indices = pa.array(index)
    return {e: a.take(indices) for e, a in ranks.items()}
