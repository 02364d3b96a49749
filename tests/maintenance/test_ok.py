"""Every maintenance result says in its JSON whether all went well, under the same name."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from omnigraph.maintenance.recover import Pending, RecoverResult

RESULTS = {
    "stats": lambda graph: graph.maintenance.stats(),
    "optimize": lambda graph: graph.maintenance.optimize(),
    "repair": lambda graph: graph.maintenance.repair(),
    "cleanup": lambda graph: graph.maintenance.cleanup(keep=1),
    "verify": lambda graph: graph.maintenance.verify(),
    "maintain": lambda graph: graph.maintenance.maintain(),
    "relocate": lambda graph: graph.maintenance.relocate(),
}


@pytest.mark.parametrize("verb", RESULTS)
def test_the_result_has_ok_as_a_property_and_in_its_json(verb: str, graph: Any) -> None:
    result = RESULTS[verb](graph)
    assert result.ok is True
    assert result.to_json()["ok"] is True


def test_a_lost_table_is_not_ok(graph: Any) -> None:
    view = graph._committer.view("main")
    pin = view.pins[view.type("Left").id]
    for file in (Path(view.tables.location.join(pin.path)) / "_versions").iterdir():
        file.unlink()
    for verb in ("stats", "optimize", "verify"):
        assert RESULTS[verb](graph).to_json()["ok"] is False, verb


def test_a_drifted_table_that_repair_refuses_is_not_ok(graph: Any) -> None:
    import lance

    view = graph._committer.view("main")
    lance.dataset(view.tables.location.join(view.pins[view.type("Left").id].path)).delete("true")
    assert graph.maintenance.repair(confirm=True).to_json()["ok"] is False
    findings = graph.maintenance.verify().to_json()["findings"]
    assert [f["table_key"] for f in findings if f["code"] == "uncovered_drift"] == ["node:Left"]
    assert all(f["table"] == f["table_key"] for f in findings)


def test_a_pending_operation_is_not_ok() -> None:
    pending = Pending("main", "i", 3, "write", "o", alive=True)
    assert RecoverResult((), (pending,), 0.0).to_json()["ok"] is False
    assert RecoverResult((), (), 0.0).to_json()["ok"] is True


def test_stats_name_the_graph_as_the_others_do(graph: Any) -> None:
    body = graph.maintenance.stats().to_json()
    assert body["graph"] == body["uri"] == graph.uri
