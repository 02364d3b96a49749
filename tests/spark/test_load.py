"""Loads on Spark: the same graph and rejects as in this process, from files, DataFrames and whatever Spark reads."""

from __future__ import annotations

import random
import threading
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import omnigraph as og
from omnigraph.errors import ConstraintViolation, KeyConflict
from omnigraph.pipeline.bulk.input import input_splits
from omnigraph.pipeline.load.table_sources import TableSource
from tests.pipeline.loads import SCHEMA, exported, outcome, write_lines

SEED = 11
PEOPLE = """
node Person { name: String @key  age: I32?  vec: Vector(2)? }
edge Knows: Person -> Person { since: I32? }
"""


@pytest.mark.parametrize("turn", range(4))
def test_spark_and_memory_agree_on_graph_refusals_and_rejects(
    turn: int, spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    print(f"seed {SEED}, turn {turn}")
    rng = random.Random(f"{SEED}/{turn}")
    monkeypatch.setattr(input_splits, "PIECE_BYTES", (2000, 6000))
    graphs = {way: og.init(tmp_path / f"{way}.omni", SCHEMA) for way in ("local", "spark")}
    for step in range(2):
        path = write_lines(tmp_path / f"in{step}.jsonl", rng, 150)
        mode = rng.choice(["merge", "overwrite"] if step else ["append", "merge"])
        found = {}
        for way, graph in graphs.items():
            aside = tmp_path / f"{way}.rejected"
            on_error = "fail" if (turn, step) in ((0, 1), (1, 0)) else "quarantine"
            found[way] = outcome(graph, path, aside, mode=mode, on_error=on_error, engine=way)
        assert found["spark"] == found["local"], (step, mode)


def frame(spark: Any, table: pa.Table) -> Any:
    return spark.createDataFrame(table).repartition(3)


def test_dataframes_become_nodes_and_edges_in_one_commit(spark: Any, tmp_path: Path) -> None:
    graph = og.init(tmp_path / "g.omni", PEOPLE)
    people = pa.table(
        {"name": [f"p{i}" for i in range(100)], "age": range(100), "vec": [[float(i), 0.0] for i in range(100)]}
    )
    knows = spark.sql("select concat('p', id) as a, concat('p', id + 1) as b, cast(id as int) as since from range(99)")
    edges = knows.withColumnsRenamed({"a": "from", "b": "to"})
    done = graph.load(nodes={"Person": frame(spark, people)}, edges={"Knows": edges}, mode="append")
    assert done.engine == "spark"
    assert done.inserted == {"node:Person": 100, "edge:Knows": 99}
    assert len(graph.commits()) == 2
    row = graph.snapshot().read("Person").sort_by("id").to_pylist()[1]
    assert (row["id"], row["age"], row["vec"]) == ("p1", 1, [1.0, 0.0])
    assert graph.load(nodes={"Person": frame(spark, people)}, mode="merge").commit is None
    assert not (tmp_path / "g.omni" / "__staging").exists()


def test_a_format_that_only_spark_reads(spark: Any, tmp_path: Path) -> None:
    graph = og.init(tmp_path / "g.omni", PEOPLE)
    (tmp_path / "names.txt").write_text("anna\nben\n")
    source = TableSource(str(tmp_path / "names.txt"), format="text", columns={"value": "name"})
    assert graph.load(nodes={"Person": source}, mode="append").inserted == {"node:Person": 2}


def test_what_is_wrong_with_rows_of_a_dataframe_is_told_as_anywhere(spark: Any, tmp_path: Path) -> None:
    graph = og.init(tmp_path / "g.omni", PEOPLE)
    twice = pa.table({"name": ["a", "b", "a"]})
    with pytest.raises(ConstraintViolation, match="key: 'a' is already given by line"):
        graph.load(nodes={"Person": spark.createDataFrame(twice).coalesce(1)}, mode="append")
    dangling = pa.table({"from": ["x"], "to": ["y"]})
    with pytest.raises(ConstraintViolation, match=r"<DataFrame Knows>, line 1, .*there is no Person 'x'"):
        graph.load(edges={"Knows": spark.createDataFrame(dangling)}, mode="append")
    assert len(graph.commits()) == 1


def test_many_types_are_one_job(spark: Any, tmp_path: Path) -> None:
    """84 types of 8 rows take about what 2 types of 336 rows take: stages are jobs of all types together."""
    schema = "".join(f"node N{i} {{ name: String @key }}\n" for i in range(30))
    schema += "".join(f"edge E{i}: N{i % 30} -> N{(i + 1) % 30}\n" for i in range(54))
    graph = og.init(tmp_path / "g.omni", schema)
    stages: list[tuple[str, int]] = []

    class Watch:
        def engine(self, name: str, reason: str) -> None:
            return

        def stage(self, name: str, *, tasks: int) -> None:
            stages.append((name, tasks))

        def advance(self, *, tasks: int, rows: int, size_bytes: int) -> None:
            return

    lines = [f'{{"type":"N{i}","data":{{"name":"{i}-{r}"}}}}' for i in range(30) for r in range(8)]
    lines += [
        f'{{"edge":"E{i}","from":"{i % 30}-{r}","to":"{(i + 1) % 30}-{r}","data":{{}}}}'
        for i in range(54)
        for r in range(8)
    ]
    (tmp_path / "in.jsonl").write_text("\n".join(lines))
    graph = og.open(tmp_path / "g.omni", spark=spark, watcher=Watch())
    done = graph.load(str(tmp_path / "in.jsonl"), mode="append", engine="spark")
    assert sum(done.inserted.values()) == 84 * 8
    assert sum(tasks for _, tasks in stages) < 20, stages


def test_two_spark_loads_and_five_small_writers_at_once_all_land(spark: Any, tmp_path: Path) -> None:
    uri = tmp_path / "g.omni"
    og.init(uri, PEOPLE)
    troubles: list[BaseException] = []

    def load(number: int) -> None:
        table = pa.table({"name": [f"load{number}-{i}" for i in range(5000)], "age": [number] * 5000})
        og.open(uri, spark=spark).load(nodes={"Person": table}, mode="append", engine="spark")

    def write(number: int) -> None:
        graph = og.open(uri)
        for i in range(10):
            graph.upsert({"Person": [{"name": f"small{number}-{i}", "age": i}]})

    def guarded(work: Any, number: int) -> None:
        try:
            work(number)
        except BaseException as error:  # noqa: BLE001 - told by the test's own thread
            troubles.append(error)

    threads = [threading.Thread(target=guarded, args=(load, n)) for n in range(2)]
    threads += [threading.Thread(target=guarded, args=(write, n)) for n in range(5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not troubles
    names = og.open(uri).snapshot().read("Person")["name"].to_pylist()
    expected = {f"load{n}-{i}" for n in range(2) for i in range(5000)}
    expected |= {f"small{n}-{i}" for n in range(5) for i in range(10)}
    assert len(names) == len(expected)
    assert set(names) == expected


def test_a_key_that_another_writer_takes_while_a_load_is_prepared_is_found(spark: Any, tmp_path: Path) -> None:
    uri = tmp_path / "g.omni"
    og.init(uri, PEOPLE)
    other = og.open(uri)
    seen: list[str] = []

    def observe(phase: str) -> None:
        if phase == "lock" and not seen:
            seen.append(phase)
            other.insert({"Person": [{"name": "p3", "age": 1}]})

    graph = og.open(uri, spark=spark, observer=observe)
    table = pa.table({"name": [f"p{i}" for i in range(10)]})
    with pytest.raises(KeyConflict) as caught:
        graph.load(nodes={"Person": table}, mode="append", engine="spark")
    told = caught.value.fields
    assert (told["table_key"], told["entity_id"], told["count"], told["by_rule"]) == (
        "node:Person",
        "p3",
        1,
        {"key": 1},
    )
    assert [(v["source"], v["line"]) for v in told["violations"]] == [("<table Person>", 4)]
    assert og.open(uri).snapshot().read("Person").num_rows == 1


def test_inputs_below_eight_mebibytes_start_no_jvm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("omnigraph.tasks.engine.active_session", lambda: None)
    monkeypatch.setattr("omnigraph.tasks.engine.spark_session", lambda _: pytest.fail("a JVM was started"))
    graph = og.init(tmp_path / "g.omni", PEOPLE)
    assert graph.load(nodes={"Person": pa.table({"name": ["a"]})}, mode="append").engine == "local"
    assert exported(graph).count(b"\n") == 1
