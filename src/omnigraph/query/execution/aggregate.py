"""Groups and aggregates: rows with equal keys become one row. Null is a group of its own; aggregates skip nulls."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from omnigraph.errors import QueryValueError
from omnigraph.language.query.terms import Aggregate, Expression, Object, Property, Variable, variables_of
from omnigraph.query.execution import sorting
from omnigraph.query.execution.evaluate import Rows, is_rowwise, with_nulls
from omnigraph.query.execution.frame import Frame, bounds_of, distinct_rows, factorize, groups_of, unique
from omnigraph.query.execution.ranking import ranked, ranked_parts
from omnigraph.query.execution.sorting import argsort_pairs, parts
from omnigraph.query.execution.values import taken, type_of
from omnigraph.query.limits import checkpoint, holding

_SAFE_SUM = 1 << 62
DISTINCT_ROWS = 4096


class Groups:
    """`first` is a row of each group, `of_row` the group of each row; without keys there is one group of all rows."""

    def __init__(self, rows: Rows, keys: Sequence[Expression]) -> None:
        self.rows = rows
        if keys:
            self.first, self.of_row = groups_of([key_numbers(rows, k) for k in keys], rows.rows)
            self.count = len(self.first)
        else:
            self.first = np.zeros(min(1, rows.rows), dtype=np.int64)
            self.of_row = np.zeros(rows.rows, dtype=np.int64)
            self.count = 1

    @property
    def bytes(self) -> int:
        return int(self.first.nbytes + self.of_row.nbytes)

    def value(self, e: Aggregate, order: np.ndarray | None) -> pa.Array:
        """One value per group. `order`: the rows in the order in which `collect` keeps them."""
        if e.operand is None:
            return pa.array(np.bincount(self.of_row, minlength=self.count))
        if e.name in ("min", "max"):
            return self._extreme(e.name, e.operand)
        if e.name == "count" and e.distinct:
            if isinstance(e.operand, Object) and e.operand not in self.rows.known:
                return self._entities(self.rows.frame.columns[e.operand.variable.slot])
            return self._different(key_numbers(self.rows, e.operand))
        if e.name == "count":
            return pa.array(np.bincount(self.of_row[self._valid(e.operand)], minlength=self.count))
        values = self.rows.column(e.operand)
        with holding(values.nbytes + self.of_row.nbytes):
            there = np.asarray(values.is_valid())
            groups = self.of_row[there]
            kept = taken(values, np.flatnonzero(there)) if not there.all() else values
            if e.name == "collect":
                return self._collected(e, groups, kept, order, there)
            if e.distinct:
                first, _ = groups_of([groups, ranked(kept)], len(groups))
                groups, kept = groups[first], kept.take(pa.array(first))
            return self._sum(e, groups, kept, np.bincount(groups, minlength=self.count))

    def _valid(self, e: Expression) -> np.ndarray:
        """The rows in which the expression is not null."""
        if self.rows.in_parts(e):
            return np.concatenate([np.asarray(part.column(e).is_valid()) for part in self.rows.parts()])
        return np.asarray(self.rows.column(e).is_valid())

    def _different(self, numbers: np.ndarray) -> pa.Array:
        """How many different numbers each group has; -1 is none."""
        there = numbers >= 0
        groups, _ = distinct_rows([self.of_row[there], numbers[there]])
        return pa.array(np.bincount(groups, minlength=self.count))

    def _entities(self, codes: np.ndarray) -> pa.Array:
        """How many different entities each group has."""
        there = codes >= 0
        if self.count == 1 or not there.any():
            return pa.array([len(unique(codes[there]))] * self.count, pa.int64())
        groups, codes = self.of_row[there], codes[there]
        turns = groups[1:] != groups[:-1]
        is_once = bool((turns | (codes[1:] > codes[:-1])).all())
        if not is_once or int(turns.sum()) >= len(unique(groups[np.append(True, turns)])):
            # Unless groups lie one after the other, their entities in order.
            groups, _ = distinct_rows([groups, codes])
        return pa.array(np.bincount(groups, minlength=self.count))

    def _extreme(self, name: str, e: Expression) -> pa.Array:
        """Of equal values the first one is the least and the last one the greatest."""
        rows = self.rows
        if not is_rowwise(e):
            rows.known[e] = rows.column(e)
        numbers = key_numbers(rows, e)
        best = np.full(self.count, -1, dtype=np.int64)
        if name == "max":
            np.maximum.at(best, self.of_row, numbers)
        else:
            best[:] = np.iinfo(np.int64).max
            there = numbers >= 0
            np.minimum.at(best, self.of_row[there], numbers[there])
        checkpoint()
        places = np.flatnonzero((numbers >= 0) & (numbers == best[self.of_row]))
        places = places[::-1] if name == "min" else places
        row_of = np.full(self.count, -1, dtype=np.int64)
        row_of[self.of_row[places]] = places
        empty = row_of < 0
        if empty.all():
            return pa.nulls(self.count, type_of(e.type))
        values = rows.at(row_of[~empty]).column(e)
        return values.take(pa.array(np.cumsum(~empty) - 1, mask=empty)) if empty.any() else values

    def _sum(self, e: Aggregate, groups: np.ndarray, values: pa.Array, counts: np.ndarray) -> pa.Array:
        empty = counts == 0
        assert e.operand is not None
        if e.operand.type.is_integer:
            totals = self._whole(groups, values, counts)
            return _in_range(totals, empty) if e.name == "sum" else _means(totals, counts)
        numbers = np.asarray(values.cast(pa.float64()))
        # In the order of the values, so that the sum does not hang on the order of the rows.
        order = argsort_pairs(groups, ranked(pa.array(numbers))) if len(numbers) > sorting.PART_ROWS else None
        order = np.lexsort((numbers, groups)) if order is None else order
        sums = np.zeros(self.count)
        if len(order):
            bounds = bounds_of(counts)
            with np.errstate(over="ignore", invalid="ignore"):
                sums[~empty] = np.add.reduceat(numbers[order], bounds[:-1][~empty])
        if e.name == "avg":
            sums = np.divide(sums, counts, out=np.zeros(self.count), where=~empty)
        return pa.array(sums, mask=empty | ~np.isfinite(sums))

    def _whole(self, groups: np.ndarray, values: pa.Array, counts: np.ndarray) -> np.ndarray | list[int]:
        """Exact sums of integers, however large; as an array where 64 bits are surely enough."""
        numbers = np.asarray(values)
        size = float(max(-float(numbers.min()), float(numbers.max()), 0.0)) if len(numbers) else 0.0
        if size * max(1, len(numbers)) < _SAFE_SUM:
            sums = np.zeros(self.count, dtype=np.int64)
            np.add.at(sums, groups, numbers.astype(np.int64))
            return sums
        found = [0] * self.count
        for part in parts(len(numbers)):
            for group, number in zip(groups[part].tolist(), numbers[part].tolist(), strict=True):
                found[group] += number
        return found

    def _collected(
        self, e: Aggregate, groups: np.ndarray, values: pa.Array, order: np.ndarray | None, there: np.ndarray
    ) -> pa.Array:
        wanted = type_of(e.type)
        values = values if values.type == wanted.value_type else values.cast(wanted.value_type)
        if e.distinct:
            numbers = ranked(values)
            first, _ = groups_of([groups, numbers], len(groups))
            index = first[argsort_pairs(groups[first], numbers[first])]
        else:
            assert order is not None, "collect keeps the order of the rows"
            with holding(24 * self.rows.rows):
                place = np.empty(self.rows.rows, dtype=np.int64)
                place[order] = np.arange(len(order))
                index = argsort_pairs(groups, place[there])
            del place
        counts = np.bincount(groups[index], minlength=self.count)
        with holding(2 * index.nbytes):
            return with_nulls(bounds_of(counts), taken(values, index), np.zeros(self.count, dtype=bool))


def key_numbers(rows: Rows, e: Expression) -> np.ndarray:
    """Numbers that are equal where the values are, and ordered as these; null has -1. Entities have their codes."""
    if isinstance(e, Object) and e not in rows.known:
        return rows.frame.columns[e.variable.slot]
    variable = _only_variable(rows, e)
    if variable is not None:
        # Values of the different entities are fewer than values of rows.
        codes, numbers = factorize(rows.frame.columns[variable.slot])
        if len(codes) * 4 < rows.rows:
            part = Rows(rows.evaluator, Frame(len(codes), {variable.slot: codes}, rows.frame.paths))
            return np.asarray(ranked(part.column(e))[numbers])
    if rows.in_parts(e):
        return ranked_parts(part.column(e) for part in rows.parts())
    return ranked(rows.column(e))


def _only_variable(rows: Rows, e: Expression) -> Variable | None:
    """The one variable that the values depend on, if the rows are many and nothing is known of them yet."""
    if rows.rows <= DISTINCT_ROWS or e in rows.known:
        return None
    if isinstance(e, Property):
        return None if (e.variable.slot, e.name) in rows.columns else e.variable
    variables = list(variables_of(e)) if rows.in_parts(e) else []
    return variables[0] if len(variables) == 1 and variables[0].slot in rows.frame.columns else None


def _means(totals: np.ndarray | list[int], counts: np.ndarray) -> pa.Array:
    if isinstance(totals, np.ndarray) and (len(totals) == 0 or int(np.abs(totals).max()) < 1 << 53):
        return pa.array(np.divide(totals, counts, out=np.zeros(len(counts)), where=counts > 0), mask=counts == 0)
    pairs = zip(totals if isinstance(totals, list) else totals.tolist(), counts.tolist(), strict=True)
    return pa.array([None if n == 0 else t / n for t, n in pairs], pa.float64())


def _in_range(totals: np.ndarray | list[int], empty: np.ndarray) -> pa.Array:
    if isinstance(totals, np.ndarray):
        return pa.array(totals, mask=empty)
    for total in totals:
        if not -(1 << 63) <= total < 1 << 63:
            raise QueryValueError(detail=f"the sum {total} does not fit into 64 bits.")
    return pa.array([None if e else t for t, e in zip(totals, empty.tolist(), strict=True)], pa.int64())
