"""Large merges as tasks: the same rows, counts, conflicts and adoptions as in one piece, with memory by task."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import pytest

import omnigraph as og
from omnigraph.branch.merge import Merge
from omnigraph.branch.merge.rows import task_work as row_task_work
from omnigraph.pipeline import merge_tasks
from tests.branch.merge.random_settings import patched
from tests.branch.merge.support import require_clean
from tests.support.merge_sides import BY_TASKS, IN_ONE_PIECE, SCHEMA, doc, make_sides, rows_of

WAYS = (IN_ONE_PIECE, BY_TASKS)


def plans(graph: og.Graph, source: str, **options: Any) -> list[dict[str, Any]]:
    results = []
    for way in WAYS:
        with patched(way):
            results.append(graph.plan_merge(source, engine="local", **options).to_json())
    return results


def merged_both_ways(graph: og.Graph, source: str, **options: Any) -> list[Any]:
    """The result and the rows of two merges into two branches of main."""
    results = []
    for number, way in enumerate(WAYS):
        graph.create_branch(f"way{number}")
        with patched(way):
            result = graph.merge(source, into=f"way{number}", engine="local", **options).to_json()
        results.append((result["outcome"], result["tables"], rows_of(graph, f"way{number}")))
    return results


@pytest.fixture
def task_counts(monkeypatch: pytest.MonkeyPatch) -> dict[str, int]:
    """How many tasks of each sort ran."""
    counts: dict[str, int] = {}
    for name in ("compare_rows", "decide_rows", "write_rows"):
        work = getattr(row_task_work, name)

        def counted(task: Any, name: str = name, work: Any = work) -> Any:
            counts[name] = counts.get(name, 0) + 1
            return work(task)

        monkeypatch.setattr(row_task_work, name, counted)
    return counts


@pytest.mark.parametrize("row_ids", ["stable", "address"])
def test_conflicts_are_the_same_and_in_the_same_order(
    row_ids: str, tmp_path: Path, task_counts: dict[str, int]
) -> None:
    graph = make_sides(tmp_path / "g", row_ids=row_ids)
    here, by_tasks = plans(graph, "theirs")
    assert here == by_tasks
    kinds = {c["kind"] for c in here["conflicts"]}
    assert kinds >= {"divergent_update", "divergent_insert", "update_vs_delete", "delete_vs_update"}
    assert task_counts["compare_rows"] > 3
    assert task_counts["decide_rows"] > 3
    assert "write_rows" not in task_counts, "a plan writes nothing"


@pytest.mark.parametrize("row_ids", ["stable", "address"])
@pytest.mark.parametrize("strategy", ["ours", "theirs"])
def test_rows_and_counts_are_the_same(row_ids: str, strategy: str, tmp_path: Path, task_counts: dict[str, int]) -> None:
    graph = make_sides(tmp_path / "g", row_ids=row_ids)
    here, by_tasks = merged_both_ways(graph, "theirs", strategy=strategy)
    assert here == by_tasks
    assert here[0] == "merged"
    assert sum(t["copied_rows"] for t in here[1]) > 40
    assert task_counts["write_rows"] > 3
    require_clean(graph)


@pytest.mark.parametrize("grain", ["properties", "rows"])
def test_resolutions_apply_beside_tasks(grain: str, tmp_path: Path) -> None:
    graph = make_sides(tmp_path / "g", row_ids="stable")
    conflicts = plans(graph, "theirs", grain=grain)[0]["conflicts"]
    choices = itertools.cycle(["ours", "theirs", {"m": 77}])
    resolutions = {
        (c["table_key"], c["id"]): choice
        for c, choice in zip(conflicts[1:], choices, strict=False)
        if c["kind"].startswith("divergent")
    }
    here, by_tasks = plans(graph, "theirs", grain=grain, resolutions=resolutions)
    assert here == by_tasks
    left = {(c["table_key"], c["id"]) for c in here["conflicts"]}
    assert left
    assert not left & resolutions.keys()
    here, by_tasks = merged_both_ways(graph, "theirs", grain=grain, strategy="theirs", resolutions=resolutions)
    assert here == by_tasks


def test_rules_are_checked_on_rows_that_tasks_decided(tmp_path: Path) -> None:
    """Rows combined from both sides hold codes that other rows hold as well."""
    graph = og.init(tmp_path / "g", SCHEMA)
    graph.upsert({"Doc": [doc(i, code=None) for i in range(50)]})
    graph.create_branch("theirs")
    graph.upsert({"Doc": [doc(i, code=f"x{i % 12}" if i % 5 == 0 else None) for i in range(50)]}, branch="theirs")
    graph.upsert({"Doc": [doc(i, code=None, m=9) for i in range(50)]})
    graph.upsert({"Doc": [doc(i, code=f"x{i % 100}") for i in range(300, 312)]})
    here, by_tasks = plans(graph, "theirs")
    assert here == by_tasks
    assert [c["kind"] for c in here["conflicts"]] == ["unique_violation"] * len(here["conflicts"])
    assert len(here["conflicts"]) >= 5


def test_several_bases_by_tasks(tmp_path: Path, task_counts: dict[str, int]) -> None:
    graph = make_sides(tmp_path / "g", row_ids="stable")
    before = graph.snapshot("main").commit
    graph.merge("theirs", strategy="theirs")
    graph.merge(before, into="theirs", strategy="ours")
    graph.upsert({"Doc": [doc(i, n=11) for i in range(15, 45)]}, branch="theirs")
    graph.upsert({"Doc": [doc(i, m=600) for i in range(30, 50)]})
    task_counts.clear()
    here, by_tasks = plans(graph, "theirs")
    assert here == by_tasks
    assert len(here["bases"]) == 2
    here, by_tasks = merged_both_ways(graph, "theirs", strategy="theirs")
    assert here == by_tasks
    assert task_counts["decide_rows"] > 3
    require_clean(graph)


def test_a_merge_that_changes_columns_writes_by_tasks(tmp_path: Path, task_counts: dict[str, int]) -> None:
    graph = make_sides(tmp_path / "g", row_ids="stable")
    added = SCHEMA.replace("v: Vector(8)?", 'v: Vector(8)?  tag: String? @default("none")')
    graph.apply_schema(added + "\nnode Note { name: String @key  text: String? }", branch="theirs")
    graph.upsert({"Note": [{"name": f"n{i}", "text": "t"} for i in range(60)]}, branch="theirs")
    here, by_tasks = merged_both_ways(graph, "theirs", strategy="theirs")
    assert here == by_tasks
    assert {row["tag"] for row in here[2]["Doc"]} == {"none"}
    assert task_counts["write_rows"] > 3
    require_clean(graph)


def test_fragments_are_adopted_whichever_way_runs(tmp_path: Path) -> None:
    graph = og.init(tmp_path / "g", SCHEMA)
    graph.upsert({"Doc": [doc(i) for i in range(50)]})
    graph.create_branch("theirs")
    graph.upsert({"Doc": [doc(i) for i in range(1_000, 2_500)]}, branch="theirs")
    graph.upsert({"Doc": [doc(i, m=5_000) for i in range(40)]}, branch="theirs")
    graph.upsert({"Doc": [doc(i, n=2) for i in range(20, 30)]})
    here, by_tasks = merged_both_ways(graph, "theirs", strategy="theirs")
    assert here == by_tasks
    assert here[1][0]["adopted_fragments"] == 1
    assert here[1][0]["copied_rows"] == 40


def test_a_merge_of_many_updates_is_prepared_outside_of_the_lock(tmp_path: Path) -> None:
    """The number of rows stays: only fragments show that thousands of them were written again."""
    graph = og.init(tmp_path / "g", "node Doc { name: String @key  n: I64? }")
    graph.upsert({"Doc": [{"name": f"d{i}", "n": 0} for i in range(3_000)]})
    for name, count in (("small", 10), ("large", 2_500)):
        graph.create_branch(name)
        graph.upsert({"Doc": [{"name": f"d{i}", "n": 1} for i in range(count)]}, branch=name)
    view = graph._committer.view("main")
    assert Merge(view.manifest.head("small").commit).sized(view).quick
    assert not Merge(view.manifest.head("large").commit).sized(view).quick


def test_a_small_merge_asks_for_no_runner(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_runner(*_: Any, **__: Any) -> Any:
        raise AssertionError("a runner was chosen")

    monkeypatch.setattr(merge_tasks.EngineSettings, "runner", no_runner)
    graph = make_sides(tmp_path / "g", row_ids="stable")
    assert graph.merge("theirs", strategy="ours").outcome == "merged"


def test_an_engine_that_does_not_exist_is_refused(tmp_path: Path) -> None:
    graph = make_sides(tmp_path / "g", row_ids="stable")
    with pytest.raises(og.errors.UsageError, match="the engine is one of auto, spark, local"):
        graph.merge("theirs", engine="cluster")
