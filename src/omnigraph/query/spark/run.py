"""A checked read query as a DataFrame; the package describes the steps."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from pyspark.sql import DataFrame

from omnigraph.errors import NotOnSpark, UsageError
from omnigraph.graph.snapshot import Snapshot
from omnigraph.language.query.model import CheckedQuery, Read
from omnigraph.language.query.params import bind_params
from omnigraph.language.query.terms import Bm25, Fused, Nearest, Search, walk
from omnigraph.pipeline.datasource.source import register
from omnigraph.query.spark.match import Bound, Matcher
from omnigraph.query.spark.results import Results
from omnigraph.query.spark.tables import Tables, needed_columns
from omnigraph.query.spark.values import Values


def spark_query(spark: Any, snapshot: Snapshot, checked: CheckedQuery, params: Mapping[str, Any]) -> DataFrame:
    """The rows that `run_query` gives, in the same order. Raises NotOnSpark for a query that searches."""
    body = checked.body
    if not isinstance(body, Read):
        raise UsageError(detail=f"{checked.name} writes; `mutate` runs it, `query` only reads.")
    _refuse_search(body)
    register(spark)
    types = sorted(snapshot.schema.types(), key=lambda t: (t.kind, t.name))
    needed = needed_columns({t.id: t for t in types}, body)
    now = datetime.now(UTC)
    values = Values(
        params=bind_params(checked, params),
        now=now.replace(microsecond=now.microsecond // 1000 * 1000),
        types=[t.name for t in types],
        names={(slot, n, t): f"p{slot}_{i}" for slot, columns in needed.items() for i, (n, t) in enumerate(columns)},
    )
    tables = Tables(spark, snapshot, types, needed, values)
    return Results(tables, body).of(Matcher(tables).run(body.pattern, Bound(None)))


def _refuse_search(body: Read) -> None:
    for term in walk(body):
        if isinstance(term, Search):
            raise NotOnSpark(feature=term.name)
        if isinstance(term, Nearest | Bm25 | Fused):
            raise NotOnSpark(feature={Nearest: "nearest", Bm25: "bm25", Fused: "rrf"}[type(term)])
