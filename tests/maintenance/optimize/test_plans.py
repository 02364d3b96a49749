"""Saved plans: done exactly as they say, or what changed since is told before anything is written."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import lance
import pytest

import omnigraph as og
from omnigraph.errors import PlanUnusable, StaleView
from omnigraph.index import segments
from omnigraph.storage.lance.indices import FRAGMENT_REUSE, fragment_reuse
from tests.maintenance.optimize.answers import disagreements
from tests.maintenance.optimize.conftest import SCHEMA, people
from tests.maintenance.optimize.tables import coverage, opened


def saved(plan: Any) -> Any:
    return json.loads(json.dumps(plan.to_json()))


def files(graph: og.Graph) -> set[str]:
    return {str(p) for p in Path(graph.uri).rglob("*") if p.is_file()}


@pytest.fixture
def by_address(tmp_path: Path) -> og.Graph:
    """Six fragments that no index covers, with row ids by address."""
    graph = og.init(tmp_path / "address", SCHEMA, row_ids="address")
    for k in range(6):
        people(graph, 10 * k, 10 * k + 10)
    return graph


# ---- deferred --------------------------------------------------------------------------------------------------------


def test_a_deferred_run_covers_and_merges_in_one_commit_and_says_so(by_address: og.Graph) -> None:
    before = len(by_address.commits())
    result = by_address.optimize(defer_index_remap=True)
    row = result.table("node:Person")
    assert len(by_address.commits()) == before + 1
    assert result.commits == (result.commit,)
    assert (row.fragments_removed, row.fragments_added, row.left_fragments) == (6, 1, 0)
    assert (row.coverage_before, row.coverage_after) == (0.0, 1.0)
    assert row.indexes_built == 4
    table = opened(by_address, "Person")
    assert fragment_reuse(table) is not None
    assert set(coverage(table).values()) == {1.0}
    assert disagreements(table) == []


def test_fragments_are_merged_within_the_segments_that_are_built_in_the_same_commit(
    by_address: og.Graph, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An index would lose a merged fragment of which two of its segments cover a part each."""
    monkeypatch.setattr(segments, "SEGMENT_ROWS", 20)
    monkeypatch.setattr(segments, "SEGMENTS_MAX", 100)
    row = by_address.optimize(defer_index_remap=True).table("node:Person")
    assert (row.fragments_removed, row.fragments_added, row.coverage_after) == (6, 3, 1.0)
    assert disagreements(opened(by_address, "Person")) == []


def test_a_deferred_plan_is_applied_as_it_is_also_inside_a_window(by_address: og.Graph) -> None:
    for expected in (6, 4):
        plan = by_address.plan_optimize(defer_index_remap=True)
        result = by_address.optimize(plan=saved(plan))
        row = result.table("node:Person")
        assert (row.fragments_removed, row.coverage_after, row.skipped) == (expected, 1.0, None)
        table = opened(by_address, "Person")
        assert FRAGMENT_REUSE in {i.name for i in table.describe_indices()}
        assert disagreements(table) == []
        for k in range(4):
            people(by_address, 1000 * expected + 10 * k, 1000 * expected + 10 * k + 5)


# ---- stale plans -----------------------------------------------------------------------------------------------------


def test_a_plan_that_was_done_already_is_told_and_writes_nothing(worn: og.Graph) -> None:
    plan = saved(worn.plan_optimize())
    worn.optimize(plan=plan)
    before = files(worn)
    with pytest.raises(StaleView, match="node:Person, edge:Knows has changed") as told:
        worn.optimize(plan=plan)
    assert told.value.condition == "stale_view"
    assert told.value.remedy == "Make a new plan; nothing was changed."
    assert files(worn) == before


def test_a_deferred_plan_that_was_done_already_is_told(by_address: og.Graph) -> None:
    plan = saved(by_address.plan_optimize(defer_index_remap=True))
    by_address.optimize(plan=plan)
    before = files(by_address)
    with pytest.raises(StaleView):
        by_address.optimize(plan=plan)
    assert files(by_address) == before


def test_a_table_that_was_optimized_since_is_left_out_with_true_figures_and_the_others_are_done(
    worn: og.Graph,
) -> None:
    plan = saved(worn.plan_optimize())
    done = worn.optimize(tables=["Person"]).table("node:Person")
    files_of_people = set(Path(opened(worn, "Person").uri).rglob("*"))
    result = worn.optimize(plan=plan)
    person = result.table("node:Person")
    assert (person.skipped, person.committed, person.error) == ("ChangedSincePlan", False, None)
    assert (person.manifest_version, person.lance_head_version) == (done.manifest_version, done.lance_head_version)
    assert (person.bytes_before, person.bytes_after) == (done.bytes_after, done.bytes_after)
    assert (person.coverage_before, person.coverage_after) == (1.0, 1.0)
    assert set(Path(opened(worn, "Person").uri).rglob("*")) == files_of_people
    assert result.table("edge:Knows").committed
    assert result.ok


