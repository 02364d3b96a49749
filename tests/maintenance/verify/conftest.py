from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path

import pytest

import omnigraph as og
from omnigraph.maintenance.verify import checksums, isolated
from tests.maintenance.verify import damage


def made(folder: Path, kinds: Mapping[str, list[tuple[str, str]]]) -> Path:
    damage.make(folder / "graph", kinds=kinds)
    return folder / "graph"


@pytest.fixture(scope="session")
def _made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return made(tmp_path_factory.mktemp("made"), damage.KINDS)


@pytest.fixture(scope="session")
def _made_plain(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return made(tmp_path_factory.mktemp("plain"), {"City": damage.KINDS["City"]})


def copied(source: Path, folder: Path) -> og.Graph:
    shutil.copytree(source, folder / "graph")
    return og.open(folder / "graph", engine="local")


@pytest.fixture
def graph(_made: Path, tmp_path: Path) -> og.Graph:
    """A graph with everything in it, one's own to damage."""
    return copied(_made, tmp_path)


@pytest.fixture
def plain(_made_plain: Path, tmp_path: Path) -> og.Graph:
    """The same rows with one index only, where indices would only take time."""
    return copied(_made_plain, tmp_path)


@pytest.fixture
def unsummed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Data and indices are not compared with their checksums: as in a graph that an older program has written."""
    monkeypatch.setattr(checksums, "SMALL_BYTES_MAX", -1)
    monkeypatch.setattr(checksums, "require_footer", lambda *_, **__: None)


@pytest.fixture(autouse=True)
def _in_this_process(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Most of these graphs have indices without checksums: a child for each of their full runs would take minutes."""
    if not request.path.name.startswith("test_isolated"):
        monkeypatch.setattr(isolated.CarefulRunner, "_is_doubtful", lambda *_: False)
