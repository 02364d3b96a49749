"""The diff of a small change in a large table, against reading the changed rows by id; and across a compaction.

The table has its indices, and handles are warm: both read from the same open tables.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator

import numpy as np
import pyarrow as pa

import omnigraph as og
from benchmarks.report import Result, median_ms

ROWS = 1_000_000
CHANGED = 50
ROUNDS = 20
BAR = 3.0
SCHEMA = "node Item { name: String @key  number: I64?  text: String?  vec: Vector(32)? }"


def run() -> Iterator[Result]:
    os.environ["OMNIGRAPH_FSYNC"] = "off"
    with tempfile.TemporaryDirectory(prefix="omnigraph-bench-") as folder:
        graph = _large_graph(f"{folder}/g")
        base = graph.snapshot().commit
        names = [f"i{i:07}" for i in range(0, ROWS, ROWS // CHANGED)]
        graph.update("Item", {"number": -1}, ids=names)
        by_id = median_ms(lambda _: _read_by_id(graph, names), count=ROUNDS)
        changed = median_ms(lambda _: _diff(graph, base), count=ROUNDS)
        detail = f"diff {changed:.1f} ms, {CHANGED} rows by id {by_id:.1f} ms"
        yield Result(
            f"diff of {CHANGED} changed rows in {ROWS:,}, against reading them by id",
            changed / by_id,
            BAR,
            True,
            detail,
        )
        graph.optimize(engine="local", target_rows_per_fragment=4 * ROWS)
        moved = median_ms(lambda _: _diff(graph, base), count=ROUNDS)
        detail = f"diff {moved:.1f} ms over {ROWS:,} moved rows, a scan of the table {_scan_ms(graph):.1f} ms"
        yield Result(
            "the same after all rows were compacted, against a scan", moved / _scan_ms(graph), 1.0, True, detail
        )


def _large_graph(uri: str) -> og.Graph:
    graph = og.init(uri, SCHEMA)
    vectors = np.random.default_rng(1).random(ROWS * 32, dtype=np.float32)
    rows = pa.table(
        {
            "name": [f"i{i:07}" for i in range(ROWS)],
            "number": np.arange(ROWS),
            "text": [f"text {i % 1000}" for i in range(ROWS)],
            "vec": pa.FixedSizeListArray.from_arrays(pa.array(vectors), 32),
        }
    )
    graph.load(nodes={"Item": rows}, mode="append", engine="local")
    graph.optimize(engine="local")
    return graph


def _read_by_id(graph: og.Graph, names: list[str]) -> None:
    view = graph.snapshot().view
    t = view.type("Item")
    assert view.find(t, "id", pa.array(names), ["id", *t.by_name]).num_rows == CHANGED
    view.found.clear()


def _diff(graph: og.Graph, base: str) -> None:
    assert sum(batch.num_rows for batch in graph.diff(base, "main")) == CHANGED


def _scan_ms(graph: og.Graph) -> float:
    return median_ms(lambda _: graph.nodes("Item"), count=3)
