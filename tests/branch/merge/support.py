"""A small graph with two branches to merge, and what tests ask of it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import omnigraph as og

SCHEMA = """node Person { name: String @key  age: I64?  nick: String?  email: String? @unique }
edge Knows: Person -> Person { w: I64? }
edge Likes: Person -> Person @card(0..1)"""
AGES = {"Alice": 30, "Bob": 1, "Carol": 2, "Dan": 3}


def make_graph(path: Path, *, row_ids: str = "stable") -> og.Graph:
    graph = og.init(path, SCHEMA, row_ids=row_ids)
    graph.insert({"Person": [{"name": n, "age": a} for n, a in AGES.items()]})
    graph.insert({"Knows": [{"from": "Bob", "to": "Carol", "w": 1}]})
    return graph


def people(graph: og.Graph, branch: str = "main") -> dict[str, tuple[Any, Any]]:
    return {r["id"]: (r["age"], r["nick"]) for r in graph.nodes("Person", branch=branch).to_pylist()}


def edges(graph: og.Graph, branch: str = "main", type_name: str = "Knows") -> list[tuple[str, str, Any]]:
    rows = graph.edges(type_name, branch=branch).to_pylist()
    return sorted((r["src"], r["dst"], r.get("w")) for r in rows)


def state(graph: og.Graph, branch: str) -> Any:
    return people(graph, branch), edges(graph, branch), edges(graph, branch, "Likes")


def edge_ids(graph: og.Graph, branch: str, *, src: str = "Bob") -> list[str]:
    return [r["id"] for r in graph.edges("Knows", branch=branch).to_pylist() if r["src"] == src]


def conflicts_of(graph: og.Graph, source: str, **options: Any) -> list[Any]:
    """The conflicts of a merge that is refused."""
    before = {b.name: b.commit for b in graph.branches()}
    try:
        graph.merge(source, **options)
    except og.errors.MergeConflicts as error:
        assert {b.name: b.commit for b in graph.branches()} == before, "a refused merge commits nothing"
        return list(error.plan.conflicts)
    raise AssertionError("the merge was not refused")


def require_clean(graph: og.Graph) -> None:
    result = graph.verify(full=True)
    assert result.ok, result.to_json()
