"""Looking at a graph's tables in the tests of optimize."""

from __future__ import annotations

from typing import Any

import omnigraph as og
from omnigraph.storage.lance.indices import built_indices


def opened(graph: og.Graph, name: str, branch: str = "main") -> Any:
    view = graph.snapshot(branch).view
    return view.open(view.type(name))


def keys(graph: og.Graph, branch: str = "main") -> list[str]:
    return sorted(graph.nodes("Person", branch=branch)["id"].to_pylist())


def versions(table: Any) -> list[int]:
    return [v["version"] for v in table.versions()]


def coverage(table: Any) -> dict[str, float]:
    live = {f.fragment_id: f.count_rows() for f in table.get_fragments()}
    rows = sum(live.values())
    return {i.name: sum(live.get(n, 0) for n in i.covered) / rows for i in built_indices(table)}
