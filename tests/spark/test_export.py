"""Export on Spark: the same files as in this process, also when a worker dies on the way."""

from __future__ import annotations

import json
import os
import signal
import threading
from pathlib import Path
from typing import Any

import pytest

import omnigraph as og
from omnigraph.pipeline.export.stream import Format
from tests.pipeline.conftest import SCHEMA
from tests.support.counting import Counting
from tests.support.exports import FORMATS, exported, rows_of, tree, worn

WRITE_PART = "omnigraph.pipeline.export.folder.write_part"


@pytest.fixture
def graph(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> og.Graph:
    """A graph that is cut into several files per type."""
    monkeypatch.setattr("omnigraph.pipeline.export.folder.ROWS_PER_FILE", 5)
    graph = og.init(tmp_path / "graph", SCHEMA)
    worn(graph)
    return graph


@pytest.mark.parametrize("format", FORMATS)
def test_spark_and_this_process_write_the_same_files(
    spark: Any, graph: og.Graph, tmp_path: Path, format: Format
) -> None:
    watcher = Counting()
    on_spark = og.open(graph.uri, spark=spark, watcher=watcher).export(tmp_path / "spark", file_format=format)
    here = graph.export(tmp_path / "here", file_format=format, engine="local")
    assert (on_spark.engine, here.engine) == ("spark", "local")
    assert on_spark.rows == here.rows == {"node:Note": 3, "node:Person": 22, "edge:Knows": 2}
    assert watcher.engines == [("spark", "a session is running")]
    assert [name for name, _ in watcher.stages] == [f"writing {format}"]
    assert watcher.last[1] == 27
    if format != "lance":
        assert tree(tmp_path / "spark") == tree(tmp_path / "here")
        assert len(tree(tmp_path / "spark")) > 6
        return
    import lance

    for name, kind in (("Person", "nodes"), ("Note", "nodes"), ("Knows", "edges")):
        found = lance.dataset(str(tmp_path / f"spark/{kind}/{name}.lance"))
        assert rows_of(found.to_table()) == rows_of(graph.snapshot().read(name))


def test_a_folder_written_on_spark_loads_on_spark_into_an_equal_graph(
    spark: Any, graph: og.Graph, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    og.open(graph.uri, spark=spark).export(out, file_format="parquet")
    og.init(tmp_path / "copy", (out / "schema.pg").read_text())
    copy = og.open(tmp_path / "copy", spark=spark)
    tables = {name: f"{out}/nodes/{name}/*.parquet" for name in ("Person", "Note")}
    loaded = copy.load(nodes=tables, edges={"Knows": f"{out}/edges/Knows/*.parquet"}, mode="append")
    assert loaded.engine == "spark"
    assert exported(copy) == exported(graph)


@pytest.mark.parametrize("format", ["parquet", "lance"])
def test_a_worker_that_dies_after_writing_its_file_costs_nothing_but_a_retry(
    spark: Any, graph: og.Graph, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, format: Format
) -> None:
    """Its first attempt has put the file in place, or for lance left one that no table names."""
    monkeypatch.setattr(WRITE_PART, write_then_die_once)
    out = tmp_path / "out"
    og.open(graph.uri, spark=spark).export(out, file_format=format)
    assert (tmp_path / "died").exists()
    if format == "lance":
        import lance

        people = lance.dataset(str(out / "nodes/Person.lance"))
        assert len(list((out / "nodes/Person.lance/data").iterdir())) == len(people.get_fragments())
        assert rows_of(people.to_table()) == rows_of(graph.snapshot().read("Person"))
    else:
        graph.export(tmp_path / "here", file_format=format, engine="local")
        assert tree(out) == tree(tmp_path / "here")


def write_then_die_once(task: dict[str, Any]) -> Any:
    from omnigraph.pipeline.export.tasks import write_part

    done = write_part(task)
    mark = Path(task["graph"]["uri"]).parent / "died"
    if task["rows"] and "Person" in task["path"] and not mark.exists():
        mark.write_text("died")
        os.kill(os.getpid(), signal.SIGKILL)
    return done


def test_ctrl_c_stops_the_job_and_leaves_an_unfinished_export_that_the_next_one_cleans(
    spark: Any, graph: og.Graph, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "out"
    main = threading.main_thread().ident
    assert main is not None
    timer = threading.Timer(1.5, lambda: signal.pthread_kill(main, signal.SIGINT))
    with monkeypatch.context() as patch:
        patch.setattr(WRITE_PART, write_then_sleep)
        timer.start()
        with pytest.raises(KeyboardInterrupt):
            og.open(graph.uri, spark=spark).export(out, file_format="csv")
    assert not (out / "_export.json").exists()
    assert json.loads((out / "_unfinished.json").read_text())["owner"] is None
    og.open(graph.uri, spark=spark).export(out, file_format="parquet")
    graph.export(tmp_path / "here", file_format="parquet", engine="local")
    assert tree(out) == tree(tmp_path / "here")


def write_then_sleep(task: dict[str, Any]) -> Any:
    import time

    from omnigraph.pipeline.export.tasks import write_part

    done = write_part(task)
    time.sleep(4)
    return done
