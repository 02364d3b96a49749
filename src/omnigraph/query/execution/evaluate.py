"""Expressions over bound rows: one Arrow value per row, nulls and three-valued logic as the language defines them.

Properties are read when an expression needs them, all columns of one variable in one read, each entity once.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.errors import QueryValueError
from omnigraph.language.query.terms import (
    Aggregate,
    And,
    Arithmetic,
    Bm25,
    Compare,
    Constant,
    Expression,
    Function,
    Fused,
    In,
    IsNull,
    ListOf,
    Match,
    Nearest,
    Not,
    Object,
    Or,
    Output,
    Parameter,
    PathOf,
    Property,
    Search,
    walk,
)
from omnigraph.language.query.types import Type
from omnigraph.language.regex import pattern_problem
from omnigraph.query.execution import sorting
from omnigraph.query.execution.arithmetic import arithmetic, function, widened
from omnigraph.query.execution.compare import among, compare, in_lists
from omnigraph.query.execution.frame import NO_PATHS, NULL, Frame, bounds_of
from omnigraph.query.execution.values import Values, concatenated, scalar, spread, truth, type_of
from omnigraph.query.tables.source import Source

if TYPE_CHECKING:
    from omnigraph.query.search import Searcher

_MATCH = {"contains": pc.match_substring, "starts_with": pc.starts_with, "ends_with": pc.ends_with}


@dataclass(eq=False)
class Evaluator:
    """The context in which expressions of one run are evaluated. `now` is the same for the whole query."""

    source: Source
    params: Mapping[str, Any]
    now: datetime
    searcher: Searcher

    def over(self, frame: Frame) -> BoundRows:
        return BoundRows(self, frame)

    def holds(self, conditions: Sequence[Expression], frame: Frame) -> np.ndarray:
        """A mask of the rows for which all conditions are true."""
        if frame.rows > sorting.PART_ROWS:
            return np.concatenate([self.holds(conditions, p.frame) for p in self.over(frame).parts()])
        rows = self.over(frame)
        rows.fetch(conditions)
        is_true = np.ones(frame.rows, dtype=bool)
        for condition in conditions:
            is_true &= truth(rows.value(condition), frame.rows)
        return is_true

    def constant(self, e: Expression) -> Any:
        """The value of a constant or parameter, as a Python object."""
        if isinstance(e, Parameter):
            return self.params[e.name]
        assert isinstance(e, Constant), e
        return e.value


@dataclass(eq=False)
class BoundRows:
    """Evaluates expressions over the rows of one frame. `known` holds values that are computed already."""

    evaluator: Evaluator
    frame: Frame
    known: dict[Expression, Values] = field(default_factory=dict)
    outputs: Sequence[pa.Array] = ()
    columns: dict[tuple[int, str], pa.Array] = field(default_factory=dict)

    @property
    def rows(self) -> int:
        return self.frame.rows

    def column(self, e: Expression) -> pa.Array:
        """One value per row; many rows are evaluated part by part."""
        if self.in_parts(e):
            return concatenated(p.column(e) for p in self.parts())
        return spread(self.value(e), self.rows)

    # ---- some of the rows

    def in_parts(self, e: Expression) -> bool:
        """Whether there are more than PART_ROWS rows, and the value of each can be computed without the others."""
        return self.rows > sorting.PART_ROWS and e not in self.known and not isinstance(e, Output) and is_rowwise(e)

    def parts(self) -> Iterator[BoundRows]:
        """All rows in order, PART_ROWS at a time."""
        for part in sorting.parts(self.rows):
            yield BoundRows(
                self.evaluator,
                self.frame.slice(part.start, part.stop),
                {e: v if isinstance(v, pa.Scalar) else v[part] for e, v in self.known.items()},
                [o[part] for o in self.outputs],
                {key: c[part] for key, c in self.columns.items()},
            )

    def at(self, positions: np.ndarray) -> BoundRows:
        """The rows at these positions. Values that depend on all rows must be in `known`."""
        index = pa.array(positions)
        known = {e: v if isinstance(v, pa.Scalar) else v.take(index) for e, v in self.known.items()}
        columns = {key: c.take(index) for key, c in self.columns.items()}
        return BoundRows(
            self.evaluator, self.frame.take(positions), known, [o.take(index) for o in self.outputs], columns
        )

    # ---- properties

    def fetch(self, expressions: Sequence[Expression]) -> None:
        """Read the columns that these expressions need, in one read per variable. For many rows, `parts` read them."""
        if self.rows > sorting.PART_ROWS:
            return
        needed: dict[int, dict[str, Property]] = {}
        for e in expressions:
            if e in self.known:
                continue
            for term in walk(e):
                if isinstance(term, Property) and (term.variable.slot, term.name) not in self.columns:
                    needed.setdefault(term.variable.slot, {})[term.name] = term
        for slot, names in needed.items():
            codes = self.frame.columns.get(slot)
            usable = {n: p for n, p in names.items() if p.type.kind not in ("Vector", "Blob")}
            if codes is None or not usable:
                continue
            types = {n: type_of(p.type) for n, p in usable.items()}
            columns = self.evaluator.source.values(list(usable), codes, types)
            self.columns.update({(slot, n): c for n, c in columns.items()})

    def _property(self, e: Property) -> Values:
        key = (e.variable.slot, e.name)
        if key not in self.columns:
            codes = self.frame.columns[e.variable.slot]
            types = {e.name: type_of(e.type)}
            self.columns[key] = self.evaluator.source.values([e.name], codes, types)[e.name]
        return self.columns[key]

    def entity(self, slot: int) -> pa.Array:
        codes = self.frame.columns[slot]
        return pa.array(codes, mask=codes < 0)

    # ---- terms

    def value(self, e: Expression) -> Values:
        if self.known and e in self.known:
            return self.known[e]
        if isinstance(e, Property):
            return self._property(e)
        if isinstance(e, Constant):
            return scalar(e.value, e.type)
        if isinstance(e, Parameter):
            return scalar(self.evaluator.params[e.name], e.type)
        if isinstance(e, Compare):
            return compare(e.operator, self.value(e.left), self.value(e.right), e.left, e.right)
        if isinstance(e, And | Or):
            return self._logic(e)
        if isinstance(e, Not):
            return pc.invert(self.value(e.operand))
        if isinstance(e, IsNull):
            return pc.is_null(self.value(e.operand))
        if isinstance(e, In):
            return self._in(e)
        if isinstance(e, Match):
            return self._match(e)
        if isinstance(e, Object):
            return self.entity(e.variable.slot)
        if isinstance(e, Arithmetic):
            return arithmetic(e, self.value(e.left), self.value(e.right))
        if isinstance(e, Function):
            return self._function(e)
        if isinstance(e, ListOf):
            return self._list(e)
        if isinstance(e, Output):
            return self.outputs[e.index]
        if isinstance(e, Search):
            return self.evaluator.searcher.matches(e, self.frame.columns[e.property.variable.slot])
        if isinstance(e, Nearest | Bm25 | Fused):
            return self.evaluator.searcher.scores(e, self.frame)
        assert not isinstance(e, Aggregate | PathOf), e
        raise AssertionError(e)

    def _logic(self, e: And | Or) -> Values:
        join = pc.and_kleene if isinstance(e, And) else pc.or_kleene
        result = self.value(e.operands[0])
        for operand in e.operands[1:]:
            result = join(result, self.value(operand))
        return result

    def _in(self, e: In) -> Values:
        needle = self.value(e.needle)
        if isinstance(e.items, Constant | Parameter):
            items = self.evaluator.constant(e.items)
            if items is None:
                return pa.scalar(None, pa.bool_())
            return self._among(e.needle.type, needle, items, e.items.type)
        if isinstance(e.items, ListOf):
            if all(isinstance(i, Constant | Parameter) for i in e.items.items):
                constants = [self.evaluator.constant(i) for i in e.items.items]
                result = self._among(e.needle.type, needle, [c for c in constants if c is not None], e.items.type)
                return result if None not in constants else _or_unknown(result)
            return self._in_terms(e.needle, e.items)
        item = e.items.type.item or "String"
        lists = spread(self.value(e.items), self.rows)
        return in_lists(needle, e.needle.type.kind, lists, item, self.rows)

    def _among(self, t: Type, needle: Values, items: Sequence[Any], list_type: Type) -> Values:
        return among(needle, t.kind, items, type_of(list_type).value_type)

    def _in_terms(self, needle: Expression, items: ListOf) -> Values:
        """`in` a list whose items differ from row to row."""
        left = self.value(needle)
        result: Values = pa.scalar(False)
        for item in items.items:
            result = pc.or_kleene(result, compare("=", left, self.value(item), needle, item))
        return pc.if_else(pc.is_valid(spread(left, self.rows)), result, pa.scalar(None, pa.bool_()))

    def _match(self, e: Match) -> Values:
        text, pattern = self.value(e.text), self.value(e.pattern)
        if isinstance(pattern, pa.Scalar):
            if not pattern.is_valid:
                return pa.scalar(None, pa.bool_())
            return _matched(e.operator, text, pattern.as_py())
        return _each(e.operator, spread(text, self.rows), pattern)

    def _function(self, e: Function) -> Values:
        if e.name == "now":
            return scalar(self.evaluator.now, e.type)
        if e.name == "nodes" or isinstance(e.arguments[0], PathOf):
            path = e.arguments[0]
            assert isinstance(path, PathOf)
            if e.name == "length":
                return self._path_lengths(path.variable.slot)
            return self.path_nodes(path.variable.slot)
        return function(e, [self.value(a) for a in e.arguments])

    def _path_lengths(self, slot: int) -> pa.Array:
        numbers = self.frame.columns[slot]
        is_bound = numbers >= 0
        offsets = self.frame.paths.get(slot, NO_PATHS).offsets
        edges = np.zeros(len(numbers), dtype=np.int64)
        edges[is_bound] = offsets[numbers[is_bound] + 1] - offsets[numbers[is_bound]] - 1
        return pa.array(edges, mask=~is_bound)

    def path_nodes(self, slot: int) -> pa.Array:
        """The ids of the nodes of every row's path."""
        numbers = self.frame.columns[slot]
        is_bound = numbers >= 0
        paths = self.frame.paths.get(slot, NO_PATHS).taken(numbers[is_bound])
        lengths = np.zeros(len(numbers), dtype=np.int64)
        lengths[is_bound] = np.diff(paths.offsets)
        ids = self.evaluator.source.ids(paths.codes)
        return with_nulls(bounds_of(lengths), ids, ~is_bound)

    def _list(self, e: ListOf) -> pa.Array:
        """Slow, row by row: list expressions occur mostly behind `in`, which does not call this; others are rare and
        small.
        """
        item = type_of(e.type).value_type
        columns = [widened(self.column(i), item).to_pylist() for i in e.items]
        rows = [list(r) for r in zip(*columns, strict=True)] if columns else [[] for _ in range(self.rows)]
        return pa.array(rows, type_of(e.type))