def test_a_table_that_was_overwritten_or_has_drifted_since_is_left_out(towns: og.Graph, tmp_path: Path) -> None:
    plan = saved(towns.plan_optimize())
    overwritten(towns.uri, tmp_path, 0)
    lance.dataset(opened(towns, "Knows").uri).delete("id IS NOT NULL")
    result = towns.optimize(plan=plan)
    assert result.table("node:City").skipped == "ChangedSincePlan"
    knows = result.table("edge:Knows")
    assert (knows.skipped, knows.lance_head_version) == ("DriftNeedsRepair", knows.manifest_version + 1)
    assert result.table("node:Person").committed


def test_a_plan_of_another_graph_and_what_is_no_plan_are_told_in_words(worn: og.Graph, tmp_path: Path) -> None:
    other = og.init(tmp_path / "other", SCHEMA)
    with pytest.raises(PlanUnusable, match=r"it was made for .*graph, not for .*other"):
        other.optimize(plan=saved(worn.plan_optimize()))
    with pytest.raises(PlanUnusable, match="it is no plan that `omnigraph optimize --plan --json` made"):
        worn.optimize(plan={})
    with pytest.raises(PlanUnusable, match="made by another version"):
        worn.optimize(plan={**saved(worn.plan_optimize()), "format": 1})
    with pytest.raises(PlanUnusable, match="it is damaged"):
        worn.optimize(plan={**saved(worn.plan_optimize()), "tables": [{}]})


def test_a_plan_carries_its_limits_of_time_and_keeps_to_them(worn: og.Graph) -> None:
    plan = saved(worn.plan_optimize(max_time_s=1e-9, concurrency=3))
    assert (plan["options"]["max_time_s"], plan["options"]["concurrency"]) == (1e-9, 3)
    assert worn.optimize(plan=plan).table("node:Person").left_fragments == 4
    assert worn.optimize(plan=plan, max_time_s=60).table("node:Person").fragments_removed == 4


# ---- races -----------------------------------------------------------------------------------------------------------


@pytest.fixture
def towns(worn: og.Graph) -> og.Graph:
    """The same with three cities in three fragments."""
    for k in range(3):
        worn.insert({"City": [{"name": f"c{k}"}]})
    return worn


def overwritten(uri: str, folder: Path, turn: int) -> None:
    """Another handle exchanges all cities."""
    records = folder / "cities.jsonl"
    records.write_text("\n".join(f'{{"type": "City", "data": {{"name": "new{turn}x{i}"}}}}' for i in range(3)))
    og.open(uri).load(records, mode="overwrite")


def overwritten_after_preparation(patch: pytest.MonkeyPatch, uri: str, folder: Path, *, times: int) -> None:
    from omnigraph.maintenance.optimize.prepare import Preparation

    run, turns = Preparation.run, iter(range(times))

    def raced(self: Any, *args: Any, **options: Any) -> Any:
        late = run(self, *args, **options)
        for turn in turns:
            overwritten(uri, folder, turn)
            break
        return late

    patch.setattr(Preparation, "run", raced)


def test_a_table_that_lost_a_race_is_planned_again_and_the_rest_is_published_at_once(
    towns: og.Graph, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    overwritten_after_preparation(monkeypatch, towns.uri, tmp_path, times=1)
    result = towns.optimize()
    city = result.table("node:City")
    assert (result.rounds, city.committed, city.skipped, city.coverage_after) == (2, True, None, 1.0)
    first, second = result.commits
    assert (len(first.tables), len(second.tables)) == (2, 1)
    assert result.commit == second
    assert sorted(towns.nodes("City")["id"].to_pylist()) == ["new0x0", "new0x1", "new0x2"]
    assert disagreements(opened(towns, "City")) == []
    assert towns.optimize().commit is None


def test_a_table_that_loses_every_race_says_so(
    towns: og.Graph, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    overwritten_after_preparation(monkeypatch, towns.uri, tmp_path, times=9)
    result = towns.optimize()
    city = result.table("node:City")
    assert (result.rounds, city.committed, city.error) == (3, False, None)
    assert city.skipped == "ChangedMeanwhile"
    assert city.left_indexes == 3
    assert city.manifest_version == opened(towns, "City").version
    assert len(result.commits) == 1
    assert result.table("edge:Knows").committed


def test_a_plan_that_loses_its_race_is_told_and_not_planned_again(
    towns: og.Graph, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    plan = saved(towns.plan_optimize())
    overwritten_after_preparation(monkeypatch, towns.uri, tmp_path, times=1)
    result = towns.optimize(plan=plan)
    assert result.table("node:City").skipped == "ChangedSincePlan"
    assert result.table("edge:Knows").committed
    assert result.rounds == 1
