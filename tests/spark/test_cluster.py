"""Executors that do not have this package: the documented ways to send it, and Spark Connect.

Each test is a driver of its own, with real executor processes. Its executors have neither this package nor pandas,
which nothing of ours may need.
"""

from __future__ import annotations

import json
import os
import stat
import subprocess
import sys
import sysconfig
import tarfile
import venv
import zipfile
from pathlib import Path
from typing import Any

import pytest

import omnigraph as og

ROOT = Path(og.__file__).parent
JOB = Path(__file__).with_name("cluster_job.py")
SHIPPED = """
import os
import sys

import omnigraph

def whereabouts(task):
    return {"value": task["value"] * 2, "omnigraph": omnigraph.__file__, "pid": os.getpid(), "argv": sys.executable}
"""


@pytest.fixture
def graph(tmp_path: Path) -> og.Graph:
    made = og.init(tmp_path / "graph", "node Person { name: String @key  age: I32? }")
    made.insert({"Person": [{"name": "Ada", "age": 36}, {"name": "Bob", "age": 20}]})
    return made


@pytest.fixture
def bare(tmp_path: Path) -> Path:
    """A Python with everything that is installed here, but for this package, and with a pandas that can't be used."""
    venv.create(tmp_path / "bare", with_pip=False, symlinks=True)
    site = next((tmp_path / "bare" / "lib").glob("python*/site-packages"))
    (site / "pandas.py").write_text("raise ImportError('there is no pandas')\n")
    # A path file below an added path is not read, and such a file is how this package is installed here.
    (site / "others.pth").write_text(sysconfig.get_paths()["purelib"] + "\n")
    python = tmp_path / "bare" / "bin" / "python"
    looked = subprocess.run(
        [python, "-c", "import lance, pyspark, omnigraph"], capture_output=True, text=True, check=False
    )
    assert "No module named 'omnigraph'" in looked.stderr
    return python


@pytest.fixture
def zipped(tmp_path: Path) -> Path:
    """This package as `--py-files` takes it, and a module with work for the tasks."""
    path = tmp_path / "omnigraph.zip"
    with zipfile.ZipFile(path, "w") as file:
        for source in sorted(ROOT.rglob("*")):
            if source.is_file() and "__pycache__" not in source.parts:
                file.write(source, source.relative_to(ROOT.parent))
        file.writestr("shipped.py", SHIPPED)
    return path


def run(graph: og.Graph, tmp_path: Path, settings: dict[str, Any], **environment: str) -> dict[str, Any]:
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("SPARK_", "PYSPARK_", "OMNIGRAPH_"))}
    (tmp_path / "work").mkdir(exist_ok=True)
    (tmp_path / "driver").mkdir(exist_ok=True)
    (tmp_path / "driver" / "shipped.py").write_text(SHIPPED)
    given = {
        **kept,
        "SETTINGS": json.dumps(settings),
        "SPARK_WORKER_DIR": str(tmp_path / "work"),
        "OMNIGRAPH_FSYNC": "off",
        **environment,
    }
    done = subprocess.run(
        [sys.executable, JOB, graph.uri],
        capture_output=True,
        text=True,
        env=given,
        cwd=tmp_path,
        timeout=280,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    assert [task["value"] for task in found["tasks"]] == [0, 2, 4]
    return found


QUICK = "-XX:TieredStopAtLevel=1"
CLUSTER = {
    "master": "local-cluster[1,1,1024]",
    "conf": {
        "spark.driver.extraJavaOptions": QUICK,
        "spark.executor.memory": "512m",
        "spark.executor.extraJavaOptions": QUICK,
    },
}


def with_conf(**more: str) -> dict[str, Any]:
    return {**CLUSTER, "conf": {**CLUSTER["conf"], **more}}  # type: ignore[dict-item]


@pytest.mark.long
def test_py_files_bring_the_package_to_executors_that_lack_it(
    graph: og.Graph, bare: Path, zipped: Path, tmp_path: Path
) -> None:
    settings = with_conf(**{"spark.submit.pyFiles": str(zipped)})
    found = run(graph, tmp_path, {**settings, "source": "write"}, PYSPARK_PYTHON=str(bare))
    assert all(f"{zipped.name}/omnigraph" in task["omnigraph"] for task in found["tasks"])
    assert not any(task["omnigraph"].startswith(str(zipped)) for task in found["tasks"]), "a copy of the executor's own"
    assert found["names"] == ["Ada"]
    assert sorted(graph.nodes("Person")["name"].to_pylist()) == ["Ada", "Ada!", "Bob"]


@pytest.mark.long
def test_an_archive_brings_a_whole_environment(graph: og.Graph, bare: Path, zipped: Path, tmp_path: Path) -> None:
    """In miniature: an unpacked folder whose `bin/python` is the executors' Python and finds the package beside it."""
    packed = tmp_path / "environment.tar.gz"
    start = tmp_path / "python"
    beside = '"$(cd "$(dirname "$0")/.." && pwd)/omnigraph.zip:$PYTHONPATH"'
    start.write_text(f'#!/bin/sh\nexport PYTHONPATH={beside}\nexec {bare} "$@"\n')
    start.chmod(start.stat().st_mode | stat.S_IXUSR)
    with tarfile.open(packed, "w:gz") as file:
        file.add(start, "bin/python")
        file.add(zipped, "omnigraph.zip")
    settings = with_conf(**{"spark.archives": f"{packed}#environment"})
    found = run(graph, tmp_path, settings, PYSPARK_PYTHON="./environment/bin/python")
    assert all("/environment/omnigraph.zip/" in task["omnigraph"] for task in found["tasks"])


@pytest.mark.long
def test_spark_connect_runs_tasks_the_data_source_and_a_load(graph: og.Graph, tmp_path: Path) -> None:
    (tmp_path / "shipped.py").write_text(SHIPPED)
    found = run(
        graph,
        tmp_path,
        {"source": "read", "load": True},
        SPARK_REMOTE="local[1]",
        PYSPARK_PYTHON=sys.executable,
        PYTHONPATH=str(tmp_path),
    )
    assert found["session"].startswith("pyspark.sql.connect")
    assert found["names"] == ["Ada"]
    assert found["loaded"] == ["spark", {"node:Person": 20}]
