"""Merge of a delta, against an upsert of the same rows straight into the target; of many new rows, against their load.

Eight types, indexed; the target has moved by 50 rows per type, so that every merge is three-way. CPU is that of this
process, so threads of Lance count. The same delta into ten times the rows shows that cost follows the change.
"""

from __future__ import annotations

import os
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

import omnigraph as og
from benchmarks.report import Result

TYPES = [f"T{i}" for i in range(8)]
SCHEMA = "\n".join(f"node {name} {{ name: String @key  number: I64?  text: String? }}" for name in TYPES)
ROWS, MORE_ROWS = 100_000, 1_000_000
DELTAS = (1, 50, 5_000)
MOVED = 50
NEW_ROWS = 100_000
ROUNDS = 5
CPU_BAR, WALL_BAR, NEW_BAR, GROWTH_BAR = 1.4, 2.0, 0.2, 1.3


@dataclass(frozen=True)
class Cost:
    cpu_s: float
    wall_s: float


def run() -> Iterator[Result]:
    os.environ["OMNIGRAPH_FSYNC"] = "off"
    with tempfile.TemporaryDirectory(prefix="omnigraph-bench-") as folder:
        small = _graph(f"{folder}/small", ROWS)
        costs = {delta: _merges(small, delta) for delta in DELTAS}
        direct = {delta: _upserts(small, delta) for delta in DELTAS}
        for delta in DELTAS:
            upserted, merged = direct[delta], costs[delta]
            what = f"three-way merge of {delta:,} rows in each of 8 types of {ROWS:,}, against upserting them"
            cpu = f"CPU {merged.cpu_s * 1e3:.0f} ms against {upserted.cpu_s * 1e3:.0f} ms"
            yield Result(f"{what}: CPU", merged.cpu_s / upserted.cpu_s, CPU_BAR, True, cpu)
            wall = f"{merged.wall_s * 1e3:.0f} ms against {upserted.wall_s * 1e3:.0f} ms"
            yield Result(f"{what}: wall time", merged.wall_s / upserted.wall_s, WALL_BAR, True, wall)
        yield _new_rows(small)
        large = _graph(f"{folder}/large", MORE_ROWS)
        for delta in (1, 50):
            grown = _merges(large, delta)
            upserted = _upserts(large, delta)
            detail = f"CPU {grown.cpu_s * 1e3:.0f} ms against {costs[delta].cpu_s * 1e3:.0f} ms; "
            detail += f"upserts of them: {upserted.cpu_s / direct[delta].cpu_s:.2f} as well"
            what = f"the same merge of {delta} rows into 8 types of {MORE_ROWS:,} rows, against {ROWS:,}"
            yield Result(what, grown.cpu_s / costs[delta].cpu_s, GROWTH_BAR, True, detail)


def _graph(uri: str, rows: int) -> og.Graph:
    graph = og.init(uri, SCHEMA)
    table = _table(np.arange(rows), prefix="r")
    graph.load(nodes=dict.fromkeys(TYPES, table), mode="append", engine="local")
    graph.optimize(engine="local")
    return graph


def _table(numbers: np.ndarray, *, prefix: str) -> pa.Table:
    names = [f"{prefix}{n:08}" for n in numbers.tolist()]
    return pa.table({"name": names, "number": numbers, "text": [f"text {n % 997}" for n in numbers.tolist()]})


def _delta(graph: og.Graph, size: int, *, seed: int) -> dict[str, pa.Table]:
    rows = graph.snapshot().count(TYPES[0])
    numbers = np.sort(np.random.default_rng(seed).choice(rows // 2, size, replace=False))
    changed = _table(numbers, prefix="r").set_column(1, "number", pa.array(numbers * 0 + seed))
    return dict.fromkeys(TYPES, changed)


def _moved(graph: og.Graph, *, seed: int) -> None:
    """Rows of the upper half: no merge conflicts with them."""
    rows = graph.snapshot().count(TYPES[0])
    numbers = rows // 2 + np.random.default_rng(seed).choice(rows // 4, MOVED, replace=False)
    changed = _table(np.sort(numbers), prefix="r").set_column(1, "number", pa.array(numbers * 0 - seed))
    graph.upsert(dict.fromkeys(TYPES, changed))


def _merges(graph: og.Graph, size: int) -> Cost:
    costs = []
    for turn in range(ROUNDS):
        branch = f"b{size}-{turn}"
        graph.create_branch(branch)
        graph.upsert(_delta(graph, size, seed=1_000 + size + turn), branch=branch)
        _moved(graph, seed=2_000 + size + turn)
        costs.append(_cost(lambda branch=branch: graph.merge(branch)))  # type: ignore[misc]
        graph.delete_branch(branch)
    return _median(costs)


def _upserts(graph: og.Graph, size: int) -> Cost:
    deltas = [_delta(graph, size, seed=3_000 + size + turn) for turn in range(ROUNDS)]
    return _median([_cost(lambda delta=delta: graph.upsert(delta)) for delta in deltas])  # type: ignore[misc]


def _new_rows(graph: og.Graph) -> Result:
    table = _table(np.arange(NEW_ROWS), prefix="n")
    graph.create_branch("new")
    load = _cost(lambda: graph.load(nodes={TYPES[0]: table}, mode="append", branch="new", engine="local"))
    _moved(graph, seed=9_000)
    merge = _cost(lambda: graph.merge("new"))
    detail = f"CPU {merge.cpu_s * 1e3:.0f} ms against {load.cpu_s * 1e3:.0f} ms"
    what = f"merge of {NEW_ROWS:,} new rows, against loading them: CPU"
    return Result(what, merge.cpu_s / load.cpu_s, NEW_BAR, True, detail)


def _cost(act: Callable[[], object]) -> Cost:
    cpu, wall = time.process_time(), time.perf_counter()
    act()
    return Cost(time.process_time() - cpu, time.perf_counter() - wall)


def _median(costs: list[Cost]) -> Cost:
    return Cost(statistics.median(c.cpu_s for c in costs), statistics.median(c.wall_s for c in costs))
