"""A place for a graph, without waiting for a disk."""

from __future__ import annotations

from pathlib import Path

import pytest


@pytest.fixture(autouse=True)
def _no_fsync(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMNIGRAPH_FSYNC", "off")


@pytest.fixture
def uri(tmp_path: Path) -> str:
    return str(tmp_path / "graph")
