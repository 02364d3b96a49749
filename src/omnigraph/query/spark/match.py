"""Patterns: bound rows are a DataFrame, and every clause is a join or a filter of it.

1. filter    every condition whose variables are bound, and every `not` block
2. extend    a traversal with a bound end, both ends bound first; else the scan with the fewest estimated rows.
             Conditions on the new variable are passed to its table where Lance answers them
3. optional  blocks when no scan or traversal remains, or when a traversal from a variable that they bind is waiting
             and only scans could come before it

`not` and `optional` blocks are matched once for all rows, from the distinct values of their outer variables.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from omnigraph.language.query.model import Absent, Clause, Expand, Maybe, Pattern, Scan, Where
from omnigraph.language.query.terms import Variable, variables_of
from omnigraph.query.plan.analysis import ends_of, outer_of, unbound_optionals
from omnigraph.query.plan.pushdown import selectivity
from omnigraph.query.spark import walk
from omnigraph.query.spark.tables import FAR, NEAR, Tables
from omnigraph.query.spark.values import entity
from omnigraph.query.traversal.hops import reversed_step


@dataclass(frozen=True, eq=False)
class Bound:
    """Rows and their variables. `rows` is None if no variable is bound yet: one row without columns."""

    rows: DataFrame | None
    variables: tuple[Variable, ...] = ()
    is_joined: bool = False
    """The rows are the result of a join: materialize them before using them twice."""

    @property
    def slots(self) -> set[int]:
        return {v.slot for v in self.variables}

    @property
    def table(self) -> DataFrame:
        assert self.rows is not None, "a pattern binds something"
        return self.rows

    def add(self, rows: DataFrame, *more: Variable) -> Bound:
        """The rows of a join, with more variables."""
        return Bound(rows, (*self.variables, *more), is_joined=True)


class Matcher:
    def __init__(self, tables: Tables) -> None:
        self.tables = tables

    def run(self, pattern: Pattern, bound: Bound) -> Bound:
        waiting = list(pattern.clauses)
        while waiting:
            ready = [c for c in waiting if not isinstance(c, Scan | Expand | Maybe) and _slots(c) <= bound.slots]
            if ready and bound.rows is not None:
                waiting.remove(ready[0])
                bound = self._filter(ready[0], bound)
            else:
                bound = self._next(waiting, bound)
        return bound

    def _filter(self, clause: Clause, bound: Bound) -> Bound:
        if isinstance(clause, Where):
            return replace(bound, rows=bound.table.filter(self.tables.values.column(clause.condition)))
        assert isinstance(clause, Absent)
        bound = _materialized_if_joined(bound)
        inner = self.run(clause.pattern, self._seed(clause.pattern, bound))
        inner_rows, is_same_outer = _renamed(inner.table, clause.pattern.outer)
        return bound.add(bound.table.join(inner_rows, is_same_outer, "left_anti"))

    # ---- 2 extend

    def _next(self, waiting: list[Clause], bound: Bound) -> Bound:
        scans = [c for c in waiting if isinstance(c, Scan)]
        for scan in scans:
            if scan.variable.slot in bound.slots:
                # A traversal has bound it, to entities of its types only.
                waiting.remove(scan)
                return bound
        pending = unbound_optionals(waiting)
        expands = [
            c for c in waiting if isinstance(c, Expand) and ends_of(c) & bound.slots and not ends_of(c) & pending
        ]
        expands = [c for c in expands if len(ends_of(c)) == 2 or ends_of(c) <= bound.slots]
        if expands:
            expand = max(expands, key=lambda c: len(ends_of(c) & bound.slots) / len(ends_of(c)))
            waiting.remove(expand)
            return self._expand(expand, waiting, bound)
        blocks = [c for c in waiting if isinstance(c, Maybe) and _slots(c) <= bound.slots]
        if blocks and (not scans or any(not pending.isdisjoint(ends_of(c)) for c in waiting)):
            waiting.remove(blocks[0])
            return self._maybe(blocks[0], bound)
        scan = min(scans, key=lambda s: self._estimate(s.variable, waiting))
        waiting.remove(scan)
        return self._scan(scan.variable, waiting, bound)

    def _estimate(self, variable: Variable, waiting: Sequence[Clause]) -> float:
        rows = float(self.tables.rows(variable.types))
        for clause in self._own(variable, waiting):
            rows *= selectivity(clause.condition)
        return rows

    @staticmethod
    def _own(variable: Variable, waiting: Sequence[Clause]) -> list[Where]:
        return [c for c in waiting if isinstance(c, Where) and set(variables_of(c)) == {variable}]

    def _scan(self, variable: Variable, waiting: list[Clause], bound: Bound) -> Bound:
        rows, pushed = self.tables.scan(variable, self._own(variable, waiting))
        _remove(waiting, pushed)
        return Bound(rows, (variable,)) if bound.rows is None else bound.add(bound.rows.crossJoin(rows), variable)

    def _expand(self, clause: Expand, waiting: list[Clause], bound: Bound) -> Bound:
        backwards = clause.source.slot not in bound.slots
        near, far = (clause.target, clause.source) if backwards else (clause.source, clause.target)
        pairs, pushed = self._walked(clause, near, waiting, bound, backwards=backwards)
        _remove(waiting, pushed)
        extra = [v for v in (clause.edge, clause.path) if v is not None]
        pairs = self._typed(pairs, FAR, far, clause, backwards=backwards)
        condition = F.col(entity(near.slot)) == F.col(NEAR)
        if far.slot in bound.slots:
            condition = condition & (F.col(entity(far.slot)) == F.col(FAR))
            return bound.add(bound.table.join(pairs, condition).drop(NEAR, FAR), *extra)
        pairs = pairs.withColumnRenamed(FAR, entity(far.slot))
        rows = bound.table.join(pairs, condition).drop(NEAR)
        own = self._own(far, waiting)
        if len(self.tables.columns(far)) > 1 or self.tables.pushed(far, own)[0] is not None:
            entities, pushed = self.tables.scan(far, own)
            _remove(waiting, pushed)
            entities = self.tables.hinted(entities.withColumnRenamed(entity(far.slot), "scanned"), far.types)
            rows = rows.join(entities, F.col(entity(far.slot)) == F.col("scanned")).drop("scanned")
        return bound.add(rows, far, *extra)

    def _walked(
        self, clause: Expand, near: Variable, waiting: Sequence[Clause], bound: Bound, *, backwards: bool
    ) -> tuple[DataFrame, list[Where]]:
        """NEAR, FAR and the other columns that the clause binds."""
        steps = tuple(reversed_step(s) for s in clause.steps) if backwards else clause.steps
        own = self._own(clause.edge, waiting) if clause.edge is not None else []
        hops, pushed = self.tables.hops(steps, clause.edge, own)
        if clause.mode == "edges":
            return self.tables.hinted(hops, [s.edge for s in steps]), pushed
        hops = hops.distinct()
        low, high = clause.minimum, clause.maximum
        if low == high == 1 and clause.path is None:
            return self.tables.hinted(hops, [s.edge for s in steps]), pushed
        starts = bound.table.select(F.col(entity(near.slot)).alias(walk.START))
        starts = starts.filter(F.col(walk.START).isNotNull()).distinct()
        hops, starts = self.tables.hinted(walk.materialized(hops), [s.edge for s in steps]), walk.materialized(starts)
        if clause.path is None:
            pairs = walk.reach(hops, starts, low, high, backwards=backwards)
        elif clause.mode == "shortest":
            pairs = walk.shortest(hops, starts, low, high, backwards=backwards)
        else:
            assert high is not None, "a path has a maximum"
            pairs = walk.paths(hops, starts, low, high, backwards=backwards)
        names = {walk.START: NEAR, walk.NODE: FAR}
        if clause.path is not None:
            names[walk.PATH] = entity(clause.path.slot)
        return pairs.select(*(F.col(old).alias(new) for old, new in names.items())), pushed

    def _typed(
        self, pairs: DataFrame, column: str, variable: Variable, clause: Expand, *, backwards: bool
    ) -> DataFrame:
        """Only rows of the variable's types: an edge of an interface may lead to other types as well."""
        ends = {s.starts.id if backwards else s.ends.id for s in clause.steps}
        if ends <= {e.id for e in variable.types}:
            return pairs
        allowed = [self.tables.ordinal(e) for e in variable.types]
        return pairs.filter(F.col(column).getField("type").isin(*allowed))

    # ---- blocks

    def _seed(self, pattern: Pattern, bound: Bound) -> Bound:
        outer = tuple(v for v in bound.variables if v.slot in outer_of(pattern))
        columns = [c for v in outer for c in self.tables.columns(v)]
        return Bound(bound.table.select(*columns).dropDuplicates([entity(v.slot) for v in outer]), outer)

    def _maybe(self, clause: Maybe, bound: Bound) -> Bound:
        pattern, bound = clause.pattern, _materialized_if_joined(bound)
        inner = self.run(pattern, self._seed(pattern, bound))
        new = [v for v in inner.variables if v.slot not in bound.slots]
        inner_rows, is_same_outer = _renamed(
            inner.table, pattern.outer, [c for v in new for c in self.tables.columns(v)]
        )
        rows = bound.table.join(inner_rows, is_same_outer, "left")
        return bound.add(rows.drop(*(_outside(v) for v in pattern.outer)), *new)


def _materialized_if_joined(bound: Bound) -> Bound:
    """A block uses the outer rows twice: as its start and for the join with its result. If they were not materialized,
    a few blocks in turn would compute the first rows many times over.
    """
    return Bound(walk.materialized(bound.table), bound.variables) if bound.is_joined else bound


def _outside(variable: Variable) -> str:
    return f"o{variable.slot}"


def _renamed(rows: DataFrame, outer: Sequence[Variable], more: Sequence[str] = ()) -> tuple[DataFrame, Column]:
    """(the rows with renamed outer variables, the join condition with the outer rows, in which null equals null)."""
    renamed = rows.select(*(F.col(entity(v.slot)).alias(_outside(v)) for v in outer), *more)
    condition = F.lit(True)
    for v in outer:
        condition = condition & F.col(entity(v.slot)).eqNullSafe(F.col(_outside(v)))
    return renamed, condition


def _slots(clause: Clause) -> set[int]:
    if isinstance(clause, Absent | Maybe):
        return set(outer_of(clause.pattern))
    return {v.slot for v in variables_of(clause)}


def _remove(waiting: list[Clause], pushed: Sequence[Where]) -> None:
    for clause in pushed:
        waiting.remove(clause)
