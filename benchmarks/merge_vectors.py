"""Merges of wide rows, vectors of 256 dimensions: memory follows the change, and many new rows are adopted.

Each merge and load runs in a process of its own, on an open graph. The peak of its resident set is the kernel's own
mark, imports included.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import omnigraph as og
from benchmarks.report import Result

DIMENSIONS = 256
SCHEMA = f"node Doc {{ name: String @key  number: I64?  vector: Vector({DIMENSIONS})? }}"
ROWS, MORE_ROWS = 100_000, 1_000_000
PART_ROWS = 100_000
CHANGED = 50
MEMORY_BAR, NEW_BAR = 1.3, 0.2
PROGRAM = """
import json, re, sys, time
import omnigraph as og
uri, branch, path = sys.argv[1:]
graph = og.open(uri)
started = time.process_time()
if path:
    graph.load(nodes={"Doc": path}, mode="append", branch=branch, engine="local")
else:
    assert graph.merge(branch).outcome == "merged"
cpu_s = time.process_time() - started
peak = int(re.search(r"VmHWM:\\s+(\\d+)", open("/proc/self/status").read())[1])
print(json.dumps({"cpu_s": cpu_s, "peak_mib": peak / 1024}))
"""


def run() -> Iterator[Result]:
    os.environ["OMNIGRAPH_FSYNC"] = "off"
    with tempfile.TemporaryDirectory(prefix="omnigraph-bench-") as folder:
        peaks = {}
        for rows in (ROWS, MORE_ROWS):
            graph = _graph(f"{folder}/{rows}", rows)
            _change(graph, rows)
            peaks[rows] = _in_process(graph, "changed")["peak_mib"]
        what = f"peak memory of a merge of {CHANGED} rows into {MORE_ROWS:,} × {DIMENSIONS}, against {ROWS:,}"
        detail = f"{peaks[MORE_ROWS]:.0f} MiB against {peaks[ROWS]:.0f} MiB"
        yield Result(what, peaks[MORE_ROWS] / peaks[ROWS], MEMORY_BAR, True, detail)
        yield _new_rows(og.open(f"{folder}/{ROWS}"), folder)


def _new_rows(graph: og.Graph, folder: str) -> Result:
    """Load and merge in a process each, the load from a Parquet file."""
    graph.create_branch("new")
    pq.write_table(_table(np.arange(ROWS), prefix="n", seed=7), f"{folder}/new.parquet")
    load_s = _in_process(graph, "new", f"{folder}/new.parquet")["cpu_s"]
    graph.upsert({"Doc": _table(np.arange(CHANGED), prefix="r", seed=8)})
    merge_s = _in_process(graph, "new")["cpu_s"]
    detail = f"CPU {merge_s * 1e3:.0f} ms against {load_s * 1e3:.0f} ms"
    what = f"merge of {ROWS:,} new rows × {DIMENSIONS}, against loading them"
    return Result(what, merge_s / load_s, NEW_BAR, True, detail)


def _graph(uri: str, rows: int) -> og.Graph:
    graph = og.init(uri, SCHEMA)
    for start in range(0, rows, PART_ROWS):
        part = _table(np.arange(start, start + PART_ROWS), prefix="r", seed=start)
        graph.load(nodes={"Doc": part}, mode="append", engine="local")
    return graph


def _change(graph: og.Graph, rows: int) -> None:
    """The same number of rows on both sides, in different halves of the table."""
    rng = np.random.default_rng(rows)
    graph.create_branch("changed")
    for branch, low in (("changed", 0), ("main", rows // 2)):
        numbers = np.sort(low + rng.choice(rows // 2, CHANGED, replace=False))
        graph.upsert({"Doc": _table(numbers, prefix="r", seed=low + 1)}, branch=branch)


def _table(numbers: np.ndarray, *, prefix: str, seed: int) -> pa.Table:
    values = np.random.default_rng(seed).random(len(numbers) * DIMENSIONS, dtype=np.float32)
    vectors = pa.FixedSizeListArray.from_arrays(pa.array(values), DIMENSIONS)
    names = [f"{prefix}{n:08}" for n in numbers.tolist()]
    return pa.table({"name": names, "number": numbers, "vector": vectors})


def _in_process(graph: og.Graph, branch: str, path: str = "") -> dict[str, float]:
    """Load the file onto the branch, or merge the branch: CPU seconds and the peak of the resident set in MiB."""
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, graph.uri, branch, path], capture_output=True, text=True, check=True
    )
    figures: dict[str, float] = json.loads(done.stdout)
    return figures
