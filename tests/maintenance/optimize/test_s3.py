"""Optimize on an object store: the same as on a disk, for blobs and for tables of many columns too, and nothing of its
private versions is left.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

import omnigraph as og
from omnigraph.storage.lance.indices import built_indices
from tests.faults.s3server import S3Server, World
from tests.maintenance.optimize.answers import disagreements
from tests.maintenance.optimize.tables import coverage, opened

URI = "s3://graphs/g"
COLUMNS = 60
WIDE = " ".join(f"c{i}: I32?{' @index' if i % 20 == 0 else ''}" for i in range(COLUMNS))
SCHEMA = f"""
node File {{ name: String @key  body: Blob?  tags: [String]? @index }}
node Wide {{ name: String @key  {WIDE} }}
edge Uses: File -> Wide {{ n: I32? @index }}
"""
BODIES = [None, b"", b"x", b"y" * 70_000]


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    with S3Server() as server:
        variables = {"AWS_SECRET_ACCESS_KEY": "test", "AWS_REGION": "us-east-1", "AWS_ENDPOINT_URL": server.endpoint}
        for name, value in {**variables, "AWS_ACCESS_KEY_ID": "optimize.test.0", "AWS_ALLOW_HTTP": "true"}.items():
            monkeypatch.setenv(name, value)
        yield server.add(World("optimize"))


def wide(number: int) -> dict[str, Any]:
    return {"name": f"w{number}", **{f"c{i}": number * i for i in range(COLUMNS)}}


def fill(graph: og.Graph) -> None:
    for start in range(0, 12, 3):
        files = [{"name": f"f{i}", "body": BODIES[i % 4], "tags": [f"t{i % 2}"]} for i in range(start, start + 3)]
        graph.insert({"File": files, "Wide": [wide(i) for i in range(start, start + 3)]})
    graph.insert({"Uses": [{"from": "f1", "to": "w1", "n": 1}]})
    graph.insert({"Uses": [{"from": "f2", "to": "w2", "n": 2}]})
    graph.delete({"Wide": ["w5"]})
    graph.upsert({"Wide": [{**wide(7), "c20": -1}]})


def bodies(graph: og.Graph) -> dict[str, bytes | None]:
    table = opened(graph, "File")
    names = table.to_table(columns=["id"], with_row_address=True)
    found = table.take_blobs("body", addresses=names["_rowaddr"].to_pylist())
    return {
        name: None if blob is None else blob.readall()
        for name, blob in zip(names["id"].to_pylist(), found, strict=True)
    }


def detached(world: World) -> list[str]:
    return [key for key in world.store.objects if "/_versions/d" in key]


def test_fragments_are_merged_indices_built_and_no_private_version_is_left(world: World) -> None:
    graph = og.init(URI, SCHEMA)
    fill(graph)
    rows = {name: graph.nodes(name).sort_by("id") for name in ("Wide",)}
    result = graph.optimize(engine="local")
    assert result.ok
    assert result.commit is not None
    assert len(result.commit.tables) == 3
    file = result.table("node:File")
    assert 210_000 < file.bytes_after <= file.bytes_before < 230_000  # three large blobs lie beside data files
    assert next(t for t in graph.stats().tables if t.table_key == "node:File").bytes_live == file.bytes_after
    made = {t.table_key: (t.fragments_removed, t.fragments_added) for t in result.tables}
    assert made["node:File"] == (4, 1)
    assert made["node:Wide"][1] == 1
    assert made["edge:Uses"] == (2, 1)
    assert detached(world) == []
    assert not [key for key in world.store.objects if "/__recovery/" in key or "/__staging/" in key]
    for name in ("File", "Wide", "Uses"):
        table = opened(graph, name)
        assert set(coverage(table).values()) == {1.0}
        assert disagreements(table) == []
    assert {i.column for i in built_indices(opened(graph, "Wide"))} == {"id", "name", "c0", "c20", "c40"}
    assert graph.nodes("Wide").sort_by("id") == rows["Wide"]
    assert bodies(graph) == {f"f{i}": BODIES[i % 4] for i in range(12)}
    assert graph.optimize(engine="local").commit is None
    graph.insert({"Wide": [wide(99)]})
    assert graph.nodes("Wide", where={"id": "w99"}).num_rows == 1


def test_a_branch_on_an_object_store_is_optimized_on_its_own(world: World) -> None:
    graph = og.init(URI, SCHEMA)
    fill(graph)
    graph.create_branch("side")
    graph.upsert({"Wide": [{**wide(1), "c1": -5}]}, branch="side")
    before = graph.snapshot().commit
    planned = next(t for t in graph.plan_optimize(branch="side").tables if t.table_key == "node:File")
    assert planned.blob_bytes == 210_000
    assert graph.optimize(branch="side", engine="local").ok
    assert graph.snapshot().commit == before
    assert detached(world) == []
    table = opened(graph, "Wide", "side")
    assert len(table.get_fragments()) == 1
    assert disagreements(table) == []
    assert graph.nodes("Wide", branch="side", where={"id": "w1"})["c1"].to_pylist() == [-5]
    assert graph.nodes("Wide", where={"id": "w1"})["c1"].to_pylist() == [1]


def test_deferred_compaction_and_drain_work_on_an_object_store(world: World) -> None:
    graph = og.init(URI, "node Wide { name: String @key  c0: I32? @index }", row_ids="address")
    for start in range(0, 12, 3):
        graph.insert({"Wide": [{"name": f"w{i}", "c0": i} for i in range(start, start + 3)]})
    graph.optimize(engine="local", target_rows_per_fragment=2)
    graph.delete({"Wide": ["w4"]})
    assert graph.optimize(engine="local", defer_index_remap=True).table("node:Wide").fragments_added == 1
    assert disagreements(opened(graph, "Wide")) == []
    assert graph.optimize(engine="local", drain=True).ok
    assert disagreements(opened(graph, "Wide")) == []
    assert sorted(graph.nodes("Wide")["c0"].to_pylist()) == [i for i in range(12) if i != 4]
    assert detached(world) == []
