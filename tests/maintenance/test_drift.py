"""Drift is what lies above a pin without a stamp of ours, on a line that the branch owns; and nothing else is."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from omnigraph.maintenance.drift import UNREADABLE, drift_of, drifts
from omnigraph.storage.durability import manifest_path
from tests.commit import plant
from tests.maintenance import strangers


def found(graph: Any, type_name: str, branch: str = "main") -> Any:
    view = graph._committer.view(branch)
    return drift_of(view, view.type(type_name).id)


def test_tables_at_their_pins_have_none(graph: Any) -> None:
    assert drifts(graph._committer.view("main")) == []


def test_every_operation_of_a_stranger_is_told_in_order_with_both_versions(graph: Any) -> None:
    _, pinned = strangers.place(graph, "Left")
    strangers.append(graph, "Left", "raw")
    strangers.compact(graph, "Left")
    newest = strangers.delete(graph, "Left", "old")
    drift = found(graph, "Left")
    assert drift.operations == ("Append", "ReserveFragments", "Rewrite", "Delete")
    assert drift.table_key == "node:Left"
    assert (drift.pin.version, drift.head_version) == (pinned, newest)
    assert [d.table_key for d in drifts(graph._committer.view("main"))] == ["node:Left"]


def test_leftovers_of_our_own_are_none_and_mixed_with_a_strangers_they_are(graph: Any) -> None:
    strangers.stamped_append(graph, "Left", "leftover", stamp=strangers.decided_stamp(graph, "Left"))
    assert found(graph, "Left") is None
    strangers.append(graph, "Left", "raw")
    assert found(graph, "Left").has_stamped


def test_a_branch_answers_for_its_own_forks_only(graph: Any) -> None:
    graph.create_branch("side")
    strangers.append(graph, "Left", "raw")
    assert found(graph, "Left", "side") is None, "that line is main's"
    graph.upsert({"Left": [{"name": "new"}]}, branch="side")
    strangers.append(graph, "Left", "raw", branch="side")
    assert found(graph, "Left", "side").pin.fork is not None
    assert found(graph, "Left", "side").operations == ("Append",)


def test_a_version_whose_file_is_gone_is_a_step_that_nobody_can_read(graph: Any) -> None:
    uri, pinned = strangers.place(graph, "Left")
    strangers.append(graph, "Left", "raw")
    strangers.append(graph, "Left", "raw2")
    os.unlink(manifest_path(uri, pinned + 1))
    strangers.append(graph, "Left", "raw3")
    drift = found(graph, "Left")
    assert drift is not None
    assert drift.operations == (UNREADABLE, "Append", "Append")
    assert "version" in drift.steps[0].error


def test_looking_for_drift_writes_nothing(path: Path, graph: Any) -> None:
    strangers.append(graph, "Left", "raw")
    before = {p: p.stat().st_mtime_ns for p in path.rglob("*")}
    assert found(graph, "Left") is not None
    assert {p: p.stat().st_mtime_ns for p in path.rglob("*")} == before


def test_a_commit_without_a_stamp_is_none_while_a_plan_declares_it_and_for_nothing_else(graph: Any, path: Path) -> None:
    strangers.append(graph, "Left", "raw")
    graph.repair(force=True, confirm=True)
    strangers.compact(graph, "Left")
    assert found(graph, "Left").operations == ("ReserveFragments", "Rewrite")
    view = graph._committer.view("main")
    table, epoch = view.type("Left").id, view.head.epoch + 1
    plant.lock(path, {"nonce": "n", "owner": plant.ELSEWHERE, "tables": [table], "kind": "optimize"})
    planned = {"pin": view.pins[table].to_json(), "steps": 2, "unstamped": ["ReserveFragments", "Rewrite"]}
    record = {"b": "main", "i": view.head.incarnation, "e": epoch, "k": "optimize", "t": 0, "s": view.head.schema}
    plan = {"nonce": "n", "attempt": 0, "tables": {table: planned}, "record": record}
    (plant.folder(path) / f"{epoch:012d}.plan0.json").write_text(json.dumps(plan))
    assert found(graph, "Left") is None
    strangers.delete(graph, "Left", "raw")
    assert found(graph, "Left").operations == ("ReserveFragments", "Rewrite", "Delete")


def test_what_was_published_since_the_look_at_the_head_is_none(graph: Any) -> None:
    strangers.append(graph, "Left", "raw")
    graph.repair(force=True, confirm=True)
    old = graph._committer.view("main")
    strangers.compact(graph, "Left")
    graph.repair(confirm=True)
    assert drift_of(old, old.type("Left").id) is None
