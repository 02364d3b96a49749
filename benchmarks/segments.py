"""What it costs a query that an index is built in segments: the same look-ups and searches through one segment.

Optimize cuts an index of a large table into segments, so that building one takes memory by the segment and not by the
table. Both halves are measured on the same graph: as optimize leaves it, then with every index built anew in one piece.
"""

from __future__ import annotations

import os
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from unittest.mock import patch

import numpy as np

import omnigraph as og
from benchmarks.optimize_data import worn_graph
from benchmarks.report import Result
from omnigraph.storage.lance.indices import built_indices

ROWS = 4_000_000
ROUNDS = 40
BAR = 1.5
QUERIES = {
    "look-up by a key": "query q($v: String) { match { $i: Item { name: $v } } return { $i.number } }",
    "look-up by a number": "query q($v: I64) { match { $i: Item { number: $v } } return { $i.name } }",
    "full-text search": """query q($v: String) {
        match { $i: Item search($i.text, $v) } return { $i.name, bm25($i.text, $v) as s }
        order { bm25($i.text, $v) } limit 10 }""",
    "vector search": """query q($v: Vector(32)) {
        match { $i: Item } return { $i.name } order { nearest($i.vec, $v) } limit 10 }""",
}


def run() -> Iterator[Result]:
    os.environ["OMNIGRAPH_FSYNC"] = "off"
    with tempfile.TemporaryDirectory(prefix="omnigraph-bench-") as folder:
        graph = worn_graph(f"{folder}/g", ROWS)
        assert graph.optimize(engine="local").ok
        several, in_parts = _segments(graph), _times(graph)
        with patch("omnigraph.index.segments.SEGMENT_ROWS", 2 * ROWS):
            assert graph.optimize(engine="local", rebuild_indexes=True).ok
        assert _segments(graph) == 1
        in_one = _times(graph)
    for name in QUERIES:
        yield Result(
            f"{name} in {ROWS:,} rows, through {several} segments against one",
            in_parts[name] / in_one[name],
            BAR,
            True,
            f"{in_parts[name] * 1000:.1f} ms against {in_one[name] * 1000:.1f} ms",
        )


def _segments(graph: og.Graph) -> int:
    """The most segments of an index of the table."""
    view = graph.snapshot().view
    return max(len(index.segments) for index in built_indices(view.open(view.type("Item"))))


def _times(graph: og.Graph) -> dict[str, float]:
    rng = np.random.default_rng(7)
    values: dict[str, Callable[[], object]] = {
        "look-up by a key": lambda: f"item-{rng.integers(0, ROWS):09d}",
        "look-up by a number": lambda: int(rng.integers(0, 1 << 40)),
        "full-text search": lambda: f"word{rng.integers(0, 5000):04d} word{rng.integers(0, 5000):04d}",
        "vector search": lambda: rng.random(32, dtype=np.float32).tolist(),
    }
    return {name: _median(graph, QUERIES[name], [make() for _ in range(ROUNDS)]) for name, make in values.items()}


def _median(graph: og.Graph, query: str, values: Sequence[object]) -> float:
    """Warm: what a query reads of an index is read once beforehand."""
    for value in values:
        graph.query(query, params={"v": value})
    taken = []
    for value in values:
        began = time.perf_counter()
        graph.query(query, params={"v": value})
        taken.append(time.perf_counter() - began)
    return statistics.median(taken)
