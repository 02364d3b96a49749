"""What is undecided is listed without touching it, and settled when its writer is dead."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest

import omnigraph
from omnigraph.maintenance.recover import pending, recover
from omnigraph.storage.manifest.records import RECOVERY_ACTOR
from tests.commit import plant
from tests.contention.audit import objects_left, wrong_epochs
from tests.contention.processes import Processes
from tests.support.dying import die


def test_a_graph_at_rest_has_nothing_pending(path: Path, graph: Any) -> None:
    assert pending(graph._committer) == []
    result = recover(graph._committer, wait_s=0)
    assert (result.settled, result.pending) == ((), ())
    assert not (path / "__recovery").exists() or not objects_left(path)


def test_a_dead_writers_operation_is_listed_and_looking_settles_nothing(
    processes: Processes, path: Path, graph: Any
) -> None:
    die(processes, path, "effect", 2)
    left = objects_left(path)
    (found,) = pending(omnigraph.open(path)._committer)
    assert (found.branch, found.kind, found.alive) == ("main", "write", False)
    assert found.epoch == graph._manifest.head("main").epoch + 1
    assert objects_left(path) == left


@pytest.mark.parametrize(
    ("phase", "occurrence", "outcome"), [("effect", 2, "rolled_back"), ("publish", 1, "rolled_forward")]
)
def test_recover_settles_a_dead_writers_operation_at_once(
    processes: Processes, path: Path, graph: Any, phase: str, occurrence: int, outcome: str
) -> None:
    die(processes, path, phase, occurrence)
    result = recover(graph._committer, wait_s=0)
    assert [s.outcome for s in result.settled] == [outcome]
    assert result.pending == ()
    assert pending(graph._committer) == []
    assert not objects_left(path)
    assert not wrong_epochs(graph)
    ids = set(graph.nodes("Left")["id"].to_pylist())
    assert ("new" in ids) == (outcome == "rolled_forward")
    if outcome == "rolled_back":
        assert graph.commits(limit=1)[0].actor == RECOVERY_ACTOR
    assert recover(graph._committer, wait_s=0).settled == ()


def test_operations_of_several_branches_are_settled_together(processes: Processes, path: Path, graph: Any) -> None:
    graph.create_branch("side")
    die(processes, path, "effect", 2)
    die(processes, path, "effect", 2, deed="put_on_new_branch")
    assert [p.branch for p in pending(graph._committer)] == ["main", "side"]
    assert [s.branch for s in recover(graph._committer, wait_s=0).settled] == ["main", "side"]
    assert pending(graph._committer) == []


def test_a_writer_of_whom_nobody_knows_is_alive_and_waited_for_no_longer_than_told(path: Path, graph: Any) -> None:
    plant.lock(path)
    (found,) = pending(graph._committer)
    assert found.alive
    started = time.monotonic()
    result = recover(graph._committer, wait_s=0.3)
    assert 0.3 <= time.monotonic() - started < 5
    assert [p.alive for p in result.pending] == [True]
    assert result.settled == ()


def test_a_lease_that_runs_out_while_waiting_makes_its_writer_dead(
    path: Path, graph: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OMNIGRAPH_LEASE_S", "0.2")
    plant.lock(path)
    result = recover(graph._committer, wait_s=10)
    assert [s.outcome for s in result.settled] == ["rolled_back"]
    assert result.pending == ()
    assert result.waited_s < 8


def test_objects_of_a_branch_that_is_gone_are_nobodys(path: Path, graph: Any) -> None:
    graph.create_branch("side")
    planted = plant.lock(path, branch="side")
    body = planted.read_bytes()
    graph.delete_branch("side")
    planted.parent.mkdir(parents=True, exist_ok=True)
    planted.write_bytes(body)
    assert pending(graph._committer) == []
    assert recover(graph._committer, wait_s=0).settled == ()
    assert not objects_left(path)
