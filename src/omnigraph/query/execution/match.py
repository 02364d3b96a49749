"""Patterns: from bound rows to more bound rows, one clause after the other, the cheapest first.

1. filter   every condition whose variables are bound, and every `not` block
2. choose   a traversal from a bound end or the scan of a variable, whichever is estimated to leave fewer rows; the
            conditions on a scanned variable are evaluated by its scan, in SQL where that gives the same result
3. drop     variables that no later step uses; and equal rows, where only distinct ones count
4. optional blocks when no scan or traversal remains, or when a traversal from a variable that they bind is waiting and
            only scans could come before it

`not` and `optional` blocks run once for all rows: on the distinct values of the outer variables, with a column (ORIGIN)
of the number of these values that a row belongs to. So their cost is linear in their input.

`Matcher` reads through a `Source`, so it also matches uncommitted rows of a transaction.
"""

from __future__ import annotations

import time
from collections.abc import Sequence, Set
from functools import partial
from typing import Any

import numpy as np

from omnigraph.language.query.model import Absent, Clause, Expand, Maybe, Pattern, Scan, Where
from omnigraph.language.query.terms import And, Compare, Expression, Property, Variable, variables_of, walk
from omnigraph.query.execution.evaluate import Evaluator
from omnigraph.query.execution.frame import (
    NULL,
    ORIGIN,
    UNIT,
    Frame,
    distinct_rows,
    factorize,
    groups_of,
    joined,
    member,
    ordinals,
    pack,
    rowids,
)
from omnigraph.query.plan.analysis import Analysis, Needs, ends_of, unbound_optionals
from omnigraph.query.plan.pushdown import Pusher, selectivity
from omnigraph.query.tables.source import Source
from omnigraph.query.tables.tables import TAKE_SHARE, Table
from omnigraph.query.traversal.expand import expand
from omnigraph.query.traversal.hops import Hops, reversed_step

SCAN_COLUMNS_ROWS = 2000
"""A scan that is estimated to return at most this many rows reads their columns in the same pass."""
DEDUPE_ROWS = 1024


