"""Merges that once gave a wrong result; most were found by `random_histories`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import omnigraph as og
from tests.branch.merge.support import require_clean

SCHEMA = "node Person { name: String @key  age: I64?  nick: String? }"
WITHOUT_NICK = "node Person { name: String @key  age: I64? }"
POST = "node Post { key: String @key  text: String? }"
WITH_VECTOR = 'node Post { key: String @key  text: String?  vector: Vector(64)? @embed("text") }'


@pytest.fixture(params=["stable", "address"])
def row_ids(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def graph(tmp_path: Path, row_ids: str) -> og.Graph:
    graph = og.init(tmp_path / "graph", SCHEMA, row_ids=row_ids)
    graph.insert({"Person": [{"name": n, "age": i, "nick": n.lower()} for i, n in enumerate(("Ada", "Bob", "Cy"))]})
    return graph


def column(graph: og.Graph, name: str, type_name: str = "Person", branch: str = "main") -> dict[str, Any]:
    rows = graph.snapshot(branch).read(type_name, ["id", name]).to_pylist()
    return {row["id"]: row[name] for row in rows}


def test_the_revert_of_a_drop_restores_the_values(graph: og.Graph) -> None:
    dropped = graph.apply_schema(WITHOUT_NICK).commit
    graph.update("Person", {"age": 9}, ids=["Bob"])
    graph.revert(dropped.id)
    assert column(graph, "nick") == {"Ada": "ada", "Bob": "bob", "Cy": "cy"}
    assert column(graph, "age") == {"Ada": 0, "Bob": 9, "Cy": 2}
    require_clean(graph)


def test_a_pick_from_a_branch_that_dropped_a_property_keeps_its_values_elsewhere(graph: og.Graph) -> None:
    graph.create_branch("x")
    graph.apply_schema(WITHOUT_NICK, branch="x")
    update = graph.update("Person", {"age": 9}, ids=["Bob"], branch="x").commit
    assert update is not None
    graph.cherry_pick(update.id)
    assert column(graph, "nick") == {"Ada": "ada", "Bob": "bob", "Cy": "cy"}
    assert column(graph, "age") == {"Ada": 0, "Bob": 9, "Cy": 2}


@pytest.mark.parametrize("optimized", [False, True])
def test_vectors_of_a_property_that_the_branch_added_are_merged(tmp_path: Path, row_ids: str, optimized: bool) -> None:
    graph = og.init(tmp_path / "graph", POST, row_ids=row_ids)
    for i in range(2):
        graph.insert({"Post": [{"key": f"p{i}", "text": f"text {i}"}]})
    graph.create_branch("x")
    graph.apply_schema(WITH_VECTOR, branch="x")
    graph.embed(branch="x", provider="local")
    if optimized:
        graph.optimize(branch="x", engine="local")
    graph.insert({"Post": [{"key": "p2", "text": "text 2"}]})
    graph.merge("x")
    vectors = column(graph, "vector", "Post")
    assert vectors["p2"] is None
    assert {i: vectors[i] for i in ("p0", "p1")} == column(graph, "vector", "Post", "x")
    assert vectors["p0"] is not None
    assert graph.embed(provider="local").embedded == {"node:Post": 1}
    require_clean(graph)
