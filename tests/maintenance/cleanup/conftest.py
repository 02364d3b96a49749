from __future__ import annotations

import os
import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import lance
import pytest

import omnigraph as og
from tests.support.graphs import Templates
from tests.support.s3 import bucket_at

SCHEMA = """
node Person { name: String @key  age: I32? }
node Place { name: String @key }
edge Knows: Person -> Person
"""
DAY_S = 86_400.0


@pytest.fixture(autouse=True)
def _fast_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMNIGRAPH_LEASE_S", "0.3")


def _build(path: Path) -> og.Graph:
    return og.init(path, SCHEMA)


@pytest.fixture
def graph(graph_templates: Templates, tmp_path: Path) -> og.Graph:
    return graph_templates.open(_build, tmp_path / "graph")


@pytest.fixture(scope="session")
def _history(tmp_path_factory: pytest.TempPathFactory) -> Path:
    graph = og.init(tmp_path_factory.mktemp("history") / "graph", SCHEMA)
    for i in range(12):
        graph.upsert({"Person": [{"name": f"p{i % 4}", "age": i}]})
    graph.insert({"Place": [{"name": "here"}]})
    graph.insert({"Place": [{"name": "there"}]})
    return Path(graph.uri)


@pytest.fixture
def history(_history: Path, tmp_path: Path) -> og.Graph:
    """Twelve commits on Person, two on Place."""
    return og.open(shutil.copytree(_history, tmp_path / "graph"))


@pytest.fixture
def bucket(s3_endpoint: str) -> Iterator[str]:
    with bucket_at(s3_endpoint, "cleanup"):
        yield "s3://cleanup/graph"


def pin_of(graph: og.Graph, type_name: str = "Person", branch: str = "main") -> Any:
    view = graph._committer.view(branch)
    return view.pins[view.type(type_name).id]


def folder_of(graph: og.Graph, type_name: str = "Person", branch: str = "main") -> Path:
    """The folder of the branch's line of a table."""
    return Path(graph._location.join(pin_of(graph, type_name, branch).path))


def root_of(graph: og.Graph, type_name: str = "Person") -> Path:
    return Path(graph._location.join(pin_of(graph, type_name).root))


def versions(folder: Path) -> list[int]:
    """Versions that are there, oldest first."""
    names = [p.name[:20] for p in (folder / "_versions").glob("*.manifest") if p.name[:20].isdigit()]
    return sorted(2**64 - 1 - int(name) for name in names)


def rows(graph: og.Graph, branch: str = "main", type_name: str = "Person", **state: Any) -> dict[str, Any]:
    """By a handle of its own: what others see."""
    found = og.open(graph.uri).snapshot(branch, **state).read(type_name).to_pylist()
    return {row["id"]: row for row in found}


def files(folder: Path) -> set[str]:
    return {str(p.relative_to(folder)) for p in folder.rglob("*") if p.is_file()}


def make_old(path: Path, days: float = 30) -> None:
    """Let the store believe that everything below was last changed long ago."""
    then = time.time() - days * DAY_S
    for found in [path, *path.rglob("*")] if path.is_dir() else [path]:
        os.utime(found, (then, then))


def raw_append(graph: og.Graph, type_name: str = "Person", branch: str = "main") -> int:
    """What somebody with a Lance client and no manners does."""
    uri = str(folder_of(graph, type_name, branch))
    table = lance.dataset(uri)
    lance.write_dataset(table.to_table().slice(0, 1), uri, mode="append")
    return int(lance.dataset(uri).version)