def is_rowwise(e: Expression) -> bool:
    """Whether the value of a row can be computed without the others; positions of scores can not."""
    return not any(isinstance(term, Nearest | Bm25 | Fused) for term in walk(e))


def with_nulls(offsets: np.ndarray, values: pa.Array, nulls: np.ndarray) -> pa.Array:
    """Lists with these offsets; null where `nulls` is true."""
    lists = pa.ListArray.from_arrays(pa.array(offsets.astype(np.int32)), values)
    if not nulls.any():
        return lists
    index = np.where(nulls, NULL, np.arange(len(nulls)))
    return lists.take(pa.array(index, mask=nulls))


def _or_unknown(is_in: Values) -> Values:
    """False becomes null, for a list that holds null."""
    return pc.if_else(is_in, is_in, pa.scalar(None, pa.bool_()))


def _matched(op: str, text: Values, pattern: str) -> Values:
    if op != "matches":
        return _MATCH[op](text, pattern)
    try:
        return pc.match_substring_regex(text, pattern)
    except pa.ArrowInvalid as error:
        raise QueryValueError(detail=f"{pattern!r} can't be used by matches. {pattern_problem(pattern)}") from error


def _matches_text(op: str, text: str, pattern: str) -> bool:
    if op == "contains":
        return pattern in text
    return text.startswith(pattern) if op == "starts_with" else text.endswith(pattern)


def _each(op: str, text: pa.Array, patterns: pa.Array) -> pa.Array:
    """Match each text with the pattern of its own row."""
    if op != "matches":
        pairs = zip(text.to_pylist(), patterns.to_pylist(), strict=True)
        return pa.array([None if t is None or p is None else _matches_text(op, t, p) for t, p in pairs], pa.bool_())
    encoded = patterns.dictionary_encode()
    codes = np.asarray(encoded.indices.fill_null(-1))
    order = np.argsort(codes, kind="stable")
    starts = np.searchsorted(codes[order], np.arange(len(encoded.dictionary)))
    parts = [pa.nulls(int((codes < 0).sum()), pa.bool_())]
    for pattern, rows in zip(encoded.dictionary.to_pylist(), np.split(order, starts)[1:], strict=True):
        parts.append(_matched(op, text.take(pa.array(rows)), pattern))
    return pa.concat_arrays(parts).take(pa.array(np.argsort(order)))
