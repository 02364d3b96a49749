"""Merges of whole histories: lineage, bases, strategies, resolutions, rules across sides."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import omnigraph as og
from tests.branch.merge.support import conflicts_of, edge_ids, edges, make_graph, people, require_clean, state
from tests.support.graphs import Templates


@pytest.fixture
def graph(graph_templates: Templates, tmp_path: Path) -> og.Graph:
    return graph_templates.open(make_graph, tmp_path / "graph")


def test_473_a_branch_whose_edits_net_to_zero_moves_no_table_and_records_lineage(graph: og.Graph) -> None:
    graph.create_branch("x")
    added = graph.insert({"Knows": [{"from": "Alice", "to": "Bob"}]}, branch="x")
    graph.delete({"Knows": added.ids["Knows"]}, branch="x")
    graph.insert({"Person": [{"name": "Zed"}]})
    result = graph.merge("x")
    assert result.commit is not None
    assert result.commit.tables == {}
    assert result.commit.merged_parent == {b.name: b.commit for b in graph.branches()}["x"]
    assert graph.merge("x").outcome == "already_up_to_date"


def test_630_the_newer_value_wins_whatever_the_version_numbers(graph: og.Graph) -> None:
    for i in range(5):
        graph.update("Person", {"age": 40 + i}, ids=["Alice"])
    graph.create_branch("x")
    graph.create_branch("y")
    graph.update("Person", {"age": 47}, ids=["Alice"], branch="y")
    for i in range(6):
        graph.update("Person", {"nick": str(i)}, ids=["Bob"], branch="y")
    graph.merge("y", into="x")
    graph.update("Person", {"age": 50}, ids=["Alice"], branch="x")
    graph.insert({"Knows": [{"from": "Dan", "to": "Bob"}]}, branch="x")
    assert graph.merge("x", into="y").outcome == "fast_forward"
    assert state(graph, "y") == state(graph, "x")
    assert people(graph, "y")["Alice"][0] == 50


def test_639_both_sides_merged_the_same_third_branch(graph: og.Graph) -> None:
    for name in ("a", "b", "third"):
        graph.create_branch(name)
    graph.update("Person", {"age": 77}, ids=["Alice"], branch="third")
    for name in ("a", "b"):
        graph.update("Person", {"nick": name}, ids=["Bob" if name == "a" else "Dan"], branch=name)
        graph.merge("third", into=name)
    assert graph.merge("a").outcome == "fast_forward"
    assert graph.merge("b").outcome == "merged"
    assert people(graph) == {"Alice": (77, None), "Bob": (1, "a"), "Carol": (2, None), "Dan": (3, "b")}


def test_681_a_sibling_does_not_bring_a_deleted_edge_back(graph: og.Graph) -> None:
    graph.create_branch("a")
    graph.create_branch("b")
    graph.delete({"Knows": edge_ids(graph, "a")}, branch="a")
    graph.update("Person", {"age": 9}, ids=["Dan"], branch="b")
    graph.merge("a")
    graph.merge("b")
    assert edges(graph) == []
    graph.merge("main", into="b")
    assert edges(graph, "b") == []


def test_683_a_branch_with_a_child_can_be_fast_forwarded(graph: og.Graph) -> None:
    graph.create_branch("a")
    graph.update("Person", {"age": 5}, ids=["Dan"], branch="a")
    graph.create_branch("child", from_branch="a")
    graph.insert({"Person": [{"name": "Kim"}]}, branch="child")
    graph.create_branch("c", from_branch="a")
    graph.update("Person", {"age": 6}, ids=["Dan"], branch="c")
    assert graph.merge("c", into="a").outcome == "fast_forward"
    graph.cleanup(keep=1, older_than="0s", confirm=True)
    fresh = og.open(graph.uri)
    assert people(fresh, "child")["Dan"] == (5, None)
    assert people(fresh, "a")["Dan"] == (6, None)


def test_282_a_full_reload_merges_as_the_rows_that_differ(graph: og.Graph, tmp_path: Path) -> None:
    graph.create_branch("x")
    rows = people(graph).items()
    lines = [f'{{"type":"Person","data":{{"name":"{n}","age":{r[0] + (n == "Bob")}}}}}' for n, r in rows]
    file = tmp_path / "all.jsonl"
    file.write_text("\n".join(lines))
    graph.load(file, mode="overwrite", branch="x", engine="local")
    graph.update("Person", {"nick": "al"}, ids=["Alice"])
    (table,) = graph.merge("x").tables
    assert (table.table_key, table.inserted, table.updated, table.deleted) == ("node:Person", 0, 1, 0)
    assert people(graph) == {"Alice": (30, "al"), "Bob": (2, None), "Carol": (2, None), "Dan": (3, None)}


def test_updates_of_different_properties_merge_unless_the_grain_is_rows(graph: og.Graph) -> None:
    graph.create_branch("x")
    graph.update("Person", {"age": 31}, ids=["Alice"], branch="x")
    graph.update("Person", {"nick": "al"}, ids=["Alice"])
    (conflict,) = conflicts_of(graph, "x", grain="rows")
    assert conflict.properties == ("age", "nick")
    graph.merge("x")
    assert people(graph)["Alice"] == (31, "al")


@pytest.mark.parametrize(("strategy", "expected"), [("ours", (2, "n")), ("theirs", (1, "n"))])
def test_a_strategy_decides_only_the_properties_in_conflict(graph: og.Graph, strategy: Any, expected: Any) -> None:
    graph.create_branch("x")
    graph.update("Person", {"age": 1}, ids=["Alice"], branch="x")
    graph.update("Person", {"age": 2, "nick": "n"}, ids=["Alice"])
    graph.merge("x", strategy=strategy)
    assert people(graph)["Alice"] == expected


def test_rules_across_sides_are_conflicts_with_images_that_no_strategy_decides(graph: og.Graph) -> None:
    graph.create_branch("x")
    graph.update("Person", {"email": "e@"}, ids=["Alice"], branch="x")
    graph.insert({"Likes": [{"from": "Bob", "to": "Dan"}]}, branch="x")
    graph.update("Person", {"email": "e@"}, ids=["Bob"])
    graph.insert({"Likes": [{"from": "Bob", "to": "Carol"}]})
    for strategy in ("fail", "ours", "theirs"):
        found = conflicts_of(graph, "x", strategy=strategy)
        assert {c.kind for c in found} == {"unique_violation", "cardinality_violation"}
    unique = next(c for c in found if c.kind == "unique_violation")
    assert unique.id == "Alice"
    assert unique.base["email"] is None
    assert unique.ours["email"] is None
    assert unique.theirs["email"] == "e@"


def test_a_value_that_one_side_frees_the_other_may_take(graph: og.Graph) -> None:
    graph.update("Person", {"email": "e@"}, ids=["Bob"])
    graph.create_branch("x")
    graph.update("Person", {"email": None}, ids=["Bob"], branch="x")
    graph.update("Person", {"email": "e@"}, ids=["Alice"], branch="x")
    graph.update("Person", {"age": 9}, ids=["Bob"])
    assert graph.merge("x").outcome == "merged"


def test_conflicts_are_resolved_as_data_and_stale_resolutions_are_refused(graph: og.Graph) -> None:
    graph.create_branch("x")
    for i, name in enumerate(("Alice", "Bob", "Carol")):
        graph.update("Person", {"age": 50 + i}, ids=[name], branch="x")
        graph.update("Person", {"age": 60 + i}, ids=[name])
    graph.delete({"Person": ["Dan"]}, branch="x")
    graph.update("Person", {"age": 63}, ids=["Dan"])
    plan = graph.plan_merge("x")
    assert plan.outcome == "conflicts"
    assert {(c.kind, c.id) for c in plan.conflicts} == {
        *(("divergent_update", name) for name in ("Alice", "Bob", "Carol")),
        ("delete_vs_update", "Dan"),
    }
    choices: dict[str, Any] = {"Alice": "ours", "Bob": "theirs", "Carol": {"age": 99, "nick": "c"}, "Dan": "base"}
    resolved = [{**c.to_json(), "resolution": choices[str(c.id)]} for c in plan.conflicts]
    graph.update("Person", {"age": 61}, ids=["Alice"])
    with pytest.raises(og.errors.ResolutionStale, match="Alice"):
        graph.merge("x", resolutions=resolved)
    partly = [c for c in resolved if c["id"] != "Alice"]
    assert [c.id for c in conflicts_of(graph, "x", resolutions=partly)] == ["Alice"]
    graph.merge("x", resolutions=[*partly, {"table_key": "node:Person", "id": "Alice", "resolution": "theirs"}])
    assert people(graph) == {"Alice": (50, None), "Bob": (51, None), "Carol": (99, "c"), "Dan": (3, None)}


def test_conflicts_of_rules_are_resolved_by_deciding_an_entity(graph: og.Graph) -> None:
    graph.create_branch("x")
    graph.insert({"Knows": [{"from": "Dan", "to": "Alice"}]}, branch="x")
    graph.delete({"Person": ["Alice"]})
    (conflict,) = conflicts_of(graph, "x")
    assert (conflict.kind, conflict.table_key, conflict.ours) == ("orphan_edge", "edge:Knows", None)
    graph.create_branch("y")
    graph.merge("x", into="y", resolutions={("node:Person", "Alice"): "base"})
    assert ("Dan", "Alice", None) in edges(graph, "y")
    graph.merge("x", resolutions=[{**conflict.to_json(), "resolution": "ours"}])
    assert edges(graph) == [("Bob", "Carol", 1)]
    assert "Alice" not in people(graph)


@pytest.mark.parametrize(
    "resolutions",
    [
        "ours",
        {("node:Person", "Alice"): "mine"},
        {"Alice": "ours"},
        [{"table_key": "node:Person", "resolution": "ours"}],
        [{"table_key": "node:Person", "id": "Alice", "resolution": 5}],
        [{"table_key": "node:Person", "id": "Alice", "resolution": r} for r in ("ours", "theirs")],
        [7],
    ],
)
def test_resolutions_of_a_wrong_shape_are_refused(graph: og.Graph, resolutions: Any) -> None:
    graph.create_branch("x")
    with pytest.raises(og.errors.UsageError):
        graph.merge("x", resolutions=resolutions)


def test_merging_back_and_forth_comes_to_an_end(graph: og.Graph) -> None:
    graph.create_branch("x")
    graph.update("Person", {"age": 1}, ids=["Alice"], branch="x")
    pairs = [("x", "main"), ("main", "x")] * 3
    outcomes = [graph.merge(source, into=target).outcome for source, target in pairs]
    assert outcomes == ["fast_forward", "fast_forward", *["already_up_to_date"] * 4]


def test_criss_cross_merges_compare_with_a_virtual_base(graph: og.Graph) -> None:
    graph.create_branch("x")
    graph.update("Person", {"age": 10}, ids=["Alice"], branch="x")
    graph.update("Person", {"age": 20}, ids=["Bob"])
    before = {b.name: b.commit for b in graph.branches()}
    graph.merge("x")
    graph.merge(before["main"], into="x")
    graph.update("Person", {"nick": "a"}, ids=["Alice"], branch="x")
    graph.update("Person", {"nick": "b"}, ids=["Bob"])
    result = graph.merge("x")
    assert len(result.bases) == 2
    assert people(graph) == {"Alice": (10, "a"), "Bob": (20, "b"), "Carol": (2, None), "Dan": (3, None)}
    require_clean(graph)


def test_a_large_branch_is_adopted_and_survives_the_deletion_of_the_branch(graph: og.Graph) -> None:
    graph.create_branch("x")
    graph.insert({"Person": [{"name": f"p{i}", "age": i} for i in range(1_200)]}, branch="x")
    graph.delete({"Person": [f"p{i}" for i in range(0, 1_200, 7)]}, branch="x")
    graph.update("Person", {"nick": "main"}, ids=["Dan"])
    result = graph.merge("x", delete_branch=True)
    assert result.branch_deleted
    (table,) = result.tables
    assert (table.adopted_fragments, table.copied_rows) == (1, 0)
    graph.cleanup(keep=1, older_than="0s", confirm=True)
    fresh = og.open(graph.uri)
    assert len(people(fresh)) == 4 + 1_200 - 172
    assert people(fresh)["p1"] == (1, None)
    require_clean(fresh)
    fresh.optimize()
    fresh.insert({"Person": [{"name": "after"}]})
    require_clean(fresh)
    assert len(people(fresh)) == 5 + 1_200 - 172


def test_updated_rows_of_an_adopted_fragment_keep_their_row_ids(graph: og.Graph) -> None:
    graph.insert({"Person": [{"name": f"p{i}", "age": i} for i in range(2_000)]})
    graph.create_branch("x")
    graph.upsert({"Person": [{"name": f"p{i}", "age": -i - 1} for i in range(2_000)]}, branch="x")
    (table,) = graph.merge("x").tables
    assert (table.updated, table.adopted_fragments) == (2_000, 1)
    assert people(graph)["p7"] == (-8, None)
    graph.update("Person", {"age": 1}, ids=["p7"], branch="x")
    graph.merge("x")
    assert people(graph)["p7"] == (1, None)
    require_clean(graph)


def test_a_merge_obeys_if_commit_and_operation_id(graph: og.Graph) -> None:
    graph.create_branch("x")
    graph.update("Person", {"age": 1}, ids=["Alice"], branch="x")
    head = graph.update("Person", {"age": 1}, ids=["Dan"]).commit
    assert head is not None
    graph.update("Person", {"age": 2}, ids=["Dan"])
    with pytest.raises(og.errors.PreconditionFailed):
        graph.merge("x", if_commit=head.id)
    first = graph.merge("x", operation_id="merge-1")
    again = graph.merge("x", operation_id="merge-1")
    assert again.repeated
    assert again.commit == first.commit
    assert again.tables[0].updated == 1


def test_any_commit_can_be_merged(graph: og.Graph) -> None:
    graph.create_branch("x")
    first = graph.update("Person", {"age": 1}, ids=["Alice"], branch="x").commit
    graph.update("Person", {"age": 2}, ids=["Alice"], branch="x")
    assert first is not None
    graph.merge(first.id)
    assert people(graph)["Alice"] == (1, None)
    graph.merge("x")
    assert people(graph)["Alice"] == (2, None)
