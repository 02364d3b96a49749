"""Groups and aggregates: rows with equal keys become one row. Null is a group of its own; aggregates skip nulls."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from omnigraph.errors import QueryValueError
from omnigraph.language.query.terms import Aggregate, Expression, Object, Property
from omnigraph.query.evaluate import Rows, with_nulls
from omnigraph.query.frame import Frame, bounds_of, distinct_rows, factorize, groups_of, unique
from omnigraph.query.order import ranked
from omnigraph.query.values import type_of

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

    def value(self, e: Aggregate, order: np.ndarray | None) -> pa.Array:
        """One value per group. `order`: the rows in the order in which `collect` keeps them."""
        if e.name == "count" and e.operand is None:
            return pa.array(np.bincount(self.of_row, minlength=self.count))
        assert e.operand is not None
        if e.name == "count" and e.distinct and isinstance(e.operand, Object) and e.operand not in self.rows.known:
            return self._entities(self.rows.frame.columns[e.operand.variable.slot])
        values = self.rows.column(e.operand)
        there = np.asarray(values.is_valid())
        groups = self.of_row[there]
        kept = values.filter(pa.array(there)) if not there.all() else values
        if e.name == "collect":
            return self._collected(e, groups, kept, None if order is None else order, there)
        if e.distinct:
            numbers = np.asarray(kept) if isinstance(e.operand, Object) else ranked(kept)
            first, _ = groups_of([groups, numbers], len(groups))
            groups, kept = groups[first], kept.take(pa.array(first))
        counts = np.bincount(groups, minlength=self.count)
        if e.name == "count":
            return pa.array(counts)
        if e.name in ("min", "max"):
            return self._extreme(e.name, groups, kept, counts)
        return self._sum(e, groups, kept, counts)

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

    def _extreme(self, name: str, groups: np.ndarray, values: pa.Array, counts: np.ndarray) -> pa.Array:
        order = np.lexsort((ranked(values), groups))
        bounds = bounds_of(counts)
        at = bounds[:-1] if name == "min" else bounds[1:] - 1
        empty = counts == 0
        if len(order) == 0:
            return pa.nulls(self.count, values.type)
        index = order[np.where(empty, 0, at)]
        return values.take(pa.array(index, mask=empty))

    def _sum(self, e: Aggregate, groups: np.ndarray, values: pa.Array, counts: np.ndarray) -> pa.Array:
        empty = counts == 0
        assert e.operand is not None
        if e.operand.type.is_integer:
            totals = self._whole(groups, values, counts)
            if e.name == "sum":
                return _in_range(totals, empty)
            means = [None if n == 0 else t / n for t, n in zip(totals, counts.tolist(), strict=True)]
            return pa.array(means, pa.float64())
        numbers = np.asarray(values.cast(pa.float64()))
        # In the order of the values, so that the sum does not hang on the order of the rows.
        order = np.lexsort((numbers, groups))
        sums = np.zeros(self.count)
        if len(order):
            bounds = bounds_of(counts)
            with np.errstate(over="ignore", invalid="ignore"):
                sums[~empty] = np.add.reduceat(numbers[order], bounds[:-1][~empty])
        if e.name == "avg":
            sums = np.divide(sums, counts, out=np.zeros(self.count), where=~empty)
        return pa.array(sums, mask=empty | ~np.isfinite(sums))

    def _whole(self, groups: np.ndarray, values: pa.Array, counts: np.ndarray) -> list[int]:
        """Exact sums of integers, however large."""
        numbers = np.asarray(values)
        size = float(np.abs(numbers.astype(np.float64)).max()) if len(numbers) else 0.0
        if size * max(1, len(numbers)) < _SAFE_SUM:
            sums = np.zeros(self.count, dtype=np.int64)
            np.add.at(sums, groups, numbers.astype(np.int64))
            return [int(s) for s in sums.tolist()]
        found = [0] * self.count
        for group, number in zip(groups.tolist(), numbers.tolist(), strict=True):
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
            index = first[np.lexsort((numbers[first], groups[first]))]
        else:
            assert order is not None, "collect keeps the order of the rows"
            place = np.empty(self.rows.rows, dtype=np.int64)
            place[order] = np.arange(len(order))
            index = np.lexsort((place[there], groups))
        counts = np.bincount(groups[index], minlength=self.count)
        return with_nulls(bounds_of(counts), values.take(pa.array(index)), np.zeros(self.count, dtype=bool))


def key_numbers(rows: Rows, e: Expression) -> np.ndarray:
    """Numbers that are equal where the values are; null has its own."""
    if isinstance(e, Object) and e not in rows.known:
        return rows.frame.columns[e.variable.slot]
    if isinstance(e, Property) and rows.rows > DISTINCT_ROWS and (e.variable.slot, e.name) not in rows.columns:
        # Values of the different entities are fewer than values of rows.
        codes, numbers = factorize(rows.frame.columns[e.variable.slot])
        if len(codes) * 4 < rows.rows:
            part = Rows(rows.evaluator, Frame(len(codes), {e.variable.slot: codes}))
            return np.asarray(ranked(part.column(e))[numbers])
    return ranked(rows.column(e))


def _in_range(totals: list[int], empty: np.ndarray) -> pa.Array:
    for total in totals:
        if not -(1 << 63) <= total < 1 << 63:
            raise QueryValueError(detail=f"the sum {total} does not fit into 64 bits.")
    return pa.array([None if e else t for t, e in zip(totals, empty.tolist(), strict=True)], pa.int64())


def first_values(groups: Groups, values: pa.Array) -> pa.Array:
    return values.take(pa.array(groups.first))
