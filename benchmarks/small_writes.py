"""One-row upserts through a warm handle: against two bare Lance commits, and deep in history against the start.
fsync on.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator

import lance
import pyarrow as pa

import omnigraph as og
from benchmarks.report import Result, median_ms

SCHEMA = "node Person { name: String @key  age: I32? }"


def run() -> Iterator[Result]:
    os.environ.pop("OMNIGRAPH_FSYNC", None)
    with tempfile.TemporaryDirectory(prefix="omnigraph-bench-") as folder:
        bare = _bare_pair(folder)
        graph = og.init(f"{folder}/graph", SCHEMA)
        early = median_ms(lambda i: _upsert(graph, i), count=200)
        bare = min(bare, _bare_pair(folder))
        yield Result(
            "one-row upsert, against two bare Lance appends by handle (median of 200)",
            early / bare,
            4.0,
            True,
            f"upsert {early:.1f} ms with fsync, two bare commits {bare:.1f} ms without",
        )
        shallow_graph = og.init(f"{folder}/depth", SCHEMA)
        for i in range(50):
            _upsert(shallow_graph, i)
        shallow = median_ms(lambda i: _upsert(shallow_graph, i), count=200, first=50)
        for i in range(250, 3000):
            _upsert(shallow_graph, i)
        deep = median_ms(lambda i: _upsert(shallow_graph, i), count=200, first=3000)
        yield Result(
            "one-row upsert 3,000 commits deep, against 50 deep, no maintenance in between",
            deep / shallow,
            1.3,
            True,
            f"{shallow:.1f} ms at 50, {deep:.1f} ms at 3,000",
        )


def _upsert(graph: og.Graph, i: int) -> None:
    graph.upsert({"Person": [{"name": f"person-{i}", "age": i % 100}]})


def _bare_pair(folder: str) -> float:
    shape = pa.schema([pa.field("id", pa.string(), nullable=False), pa.field("v", pa.int64())])
    tables = [
        lance.write_dataset(shape.empty_table(), f"{folder}/bare-{os.urandom(4).hex()}", enable_stable_row_ids=True)
        for _ in range(2)
    ]

    def pair(i: int) -> None:
        row = pa.table({"id": [f"k{i}"], "v": [i]}, schema=shape)
        for n in range(2):
            tables[n] = lance.write_dataset(row, tables[n], mode="append")

    return median_ms(pair, count=200)
