"""Deferred rewrites and saved plans that meet a table that was changed meanwhile: each guard, as in `test_guards.py`.

Lance itself does not compare: a deferred rewrite is told to be of the newest version. So whatever has happened to its
fragments or to the segments over them must be seen by us.
"""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import omnigraph as og
from omnigraph.errors import StaleView
from omnigraph.index import segments
from omnigraph.storage.lance.indices import fragment_reuse
from omnigraph.storage.lance.rewrites import rewrite
from omnigraph.storage.manifest.records import Pin
from tests.maintenance.optimize.answers import disagreements
from tests.maintenance.optimize.conftest import SCHEMA, people
from tests.maintenance.optimize.tables import coverage, keys, opened
from tests.support.guards import AS_IT_IS, exchange_vectors, is_exchanged, meanwhile, posts


@pytest.fixture
def by_address(tmp_path: Path) -> og.Graph:
    """Four fragments of ten people, covered by their indices, with row ids by address."""
    graph = og.init(tmp_path / "address", SCHEMA, row_ids="address")
    for k in range(4):
        people(graph, 10 * k, 10 * k + 10)
    graph.optimize(**AS_IT_IS)
    return graph


# ---- deferred --------------------------------------------------------------------------------------------------------


def test_rows_deleted_while_a_deferred_rewrite_was_prepared_stay_deleted(
    by_address: og.Graph, monkeypatch: pytest.MonkeyPatch
) -> None:
    meanwhile(monkeypatch, lambda: og.open(by_address.uri).delete({"Person": ["p3", "p4"]}))
    result = by_address.optimize(defer_index_remap=True)
    assert keys(by_address) == sorted(f"p{i}" for i in range(40) if i not in (3, 4))
    assert (result.rounds, result.table("node:Person").fragments_removed) == (2, 4)
    assert fragment_reuse(opened(by_address, "Person")) is not None
    assert disagreements(opened(by_address, "Person")) == []


def test_vectors_exchanged_while_a_deferred_rewrite_was_prepared_are_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    graph = posts(tmp_path / "g", 3, 10, row_ids="address")
    graph.optimize(**AS_IT_IS)
    meanwhile(monkeypatch, lambda: exchange_vectors(og.open(graph.uri)))
    graph.optimize(defer_index_remap=True)
    found = {row["name"]: row["vec"] for row in graph.nodes("Post").to_pylist()}
    assert [name for name, vector in found.items() if is_exchanged(vector)] == [f"p{i}" for i in range(10)]
    assert fragment_reuse(opened(graph, "Post")) is not None
    assert disagreements(opened(graph, "Post")) == []


def test_fragments_are_not_merged_across_segments_that_somebody_has_built_meanwhile(
    by_address: og.Graph, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An index would lose a merged fragment of which two of its segments cover a part each."""
    other = og.open(by_address.uri, engine="local")

    def build_two() -> None:
        with monkeypatch.context() as patch:
            patch.setattr(segments, "SEGMENT_ROWS", 20)
            patch.setattr(segments, "SEGMENTS_MAX", 100)
            assert other.optimize(rebuild_indexes=True, **AS_IT_IS).table("node:Person").committed

    meanwhile(monkeypatch, build_two)
    result = by_address.optimize(defer_index_remap=True)
    row = result.table("node:Person")
    assert (result.rounds, row.fragments_removed, row.fragments_added) == (2, 4, 2)
    assert set(coverage(opened(by_address, "Person")).values()) == {1.0}
    assert disagreements(opened(by_address, "Person")) == []


# ---- saved plans -----------------------------------------------------------------------------------------------------


def saved(plan: Any) -> Any:
    return json.loads(json.dumps(plan.to_json()))


def files(graph: og.Graph) -> set[Path]:
    return {p for p in Path(graph.uri).rglob("*") if p.is_file()}


def require_stale(graph: og.Graph, plan: Any, told: str, **options: Any) -> None:
    """It is told before anything is written."""
    before = files(graph)
    with pytest.raises(StaleView, match=told) as refusal:
        graph.optimize(plan=plan, **options)
    assert refusal.value.remedy == "Make a new plan; nothing was changed."
    assert files(graph) == before


def test_a_plan_for_a_branch_that_was_deleted_and_made_again_is_told(worn: og.Graph) -> None:
    worn.create_branch("side")
    plan = saved(worn.plan_optimize(branch="side"))
    worn.delete_branch("side")
    worn.create_branch("side")
    require_stale(worn, plan, "the branch side was deleted and made again", branch="side")


def test_a_plan_whose_numbers_for_new_fragments_are_taken_by_now_is_told(
    worn: og.Graph, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rewrite, "ID_GAP", 1)
    plan = saved(worn.plan_optimize(tables=["Person"]))
    people(worn, 20, 21)
    require_stale(worn, plan, "node:Person has changed")


def test_a_plan_that_names_another_version_of_a_table_than_its_commit_does_is_told(worn: og.Graph) -> None:
    plan = saved(worn.plan_optimize(tables=["Person"]))
    [person] = [t for t in plan["tables"] if t["table_key"] == "node:Person"]
    pin = Pin.from_json(person["table"], person["pin"])
    person["pin"] = replace(pin, version=pin.version - 1).to_json()
    require_stale(worn, plan, "node:Person has changed")
