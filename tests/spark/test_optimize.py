"""Optimize on Spark: the same rows and the same coverage as in this process, also when workers die in the middle.

Executors that die and tasks that run twice are in `test_killed`.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import omnigraph as og
from omnigraph.maintenance.optimize import OptimizeResult, prepare
from omnigraph.storage.lance.indices import built_indices
from tests.contention import keepers
from tests.maintenance.optimize.answers import disagreements
from tests.spark import dying_optimize
from tests.support.counting import Counting

ROWS = 420
ALIKE = ("fragments_removed", "fragments_added", "committed", "coverage_before", "coverage_after", "indexes_built")
NOTHING_TO_DO = """
import sys, omnigraph
result = omnigraph.open(sys.argv[1]).optimize(engine="spark")
assert result.commit is None and result.engine is None, result
assert not any(name.split(".")[0] in ("pyspark", "py4j") for name in sys.modules), "Spark was imported"
"""


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LANCE_LOG", "error")


@pytest.fixture(scope="module")
def worn(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Seven fragments without any index, rows changed and deleted in them."""
    path = tmp_path_factory.mktemp("worn") / "graph"
    with og.init(path, keepers.SCHEMA) as graph:
        for start in range(0, ROWS, 60):
            graph.insert({"Doc": [keepers.doc(f"base{i}", i) for i in range(start, start + 60)]})
        graph.upsert({"Doc": [keepers.doc(f"base{i}", i) for i in range(50, 70)]})
        graph.delete({"Doc": [f"base{i}" for i in range(100, 110)]})
    return path


def state(path: Path) -> tuple[list[dict[str, Any]], dict[str, int]]:
    """Rows, and how many rows each index covers."""
    view = og.open(path).snapshot().view
    table = view.open(view.type("Doc"))
    assert disagreements(table) == []
    live = {f.fragment_id: f.count_rows() for f in table.get_fragments()}
    covered = {i.name: sum(live.get(n, 0) for n in i.covered) for i in built_indices(table)}
    return sorted(table.to_table().to_pylist(), key=lambda row: row["id"]), covered


def told(result: OptimizeResult) -> list[tuple[Any, ...]]:
    return [(t.table_key, *(getattr(t, name) for name in ALIKE)) for t in result.tables if t.table_key != "__manifest"]


def test_spark_and_this_process_make_the_same_of_a_graph(spark: Any, worn: Path, tmp_path: Path) -> None:
    here, there = (Path(shutil.copytree(worn, tmp_path / name)) for name in ("here", "there"))
    watcher = Counting()
    local = og.open(here, engine="local").optimize(target_rows_per_fragment=200)
    on_spark = og.open(there, spark=spark, watcher=watcher).optimize(target_rows_per_fragment=200)
    assert (local.engine, on_spark.engine) == ("local", "spark")
    assert told(on_spark) == told(local)
    assert state(there) == state(here)
    assert set(state(there)[1].values()) == {ROWS - 10}
    stages = dict(watcher.stages)
    assert list(stages) == ["rewriting fragments", "training vector indices", "building indices"]
    assert og.open(there, spark=spark).optimize(target_rows_per_fragment=200).commit is None


def test_workers_that_die_in_every_stage_cost_nothing_but_files(
    spark: Any, worn: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = Path(shutil.copytree(worn, tmp_path / "graph"))
    for name in ("rewrite_fragments", "train_centroids", "build_segment"):
        monkeypatch.setattr(prepare.work, name, getattr(dying_optimize, name))
    graph = og.open(path, spark=spark)
    before = og.open(path).nodes("Doc").sort_by("id")
    result = graph.optimize(target_rows_per_fragment=200)
    assert result.ok
    assert sorted(p.name for p in tmp_path.glob("died-*")) == ["died-build", "died-rewrite", "died-train"]
    assert og.open(path).nodes("Doc").sort_by("id") == before
    assert set(state(path)[1].values()) == {ROWS - 10}
    assert {f.code for f in graph.verify(full=True, engine="local").findings} <= {"unexplained_file"}


def test_nothing_to_do_never_starts_a_jvm_even_if_spark_is_asked_for(tmp_path: Path) -> None:
    with og.init(tmp_path / "graph", keepers.SCHEMA) as graph:
        graph.insert({"Note": [{"key": "one"}]})
        graph.optimize(engine="local")
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("SPARK_", "PYSPARK_"))}
    environment["JAVA_HOME"] = str(tmp_path / "none")
    done = subprocess.run(
        [sys.executable, "-c", NOTHING_TO_DO, str(tmp_path / "graph")],
        env=environment,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
