"""Vectors that no index can be trained on: pending in plain words, not tried again and again, and out of coverage."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import omnigraph as og
from omnigraph.errors import StorageError
from omnigraph.storage.lance.indices import built_indices
from tests.maintenance.optimize.tables import opened


def docs(first: int, last: int, vector: Any) -> dict[str, Any]:
    return {"Doc": [{"key": f"d{i}", "vec": vector(i)} for i in range(first, last)]}


@pytest.fixture
def graph(tmp_path: Path) -> og.Graph:
    return og.init(tmp_path / "g", "node Doc { key: String @key  vec: Vector(4)? @index }")


def zero(_: int) -> list[float]:
    return [0.0] * 4


def any_other(i: int) -> list[float]:
    return [1.0, float(i % 7), float(i % 11), float(i)]


def test_zero_vectors_are_pending_until_there_are_others(graph: og.Graph) -> None:
    graph.insert(docs(0, 300, zero))
    row = graph.optimize().table("node:Doc")
    assert [(p.property, p.kind) for p in row.pending_indexes] == [("vec", "IVF")]
    assert row.pending_indexes[0].reason == "all of its vectors are zero; it takes 256 that have a direction"
    assert (row.error, row.coverage_after) == (None, 1.0)
    plan = graph.plan_optimize()
    assert not plan.has_work
    assert plan.tables[0].coverage == 1.0
    assert graph.optimize().commit is None
    graph.upsert(docs(0, 5, any_other))
    reason = graph.optimize().table("node:Doc").pending_indexes[0].reason
    assert reason == "5 vectors that are not zero; it takes 256 that have a direction"
    graph.upsert(docs(0, 280, any_other))
    row = graph.optimize().table("node:Doc")
    assert (row.pending_indexes, row.coverage_after) == ((), 1.0)
    assert "IVF_FLAT" in {i.kind for i in built_indices(opened(graph, "Doc"))}


def test_a_few_vectors_among_many_that_are_zero_train_an_index(graph: og.Graph) -> None:
    graph.load(nodes={"Doc": _mixed(100_000, directed=256)}, mode="append", engine="local")
    row = graph.optimize(engine="local").table("node:Doc")
    assert (row.pending_indexes, row.coverage_after, row.error) == ((), 1.0, None)
    assert graph.optimize().commit is None
    near = {"column": "vec", "q": any_other(7), "k": 5, "metric": "cosine"}
    assert opened(graph, "Doc").to_table(columns=["id"], nearest=near)["id"].to_pylist()[0] == "d7"


def test_an_index_that_lance_can_not_build_is_pending_without_paths_and_out_of_coverage(
    graph: og.Graph, monkeypatch: pytest.MonkeyPatch
) -> None:
    from omnigraph.index import build

    def failing(table: Any, column: str, **_: Any) -> Any:
        raise StorageError(doing=f"training an index of {table.uri}", detail="KMeans cannot train")

    monkeypatch.setattr(build, "train", failing)
    graph.insert(docs(0, 300, any_other))
    row = graph.optimize().table("node:Doc")
    told = [(p.property, p.reason) for p in row.pending_indexes]
    assert told == [("vec", "Lance can't build it: KMeans cannot train")]
    assert (row.coverage_after, row.error) == (1.0, None)


def _mixed(rows: int, *, directed: int) -> Any:
    import pyarrow as pa

    vectors = [any_other(i) if i < directed else zero(i) for i in range(rows)]
    return pa.table({"key": [f"d{i}" for i in range(rows)], "vec": pa.array(vectors, pa.list_(pa.float32(), 4))})
