"""Maintenance logs its decisions, one line each; a refused merge, a conflict and a failed stage are logged too."""

from __future__ import annotations

import logging
from typing import Any

import pytest

import omnigraph
from omnigraph.errors import MergeConflicts, TaskFailed
from omnigraph.tasks.runner import LocalRunner
from tests.spark import work


def events(caplog: pytest.LogCaptureFixture, event: str) -> list[logging.LogRecord]:
    return [record for record in caplog.records if record.getMessage().startswith(f"{event} ")]


def test_a_table_that_drifted_is_logged_as_skipped(graph: Any, caplog: pytest.LogCaptureFixture) -> None:
    import lance

    view = graph._committer.view("main")
    pin = view.pins[view.type("Left").id]
    table = lance.dataset(view.tables.location.join(pin.path))
    table.delete("true")
    with caplog.at_level(logging.INFO, logger="omnigraph"):
        graph.optimize()
    (record,) = events(caplog, "optimize skipped")
    fields = record.__dict__["fields"]
    assert (fields["branch"], fields["table"], fields["table_key"]) == ("main", pin.table, "node:Left")
    assert fields["epoch"] == view.head.epoch
    assert fields["reason"] == "DriftNeedsRepair"


def test_a_merge_that_conflicts_refuse_is_logged(graph: Any, caplog: pytest.LogCaptureFixture) -> None:
    graph.create_branch("review")
    name = graph.snapshot().read("Left").to_pylist()[0]["id"]
    graph.delete({"Left": [name]})
    graph.upsert({"Left": [{"name": name, "n": 7}]}, branch="review")
    with caplog.at_level(logging.INFO, logger="omnigraph"), pytest.raises(MergeConflicts):
        graph.merge("review")
    (record,) = events(caplog, "conflicts refused a merge")
    assert record.levelno == logging.INFO
    assert record.__dict__["fields"]["branch"] == "main"
    assert record.__dict__["fields"]["kind"] == "merge"


def test_a_write_that_lost_against_another_is_logged_as_a_conflict(
    path: Any, graph: Any, caplog: pytest.LogCaptureFixture
) -> None:
    """Another handle commits to the same table between preparation and lock."""
    other = omnigraph.open(path)
    writes = iter([lambda: other.upsert({"Left": [{"name": "other"}]})])

    def observe(phase: str) -> None:
        if phase == "lock":
            next(writes, lambda: None)()

    writer = omnigraph.open(path, observer=observe)
    table = graph._committer.view("main").type("Left").id
    with caplog.at_level(logging.INFO, logger="omnigraph"):
        writer.upsert({"Left": [{"name": "mine"}]})
    (record,) = events(caplog, "conflict, operation prepared again")
    assert record.__dict__["fields"]["table"] == (table,)
    assert {row["id"] for row in graph.snapshot().read("Left").to_pylist()} >= {"other", "mine"}


def test_a_stage_is_logged_with_its_tasks_and_time(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, logger="omnigraph"):
        LocalRunner(parallelism=1).run(work.double, [{"value": 1}, {"value": 2}], stage="doubling")
    (record,) = events(caplog, "stage finished")
    fields = record.__dict__["fields"]
    assert (fields["stage"], fields["engine"], fields["tasks"]) == ("doubling", "local", 2)
    assert fields["seconds"] >= 0


def test_a_failed_stage_is_a_warning_with_its_reason(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, logger="omnigraph"), pytest.raises(TaskFailed):
        LocalRunner(parallelism=1).run(work.double, [{}], stage="doubling")
    (record,) = events(caplog, "stage failed")
    assert record.levelno == logging.WARNING
    assert "KeyError" in record.__dict__["fields"]["reason"]
