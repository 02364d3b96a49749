"""A program under spark-submit: the session is the one that was submitted to, with its settings as they are."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import omnigraph as og

PROGRAM = """
import json, sys
import pyarrow as pa
import omnigraph as og

graph = og.open(sys.argv[1])
done = graph.load(nodes={"Person": pa.table({"name": ["Ada", "Bob"]})}, mode="append", engine="spark")
from pyspark.sql import SparkSession

pytestmark = pytest.mark.slow
context = SparkSession.getActiveSession().sparkContext
print(json.dumps({"engine": done.engine, "inserted": done.inserted, "app": context.appName, "master": context.master}))
"""


@pytest.mark.long
def test_a_submitted_program_loads_on_its_own_session(tmp_path: Path) -> None:
    graph = og.init(tmp_path / "g", "node Person { name: String @key }")
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("SPARK_", "PYSPARK_"))}
    command = [Path(sys.executable).parent / "spark-submit", "--master", "local[1]", "--name", "submitted"]
    done = subprocess.run(
        [*command, "--conf", "spark.ui.enabled=false", program, graph.uri],
        capture_output=True,
        text=True,
        check=False,
        timeout=200,
        env={**kept, "PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"},
    )
    assert done.returncode == 0, done.stderr[-2000:]
    shown = json.loads(done.stdout.splitlines()[-1])
    assert shown["engine"] == "spark"
    assert shown["inserted"] == {"node:Person": 2}
    assert shown["master"] == "local[1]"
    assert graph.snapshot().read("Person").num_rows == 2
