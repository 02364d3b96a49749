"""A place for a graph."""

from __future__ import annotations

from pathlib import Path

import pytest


@pytest.fixture
def uri(tmp_path: Path) -> str:
    return str(tmp_path / "graph")
