"""The driver's memory: a load ten times larger raises its peak by little, because rows never pass the driver."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from benchmarks.load_data import write_parquet
from benchmarks.report import Result

SMALL, LARGE = 600_000, 6_000_000
PROGRAM = """
import re, sys
import omnigraph as og
from benchmarks.load_data import GRAPH
from omnigraph.tasks.session import SparkSettings, spark_session
folder, uri = sys.argv[1:]
spark = spark_session(SparkSettings(master="local[2,4]"))
og.init(uri, GRAPH)
graph = og.open(uri, spark=spark)
graph.load(nodes={"Person": f"{folder}/people.parquet"}, edges={"Follows": f"{folder}/follows.parquet"}, mode="append",
           engine="spark")
# The kernel's own mark: what getrusage tells includes the parent from before the program was started.
print(re.search(r"VmHWM:\\s+(\\d+)", open("/proc/self/status").read())[1])
"""


def run() -> Iterator[Result]:
    peaks = {}
    with tempfile.TemporaryDirectory(prefix="omnigraph-bench-") as name:
        for edges in (SMALL, LARGE):
            folder = Path(name, str(edges))
            folder.mkdir()
            write_parquet(folder, nodes=edges // 10, edges=edges)
            command = [sys.executable, "-c", PROGRAM, str(folder), str(folder / "graph")]
            done = subprocess.run(command, capture_output=True, text=True, check=True)
            peaks[edges] = int(done.stdout.split()[-1]) / 1024
    yield Result(
        f"peak memory of the driver, {LARGE:,} edges against {SMALL:,}",
        peaks[LARGE] / peaks[SMALL],
        1.25,
        True,
        f"{peaks[LARGE]:.0f} MiB against {peaks[SMALL]:.0f} MiB",
    )
