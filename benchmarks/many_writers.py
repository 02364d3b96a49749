"""400 upserts by 8 processes, against one process doing 400: what contention costs (local disk)."""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator

import omnigraph as og
from benchmarks.report import Result

SCHEMA = "node Person { name: String @key  age: I32? }"
WORKER = """
import sys
import omnigraph as og
graph = og.open(sys.argv[1])
graph.snapshot().tables()
print("ready", flush=True)
sys.stdin.readline()
first, count = int(sys.argv[2]), int(sys.argv[3])
for i in range(first, first + count):
    graph.upsert({"Person": [{"name": f"person-{i}", "age": i % 100}]})
"""


def run() -> Iterator[Result]:
    with tempfile.TemporaryDirectory(prefix="omnigraph-bench-") as folder:
        alone = _seconds(f"{folder}/one", processes=1)
        map_threads = _seconds(f"{folder}/eight", processes=8)
        yield Result(
            "throughput of 8 processes × 50 upserts on one branch, against 1 process × 400",
            alone / map_threads,
            0.5,
            False,
            f"8 processes {400 / map_threads:.0f} upserts/s, one {400 / alone:.0f} upserts/s",
        )


def _seconds(uri: str, *, processes: int) -> float:
    graph = og.init(uri, SCHEMA)
    share = 400 // processes
    workers = [
        subprocess.Popen(
            [sys.executable, "-c", WORKER, uri, str(n * share), str(share)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for n in range(processes)
    ]
    for worker in workers:
        assert worker.stdout is not None
        assert worker.stdout.readline() == "ready\n"
    started = time.perf_counter()
    for worker in workers:
        assert worker.stdin is not None
        worker.stdin.write("go\n")
        worker.stdin.flush()
    assert [worker.wait() for worker in workers] == [0] * processes
    taken = time.perf_counter() - started
    assert graph.snapshot().count("Person") == 400
    return taken
