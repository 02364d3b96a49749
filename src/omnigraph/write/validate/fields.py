"""Rules that one row keeps or breaks by itself: required, enum, @range, @check."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator

import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.errors import Violation
from omnigraph.language.regex import CheckPattern
from omnigraph.language.schema.model import INTEGERS, Constraint, Property
from omnigraph.rules.fields import not_in_enum, not_matching, outside_range, required, unusable_pattern
from omnigraph.rules.problem import Problem
from omnigraph.write.delta import TypeDelta
from omnigraph.write.pending_view import Image
from omnigraph.write.values import INTEGER_BOUNDS


def row_violations(d: TypeDelta, rows: Iterable[int], problem: Problem | Callable[[int], Problem]) -> list[Violation]:
    """Violations of rows of a delta, with ids and lines filled in."""
    ids = d.rows.column("id")
    return [
        (problem if isinstance(problem, Problem) else problem(row)).violation(
            d.type.key,
            entity_id=ids[row].as_py(),
            line=None if d.lines is None else d.lines[row].as_py(),
            row=row,
        )
        for row in rows
    ]


def check_fields(image: Image) -> list[Violation]:
    return [violation for d in image.deltas.values() for violation in check_type_fields(d)]


def check_type_fields(d: TypeDelta) -> Iterator[Violation]:
    """Violations of one type: property by property, then constraint by constraint."""
    if d.rows.num_rows == 0:
        return
    for p in d.type.properties:
        yield from _check_property(d, p)
    for constraint in d.type.constraints:
        if constraint.kind in ("range", "check"):
            yield from _check_constraint(d, constraint)


def _check_property(d: TypeDelta, p: Property) -> Iterator[Violation]:
    column = d.rows.column(p.name)
    if not p.nullable and column.null_count:
        yield from row_violations(d, _where(pc.is_null(column)), required(p.name))
    if p.type.kind == "Enum":
        among = pc.is_in(column, value_set=pa.array(p.type.values, pa.string()))
        wrong = pc.and_(pc.invert(among), pc.is_valid(column))
        yield from row_violations(d, _where(wrong), lambda row: not_in_enum(p, column[row].as_py()))


def _check_constraint(d: TypeDelta, c: Constraint) -> list[Violation]:
    name = c.properties[0]
    column = d.rows.column(name)
    if c.kind == "check":
        assert c.pattern is not None
        pattern, texts = CheckPattern.of(c.pattern), column.unique().drop_null()
        problem = pattern.problem(texts)
        if problem is not None:
            # Only schemas of earlier releases hold one: nothing runs it any more, so nothing can be said of any value.
            return row_violations(d, _where(pc.is_valid(column)), unusable_pattern(c, problem))
        # Every different text is searched once.
        unmatched = pattern.unmatched(texts)
        wrong = _where(pc.is_in(column, value_set=unmatched)) if len(unmatched) else []
        return row_violations(d, wrong, lambda row: not_matching(c, column[row].as_py()))
    wrong = _outside(column, d.type.by_name[name].type.kind, c)
    return row_violations(d, wrong, lambda row: outside_range(c, column[row].as_py()))


def _where(mask: pa.ChunkedArray | pa.Array) -> list[int]:
    positions: list[int] = pc.indices_nonzero(mask).to_pylist()
    return positions


def _outside(column: pa.ChunkedArray, kind: str, c: Constraint) -> list[int]:
    low, high = c.low, c.high
    if kind in INTEGERS:
        # Whole bounds, so that 64-bit values are never compared as floats.
        first, last = INTEGER_BOUNDS[kind]
        low = None if low is None else math.ceil(low)
        high = None if high is None else math.floor(high)
        if (low is not None and low > last) or (high is not None and high < first):
            return _where(pc.is_valid(column))
        low = None if low is None or low <= first else low
        high = None if high is None or high >= last else high
    masks = []
    if low is not None:
        masks.append(pc.less(column, _bound(low, column.type)))
    if high is not None:
        masks.append(pc.greater(column, _bound(high, column.type)))
    return sorted({row for mask in masks for row in _where(pc.fill_null(mask, False))})


def _bound(bound: float, stored: pa.DataType) -> pa.Scalar:
    """The bound at the width of the column: 0.1 as an F32 is not above a bound of 0.1."""
    value = float(bound) if pa.types.is_floating(stored) else bound
    return pa.scalar(value, stored)
