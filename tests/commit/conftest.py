from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import omnigraph
from tests.commit import deeds
from tests.contention.processes import Processes


@pytest.fixture(scope="session")
def processes() -> Iterator[Processes]:
    with Processes() as running:
        yield running


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A small graph: Left and Right with two rows each, and an edge between them."""
    deeds.create(str(tmp_path / "graph"))
    return tmp_path / "graph"


@pytest.fixture
def graph(path: Path) -> Any:
    return omnigraph.open(path)
