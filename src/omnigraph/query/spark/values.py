"""Expressions as Columns: computed by Spark where it agrees with the language, else by our evaluator on the executors.

Leaves of an expression are values that the rows hold: properties, entities, paths, aggregates, columns of the result.
An expression that is no leaf and not one of the few that `_native` supports becomes one Arrow function of its leaves,
which passes them to `execution.evaluate.BoundRows` as known values. So numbers, text, time and null behave on Spark as
in this process, errors included.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any

import pyarrow as pa
from pyspark.sql import Column
from pyspark.sql import functions as F

from omnigraph.language.query.terms import (
    Aggregate,
    And,
    Compare,
    Constant,
    Expression,
    Function,
    IsNull,
    Not,
    Object,
    Or,
    Output,
    Parameter,
    PathOf,
    Property,
    Variable,
)
from omnigraph.language.query.types import Type
from omnigraph.query.execution.evaluate import BoundRows, Evaluator
from omnigraph.query.execution.frame import Frame
from omnigraph.query.execution.values import spread, type_of
from omnigraph.query.spark.types import from_spark, spark_type, to_spark
from omnigraph.tasks.error_text import with_remedy

_COMPARE: dict[str, Callable[[Any, Any], Any]] = {
    "=": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
_WHOLE = ("I32", "U32", "I64")
_I64_LOW, _I64_HIGH = -(1 << 63), (1 << 63) - 1


def entity(slot: int) -> str:
    """The column of a variable."""
    return f"v{slot}"


@dataclass(frozen=True, eq=False)
class Values:
    """`names` are the columns of properties: by slot, name and Arrow type. `known`: expressions that are columns."""

    params: Mapping[str, Any]
    now: datetime
    types: Sequence[str]
    names: Mapping[tuple[int, str, pa.DataType], str]
    known: Mapping[Expression, Column] = field(default_factory=dict)
    is_last: bool = False
    """Evaluate in place in the plan: otherwise Spark would evaluate before a limit, for all rows."""

    def with_known(self, known: Mapping[Expression, Column]) -> Values:
        return replace(self, known={**self.known, **known})

    def constant(self, e: Constant | Parameter) -> Any:
        return self.params[e.name] if isinstance(e, Parameter) else e.value

    def column(self, e: Expression) -> Column:
        """The value of an expression; for a whole entity its identity."""
        native = self._native(e)
        return native if native is not None else self._evaluated(e)

    def property(self, variable: Variable, name: str, arrow_type: pa.DataType) -> Column:
        key = F.col(entity(variable.slot))
        if name == "id":
            return key.getField("id")
        if name == "@type":
            return F.element_at(F.array(*(F.lit(t) for t in self.types)), key.getField("type") + F.lit(1))
        return F.col(self.names[variable.slot, name, arrow_type])

    # ---- what Spark computes

    def _leaf(self, e: Expression) -> Column | None:
        if e in self.known:
            return self.known[e]
        if isinstance(e, Property):
            return self.property(e.variable, e.name, type_of(e.type))
        if isinstance(e, Object):
            return F.col(entity(e.variable.slot))
        if is_of_path(e):
            path = e.arguments[0]  # type: ignore[union-attr]
            assert isinstance(path, PathOf)
            nodes = F.col(entity(path.variable.slot))
            if e.name == "nodes":  # type: ignore[union-attr]
                return nodes.getField("id")
            return (F.array_size(nodes) - F.lit(1)).cast("bigint")
        return None

    def _native(self, e: Expression) -> Column | None:
        leaf = self._leaf(e)
        if leaf is not None:
            return leaf
        if isinstance(e, Constant) and e.type.kind == "Null":
            return F.lit(None)
        if isinstance(e, And | Or):
            parts = [self._native(o) for o in e.operands]
            if any(p is None for p in parts):
                return None
            combined = parts[0]
            for part in parts[1:]:
                combined = (combined & part) if isinstance(e, And) else (combined | part)  # type: ignore[operator]
            return combined
        if isinstance(e, Not | IsNull):
            inner = self._native(e.operand)
            if inner is None:
                return None
            return ~inner if isinstance(e, Not) else inner.isNull()
        return self._compared(e) if isinstance(e, Compare) else None

    def _compared(self, e: Compare) -> Column | None:
        left, right = self._operand(e.left), self._operand(e.right)
        if left is None or right is None or not _alike(e.left.type, e.right.type):
            return None
        compared: Column = _COMPARE[e.operator](left, right)
        return compared

    def _operand(self, e: Expression) -> Column | None:
        if not isinstance(e, Constant | Parameter):
            return self._leaf(e)
        value = self.constant(e)
        # Spark changes dates of the first centuries in literals.
        if not isinstance(value, str | int) or (isinstance(value, int) and not _I64_LOW <= value <= _I64_HIGH):
            return None
        return F.lit(value)

    # ---- what our evaluator computes

    def _evaluated(self, e: Expression) -> Column:
        leaves = tuple(dict.fromkeys(leaves_of(e, self.known)))
        task = _Task(e, leaves, tuple(_input_type(x) for x in leaves), dict(self.params), self.now)
        inputs = [self._input(x) for x in leaves] or [F.lit(0)]
        return arrow_function(task, spark_type(type_of(e.type)), stays=self.is_last)(*inputs)

    def _input(self, e: Expression) -> Column:
        leaf = self._leaf(e)
        assert leaf is not None, e
        if e.type.kind in ("Node", "Edge"):
            return F.concat(leaf.getField("type").cast("string"), F.lit(":"), leaf.getField("id"))
        return leaf


def is_of_path(e: object) -> bool:
    return isinstance(e, Function) and len(e.arguments) == 1 and isinstance(e.arguments[0], PathOf)


def leaves_of(e: object, known: Mapping[Expression, Column]) -> Iterator[Expression]:
    """The outermost terms whose values the rows hold."""
    is_term = not isinstance(e, tuple | Variable | Type)
    if is_term and (isinstance(e, Property | Object | Output | Aggregate) or is_of_path(e) or e in known):
        yield e  # type: ignore[misc]
        return
    parts = e if isinstance(e, tuple) else [getattr(e, n) for n in getattr(type(e), "__slots__", ())]
    for part in parts:
        if isinstance(part, tuple) or (hasattr(type(part), "__slots__") and not isinstance(part, Variable | Type)):
            yield from leaves_of(part, known)


def _alike(a: Type, b: Type) -> bool:
    """Whether Spark compares the two as the language does."""
    if a.is_text and b.is_text:
        return True
    if a.kind in _WHOLE and b.kind in _WHOLE:
        return True
    return a.kind == b.kind and a.kind in ("Date", "DateTime", "Bool", "Node", "Edge")


def _input_type(e: Expression) -> pa.DataType:
    return pa.string() if e.type.kind in ("Node", "Edge") else type_of(e.type)


@dataclass(frozen=True)
class _Task:
    """An expression that is sent to the executors."""

    term: Expression
    leaves: tuple[Expression, ...]
    types: tuple[pa.DataType, ...]
    params: dict[str, Any]
    now: datetime

    def __call__(self, columns: Sequence[pa.Array]) -> pa.Array:
        known: dict[Expression, Any] = {
            e: from_spark(c, t) for e, c, t in zip(self.leaves, columns, self.types, strict=False)
        }
        unused: Any = None
        rows = BoundRows(Evaluator(unused, self.params, self.now, unused), Frame(len(columns[0])), known)
        values = spread(rows.value(self.term), rows.rows)
        result_type = type_of(self.term.type)
        return values if values.type == result_type else values.cast(result_type)


def arrow_function(
    task: Callable[[Sequence[pa.Array]], pa.Array], result_type: Any, *, stays: bool = False
) -> Callable[..., Column]:
    """A function of Arrow arrays as one of Columns. Spark shows errors with their type and remedy."""

    def evaluate(*columns: pa.Array) -> pa.Array:
        with with_remedy():
            return to_spark(task(columns))

    udf = F.arrow_udf(evaluate, result_type)
    function: Callable[..., Column] = udf.asNondeterministic() if stays else udf
    return function
