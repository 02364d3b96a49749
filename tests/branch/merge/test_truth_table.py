"""Every cell of the truth table of a three-way merge, for nodes and edges, with stable and address row ids."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import omnigraph as og
from tests.branch.merge.support import conflicts_of, edge_ids, edges, make_graph, people, state

ROW_IDS = ("stable", "address")


@pytest.fixture(scope="module", params=ROW_IDS)
def template(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path: Path = tmp_path_factory.mktemp("template") / "graph"
    make_graph(path, row_ids=request.param).close()
    return path


@pytest.fixture
def graph(template: Path, tmp_path: Path) -> og.Graph:
    shutil.copytree(template, tmp_path / "graph")
    graph = og.open(tmp_path / "graph")
    graph.create_branch("x")
    return graph


def _net_zero(g: og.Graph, b: str, n: int) -> None:
    result = g.insert({"Knows": [{"from": "Alice", "to": "Bob"}]}, branch=b)
    g.delete({"Knows": result.ids["Knows"]}, branch=b)


OPERATIONS: dict[str, Callable[[og.Graph, str, int], Any]] = {
    "nothing": lambda g, b, n: None,
    "insert_node": lambda g, b, n: g.insert({"Person": [{"name": "Eve", "age": n}]}, branch=b),
    "delete_node": lambda g, b, n: g.delete({"Person": ["Alice"]}, branch=b),
    "insert_edge": lambda g, b, n: g.insert({"Knows": [{"from": "Alice", "to": "Carol"}]}, branch=b),
    "delete_edge": lambda g, b, n: g.delete({"Knows": edge_ids(g, b)}, branch=b),
    "update_node": lambda g, b, n: g.update("Person", {"age": 100 + n}, ids=["Alice"], branch=b),
    "update_edge": lambda g, b, n: g.update("Knows", {"w": 100 + n}, ids=edge_ids(g, b), branch=b),
    "net_zero": _net_zero,
}
EXPECTED = {
    ("insert_node", "insert_node"): "divergent_insert",
    ("delete_node", "insert_edge"): "orphan_edge",
    ("delete_node", "update_node"): "delete_vs_update",
    ("insert_edge", "delete_node"): "orphan_edge",
    ("update_node", "delete_node"): "update_vs_delete",
    ("update_node", "update_node"): "divergent_update",
    ("delete_edge", "update_edge"): "delete_vs_update",
    ("update_edge", "delete_edge"): "update_vs_delete",
    ("update_edge", "update_edge"): "divergent_update",
}
"""Pairs (theirs, ours) that conflict; all others merge."""


@pytest.mark.parametrize("ours", OPERATIONS)
@pytest.mark.parametrize("theirs", OPERATIONS)
def test_the_truth_table_of_operations(graph: og.Graph, theirs: str, ours: str) -> None:
    OPERATIONS[theirs](graph, "x", 1)
    OPERATIONS[ours](graph, "main", 2)
    before = state(graph, "main")
    kind = EXPECTED.get((theirs, ours))
    if kind is not None:
        assert [c.kind for c in conflicts_of(graph, "x")] == [kind]
        assert state(graph, "main") == before
        return
    result = graph.merge("x")
    if theirs == "nothing":
        assert result.outcome == "already_up_to_date"
        assert state(graph, "main") == before
    elif ours == "nothing":
        assert result.outcome == "fast_forward"
        assert state(graph, "main") == state(graph, "x")
    else:
        assert result.outcome == "merged"
    assert graph.merge("x").outcome == "already_up_to_date"


def _set(g: og.Graph, b: str, image: dict[str, Any] | None) -> None:
    if image is None:
        g.delete({"Person": ["Bob"]}, branch=b)
    else:
        g.upsert({"Person": [{"name": "Bob", **image}]}, branch=b)


X, Y, Z = {"age": 1, "nick": None}, {"age": 2, "nick": None}, {"age": 3, "nick": None}
XN, YN = {"age": 1, "nick": "n"}, {"age": 2, "nick": "n"}
CELLS: list[tuple[Any, Any, Any, Any]] = [
    # base, theirs, ours, result or kind of conflict
    (X, X, X, X),
    (X, X, Y, Y),
    (X, X, None, None),
    (X, Y, X, Y),
    (X, None, X, None),
    (X, Y, Y, Y),
    (X, None, None, None),
    (X, Y, Z, "divergent_update"),
    (X, Y, XN, YN),
    (X, XN, Y, YN),
    (X, YN, Y, YN),
    (X, None, Y, "delete_vs_update"),
    (X, Y, None, "update_vs_delete"),
    (None, X, None, X),
    (None, None, X, X),
    (None, X, X, X),
    (None, X, Y, "divergent_insert"),
]


@pytest.mark.parametrize(("base", "theirs", "ours", "expected"), CELLS)
def test_the_truth_table_of_images(
    template: Path, tmp_path: Path, base: Any, theirs: Any, ours: Any, expected: Any
) -> None:
    shutil.copytree(template, tmp_path / "graph")
    graph = og.open(tmp_path / "graph")
    _set(graph, "main", base)
    graph.create_branch("x")
    _set(graph, "x", theirs)
    _set(graph, "main", ours)
    if isinstance(expected, str):
        (conflict,) = conflicts_of(graph, "x")
        assert (conflict.kind, conflict.table_key, conflict.id) == (expected, "node:Person", "Bob")
        for image, shown in ((base, conflict.base), (theirs, conflict.theirs), (ours, conflict.ours)):
            assert shown == (None if image is None else {"id": "Bob", "name": "Bob", "email": None, **image})
        return
    graph.merge("x")
    assert people(graph).get("Bob") == (None if expected is None else (expected["age"], expected["nick"]))


def test_deleted_and_inserted_again_is_an_update(graph: og.Graph) -> None:
    graph.delete({"Person": ["Alice"]}, branch="x")
    graph.insert({"Person": [{"name": "Alice", "age": 9}]}, branch="x")
    graph.update("Person", {"nick": "al"}, ids=["Alice"])
    assert graph.merge("x").to_json()["tables"][0]["updated"] == 1
    assert people(graph)["Alice"] == (9, "al")


def test_a_moved_edge_is_one_value(graph: og.Graph) -> None:
    (edge,) = edge_ids(graph, "main")
    graph.update("Knows", {"to": "Dan"}, ids=[edge], branch="x")
    graph.update("Knows", {"from": "Alice"}, ids=[edge])
    (conflict,) = conflicts_of(graph, "x")
    assert conflict.kind == "divergent_update"
    assert set(conflict.properties) == {"src", "dst"}
    graph.merge("x", strategy="theirs")
    assert edges(graph) == [("Bob", "Dan", 1)]
