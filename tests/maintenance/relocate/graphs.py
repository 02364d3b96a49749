"""A graph whose tables have forks of every kind, and what it holds, in a form that can be compared."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import omnigraph as og

SCHEMA = """
node Person { name: String @key  age: I64? }
node Place { name: String @key }
edge Visited: Person -> Place { note: String? }
"""
BRANCHES = ("main", "review", "deep", "trial")


def build(uri: Any, **options: Any) -> og.Graph:
    """`review` and `trial` have forks, `deep` forks of forks; a fork of a deleted branch is left behind."""
    graph = og.init(uri, SCHEMA, **options)
    graph.insert({"Person": [{"name": f"p{i}", "age": i} for i in range(6)], "Place": [{"name": "Rome"}]})
    graph.create_branch("review")
    graph.upsert({"Person": [{"name": "p1", "age": 101}]}, branch="review")
    graph.insert({"Visited": [{"src": "p1", "dst": "Rome", "note": "review"}]}, branch="review")
    graph.create_branch("deep", from_branch="review")
    graph.upsert({"Person": [{"name": "p2", "age": 102}]}, branch="deep")
    graph.delete({"Person": ["p3"]}, branch="deep")
    graph.create_branch("trial")
    graph.insert({"Place": [{"name": "Oslo"}]}, branch="trial")
    graph.create_branch("deleted")
    graph.upsert({"Person": [{"name": "p0", "age": 100}]}, branch="deleted")
    graph.delete_branch("deleted")
    graph.upsert({"Person": [{"name": "p5", "age": 55}]})
    return graph


def contents(graph: og.Graph) -> dict[str, Any]:
    """Every row of every branch, by fresh handles, and the commits."""
    fresh = og.open(graph.uri, engine="local", storage_options=dict(graph._location.options) or None)
    found: dict[str, Any] = {}
    for info in fresh.branches():
        snapshot = fresh.snapshot(info.name)
        for name in ("Person", "Place", "Visited"):
            rows = snapshot.read(name).to_pylist()
            found[f"{info.name}:{name}"] = comparable(rows)
        found[f"{info.name}:commits"] = [commit.id for commit in fresh.commits(info.name)]
    return found


def comparable(rows: list[dict[str, Any]]) -> list[list[tuple[str, str]]]:
    return sorted(sorted((key, repr(value)) for key, value in row.items()) for row in rows)


def digests(root: Path) -> dict[str, str]:
    """Every file below a folder, by its bytes."""
    return {
        str(path.relative_to(root)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(root.rglob("*"))
        if path.is_file()
    }
