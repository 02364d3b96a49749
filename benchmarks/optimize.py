"""Optimize against what Lance does by itself, beside a writer, on many tables, and its memory."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import omnigraph as og
from benchmarks.optimize_data import bare_copy, worn_graph
from benchmarks.report import Result

TARGET_ROWS = 200_000


def run() -> Iterator[Result]:
    with tempfile.TemporaryDirectory(prefix="omnigraph-bench-") as folder:
        yield against_bare(folder, rows=2_000_000)
    with tempfile.TemporaryDirectory(prefix="omnigraph-bench-") as folder:
        yield many_tables(folder)
    with tempfile.TemporaryDirectory(prefix="omnigraph-bench-") as folder:
        yield from beside_a_writer(folder, rows=8_000_000)
    with tempfile.TemporaryDirectory(prefix="omnigraph-bench-") as folder:
        yield memory(folder)


def bare_seconds(table: object) -> float:
    began = time.perf_counter()
    table.optimize.compact_files(target_rows_per_fragment=TARGET_ROWS)  # type: ignore[attr-defined]
    table.optimize.optimize_indices()  # type: ignore[attr-defined]
    return time.perf_counter() - began


def against_bare(folder: str, *, rows: int) -> Result:
    graph = worn_graph(f"{folder}/g", rows)
    table = bare_copy(graph, f"{folder}/bare")
    before = len(table.get_fragments())
    bare = bare_seconds(table)
    began = time.perf_counter()
    result = graph.optimize(engine="local")
    ours = time.perf_counter() - began
    assert result.ok
    assert result.table("node:Item").coverage_after == 1.0
    return Result(
        f"optimize of {before} fragments, {rows:,} rows, 7 indices, against bare compact_files + optimize_indices",
        ours / bare,
        1.1,
        True,
        f"{ours:.1f} s against {bare:.1f} s",
    )


def many_tables(folder: str, *, tables: int = 100) -> Result:
    graph = og.init(f"{folder}/g", "\n".join(f"node T{i} {{ name: String @key }}" for i in range(tables)))
    graph.insert({f"T{i}": [{"name": "a"}] for i in range(tables)})
    graph.optimize(engine="local")

    def opened() -> float:
        with og.open(f"{folder}/g") as fresh:
            began = time.perf_counter()
            view = fresh.snapshot().view
            for t in view.schema.nodes:
                view.open(t)
            return time.perf_counter() - began

    def nothing() -> float:
        with og.open(f"{folder}/g") as fresh:
            began = time.perf_counter()
            assert fresh.optimize().commit is None
            return time.perf_counter() - began

    # In turns, so that both meet the machine in the same mood.
    ours, opening = map(min, zip(*((nothing(), opened()) for _ in range(10)), strict=True))
    return Result(
        f"optimize with nothing to do on {tables} tables, against opening them",
        ours / opening,
        2.0,
        True,
        f"{ours * 1000:.0f} ms against {opening * 1000:.0f} ms",
    )


WRITER = """
import json, os, sys, time
import omnigraph as og
asked, waits, taken, i = [], [], [], 0

def observe(phase):
    if phase == "lock":
        asked.append(time.perf_counter())
    elif phase == "check":
        waits.append(time.perf_counter() - asked[0])

graph = og.open(sys.argv[1], observer=observe)
graph.snapshot().tables()
print("ready", flush=True)
while not sys.stdin.closed:
    asked.clear()
    began = time.perf_counter()
    graph.upsert({"Item": [{"name": f"item-{i * 7919 % 1000000:09d}", "number": i, "kind": "a", "text": "new text",
                            "vec": [1.0] * 32}]})
    taken.append(time.perf_counter() - began)
    i += 1
    if os.path.exists(sys.argv[2]):
        break
    time.sleep(max(0.0, 0.1 - (time.perf_counter() - began)))
print(json.dumps([waits, taken]), flush=True)
"""


def beside_a_writer(folder: str, *, rows: int) -> Iterator[Result]:
    worn_graph(f"{folder}/g", rows).close()
    held: list[float] = []
    entered: list[float] = []

    def observe(phase: str) -> None:
        if phase == "check":
            entered.append(time.perf_counter())
        elif phase == "release" and entered:
            held.append(time.perf_counter() - entered.pop())

    stop = f"{folder}/stop"
    writer = subprocess.Popen(
        [sys.executable, "-c", WRITER, f"{folder}/g", stop], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert writer.stdout is not None
    assert writer.stdout.readline() == "ready\n"
    graph = og.open(f"{folder}/g", observer=observe, engine="local")
    began = time.perf_counter()
    result = graph.optimize()
    taken = time.perf_counter() - began
    Path(stop).touch()
    waits, upserts = json.loads(writer.communicate()[0])
    assert writer.returncode == 0, "a writer failed"
    assert result.commit is not None
    limit = max(0.01 * taken, 0.15)
    told = (
        f"optimize {taken:.1f} s, {len(upserts)} upserts beside it, {result.table('node:Item').rows_replayed} replayed"
    )
    yield Result(
        f"the door is held by optimize of {rows:,} rows, against 1 % of its time or 150 ms",
        sum(held) / limit,
        1.0,
        True,
        f"held {sum(held) * 1000:.0f} ms of {limit * 1000:.0f} ms; {told}",
    )
    for name, times in {
        "the longest wait of a writer beside it for its turn at the door": waits,
        "the longest upsert of that writer, work and wait": upserts,
    }.items():
        longest, median = max(times) * 1000, sorted(times)[len(times) // 2] * 1000
        yield Result(
            f"{name}, against the same limit",
            longest / 1000 / limit,
            1.0,
            True,
            f"longest {longest:.0f} ms, median {median:.0f} ms",
        )


MEMORY = """
import sys
import omnigraph as og
graph = og.open(sys.argv[1], engine="local")
assert graph.optimize().commit is not None
# Not ru_maxrss: a child that was started by a large process inherits the peak of its parent.
print(next(line.split()[1] for line in open("/proc/self/status") if line.startswith("VmHWM")))
"""


def memory(folder: str) -> Result:
    peaks = []
    for rows in (400_000, 4_000_000):
        worn_graph(f"{folder}/{rows}", rows).close()
        done = subprocess.run(
            [sys.executable, "-c", MEMORY, f"{folder}/{rows}"], check=True, capture_output=True, text=True
        )
        peaks.append(int(done.stdout) / 1024)
    return Result(
        "peak memory of optimize with 10× the data",
        peaks[1] / peaks[0],
        1.5,
        True,
        f"{peaks[1]:.0f} MiB at 4,000,000 rows, {peaks[0]:.0f} MiB at 400,000",
    )


def spark(folder: str, *, rows: int) -> Result:
    """On a warm session; run by `benchmarks.optimize_spark`, which has one."""
    graph = worn_graph(f"{folder}/g", rows)
    table = bare_copy(graph, f"{folder}/bare")
    graph.close()
    bare = bare_seconds(table)
    warm = og.open(f"{folder}/g", engine="spark", master="local[2]")
    warm.engines.runner(work_bytes=None).run(time.sleep, [0.1] * 4, stage="warming up")
    began = time.perf_counter()
    result = warm.optimize()
    ours = time.perf_counter() - began
    assert result.ok
    return Result(
        f"optimize of {rows:,} rows on a warm Spark local[2], against bare Lance in process",
        ours / bare,
        1.3,
        True,
        f"{ours:.1f} s against {bare:.1f} s",
    )
