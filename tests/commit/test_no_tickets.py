"""Tickets and plans under `__recovery`: none where there is nothing to do, none left at rest, and what is left by the
dead of one branch explains nothing that is wrong with another.
"""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

import omnigraph
from omnigraph.errors import UncoveredDrift
from tests.commit.deeds import EVOLVED, SCHEMA
from tests.contention.audit import objects_left, wrong_epochs
from tests.contention.processes import Processes
from tests.maintenance import strangers

WRITES = {"lock", "plan", "effect", "publish"}
"""Phases in which something is written for others to see."""


def watched(path: Path) -> tuple[Any, list[str]]:
    seen: list[str] = []
    return omnigraph.open(path, observer=seen.append, engine="local"), seen


def die(processes: Processes, path: Path, deed: str, phase: str, occurrence: int) -> None:
    arguments = {"uri": str(path), "deed": deed, "phase": phase, "occurrence": occurrence}
    assert processes.run("perform_deed", arguments).status < 0


# ---- none ------------------------------------------------------------------------------------------------------------


def test_opening_and_reading_a_graph_makes_no_recovery_folder(path: Path) -> None:
    shutil.rmtree(path / "__recovery", ignore_errors=True)
    graph, seen = watched(path)
    graph.snapshot().read("Left")
    graph.plan_optimize()
    assert not (path / "__recovery").exists()
    assert seen == []


def test_a_second_optimize_takes_no_ticket(path: Path) -> None:
    graph, seen = watched(path)
    assert graph.optimize().commit is not None
    assert set(seen) >= WRITES
    head, _ = graph.snapshot().commit, seen.clear()
    assert graph.optimize().commit is None
    assert WRITES.isdisjoint(seen)
    assert graph.snapshot().commit == head
    assert not objects_left(path)


def test_an_optimize_of_empty_tables_takes_no_ticket(tmp_path: Path) -> None:
    omnigraph.init(tmp_path / "empty", SCHEMA)
    shutil.rmtree(tmp_path / "empty" / "__recovery", ignore_errors=True)
    graph, seen = watched(tmp_path / "empty")
    for _ in range(2):
        assert graph.optimize().commit is None
    assert seen == []
    assert not (tmp_path / "empty" / "__recovery").exists()


def test_an_optimize_of_many_commits_leaves_none(path: Path) -> None:
    graph, seen = watched(path)
    for number in range(20):
        graph.upsert({"Left": [{"name": f"n{number}"}]})
    seen.clear()
    result = graph.optimize()
    assert result.table("node:Left").fragments_removed > 1
    assert "lock" in seen
    assert not objects_left(path)
    graph.insert({"Left": [{"name": "later"}]})
    assert len(graph.snapshot().read("Left")) == 23
    assert not objects_left(path)


def test_a_schema_that_needs_a_table_that_drifted_is_refused_before_a_ticket(path: Path) -> None:
    graph, seen = watched(path)
    strangers.append(graph, "Left", "raw")
    with pytest.raises(UncoveredDrift):
        graph.apply_schema(EVOLVED)
    assert WRITES.isdisjoint(seen)


# ---- of the dead -----------------------------------------------------------------------------------------------------


def test_a_dead_writer_on_a_branch_does_not_hide_that_a_table_of_main_needs_repair(
    processes: Processes, path: Path, graph: Any
) -> None:
    graph.create_branch("side")
    die(processes, path, "put_on_new_branch", "effect", 2)
    left = objects_left(path)
    assert left
    strangers.append(graph, "Left", "raw")
    with pytest.raises(UncoveredDrift) as refusal:
        omnigraph.open(path).upsert({"Left": [{"name": "new"}]})
    assert "repair" in refusal.value.remedy
    assert objects_left(path) == left, "the other branch's business"
    graph.repair(force=True, confirm=True)
    graph.upsert({"Left": [{"name": "new"}]})
    graph.upsert({"Left": [{"name": "newer"}]}, branch="side")
    assert "raw" in graph.snapshot().read("Left")["id"].to_pylist()
    assert set(graph.snapshot("side").read("Left")["id"].to_pylist()) == {"old", "older", "newer"}
    assert not objects_left(path)
    assert not wrong_epochs(graph, "side")


def test_a_schema_is_applied_to_tables_that_were_rolled_back_and_each_of_them_is_restored_once(
    processes: Processes, path: Path, graph: Any
) -> None:
    die(processes, path, "put", "effect", 2)
    fresh, seen = watched(path)
    fresh.apply_schema(EVOLVED)
    assert seen.count("restore") == 2, "Left and Right"
    kinds = [c.kind for c in fresh.commits(limit=2)]
    assert kinds == ["schema_apply", "recovery"]
    rows = {row["name"]: row for row in fresh.snapshot().read("Left").to_pylist()}
    assert {name: (row["m"], row["extra"]) for name, row in rows.items()} == {"old": (0, 7), "older": (0, 7)}
    for number in range(3):
        fresh.upsert({"Left": [{"name": f"n{number}"}], "Third": [{"name": f"n{number}"}]})
    assert seen.count("restore") == 2
    for name in ("Left", "Right"):
        uri, pinned = strangers.place(fresh, name)
        assert strangers.opened(fresh, name).version == pinned, uri
    assert not objects_left(path)
    assert not wrong_epochs(fresh)
