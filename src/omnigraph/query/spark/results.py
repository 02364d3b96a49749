"""From bound rows to the rows of the answer.

1. group    aggregates or distinct rows become rows of their own, with the columns that their outputs need
2. having   filters them
3. order    total: keys, then ids or columns; offset and limit cut
4. columns  of the remaining rows, with the names and types of the answer
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from omnigraph.errors import NotOnSpark
from omnigraph.language.query.model import Read
from omnigraph.language.query.terms import Aggregate, Expression, Object, Output, Variable, variables_of
from omnigraph.query.execution.project import object_fields
from omnigraph.query.execution.values import type_of
from omnigraph.query.plan.analysis import aggregates_of
from omnigraph.query.spark.aggregate import finished, parts_of, plain
from omnigraph.query.spark.match import Bound
from omnigraph.query.spark.tables import Tables
from omnigraph.query.spark.types import spark_type
from omnigraph.query.spark.values import Values, entity, leaves_of

ROWS_MAX = (1 << 31) - 16
"""About the largest limit of Spark."""


@dataclass(frozen=True)
class _AnswerRows:
    """`ties` are ascending keys that no two rows share, `same` the columns that identify a row."""

    rows: DataFrame
    values: Values
    outputs: Sequence[Column]
    ties: Sequence[Column]
    same: Sequence[Column]


class Results:
    def __init__(self, tables: Tables, body: Read) -> None:
        self.tables = tables
        self.body = body

    def of(self, bound: Bound) -> DataFrame:
        answer = self._grouped(bound) if self.body.aggregated or self.body.distinct else self._plain(bound)
        if self.body.having is not None:
            keep = answer.values.with_known(self._known(answer.outputs)).column(self.body.having)
            answer = _AnswerRows(answer.rows.filter(keep), answer.values, answer.outputs, answer.ties, answer.same)
        rows, outputs = self._ordered(answer), answer.outputs
        if self.body.limit is not None and not self.body.aggregated and not self.body.distinct:
            outputs = [self._output(c.value, replace(answer.values, is_last=True)) for c in self.body.columns]
        selected = rows.select(*(o.alias(f"o{i}") for i, o in enumerate(outputs)))
        return selected.toDF(*(c.name for c in self.body.columns))

    # ---- 1 group

    def _plain(self, bound: Bound) -> _AnswerRows:
        outputs = [self._output(c.value, self.tables.values) for c in self.body.columns]
        same = [F.col(entity(v.slot)) for v in self.body.ties]
        return _AnswerRows(bound.table, self.tables.values, outputs, _ties(self.body.ties), same)

    def _grouped(self, bound: Bound) -> _AnswerRows:
        body, values = self.body, self.tables.values
        terms = [
            *(c.value for c in body.columns),
            *([body.having] if body.having else ()),
            *(k.value for k in body.order),
        ]
        keyed = tuple(range(len(body.columns))) if not body.aggregated else body.group
        keys = {i: values.column(body.columns[i].value) for i in keyed}
        aggregates = aggregates_of(tuple(terms))
        position = F.struct(*(c.alias(f"t{i}") for i, c in enumerate(_ties(body.pattern.binds))))
        parts: dict[Aggregate, list[Column]] = {}
        for e in aggregates:
            parts[e] = parts_of(e, None if e.operand is None else values.column(e.operand), position)
        kept_columns = self._kept_columns(terms, bound)
        grouped = bound.table.groupBy(*(k.alias(f"g{i}") for i, k in keys.items())).agg(
            F.count(F.lit(1)).alias("rows"),
            *(p.alias(f"a{n}_{m}") for n, e in enumerate(aggregates) for m, p in enumerate(parts[e])),
            *(F.first(c).alias(c) for c in kept_columns),
        )
        known: dict[Expression, Column] = {}
        for n, e in enumerate(aggregates):
            known[e] = finished(e, [F.col(f"a{n}_{m}") for m in range(len(parts[e]))])
        # Each aggregate is computed once, however many columns use it.
        grouped = grouped.select("*", *(c.alias(f"a{n}") for n, c in enumerate(known.values())))
        values = values.with_known({e: F.col(f"a{n}") for n, e in enumerate(known)})
        outputs = [
            F.col(f"g{i}") if i in keys and not isinstance(c.value, Object) else self._output(c.value, values)
            for i, c in enumerate(body.columns)
        ]
        grouped = grouped.select("*", *(o.alias(f"o{i}") for i, o in enumerate(outputs)))
        outputs = [F.col(f"o{i}") for i in range(len(outputs))]
        values = values.with_known(self._known(outputs))
        ties = [plain(o, e.type) for e, o in self._known(outputs).items()]
        return _AnswerRows(grouped, values, outputs, [t.asc_nulls_first() for t in ties], ties)

    def _known(self, outputs: Sequence[Column]) -> dict[Expression, Column]:
        """Columns of the answer as known values; an entity is its identity."""
        known: dict[Expression, Column] = {}
        for i, (column, output) in enumerate(zip(self.body.columns, outputs, strict=True)):
            e = column.value
            known[Output(i, e.type)] = F.col(entity(e.variable.slot)) if isinstance(e, Object) else output
        return known

    def _kept_columns(self, terms: Sequence[Expression], bound: Bound) -> list[str]:
        """The columns of variables that are used outside of aggregates; they are equal in all rows of a group."""
        leaves = [x for e in terms for x in leaves_of(e, {}) if not isinstance(x, Aggregate)]
        used = {v.slot for v in variables_of(tuple(leaves))}
        return [c for v in bound.variables if v.slot in used for c in self.tables.columns(v)]

    # ---- 3 order

    def _ordered(self, answer: _AnswerRows) -> DataFrame:
        body = self.body
        keys: list[Column] = []
        for k in body.order:
            column = plain(answer.values.column(k.value), k.value.type)
            keys.append(column.desc_nulls_last() if k.descending else column.asc_nulls_first())
        keys += answer.ties
        start = 0 if body.offset is None else int(answer.values.constant(body.offset))
        limit = None if body.limit is None else int(answer.values.constant(body.limit))
        if max(start, limit or 0) > ROWS_MAX or start + (limit or 0) > ROWS_MAX:
            raise NotOnSpark(feature=f"an offset or a limit of more than {ROWS_MAX} rows")
        ordered = answer.rows.orderBy(*keys)
        if limit is not None:
            return ordered.offset(start).limit(limit) if start else ordered.limit(limit)
        if not start:
            return ordered
        # Without a limit Spark moves all rows into one task to skip some: remove the skipped rows by an anti-join
        # instead.
        names = [f"s{i}" for i in range(len(answer.same))]
        skipped = ordered.limit(start).select(*(c.alias(n) for c, n in zip(answer.same, names, strict=True)))
        same = F.lit(True)
        for column, name in zip(answer.same, names, strict=True):
            same = same & column.eqNullSafe(F.col(name))
        return answer.rows.join(skipped, same, "left_anti").orderBy(*keys)

    # ---- 4 columns

    def _output(self, e: Expression, values: Values) -> Column:
        if not isinstance(e, Object):
            return values.column(e).cast(spark_type(type_of(e.type)))
        types = [self.tables.type(t) for t in e.variable.types]
        fields = [values.property(e.variable, f.name, f.type).alias(f.name) for f in object_fields(types, e)]
        return F.when(F.col(entity(e.variable.slot)).isNotNull(), F.struct(*fields))


def _ties(variables: Sequence[Variable]) -> list[Column]:
    ties: list[Column] = []
    for v in variables:
        column = F.col(entity(v.slot))
        ties.append(column.getField("id") if v.kind == "path" else column)
    return ties
