"""Revert and cherry-pick: the change of one commit, undone or brought elsewhere."""

from __future__ import annotations

from pathlib import Path

import pytest

import omnigraph as og
from tests.branch.merge.support import edges, make_graph, people, require_clean
from tests.support.graphs import Templates


@pytest.fixture
def graph(graph_templates: Templates, tmp_path: Path) -> og.Graph:
    return graph_templates.open(make_graph, tmp_path / "graph")


def _commit(result: og.WriteResult) -> str:
    assert result.commit is not None
    return result.commit.id


def test_a_revert_undoes_one_commit_and_keeps_later_ones(graph: og.Graph) -> None:
    bad = _commit(graph.delete({"Person": ["Bob"]}))
    graph.update("Person", {"age": 99}, ids=["Dan"])
    result = graph.revert(bad)
    assert result.commit is not None
    assert result.commit.kind == "revert"
    assert result.commit.merged_parent is None
    assert people(graph) == {"Alice": (30, None), "Bob": (1, None), "Carol": (2, None), "Dan": (99, None)}
    assert edges(graph) == [("Bob", "Carol", 1)]
    require_clean(graph)


def test_a_revert_of_what_was_changed_since_is_a_conflict(graph: og.Graph) -> None:
    bad = _commit(graph.update("Person", {"age": 77}, ids=["Bob"]))
    graph.update("Person", {"age": 78}, ids=["Bob"])
    with pytest.raises(og.errors.MergeConflicts) as refused:
        graph.revert(bad)
    assert [c.kind for c in refused.value.plan.conflicts] == ["divergent_update"]
    graph.revert(bad, strategy="theirs")
    assert people(graph)["Bob"] == (1, None)


def test_the_revert_of_a_revert_brings_the_change_back(graph: og.Graph) -> None:
    first = _commit(graph.insert({"Person": [{"name": "Eve"}]}))
    undone = graph.revert(first).commit
    assert undone is not None
    assert "Eve" not in people(graph)
    graph.revert(undone.id)
    assert "Eve" in people(graph)


def test_a_revert_of_a_merge_takes_back_what_it_brought(graph: og.Graph) -> None:
    graph.create_branch("x")
    graph.insert({"Person": [{"name": "Eve"}]}, branch="x")
    graph.update("Person", {"age": 5}, ids=["Dan"])
    merged = graph.merge("x").commit
    assert merged is not None
    graph.revert(merged.id)
    assert people(graph) == {"Alice": (30, None), "Bob": (1, None), "Carol": (2, None), "Dan": (5, None)}


def test_a_cherry_pick_brings_one_commit_and_nothing_before_it(graph: og.Graph) -> None:
    graph.create_branch("x")
    graph.update("Person", {"age": 100}, ids=["Alice"], branch="x")
    picked = _commit(graph.insert({"Person": [{"name": "Eve", "age": 5}]}, branch="x"))
    result = graph.cherry_pick(picked)
    assert result.commit is not None
    assert (result.commit.kind, result.commit.merged_parent) == ("cherry_pick", None)
    assert people(graph)["Eve"] == (5, None)
    assert people(graph)["Alice"] == (30, None)
    assert graph.cherry_pick(picked).commit is None
    assert graph.merge("x").outcome == "merged"
    assert people(graph)["Alice"] == (100, None)


def test_a_schema_change_can_be_reverted(graph: og.Graph) -> None:
    text = graph.schema().source
    changed = graph.apply_schema(text.replace("nick: String?", "nick: String?  city: String?")).commit
    assert changed is not None
    graph.insert({"Person": [{"name": "Eve"}]})
    graph.revert(changed.id)
    assert "city" not in graph.schema().node["Person"].by_name
    assert "Eve" in people(graph)
    require_clean(graph)


def test_the_first_commit_has_no_state_before_it(graph: og.Graph) -> None:
    first = graph.commits()[-1]
    with pytest.raises(og.errors.UsageError, match="first commit"):
        graph.revert(first.id)
