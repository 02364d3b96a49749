from __future__ import annotations

import shutil
from pathlib import Path

import pytest

import omnigraph as og
from tests.maintenance.verify import damage


@pytest.fixture(autouse=True)
def _fast_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMNIGRAPH_FSYNC", "off")


@pytest.fixture(scope="session")
def _made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("made") / "graph"
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("OMNIGRAPH_FSYNC", "off")
        damage.make(path)
    return path


@pytest.fixture
def graph(_made: Path, tmp_path: Path) -> og.Graph:
    """A graph with everything in it, one's own to damage."""
    path = tmp_path / "graph"
    shutil.copytree(_made, path)
    return og.open(path, engine="local")
