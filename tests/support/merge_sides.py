"""Two sides of a large merge, and the limits that make it run as tasks."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import omnigraph as og

SCHEMA = """node Doc { name: String @key  n: I64?  m: I64?  code: String? @unique  v: Vector(8)?  @range(n, 0..100) }
edge Cites: Doc -> Doc { w: I64? }"""


IN_ONE_PIECE = {"pipeline.merge_tasks.TASKS_BYTES_MIN": 1 << 60}


BY_TASKS = {
    "pipeline.merge_tasks.TASKS_BYTES_MIN": 0,
    "branch.merge.rows.tasks.CHUNK_BYTES": 2_000,
    "branch.merge.rows.tasks.FRAGMENT_BYTES": 4_000,
    "storage.diff.table_version.BOUNDED_ADDRESSES_MAX": 4,
}


def doc(i: int, **values: Any) -> dict[str, Any]:
    return {"name": f"d{i:03}", "n": i % 100, "m": i, "code": f"c{i}", "v": [float(i)] * 8} | values


def make_sides(path: Path, *, row_ids: str) -> og.Graph:
    """`theirs` and main both changed docs and edges since they went apart."""
    graph = og.init(path, SCHEMA, row_ids=row_ids)
    graph.upsert({"Doc": [doc(i) for i in range(100)]})
    graph.upsert({"Cites": [{"from": f"d{i:03}", "to": f"d{i + 1:03}", "w": i} for i in range(40)]})
    graph.create_branch("theirs")
    write = {"branch": "theirs"}
    graph.upsert({"Doc": [doc(i, n=1) for i in range(40)]}, **write)
    graph.upsert({"Doc": [doc(i, v=[0.5] * 8) for i in range(60, 70)]}, **write)
    graph.upsert({"Doc": [doc(i) for i in range(200, 230)]}, **write)
    graph.delete({"Doc": [f"d{i:03}" for i in range(90, 95)]}, **write)
    graph.upsert({"Doc": [doc(i, m=500) for i in range(20, 60)]})
    graph.upsert({"Doc": [doc(i, n=7) for i in (3, 4, 5)]})
    graph.upsert({"Doc": [doc(i, n=3, code=None) for i in range(205, 208)]})
    graph.delete({"Doc": [f"d{i:03}" for i in (8, 9)]})
    graph.upsert({"Doc": [doc(92, n=9)]})
    return graph


def rows_of(graph: og.Graph, branch: str) -> dict[str, Any]:
    snapshot = graph.snapshot(branch)
    return {name: sorted(snapshot.read(name).to_pylist(), key=lambda row: row["id"]) for name in ("Doc", "Cites")}
