from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import omnigraph as og
from omnigraph.pipeline.embed import http
from tests.embed.server import KEY, Server, serving
from tests.support.graphs import Templates

SCHEMA = """
node Post { key: String @key  text: String?  rank: I32?  vector: Vector(256)? @embed("text") }
node Tag { name: String @key  vector: Vector(64)? @embed("name") }
edge Has: Post -> Tag
"""
SMALL = 'node Post { key: String @key  text: String?  vector: Vector(8)? @embed("text") }'


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http, "PAUSE_FIRST_S", 0.01)
    for name in ("OPENAI_API_KEY", "OPENAI_BASE_URL", "GEMINI_API_KEY", "GEMINI_BASE_URL", "OMNIGRAPH_ENGINE"):
        monkeypatch.delenv(name, raising=False)


def _build(path: Path) -> og.Graph:
    return og.init(path, SCHEMA)


@pytest.fixture
def graph(graph_templates: Templates, tmp_path: Path) -> og.Graph:
    return graph_templates.open(_build, tmp_path / "graph")


def _build_small(path: Path) -> og.Graph:
    return og.init(path, SMALL)


@pytest.fixture
def small(graph_templates: Templates, tmp_path: Path) -> og.Graph:
    """Vectors of eight dimensions, which the server on loopback makes."""
    return graph_templates.open(_build_small, tmp_path / "small")


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    with serving() as found:
        monkeypatch.setenv("OPENAI_API_KEY", KEY)
        monkeypatch.setenv("OPENAI_BASE_URL", f"{found.url}/v1")
        monkeypatch.setenv("GEMINI_API_KEY", KEY)
        monkeypatch.setenv("GEMINI_BASE_URL", found.url)
        yield found


def posts(count: int, start: int = 0) -> list[dict[str, Any]]:
    return [{"key": f"p{i:04d}", "text": f"a text about {i} things"} for i in range(start, start + count)]


def vectors(graph: og.Graph, type_name: str = "Post", branch: str = "main") -> dict[str, np.ndarray | None]:
    """The vectors by id."""
    rows = graph.snapshot(branch).read(type_name, ["id", "vector"]).to_pylist()
    return {r["id"]: None if r["vector"] is None else np.array(r["vector"], np.float32) for r in rows}


def texts(graph: og.Graph, branch: str = "main") -> dict[str, str | None]:
    return {r["id"]: r["text"] for r in graph.snapshot(branch).read("Post", ["id", "text"]).to_pylist()}
