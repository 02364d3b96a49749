"""Budgets hold, and what they leave is told: also where a deferred remap would be ended half-way."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import omnigraph as og
from omnigraph.storage.lance.indices import fragment_reuse
from tests.maintenance.optimize.answers import disagreements
from tests.maintenance.optimize.tables import opened

SCHEMA = "node Doc { key: String @key  rank: I32? @index  text: String? @index }\nnode City { name: String @key }"


def fill(graph: og.Graph, first: int, fragments: int, rows: int = 50) -> None:
    for k in range(fragments):
        start = first + k * rows
        graph.insert({"Doc": [doc(i) for i in range(start, start + rows)]})


def doc(i: int) -> dict[str, Any]:
    return {"key": f"d{i}", "rank": i, "text": f"w{i % 7} common"}


@pytest.fixture
def deferred(tmp_path: Path) -> og.Graph:
    """A table inside the window of a deferred remap: its indices answer through the reuse index."""
    graph = og.init(tmp_path / "graph", SCHEMA, row_ids="address")
    fill(graph, 0, 4)
    graph.optimize(target_rows_per_fragment=50)
    graph.optimize(defer_index_remap=True)
    assert fragment_reuse(opened(graph, "Doc")) is not None
    return graph


@pytest.mark.parametrize("options", [{"max_bytes": 2048}, {"max_rows": 199, "drain": True}])
def test_a_window_that_a_budget_does_not_let_end_stays_open_and_answers(
    deferred: og.Graph, options: dict[str, Any]
) -> None:
    result = deferred.optimize(**options)
    assert result.commit is None
    assert result.table("node:Doc").left_indexes == 6
    table = opened(deferred, "Doc")
    assert fragment_reuse(table) is not None
    assert disagreements(table) == []
    deferred.upsert({"Doc": [{"key": "d5", "rank": 1000}]})
    deferred.delete({"Doc": ["d6"]})
    assert len(deferred.nodes("Doc")) == 199
    deferred.optimize(max_rows=10_000)
    table = opened(deferred, "Doc")
    assert fragment_reuse(table) is None
    assert disagreements(table) == []


def test_a_maintain_with_a_budget_leaves_the_window_open(deferred: og.Graph) -> None:
    result = deferred.maintain({"budget": {"max_rows": 100}})
    assert any("left for a later run" in note for note in result.step("optimize", "main").notes)
    assert disagreements(opened(deferred, "Doc")) == []


def test_a_saved_plan_that_would_end_a_window_without_all_its_indices_is_stale(deferred: og.Graph) -> None:
    plan = deferred.plan_optimize(drain=True).to_json()
    planned = next(t for t in plan["tables"] if t["table_key"] == "node:Doc")
    planned["indexes"] = planned["indexes"][:-1]
    result = deferred.optimize(plan=plan)
    assert (result.commit, result.table("node:Doc").skipped) == (None, "ChangedSincePlan")
    assert disagreements(opened(deferred, "Doc")) == []


@pytest.mark.parametrize("max_rows", [1, 100, 600, 2500, 6000])
def test_no_more_rows_are_planned_to_be_read_than_the_budget_allows(tmp_path: Path, max_rows: int) -> None:
    graph = og.init(tmp_path / "graph", SCHEMA)
    fill(graph, 0, 12)
    for k in range(3):
        graph.insert({"City": [{"name": f"c{k}"}]})
    plan = graph.plan_optimize(max_rows=max_rows)
    assert sum(t.read_rows for t in plan.tables) <= max_rows


def test_what_does_not_fit_leaves_room_for_what_does(tmp_path: Path) -> None:
    graph = og.init(tmp_path / "graph", SCHEMA)
    fill(graph, 0, 2, rows=300)
    for k in range(3):
        graph.insert({"City": [{"name": f"c{k}"}]})
    result = graph.optimize(max_rows=100)
    assert result.table("node:City").fragments_removed == 3
    assert (result.table("node:Doc").committed, result.table("node:Doc").left_fragments) == (False, 2)


def test_a_small_budget_gets_there_in_several_nights(tmp_path: Path) -> None:
    graph = og.init(tmp_path / "graph", SCHEMA)
    fill(graph, 0, 31, rows=20)
    nights = 0
    while graph.optimize(max_rows=3000).commit is not None:
        nights += 1
        assert nights < 20
    table = opened(graph, "Doc")
    assert nights > 1
    assert len(table.get_fragments()) < 10
    assert disagreements(table) == []
