"""Verify on Spark: the same findings as in this process, also when a worker dies in the middle."""

from __future__ import annotations

import os
import shutil
import signal
from pathlib import Path
from typing import Any

import pytest

import omnigraph as og
from omnigraph.maintenance.verify import rows
from tests.maintenance.verify import damage
from tests.support.counting import Counting

STAGES = {
    "digests": ("omnigraph.maintenance.verify.rows.digest_rows", "digest_then_die_once"),
    "buckets": ("omnigraph.maintenance.verify.rows.check_bucket", "check_then_die_once"),
    "indices": ("omnigraph.maintenance.verify.run.check_index", "ask_then_die_once"),
}


@pytest.fixture(scope="module")
def damaged(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A graph with damage of several kinds."""
    path = tmp_path_factory.mktemp("damaged") / "graph"
    kinds = {"Person": [("id", "BTREE"), ("age", "BTREE"), ("v", "IVF_FLAT")], "Knows": [("src", "BTREE")]}
    graph = damage.make(path, kinds=kinds)
    damage.raw_rows(graph, "Knows", [{"id": f"bad{i}", "src": "p001", "dst": f"none{i}"} for i in range(9)])
    damage.raw_rows(graph, "City", [{"id": "Bonn", "name": "Bonn"}])
    return path


@pytest.fixture
def graph(damaged: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> og.Graph:
    monkeypatch.setattr(rows, "BUCKET_ROWS", 200)
    monkeypatch.setattr(rows, "grouped", lambda fragments: ([f] for f, _ in fragments))
    shutil.copytree(damaged, tmp_path / "graph")
    return og.open(tmp_path / "graph", engine="local")


def test_spark_and_this_process_find_the_same(spark: Any, graph: og.Graph) -> None:
    watcher = Counting()
    here = graph.verify(seed=1)
    before = dict(damage.files(graph))
    on_spark = og.open(graph.uri, spark=spark, watcher=watcher).verify(seed=1)
    assert (on_spark.engine, here.engine) == ("spark", "local")
    assert on_spark.findings == here.findings
    assert on_spark.checked == here.checked
    assert {f.code for f in here.findings if f.severity == "error"} == {
        *("dangling_endpoint", "duplicate_key", "cardinality")
    }
    assert dict(damage.files(graph)) == before, "not even scratch files: the workers are on this machine"
    assert [name for name, _ in watcher.stages] == [
        *("looking at files", "comparing checksums", "reading ids and endpoints", "checking rows", "asking indices"),
        "looking at blobs",
    ]


@pytest.mark.parametrize("stage", STAGES)
def test_a_worker_that_dies_in_the_middle_costs_nothing_but_a_retry(
    spark: Any, graph: og.Graph, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stage: str
) -> None:
    expected = graph.verify(seed=1)
    place, name = STAGES[stage]
    monkeypatch.setattr(place, globals()[name])
    found = og.open(graph.uri, spark=spark).verify(seed=1)
    assert (tmp_path / "died").exists()
    assert found.findings == expected.findings
    assert found.checked == expected.checked


def digest_then_die_once(task: dict[str, Any]) -> Any:
    return _die_once(task, rows.digest_rows(task))


def check_then_die_once(task: dict[str, Any]) -> Any:
    return _die_once(task, rows.check_bucket(task))


def ask_then_die_once(task: dict[str, Any]) -> Any:
    from omnigraph.maintenance.verify.indices import check_index

    return _die_once(task, check_index(task))


def _die_once(task: dict[str, Any], done: Any) -> Any:
    mark = Path(task["place"]["uri"]).parent / "died"
    if not mark.exists():
        mark.write_text("died")
        os.kill(os.getpid(), signal.SIGKILL)
    return done
