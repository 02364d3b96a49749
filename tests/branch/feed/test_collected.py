"""Feeds over states that cleanup has removed."""

from __future__ import annotations

from pathlib import Path

import pytest

import omnigraph as og
from omnigraph.errors import FeedCollected
from tests.branch.feed.support import SCHEMA, changes_of, expected_changes, state_of


@pytest.fixture
def graph(tmp_path: Path) -> og.Graph:
    graph = og.init(tmp_path / "graph", SCHEMA)
    graph.insert({"Person": [{"name": "Ada", "age": 1}, {"name": "Bob", "age": 1}]})
    return graph


def commits(graph: og.Graph) -> list[str]:
    return [c.id for c in reversed(graph.commits())]


def test_commits_whose_states_are_gone_come_as_one_step(graph: og.Graph) -> None:
    graph.create_branch("keeps")
    start, old = graph.changes_cursor(), state_of(graph, commits(graph)[-1])
    graph.insert({"Person": [{"name": "came and went"}]})
    graph.delete({"Person": ["came and went"]})
    graph.update("Person", {"age": 2}, ids=["Ada"])
    graph.insert({"City": [{"name": "Ulm"}]})
    graph.cleanup(keep=1, confirm=True)
    pages = list(og.open(graph.uri).changes(start))
    assert [[c.id for c in page.commits] for page in pages] == [commits(graph)[2:5], commits(graph)[5:]]
    changes = [change for page in pages for change in changes_of(page)]
    new = state_of(graph, commits(graph)[-1])
    assert sorted(changes, key=str) == sorted(expected_changes(old, new), key=str)


def test_the_start_is_readable_whatever_was_removed(graph: og.Graph) -> None:
    graph.update("Person", {"age": 2}, ids=["Ada"])
    graph.cleanup(keep=1, confirm=True)
    pages = list(og.open(graph.uri).changes())
    assert [c.id for p in pages if p.completes_commit for c in p.commits] == commits(graph)
    new = state_of(graph, commits(graph)[-1])
    assert [change for page in pages for change in changes_of(page)] == expected_changes({}, new)


def test_a_cursor_whose_state_is_gone_is_told_where_to_go_on(graph: og.Graph) -> None:
    start = graph.changes_cursor()
    for age in (2, 3, 4):
        graph.update("Person", {"age": age}, ids=["Ada"])
    graph.cleanup(keep=1, confirm=True)
    with pytest.raises(FeedCollected) as refusal:
        list(og.open(graph.uri).changes(start))
    fields = refusal.value.fields
    assert fields["commit"] == commits(graph)[1]
    assert fields["table_key"] == "node:Person"
    assert fields["first_readable"] == commits(graph)[-1]
    assert not list(graph.changes(fields["first_readable"]))
    assert "changes baseline" in refusal.value.remedy


def test_commits_that_need_no_removed_state_are_still_given(graph: og.Graph) -> None:
    start = graph.changes_cursor()
    graph.insert({"City": [{"name": "Ulm"}]})
    graph.update("Person", {"age": 2}, ids=["Ada"])
    graph.cleanup(keep=1, confirm=True)
    pages = og.open(graph.uri).changes(start)
    assert [c[:3] for c in changes_of(next(pages))] == [("insert", "node:City", "Ulm")]
    with pytest.raises(FeedCollected):
        next(pages)
    assert [len(changes_of(p)) for p in og.open(graph.uri).changes(start, types=["City"])] == [1, 0]


def test_a_state_of_an_optimize_may_be_gone_if_the_one_before_is_there(graph: og.Graph) -> None:
    graph.insert({"Person": [{"name": "Cem"}]})
    graph.create_branch("keeps")
    graph.optimize(target_rows_per_fragment=100)
    assert graph.commits()[0].kind == "optimize"
    start = graph.changes_cursor()
    graph.update("Person", {"age": 2}, ids=["Ada"])
    graph.cleanup(keep=1, confirm=True)
    (page,) = og.open(graph.uri).changes(start)
    assert [c[:3] for c in changes_of(page)] == [("update", "node:Person", "Ada")]


def test_a_cursor_inside_of_a_commit_whose_state_is_gone_is_refused(graph: og.Graph) -> None:
    graph.create_branch("keeps")
    start = graph.changes_cursor()
    graph.insert({"Person": [{"name": f"p{i}"} for i in range(4)]})
    graph.update("Person", {"age": 2}, ids=["Ada"])
    first, *_ = graph.changes(start, page_rows=2)
    graph.cleanup(keep=1, confirm=True)
    with pytest.raises(FeedCollected):
        list(og.open(graph.uri).changes(first.cursor))
    assert list(og.open(graph.uri).changes(start)), "the whole step is still there"


def test_a_page_that_is_being_read_keeps_its_versions(graph: og.Graph) -> None:
    start = graph.changes_cursor()
    graph.insert({"Person": [{"name": f"p{i}"} for i in range(6)]})
    pages = graph.changes(start, page_rows=2)
    ids = [c[2] for c in changes_of(next(pages))]
    graph.update("Person", {"age": 2}, ids=["Ada"])
    graph.update("Person", {"age": 3}, ids=["Ada"])
    og.open(graph.uri).cleanup(keep=1, confirm=True)
    for page in pages:
        ids += [c[2] for c in changes_of(page)]
    assert ids == [f"p{i}" for i in range(6)]
