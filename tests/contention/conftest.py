"""One fork server for the folder, and a fresh graph per test."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.contention import world
from tests.contention.crowd import Crowd
from tests.contention.processes import Processes

NOISE_S = 6.0
"""What a loaded machine may add to any wait."""


@pytest.fixture
def crowd_of(processes: Processes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[float], Crowd]:
    """A crowd on a new graph, whose clients and whose test itself use this lease."""

    def make(lease_s: float) -> Crowd:
        monkeypatch.setenv("OMNIGRAPH_LEASE_S", str(lease_s))
        world.create(tmp_path / "graph")
        return Crowd(processes, tmp_path / "graph", lease_s=lease_s, seed=1)

    return make
