"""What tests of repair read of a graph and of a result."""

from __future__ import annotations

from typing import Any

from tests.maintenance import strangers


def ids(graph: Any, type_name: str = "Left", branch: str = "main") -> set[str]:
    return set(graph.nodes(type_name, branch=branch)["id"].to_pylist())


def row(result: Any, key: str = "node:Left") -> Any:
    return next(t for t in result.tables if t.table_key == key)


def pinned(graph: Any, type_name: str = "Left", branch: str = "main") -> int:
    return strangers.place(graph, type_name, branch)[1]
