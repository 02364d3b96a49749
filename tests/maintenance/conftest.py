"""A small graph to maintain, processes that can be killed, and no syncing: these tests are not about power loss."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import omnigraph
from tests.commit import deeds
from tests.support.graphs import Templates


def _build(path: Path) -> None:
    deeds.create(str(path))


@pytest.fixture
def path(graph_templates: Templates, tmp_path: Path) -> Path:
    """Left and Right with two rows each, and an edge between them."""
    return graph_templates.copy(_build, tmp_path / "graph")


@pytest.fixture
def graph(path: Path) -> Any:
    return omnigraph.open(path)
