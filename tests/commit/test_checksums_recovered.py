"""A writer that dies before it publishes: whoever rolls its commit forward publishes the checksums of its files."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

import omnigraph as og
from tests.contention.processes import Processes


@pytest.mark.parametrize("deed", ["evolve", "put_on_new_branch", "put_and_fold", "repair_of_a_fork"])
def test_a_commit_that_is_rolled_forward_has_its_checksums(processes: Processes, tmp_path: Path, deed: str) -> None:
    path = tmp_path / "graph"
    processes.run("start_deed", {"uri": str(path), "deed": deed})
    arguments = {"uri": str(path), "deed": deed, "phase": "publish", "occurrence": 1}
    assert processes.run("perform_deed", arguments).status == -signal.SIGKILL
    with og.open(path, engine="local") as graph:
        for branch in [info.name for info in graph.branches()]:
            graph.insert({"Right": [{"name": "probe"}]}, branch=branch)
        outcomes = [c.recovery["outcome"] for b in graph.branches() for c in graph.commits(b.name) if c.recovery]
        assert "rolled_forward" in outcomes
        result = graph.verify(full=True)
    assert result.ok, result.findings
    assert result.checked["unchecked"] == 0