class Matcher:
    def __init__(self, source: Source, evaluator: Evaluator, analysis: Analysis) -> None:
        self.analysis = analysis
        self.source = source
        self.watch = source.watch
        self.evaluator = evaluator

    def run(self, pattern: Pattern, needs: Needs, seed: Frame = UNIT) -> Frame:
        """The rows of the pattern, joined with the rows of the seed."""
        frame = seed
        waiting = list(pattern.clauses)
        while waiting:
            if frame.rows == 0:
                return self._empty(pattern, seed)
            bound = frame.columns.keys()
            tests = [c for c in waiting if isinstance(c, Where) and self.analysis.used(c).slots <= bound]
            blocks = [c for c in waiting if isinstance(c, Absent) and self.analysis.used(c).slots <= bound]
            if tests:
                waiting = [c for c in waiting if c not in tests]
                frame = self._filter(tests, frame)
                continue
            if blocks:
                waiting.remove(blocks[0])
                frame = self._absent(blocks[0], frame)
                continue
            with self.watch.holding(frame.bytes):
                frame = self._next(waiting, frame, needs)
            frame = self._dropped(frame, waiting, needs)
        return frame if frame.rows else self._empty(pattern, seed)

    def _empty(self, pattern: Pattern, seed: Frame) -> Frame:
        empty = np.empty(0, dtype=np.int64)
        slots = [*seed.columns, *(v.slot for v in pattern.binds)]
        return Frame(0, dict.fromkeys(slots, empty))

    # ---- 1 filter

    def _filter(self, tests: Sequence[Where], frame: Frame) -> Frame:
        for searches in (False, True):
            part = [t.condition for t in tests if self.analysis.used(t).searches == searches]
            if not part or frame.rows == 0:
                continue
            with self.watch.step("filter", part) as step:
                for variable, sql, rest in self._by_scan(part, frame):
                    frame = self._among_scanned(variable, sql, frame)
                    part = rest
                if part and frame.rows:
                    self.watch.memory(2 * frame.bytes)
                    frame = frame.keep(self.evaluator.holds(part, frame))
                step.rows = frame.rows
        return frame

    def _by_scan(self, conditions: list[Expression], frame: Frame) -> list[tuple[Variable, str, list[Expression]]]:
        """Conditions that a Lance scan answers faster, because the rows are a large share of a table."""
        rest = list(conditions)
        scans: list[tuple[Variable, str, list[Expression]]] = []
        for variable in variables_of(tuple(conditions)):
            if len(variable.types) != 1 or frame.rows <= SCAN_COLUMNS_ROWS:
                continue
            table = self.source.table(variable.types[0])
            if table.stored is None or frame.rows <= TAKE_SHARE * table.rows:
                continue
            if variable.nullable and bool((frame.columns[variable.slot] == NULL).any()):
                continue  # nulls of an optional block are in no table, and may satisfy the condition
            if table.stored.has_columns(_columns_of(rest, variable)):
                continue
            sql, rest = self._pushed(variable, rest)
            if sql is not None:
                scans.append((variable, sql, rest))
        return scans

    def _among_scanned(self, variable: Variable, sql: str, frame: Frame) -> Frame:
        self.watch.use("scan")
        hits = self.source.table(variable.types[0]).scan(sql)
        codes = frame.columns[variable.slot]
        return frame.keep((codes >= 0) & member(rowids(codes), hits))

    def _pushed(self, variable: Variable, conditions: Sequence[Expression]) -> tuple[str | None, list[Expression]]:
        """(a filter for the table of the variable, the conditions that it does not cover)."""
        pusher = Pusher(variable, self.evaluator.params, self.evaluator.now)
        parts: list[str] = []
        rest: list[Expression] = []
        for condition in conditions:
            only = set(variables_of(condition)) == {variable}
            sql = pusher.sql(condition) if only else None
            if sql is None:
                rest.append(condition)
            else:
                parts.append(sql)
        return (" AND ".join(parts) or None), rest

    # ---- 2 choose

    def _next(self, waiting: list[Clause], frame: Frame, needs: Needs) -> Frame:
        options: list[tuple[float, int, Clause]] = []
        pending = unbound_optionals(waiting)
        for i, clause in enumerate(waiting):
            if isinstance(clause, Scan) and clause.variable.slot in frame.columns:
                # A traversal has bound it, to entities of its types only.
                waiting.remove(clause)
                return frame
            if isinstance(clause, Scan):
                options.append((frame.rows * self._estimate(clause.variable, waiting), i, clause))
            elif isinstance(clause, Expand) and ends_of(clause).isdisjoint(pending):
                estimate = self._estimate_expand(clause, waiting, frame)
                if estimate is not None:
                    options.append((estimate, i, clause))
        if not any(isinstance(c, Expand) for _, _, c in options):
            blocks = [
                c for c in waiting if isinstance(c, Maybe) and self.analysis.used(c).slots <= frame.columns.keys()
            ]
            if blocks and (not options or any(not pending.isdisjoint(ends_of(c)) for c in waiting)):
                return self._maybe(blocks[0], waiting, frame, needs)
        assert options, "some clause has its variables bound"
        estimate, _, clause_chosen = min(options, key=lambda o: o[:2])
        waiting.remove(clause_chosen)
        if isinstance(clause_chosen, Scan):
            return self._scan(clause_chosen, waiting, frame, estimate, needs)
        assert isinstance(clause_chosen, Expand)
        # The traversal binds both of its ends. A scan left waiting would bind an end again after it was dropped as
        # unused.
        ends = (clause_chosen.source.slot, clause_chosen.target.slot)
        waiting[:] = [c for c in waiting if not (isinstance(c, Scan) and c.variable.slot in ends)]
        return self._expand(clause_chosen, waiting, frame, estimate, needs)

    def _estimate(self, variable: Variable, waiting: Sequence[Clause]) -> float:
        rows = float(sum(self.source.table(e).rows for e in variable.types))
        for clause in waiting:
            if isinstance(clause, Where) and self.analysis.used(clause).only == variable:
                if self._selects_one(variable, clause.condition):
                    return 1.0 * len(variable.types)
                rows *= selectivity(clause.condition)
        return max(rows, 1.0)

    def _selects_one(self, variable: Variable, e: Expression) -> bool:
        if not (isinstance(e, Compare) and e.operator == "="):
            return isinstance(e, And) and any(self._selects_one(variable, o) for o in e.operands)
        for side in (e.left, e.right):
            if isinstance(side, Property):
                keys = {self.source.table(t).type.key_properties for t in variable.types}
                return side.name == "id" or keys == {(side.name,)}
        return False

    def _estimate_expand(self, clause: Expand, waiting: Sequence[Clause], frame: Frame) -> float | None:
        source, target = clause.source.slot in frame.columns, clause.target.slot in frame.columns
        if not source and not target:
            return None
        if source and target:
            return 0.0
        if clause.source.slot == clause.target.slot:
            return None
        steps = clause.steps if source else tuple(reversed_step(s) for s in clause.steps)
        degree = max(1.0, Hops(self.source, steps, edges=False).degree())
        ends = float(sum(self.source.table(s.ends).rows for s in steps)) or 1.0
        hops = clause.maximum if clause.maximum is not None else 64
        spread = min(degree ** min(hops, 64), 1e18 if clause.mode == "paths" else ends)
        if clause.mode == "edges":
            spread = degree
        other = clause.target if source else clause.source
        return frame.rows * spread * max(self._estimate(other, waiting) / ends, 1e-6)

    def _scan(self, clause: Scan, waiting: list[Clause], frame: Frame, estimate: float, needs: Needs) -> Frame:
        variable = clause.variable
        own = [c for c in waiting if isinstance(c, Where) and self.analysis.used(c).only == variable]
        with self.watch.step("scan", clause, estimate) as step:
            codes_by_type = []
            answered: list[Clause] | None = None
            for entity in variable.types:
                table = self.source.table(entity)
                sql, rest = None, [c.condition for c in own]
                hits = self._looked_up(variable, table, rest)
                if hits is None:
                    if table.stored is not None and not table.stored.filters_in_memory(_columns_of(rest, variable)):
                        sql, rest = self._pushed(variable, rest)
                    columns = self._scan_columns(variable, table, estimate) if sql is not None else ()
                    started_s = time.perf_counter()
                    hits = table.scan(sql, columns)
                    if sql is not None and table.stored is not None:
                        used = _columns_of([c.condition for c in own if c.condition not in rest], variable)
                        table.stored.note_scan(used, time.perf_counter() - started_s)
                codes_by_type.append(pack(table.ordinal, hits))
                unanswered = [c for c in own if c.condition in rest]
                # A condition is removed only if the tables of all types have evaluated it.
                answered = (
                    [c for c in own if c not in unanswered]
                    if answered is None
                    else [c for c in answered if c not in unanswered]
                )
                if sql is not None:
                    step.used.append(sql)
                    if table.stored is not None:
                        step.look.append(partial(table.stored.indices_for, sql))
            for clause_done in answered or ():
                waiting.remove(clause_done)
            codes = np.concatenate(codes_by_type) if len(codes_by_type) != 1 else codes_by_type[0]
            rows_max = self._rows_max(waiting, needs)
            frame = frame.cross(variable.slot, codes, partial(self.watch.building, rows_max=rows_max))
            step.rows = frame.rows
        return frame

    def _looked_up(self, variable: Variable, table: Table, conditions: list[Expression]) -> np.ndarray | None:
        """Rows that a condition selects by id, if the ids are in memory; removes that condition."""
        if table.stored is None:
            return None
        for condition in conditions:
            ids = Pusher(variable, self.evaluator.params, self.evaluator.now).ids(condition, table.type)
            hits = None if ids is None else table.stored.lookup(ids)
            if hits is not None:
                conditions.remove(condition)
                return hits
        return None

    def _scan_columns(self, variable: Variable, table: Any, estimate: float) -> Sequence[str]:
        if estimate > SCAN_COLUMNS_ROWS:
            return ()
        stored = {"id", "src", "dst"} if table.type.kind == "edge" else {"id"}
        stored |= table.type.by_name.keys()
        return sorted(self.analysis.columns.get(variable.slot, set()) & stored)

    def _expand(self, clause: Expand, waiting: Sequence[Clause], frame: Frame, estimate: float, needs: Needs) -> Frame:
        where = None
        if clause.edge is not None and len(clause.steps) == 1 and not self.source.is_in_memory(clause.steps[0].edge):
            own = [c.condition for c in waiting if isinstance(c, Where) and self.analysis.used(c).only == clause.edge]
            where = self._pushed(clause.edge, own)[0]
        with self.watch.step("expand", clause, estimate) as step:
            live = self._live(waiting, needs)
            # Rows that `_typed` drops below are not rows of the answer.
            starts, ends = {s.starts for s in clause.steps}, {s.ends for s in clause.steps}
            is_typed = starts <= {*clause.source.types} and ends <= {*clause.target.types}
            rows_max = self._rows_max(waiting, needs) if is_typed else None
            distinct = needs.distinct
            frame = expand(
                self.source, clause, frame, edge_where=where, live=live, distinct=distinct, rows_max=rows_max
            )
            for variable in (clause.source, clause.target):
                frame = self._typed(variable, frame)
            step.rows = frame.rows
        return frame

    def _typed(self, variable: Variable, frame: Frame) -> Frame:
        """Only rows of the variable's types: an edge of an interface may lead to other types as well."""
        codes = frame.columns[variable.slot]
        allowed = [self.source.ordinal(e) for e in variable.types]
        if not len(codes):
            return frame
        kinds = ordinals(codes)
        if len(allowed) == 1 and bool(((kinds == allowed[0]) | (kinds == NULL)).all()):
            return frame
        return frame.keep(np.isin(kinds, [*allowed, NULL]))

    def _rows_max(self, waiting: Sequence[Clause], needs: Needs) -> int | None:
        """The rows that the current join may build, if no later clause drops a row: optional blocks only add."""
        return needs.rows_max if all(isinstance(c, Maybe) for c in waiting) else None

    # ---- 3 drop

    def _live(self, waiting: Sequence[Clause], needs: Needs) -> set[int]:
        """The slots that the waiting clauses and the caller use."""
        slots = set(needs.slots)
        slots.add(ORIGIN)
        for clause in waiting:
            if not isinstance(clause, Scan):
                slots |= self.analysis.used(clause).slots
        return slots

    def _dropped(self, frame: Frame, waiting: Sequence[Clause], needs: Needs) -> Frame:
        needed = self._live(waiting, needs)
        live = [s for s in frame.columns if s in needed]
        if len(live) == len(frame.columns):
            return frame
        frame = frame.only(live)
        if not needs.distinct or frame.rows < DEDUPE_ROWS:
            return frame
        if not live:
            return Frame(min(1, frame.rows))
        if len(live) == 1:
            distinct = factorize(frame.columns[live[0]])[0]
            return Frame(len(distinct), {live[0]: distinct}, frame.paths)
        distinct_columns = distinct_rows([frame.columns[s] for s in live])
        return Frame(len(distinct_columns[0]), dict(zip(live, distinct_columns, strict=True)), frame.paths)

    # ---- 4 blocks

    def _seeded(self, pattern: Pattern, frame: Frame) -> tuple[Frame, np.ndarray]:
        """The distinct values of the outer variables, numbered; and for each row the number of its values."""
        outer = [v.slot for v in pattern.outer]
        first, numbers = groups_of([frame.columns[s] for s in outer], frame.rows)
        seed = frame.only(outer).take(first)
        return seed.add(ORIGIN, np.arange(len(first), dtype=np.int64)), numbers

    def _absent(self, clause: Absent, frame: Frame) -> Frame:
        with self.watch.step("not", clause) as step:
            with self.watch.holding(frame.bytes):
                seed, numbers = self._seeded(clause.pattern, frame)
                with self.watch.holding(numbers.nbytes):
                    inner = self.run(clause.pattern, Needs(frozenset((ORIGIN,)), distinct=True), seed)
            present = np.zeros(seed.rows, dtype=bool)
            present[inner.columns[ORIGIN]] = True
            frame = frame.keep(~present[numbers])
            step.rows = frame.rows
        return frame

    def _maybe(self, clause: Maybe, waiting: list[Clause], frame: Frame, needs: Needs) -> Frame:
        waiting.remove(clause)
        with self.watch.step("optional", clause) as step:
            new = [v.slot for v in clause.pattern.binds]
            seed, numbers = self._seeded(clause.pattern, frame)
            with self.watch.holding(numbers.nbytes):
                inner = self.run(clause.pattern, Needs(frozenset(new)), seed)
            self.watch.memory(inner.bytes * 2)
            # One more row for each seed row without a match: all new variables are null there.
            missing = np.ones(seed.rows, dtype=bool)
            missing[inner.columns[ORIGIN]] = False
            unmatched = np.flatnonzero(missing)
            origins = np.concatenate([inner.columns[ORIGIN], unmatched])
            nulls = np.full(len(unmatched), NULL, dtype=np.int64)
            null_column = np.full(inner.rows, NULL, dtype=np.int64)
            columns = {slot: np.concatenate([inner.columns.get(slot, null_column), nulls]) for slot in new}
            building = partial(self.watch.building, rows_max=self._rows_max(waiting, needs))
            frame = joined(frame, numbers, origins, seed.rows, columns, building)
            for slot in inner.paths.keys() & set(new):
                frame = frame.add(slot, frame.columns[slot], inner.paths[slot])
            step.rows = frame.rows
        return frame


def _columns_of(conditions: Sequence[Expression], variable: Variable) -> Set[str]:
    return {t.name for c in conditions for t in walk(c) if isinstance(t, Property) and t.variable == variable}
