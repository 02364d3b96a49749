"""One original with branches for the whole folder. Nothing may change it: every test ends by comparing its bytes."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.conftest import cli
from tests.maintenance.relocate import graphs

__all__ = ["cli"]


@pytest.fixture(scope="session")
def _original(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("original") / "graph"
    graphs.build(root)
    return root


@pytest.fixture
def original(_original: Path) -> Iterator[Path]:
    """A graph that was copied elsewhere. Its bytes are the same after the test."""
    before = graphs.digests(_original)
    yield _original
    assert graphs.digests(_original) == before, "the original was touched"


@pytest.fixture
def copy(original: Path, tmp_path: Path) -> Path:
    """`cp -r original copy`."""
    return Path(shutil.copytree(original, tmp_path / "copy"))
