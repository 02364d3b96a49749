from __future__ import annotations

import shutil
from pathlib import Path

import pytest

import omnigraph as og
from tests.support.graphs import Templates

SCHEMA = """
node Person { name: String @key  age: I32? @index }
node City { name: String @key }
edge Knows: Person -> Person { since: I32? }
edge LivesIn: Person -> City
"""


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OMNIGRAPH_ENGINE", raising=False)


def _build(path: Path) -> og.Graph:
    return og.init(path, SCHEMA)


@pytest.fixture
def graph(graph_templates: Templates, tmp_path: Path) -> og.Graph:
    """A graph of four types, empty."""
    return graph_templates.open(_build, tmp_path / "graph")


def people(graph: og.Graph, first: int, last: int, *, branch: str = "main") -> None:
    graph.insert({"Person": [{"name": f"p{i}", "age": i % 10} for i in range(first, last)]}, branch=branch)


@pytest.fixture(scope="session")
def _worn(tmp_path_factory: pytest.TempPathFactory) -> Path:
    graph = og.init(tmp_path_factory.mktemp("worn") / "graph", SCHEMA)
    for k in range(4):
        people(graph, 2 * k, 2 * k + 2)
    for k in range(2):
        graph.insert({"Knows": [{"from": f"p{k}", "to": f"p{k + 1}"}]})
    return Path(graph.uri)


@pytest.fixture
def worn(_worn: Path, tmp_path: Path) -> og.Graph:
    """The same with eight people in four fragments, and edges in two."""
    return og.open(shutil.copytree(_worn, tmp_path / "graph"))
