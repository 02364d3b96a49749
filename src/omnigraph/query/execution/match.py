"""Patterns: from bound rows to more bound rows, one clause after the other, the cheapest first.

1. filter   every condition whose variables are bound, and every `not` block
2. choose   a traversal from a bound end or the scan of a variable, whichever is guessed to leave fewer rows; the
            conditions on a scanned variable go along with its scan, in SQL where that means the same
3. drop     variables that nothing needs any more; and equal rows, where only the different ones count
4. optional blocks when no more scans and traversals can be done, or when a traversal from what they bind is waiting and
            nothing but scans could come before it

`not` and `optional` blocks are run once for all rows: on the different values of the outer variables, with a column
that says which of them a row belongs to. So their cost grows with their input and no faster.

`Matcher` needs a Source, and so matches rows that a transaction has not committed yet as well.
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
from omnigraph.query.plan.analysis import Analysis, Wanted, ends_of, unbound_optionals
from omnigraph.query.plan.pushdown import Pusher, selectivity
from omnigraph.query.tables.source import Source
from omnigraph.query.tables.tables import TAKE_SHARE, Table
from omnigraph.query.traversal.expand import expand
from omnigraph.query.traversal.hops import Hops, reversed_step

SCAN_COLUMNS_ROWS = 2000
"""A scan that is expected to find no more rows than this reads their columns along with them."""
DEDUPE_ROWS = 1024


class Matcher:
    def __init__(self, source: Source, evaluator: Evaluator, analysis: Analysis) -> None:
        self.analysis = analysis
        self.source = source
        self.watch = source.watch
        self.evaluator = evaluator

    def run(self, pattern: Pattern, wanted: Wanted, seed: Frame = UNIT) -> Frame:
        """The rows of the pattern that go with the seed's."""
        frame = seed
        waiting = list(pattern.clauses)
        while waiting:
            if frame.rows == 0:
                return self._nothing(pattern, seed)
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
                frame = self._next(waiting, frame, wanted)
            frame = self._dropped(frame, waiting, wanted)
        return frame if frame.rows else self._nothing(pattern, seed)

    def _nothing(self, pattern: Pattern, seed: Frame) -> Frame:
        none = np.empty(0, dtype=np.int64)
        slots = [*seed.columns, *(v.slot for v in pattern.binds)]
        return Frame(0, dict.fromkeys(slots, none))

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
        """Conditions that Lance answers sooner, because they are about a good part of a table."""
        rest = list(conditions)
        found: list[tuple[Variable, str, list[Expression]]] = []
        for variable in variables_of(tuple(conditions)):
            if len(variable.types) != 1 or frame.rows <= SCAN_COLUMNS_ROWS:
                continue
            table = self.source.table(variable.types[0])
            if table.stored is None or frame.rows <= TAKE_SHARE * table.rows:
                continue
            if variable.nullable and bool((frame.columns[variable.slot] == NULL).any()):
                continue  # no table holds the nulls of what an optional block did not find, and they may pass
            if table.stored.has_columns(_columns_of(rest, variable)):
                continue
            sql, rest = self._pushed(variable, rest)
            if sql is not None:
                found.append((variable, sql, rest))
        return found

    def _among_scanned(self, variable: Variable, sql: str, frame: Frame) -> Frame:
        self.watch.use("scan")
        hits = self.source.table(variable.types[0]).scan(sql)
        codes = frame.columns[variable.slot]
        return frame.keep((codes >= 0) & member(rowids(codes), hits))

    def _pushed(self, variable: Variable, conditions: Sequence[Expression]) -> tuple[str | None, list[Expression]]:
        """(a filter for the table of the variable, the conditions that it does not hold)."""
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

    def _next(self, waiting: list[Clause], frame: Frame, wanted: Wanted) -> Frame:
        options: list[tuple[float, int, Clause]] = []
        pending = unbound_optionals(waiting)
        for i, clause in enumerate(waiting):
            if isinstance(clause, Scan) and clause.variable.slot in frame.columns:
                # A traversal has bound it, to nothing but its types.
                waiting.remove(clause)
                return frame
            if isinstance(clause, Scan):
                options.append((frame.rows * self._guess(clause.variable, waiting), i, clause))
            elif isinstance(clause, Expand) and ends_of(clause).isdisjoint(pending):
                guess = self._guess_expand(clause, waiting, frame)
                if guess is not None:
                    options.append((guess, i, clause))
        if not any(isinstance(c, Expand) for _, _, c in options):
            blocks = [
                c for c in waiting if isinstance(c, Maybe) and self.analysis.used(c).slots <= frame.columns.keys()
            ]
            if blocks and (not options or any(not pending.isdisjoint(ends_of(c)) for c in waiting)):
                return self._maybe(blocks[0], waiting, frame, wanted)
        assert options, "some clause always finds its variables"
        guess, _, chosen = min(options, key=lambda o: o[:2])
        waiting.remove(chosen)
        if isinstance(chosen, Scan):
            return self._scan(chosen, waiting, frame, guess, wanted)
        assert isinstance(chosen, Expand)
        # It binds both of its ends. A scan of one that nothing else uses, and that is dropped, would bind it again.
        ends = (chosen.source.slot, chosen.target.slot)
        waiting[:] = [c for c in waiting if not (isinstance(c, Scan) and c.variable.slot in ends)]
        return self._expand(chosen, waiting, frame, guess, wanted)

    def _guess(self, variable: Variable, waiting: Sequence[Clause]) -> float:
        rows = float(sum(self.source.table(e).rows for e in variable.types))
        for clause in waiting:
            if isinstance(clause, Where) and self.analysis.used(clause).only == variable:
                if self._finds_one(variable, clause.condition):
                    return 1.0 * len(variable.types)
                rows *= selectivity(clause.condition)
        return max(rows, 1.0)

    def _finds_one(self, variable: Variable, e: Expression) -> bool:
        if not (isinstance(e, Compare) and e.operator == "="):
            return isinstance(e, And) and any(self._finds_one(variable, o) for o in e.operands)
        for side in (e.left, e.right):
            if isinstance(side, Property):
                keys = {self.source.table(t).type.key_properties for t in variable.types}
                return side.name == "id" or keys == {(side.name,)}
        return False

    def _guess_expand(self, clause: Expand, waiting: Sequence[Clause], frame: Frame) -> float | None:
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
        return frame.rows * spread * max(self._guess(other, waiting) / ends, 1e-6)

    def _scan(self, clause: Scan, waiting: list[Clause], frame: Frame, guess: float, wanted: Wanted) -> Frame:
        variable = clause.variable
        own = [c for c in waiting if isinstance(c, Where) and self.analysis.used(c).only == variable]
        with self.watch.step("scan", clause, guess) as step:
            found = []
            taken: list[Clause] | None = None
            for entity in variable.types:
                table = self.source.table(entity)
                sql, rest = None, [c.condition for c in own]
                hits = self._looked_up(variable, table, rest)
                if hits is None:
                    if table.stored is not None and not table.stored.filters_in_memory(_columns_of(rest, variable)):
                        sql, rest = self._pushed(variable, rest)
                    columns = self._scan_columns(variable, table, guess) if sql is not None else ()
                    began = time.perf_counter()
                    hits = table.scan(sql, columns)
                    if sql is not None and table.stored is not None:
                        used = _columns_of([c.condition for c in own if c.condition not in rest], variable)
                        table.stored.note_scan(used, time.perf_counter() - began)
                found.append(pack(table.ordinal, hits))
                kept = [c for c in own if c.condition in rest]
                # A condition may go only if the tables of all types have answered it.
                taken = [c for c in own if c not in kept] if taken is None else [c for c in taken if c not in kept]
                if sql is not None:
                    step.used.append(sql)
                    if table.stored is not None:
                        step.look.append(partial(table.stored.indices_for, sql))
            for done in taken or ():
                waiting.remove(done)
            codes = np.concatenate(found) if len(found) != 1 else found[0]
            rows_max = self._rows_max(waiting, wanted)
            frame = frame.cross(variable.slot, codes, partial(self.watch.building, rows_max=rows_max))
            step.rows = frame.rows
        return frame

    def _looked_up(self, variable: Variable, table: Table, conditions: list[Expression]) -> np.ndarray | None:
        """Rows that a condition names by their ids, if these are in memory; that condition is taken out."""
        if table.stored is None:
            return None
        for condition in conditions:
            ids = Pusher(variable, self.evaluator.params, self.evaluator.now).ids(condition, table.type)
            hits = None if ids is None else table.stored.lookup(ids)
            if hits is not None:
                conditions.remove(condition)
                return hits
        return None

    def _scan_columns(self, variable: Variable, table: Any, guess: float) -> Sequence[str]:
        if guess > SCAN_COLUMNS_ROWS:
            return ()
        known = {"id", "src", "dst"} if table.type.kind == "edge" else {"id"}
        known |= table.type.by_name.keys()
        return sorted(self.analysis.columns.get(variable.slot, set()) & known)

    def _expand(self, clause: Expand, waiting: Sequence[Clause], frame: Frame, guess: float, wanted: Wanted) -> Frame:
        where = None
        if clause.edge is not None and len(clause.steps) == 1 and not self.source.is_held(clause.steps[0].edge):
            own = [c.condition for c in waiting if isinstance(c, Where) and self.analysis.used(c).only == clause.edge]
            where = self._pushed(clause.edge, own)[0]
        with self.watch.step("expand", clause, guess) as step:
            live = self._live(waiting, wanted)
            # What `_typed` drops below is no row of the answer.
            starts, ends = {s.starts for s in clause.steps}, {s.ends for s in clause.steps}
            is_typed = starts <= {*clause.source.types} and ends <= {*clause.target.types}
            rows_max = self._rows_max(waiting, wanted) if is_typed else None
            distinct = wanted.distinct
            frame = expand(
                self.source, clause, frame, edge_where=where, live=live, distinct=distinct, rows_max=rows_max
            )
            for variable in (clause.source, clause.target):
                frame = self._typed(variable, frame)
            step.rows = frame.rows
        return frame

    def _typed(self, variable: Variable, frame: Frame) -> Frame:
        """Only what the variable can be: an edge of an interface may lead to other types as well."""
        codes = frame.columns[variable.slot]
        allowed = [self.source.ordinal(e) for e in variable.types]
        if not len(codes):
            return frame
        kinds = ordinals(codes)
        if len(allowed) == 1 and bool(((kinds == allowed[0]) | (kinds == NULL)).all()):
            return frame
        return frame.keep(np.isin(kinds, [*allowed, NULL]))

    def _rows_max(self, waiting: Sequence[Clause], wanted: Wanted) -> int | None:
        """What the join that is under way may build: nothing after it drops a row, since optional blocks only add."""
        return wanted.rows_max if all(isinstance(c, Maybe) for c in waiting) else None

    # ---- 3 drop

    def _live(self, waiting: Sequence[Clause], wanted: Wanted) -> set[int]:
        """The variables that what is still to be done uses."""
        found = set(wanted.slots)
        found.add(ORIGIN)
        for clause in waiting:
            if not isinstance(clause, Scan):
                found |= self.analysis.used(clause).slots
        return found

    def _dropped(self, frame: Frame, waiting: Sequence[Clause], wanted: Wanted) -> Frame:
        needed = self._live(waiting, wanted)
        live = [s for s in frame.columns if s in needed]
        if len(live) == len(frame.columns):
            return frame
        frame = frame.only(live)
        if not wanted.distinct or frame.rows < DEDUPE_ROWS:
            return frame
        if not live:
            return Frame(min(1, frame.rows))
        if len(live) == 1:
            once = factorize(frame.columns[live[0]])[0]
            return Frame(len(once), {live[0]: once}, frame.paths)
        once_each = distinct_rows([frame.columns[s] for s in live])
        return Frame(len(once_each[0]), dict(zip(live, once_each, strict=True)), frame.paths)

    # ---- 4 blocks

    def _seeded(self, pattern: Pattern, frame: Frame) -> tuple[Frame, np.ndarray]:
        """The different values of the outer variables, numbered; and for each row the number of its own."""
        outer = [v.slot for v in pattern.outer]
        first, numbers = groups_of([frame.columns[s] for s in outer], frame.rows)
        seed = frame.only(outer).take(first)
        return seed.add(ORIGIN, np.arange(len(first), dtype=np.int64)), numbers

    def _absent(self, clause: Absent, frame: Frame) -> Frame:
        with self.watch.step("not", clause) as step:
            with self.watch.holding(frame.bytes):
                seed, numbers = self._seeded(clause.pattern, frame)
                with self.watch.holding(numbers.nbytes):
                    inner = self.run(clause.pattern, Wanted(frozenset((ORIGIN,)), distinct=True), seed)
            present = np.zeros(seed.rows, dtype=bool)
            present[inner.columns[ORIGIN]] = True
            frame = frame.keep(~present[numbers])
            step.rows = frame.rows
        return frame

    def _maybe(self, clause: Maybe, waiting: list[Clause], frame: Frame, wanted: Wanted) -> Frame:
        waiting.remove(clause)
        with self.watch.step("optional", clause) as step:
            new = [v.slot for v in clause.pattern.binds]
            seed, numbers = self._seeded(clause.pattern, frame)
            with self.watch.holding(numbers.nbytes):
                inner = self.run(clause.pattern, Wanted(frozenset(new)), seed)
            self.watch.memory(inner.bytes * 2)
            # One more row for each seed that has none: all new variables are null there.
            missing = np.ones(seed.rows, dtype=bool)
            missing[inner.columns[ORIGIN]] = False
            lone = np.flatnonzero(missing)
            origins = np.concatenate([inner.columns[ORIGIN], lone])
            nulls = np.full(len(lone), NULL, dtype=np.int64)
            absent = np.full(inner.rows, NULL, dtype=np.int64)
            columns = {slot: np.concatenate([inner.columns.get(slot, absent), nulls]) for slot in new}
            building = partial(self.watch.building, rows_max=self._rows_max(waiting, wanted))
            frame = joined(frame, numbers, origins, seed.rows, columns, building)
            for slot in inner.paths.keys() & set(new):
                frame = frame.add(slot, frame.columns[slot], inner.paths[slot])
            step.rows = frame.rows
        return frame


def _columns_of(conditions: Sequence[Expression], variable: Variable) -> Set[str]:
    return {t.name for c in conditions for t in walk(c) if isinstance(t, Property) and t.variable == variable}
