"""The change feed on Spark: streams that are stopped and started again, and batches between two commits."""

from __future__ import annotations

import json
import pickle
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql.types import StructType

import omnigraph as og
from omnigraph.errors import FeedCollected, InvalidCursor, UsageError
from omnigraph.pipeline.datasource.source import OmnigraphSource
from tests.branch.feed.support import RENAMED, SCHEMA, expected_feed


@pytest.fixture
def graph(tmp_path: Path) -> og.Graph:
    graph = og.init(tmp_path / "graph", SCHEMA)
    graph.insert({"Person": [{"name": "Ada", "age": 36}, {"name": "Bob"}]})
    graph.insert({"Knows": [{"id": "k1", "from": "Ada", "to": "Bob", "w": 1}]})
    return graph


def run_stream(spark: Any, graph: og.Graph, folder: Path) -> list[dict[str, Any]]:
    """Read everything that is there into a folder of Parquet files, and stop; the rows of all runs so far."""
    source = spark.readStream.format("omnigraph").option("graph", graph.uri).option("changes", "true")
    query = (
        source.option("maxCommitsPerTrigger", 2)
        .load()
        .writeStream.format("parquet")
        .option("checkpointLocation", str(folder / "checkpoint"))
        .option("path", str(folder / "rows"))
        .start()
    )
    try:
        query.processAllAvailable()
    finally:
        query.stop()
    return [row.asDict() for row in spark.read.parquet(str(folder / "rows")).collect()]


def shown(rows: list[dict[str, Any]]) -> list[tuple[Any, ...]]:
    images = [tuple(None if r[i] is None else json.loads(r[i]) for i in ("before", "after")) for r in rows]
    return sorted(
        ((r["commit"], r["operation"], r["table_key"], r["id"], *pair) for r, pair in zip(rows, images, strict=True)),
        key=str,
    )


def expected(graph: og.Graph) -> list[tuple[Any, ...]]:
    return sorted(((commit, *change) for commit, change in expected_feed(graph)), key=str)


def test_a_stream_goes_on_from_its_checkpoint(spark: Any, graph: og.Graph, tmp_path: Path) -> None:
    og.register(spark)
    assert shown(run_stream(spark, graph, tmp_path)) == expected(graph)
    offsets = {p.name for p in (tmp_path / "checkpoint" / "offsets").iterdir() if p.name.isdecimal()}
    assert offsets == {"0", "1"}, "three commits, two per micro-batch"
    graph.update("Person", {"age": 37}, ids=["Ada"])
    graph.optimize(target_rows_per_fragment=100)
    graph.delete({"Person": ["Bob"]})
    assert shown(run_stream(spark, graph, tmp_path)) == expected(graph), "every change once"


def test_a_batch_between_two_commits_has_structs_of_one_type(spark: Any, graph: og.Graph) -> None:
    og.register(spark)
    start = graph.commits()[0].id
    graph.update("Person", {"nick": "A"}, ids=["Ada"])
    graph.apply_schema(RENAMED)
    end = graph.delete({"Person": ["Bob"]}).commit
    graph.insert({"Person": [{"name": "later"}]})
    assert end is not None
    source = (
        spark.read.format("omnigraph").option("graph", graph.uri).option("changes", "true").option("type", "Person")
    )
    rows = source.option("startingCommit", start).option("endingCommit", end.id).load().collect()
    assert [(r.operation, r.id) for r in rows] == [("update", "Ada"), ("delete", "Bob")]
    assert (rows[0].before.alias, rows[0].after.alias, rows[0].after.age) == (None, "A", 36)
    assert (rows[1].before.id, rows[1].after, rows[1].commit) == ("Bob", None, end.id)


def test_wrong_options_are_refused(graph: og.Graph) -> None:
    changes = {"graph": graph.uri, "changes": "true"}
    with pytest.raises(UsageError, match="where"):
        OmnigraphSource({**changes, "where": "age > 1"}).schema()
    with pytest.raises(InvalidCursor):
        OmnigraphSource({**changes, "startingCommit": "x"}).schema()
    with pytest.raises(UsageError, match="maxcommitspertrigger"):
        OmnigraphSource({**changes, "maxCommitsPerTrigger": "2"}).reader(StructType())
    with pytest.raises(UsageError, match="change feed"):
        OmnigraphSource({"graph": graph.uri, "type": "Person"}).streamReader(StructType())


def test_a_stream_begins_now_and_its_batches_never_go_beyond_their_end(graph: og.Graph) -> None:
    options = {"graph": graph.uri, "changes": "true", "startingCommit": "now", "maxCommitsPerTrigger": "1"}
    reader = OmnigraphSource(options).streamReader(StructType())
    start = reader.initialOffset()
    assert reader.latestOffset(start, None) == start
    assert reader.partitions(start, start) == []
    graph.create_branch("keeps")
    graph.update("Person", {"age": 1}, ids=["Ada"])
    graph.update("Person", {"age": 2}, ids=["Ada"])
    end = reader.latestOffset(start, None)
    (part,) = reader.partitions(start, end)
    (batch,) = pickle.loads(pickle.dumps(reader)).read(part)
    assert [json.loads(text)["age"] for text in batch["after"].to_pylist()] == [1]
    assert reader.latestOffset(end, None)["cursor"] == graph.changes_cursor()
    graph.cleanup(keep=1, confirm=True)
    with pytest.raises(FeedCollected):
        list(reader.read(part))
