"""Groups and aggregates: rows with equal keys become one row. Null is a group of its own; aggregates skip nulls."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from omnigraph.errors import QueryValueError
from omnigraph.language.query.terms import Aggregate, Expression, Object, Property, Variable, variables_of
from omnigraph.query.execution import sorting
from omnigraph.query.execution.evaluate import BoundRows, is_rowwise, with_nulls
from omnigraph.query.execution.frame import Frame, bounds_of, distinct_rows, factorize, groups_of, unique
from omnigraph.query.execution.ranking import ranked, ranked_parts
from omnigraph.query.execution.sorting import argsort_pairs, parts
from omnigraph.query.execution.values import taken, type_of
from omnigraph.query.limits import checkpoint, holding

_SAFE_SUM = 1 << 62
DISTINCT_ROWS = 4096


class Groups:
    """`first` is a row of each group, `of_row` the group of each row; without keys there is one group of all rows."""

    def __init__(self, rows: BoundRows, keys: Sequence[Expression]) -> None:
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
        """One value per group. `order`: the rows in the order for `collect`."""
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
            is_valid = np.asarray(values.is_valid())
            groups = self.of_row[is_valid]
            valid_values = taken(values, np.flatnonzero(is_valid)) if not is_valid.all() else values
            if e.name == "collect":
                return self._collected(e, groups, valid_values, order, is_valid)
            if e.distinct:
                first, _ = groups_of([groups, ranked(valid_values)], len(groups))
                groups, valid_values = groups[first], valid_values.take(pa.array(first))
            return self._sum(e, groups, valid_values, np.bincount(groups, minlength=self.count))

    def _valid(self, e: Expression) -> np.ndarray:
        """A mask of the rows in which the expression is not null."""
        if self.rows.in_parts(e):
            return np.concatenate([np.asarray(part.column(e).is_valid()) for part in self.rows.parts()])
        return np.asarray(self.rows.column(e).is_valid())

    def _different(self, numbers: np.ndarray) -> pa.Array:
        """The number of distinct numbers of each group; -1 is null."""
        is_valid = numbers >= 0
        groups, _ = distinct_rows([self.of_row[is_valid], numbers[is_valid]])
        return pa.array(np.bincount(groups, minlength=self.count))

    def _entities(self, codes: np.ndarray) -> pa.Array:
        """The number of distinct entities of each group."""
        is_valid = codes >= 0
        if self.count == 1 or not is_valid.any():
            return pa.array([len(unique(codes[is_valid]))] * self.count, pa.int64())
        groups, codes = self.of_row[is_valid], codes[is_valid]
        is_boundary = groups[1:] != groups[:-1]
        is_distinct = bool((is_boundary | (codes[1:] > codes[:-1])).all())
        if not is_distinct or int(is_boundary.sum()) >= len(unique(groups[np.append(True, is_boundary)])):
            # Not needed where groups are contiguous, with their entities in order.
            groups, _ = distinct_rows([groups, codes])
        return pa.array(np.bincount(groups, minlength=self.count))

    def _extreme(self, name: str, e: Expression) -> pa.Array:
        """Among equal values the first is the minimum and the last the maximum."""
        rows = self.rows
        if not is_rowwise(e):
            rows.known[e] = rows.column(e)
        numbers = key_numbers(rows, e)
        best = np.full(self.count, -1, dtype=np.int64)
        if name == "max":
            np.maximum.at(best, self.of_row, numbers)
        else:
            best[:] = np.iinfo(np.int64).max
            is_valid = numbers >= 0
            np.minimum.at(best, self.of_row[is_valid], numbers[is_valid])
        checkpoint()
        positions = np.flatnonzero((numbers >= 0) & (numbers == best[self.of_row]))
        positions = positions[::-1] if name == "min" else positions
        row_of = np.full(self.count, -1, dtype=np.int64)
        row_of[self.of_row[positions]] = positions
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
        # In the order of the values, so that the sum does not depend on the order of the rows.
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
        """Exact sums of integers of any size; as an array if 64 bits are certainly enough."""
        numbers = np.asarray(values)
        size = float(max(-float(numbers.min()), float(numbers.max()), 0.0)) if len(numbers) else 0.0
        if size * max(1, len(numbers)) < _SAFE_SUM:
            sums = np.zeros(self.count, dtype=np.int64)
            np.add.at(sums, groups, numbers.astype(np.int64))
            return sums
        totals = [0] * self.count
        for part in parts(len(numbers)):
            for group, number in zip(groups[part].tolist(), numbers[part].tolist(), strict=True):
                totals[group] += number
        return totals

    def _collected(
        self, e: Aggregate, groups: np.ndarray, values: pa.Array, order: np.ndarray | None, is_valid: np.ndarray
    ) -> pa.Array:
        list_type = type_of(e.type)
        values = values if values.type == list_type.value_type else values.cast(list_type.value_type)
        if e.distinct:
            numbers = ranked(values)
            first, _ = groups_of([groups, numbers], len(groups))
            index = first[argsort_pairs(groups[first], numbers[first])]
        else:
            assert order is not None, "collect keeps the order of the rows"
            with holding(24 * self.rows.rows):
                position = np.empty(self.rows.rows, dtype=np.int64)
                position[order] = np.arange(len(order))
                index = argsort_pairs(groups, position[is_valid])
            del position
        counts = np.bincount(groups[index], minlength=self.count)
        with holding(2 * index.nbytes):
            return with_nulls(bounds_of(counts), taken(values, index), np.zeros(self.count, dtype=bool))


def key_numbers(rows: BoundRows, e: Expression) -> np.ndarray:
    """Numbers that are equal where the values are, and in the same order; -1 for null. Entities have their codes."""
    if isinstance(e, Object) and e not in rows.known:
        return rows.frame.columns[e.variable.slot]
    variable = _only_variable(rows, e)
    if variable is not None:
        # There are fewer distinct entities than rows: evaluate once per entity.
        codes, numbers = factorize(rows.frame.columns[variable.slot])
        if len(codes) * 4 < rows.rows:
            part = BoundRows(rows.evaluator, Frame(len(codes), {variable.slot: codes}, rows.frame.paths))
            return np.asarray(ranked(part.column(e))[numbers])
    if rows.in_parts(e):
        return ranked_parts(part.column(e) for part in rows.parts())
    return ranked(rows.column(e))


def _only_variable(rows: BoundRows, e: Expression) -> Variable | None:
    """The only variable that the values depend on, if there are many rows and their values are not computed yet."""
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
