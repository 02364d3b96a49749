"""What a change feed gives, by histories that are written down here."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import omnigraph as og
from omnigraph.branch.feed.cursor import Cursor
from omnigraph.errors import BranchNotFound, FeedBranchReplaced, InvalidCursor, UnknownType, UsageError
from tests.branch.feed.support import RENAMED, SCHEMA, changes_of, expected_feed, flattened
from tests.branch.operations import record_merge
from tests.support.graphs import Templates


def _build(path: Path) -> og.Graph:
    graph = og.init(path, SCHEMA)
    graph.insert({"Person": [{"name": "Ada", "age": 36}, {"name": "Bob"}, {"name": "Cem"}]})
    graph.insert({"Knows": [{"id": "k1", "from": "Ada", "to": "Bob", "w": 1}]})
    return graph


@pytest.fixture
def graph(graph_templates: Templates, tmp_path: Path) -> og.Graph:
    return graph_templates.open(_build, tmp_path / "graph")


def test_a_page_tells_operation_images_and_changed_properties(graph: og.Graph) -> None:
    start = graph.changes_cursor()
    graph.update("Person", {"age": 37}, ids=["Ada"], actor="anna")
    (page,) = graph.changes(start)
    assert page.commit.actor == "anna"
    assert page.completes_commit
    before = {"id": "Ada", "name": "Ada", "age": 36, "nick": None}
    assert page.changes() == [
        {
            "operation": "update",
            "table_key": "node:Person",
            "id": "Ada",
            "src": None,
            "dst": None,
            "changed": ["age"],
            "before": before,
            "after": before | {"age": 37},
        }
    ]
    assert not list(graph.changes(page.cursor))


def test_nodes_come_before_edges_and_deleted_edges_have_their_endpoints(graph: og.Graph) -> None:
    start = graph.changes_cursor()
    graph.delete({"Person": ["Ada"]})
    pages = list(graph.changes(start))
    assert [change[:3] for page in pages for change in changes_of(page)] == [
        ("delete", "node:Person", "Ada"),
        ("delete", "edge:Knows", "k1"),
    ]
    assert [page.completes_commit for page in pages] == [False, True]
    (edge,) = pages[1].changes()
    assert (edge["src"], edge["dst"]) == ("Ada", "Bob")


def test_the_feed_begins_at_the_first_commit_and_limit_counts_commits(graph: og.Graph) -> None:
    commits = [c.id for c in reversed(graph.commits())]
    assert [page.commit.id for page in graph.changes(from_start=True)] == commits
    first = list(graph.changes(limit=2))
    assert [page.commit.id for page in first] == commits[:2]
    assert [page.commit.id for page in graph.changes(first[-1].cursor, limit=5)] == commits[2:]
    assert [page.commit.id for page in graph.changes(commits[1])] == commits[2:]
    assert not list(graph.changes(from_now=True))


def test_a_merge_is_one_commit_with_what_it_brought(graph: og.Graph) -> None:
    graph.create_branch("x")
    graph.update("Person", {"age": 1}, ids=["Bob"], branch="x")
    graph.insert({"Person": [{"name": "Dan"}]}, branch="x")
    graph.update("Person", {"nick": "c"}, ids=["Cem"])
    start = graph.changes_cursor()
    graph.merge("x")
    (page,) = graph.changes(start)
    assert page.merged_parent == {b.name: b.commit for b in graph.branches()}["x"]
    assert [change[:3] for change in changes_of(page)] == [
        ("update", "node:Person", "Bob"),
        ("insert", "node:Person", "Dan"),
    ]


def test_a_branch_has_the_history_that_it_was_created_from(graph: og.Graph) -> None:
    graph.create_branch("x")
    graph.upsert({"Person": [{"name": "Ada", "age": 1}]}, branch="x")
    graph.insert({"Person": [{"name": "only on main"}]})
    commits = [c.id for c in reversed(graph.commits("x"))]
    assert [page.commit.id for page in graph.changes(branch="x")] == commits
    assert flattened(graph.changes(branch="x")) == expected_feed(graph, "x")
    for i, commit in enumerate(commits):
        assert [page.commit.id for page in graph.changes(commit, branch="x")] == commits[i + 1 :]


def test_types_choose_rows_and_every_commit_advances(graph: og.Graph) -> None:
    pages = list(graph.changes(types=["Knows"]))
    assert [page.commit.id for page in pages] == [c.id for c in reversed(graph.commits())]
    assert [len(changes_of(page)) for page in pages] == [0, 0, 1]
    with pytest.raises(UnknownType):
        graph.changes(types=["Nobody"])


def test_a_cursor_inside_of_a_commit_means_the_same_for_other_types(graph: og.Graph) -> None:
    with graph.transaction() as tx:
        tx.insert({"Person": [{"name": f"p{i}"} for i in range(4)]})
        tx.insert({"Knows": [{"id": "k2", "from": "Ada", "to": "Cem"}]})
    pages = list(graph.changes(graph.commits()[1].id, page_rows=2))
    assert [[c[2] for c in changes_of(page)] for page in pages] == [["p0", "p1"], ["p2", "p3"], ["k2"]]
    (rest,) = graph.changes(pages[0].cursor, types=["Knows"])
    assert [c[2] for c in changes_of(rest)] == ["k2"]
    (nothing,) = graph.changes(pages[1].cursor, types=["Person"])
    assert nothing.rows is None
    assert nothing.cursor == pages[2].cursor


@pytest.mark.parametrize("kind", ["optimize", "lineage"])
def test_commits_that_change_no_row_open_no_table(graph: og.Graph, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if kind == "optimize":
        graph.insert({"Person": [{"name": "Dan"}]})
    graph.create_branch("x")
    start = graph.changes_cursor()
    if kind == "optimize":
        graph.optimize(target_rows_per_fragment=100)
    else:
        graph.update("Person", {"age": 5}, ids=["Bob"], branch="x")
        record_merge(graph, "x")
    reader = og.open(graph.uri)

    def refuse(*_: Any, **__: Any) -> Any:
        raise AssertionError("a table was opened")

    monkeypatch.setattr("omnigraph.storage.lance.tables.Tables.open", refuse)
    (page,) = reader.changes(start)
    assert page.rows is None
    assert page.commit.id == graph.branches()[0].commit
    assert page.merged_parent == (None if kind == "optimize" else graph.branches()[1].commit)


def test_a_rename_is_a_schema_step_and_no_row_change(graph: og.Graph) -> None:
    start = graph.changes_cursor()
    graph.apply_schema(RENAMED)
    graph.update("Person", {"alias": "A"}, ids=["Ada"])
    renamed, written = graph.changes(start)
    assert renamed.rows is None
    assert any("nick" in step and "alias" in step for step in renamed.schema_steps), renamed.schema_steps
    (change,) = written.changes()
    assert change["changed"] == ["alias"]
    assert (change["before"]["alias"], change["after"]["alias"]) == (None, "A")


def test_texts_that_are_no_cursor_are_refused(graph: og.Graph) -> None:
    cursor = graph.changes_cursor()
    for text in (
        "",
        "nonsense",
        "feed1.",
        "feed1.AAAA",
        cursor[:-3],
        cursor + "x",
        "01M7PGSXF5VRYJ3TBN3WZVFTCD",
        "' OR 1",
    ):
        with pytest.raises(InvalidCursor):
            graph.changes(text)
    with pytest.raises(UsageError):
        graph.changes(cursor, from_now=True)
    with pytest.raises(UsageError):
        graph.changes(limit=0)
    with pytest.raises(BranchNotFound):
        graph.changes(branch="nowhere")


def test_a_branch_that_was_created_again_is_refused(graph: og.Graph) -> None:
    graph.create_branch("x")
    graph.insert({"Person": [{"name": "Dan"}]}, branch="x")
    cursor = graph.changes_cursor(branch="x")
    commit = graph.commits("x")[0].id
    graph.delete_branch("x")
    graph.create_branch("x")
    with pytest.raises(FeedBranchReplaced):
        graph.changes(cursor, branch="x")
    with pytest.raises(FeedBranchReplaced):
        list(graph.changes(str(Cursor.parse(graph.changes_cursor(branch="x"))), branch="main"))
    with pytest.raises((FeedBranchReplaced, InvalidCursor)):
        list(graph.changes(commit, branch="x"))


def test_a_baseline_and_the_feed_behind_it_are_the_newest_state(graph: og.Graph) -> None:
    with graph.changes_baseline() as baseline:
        graph.delete({"Person": ["Bob"]})
        rows = [row for batch in baseline.batches() for row in batch.to_pylist()]
        assert list((Path(graph.uri) / "__leases").glob("*.json")), "the state is under a lease"
    assert {(r["operation"], r["id"]) for r in rows} == {("insert", i) for i in ("Ada", "Bob", "Cem", "k1")}
    assert [change[:3] for page in graph.changes(baseline.cursor) for change in changes_of(page)] == [
        ("delete", "node:Person", "Bob"),
        ("delete", "edge:Knows", "k1"),
    ]
    with graph.changes_baseline(types=["Knows"]) as baseline:
        assert [batch.num_rows for batch in baseline.batches()] == []


def test_versions_are_leased_while_a_page_is_read(graph: og.Graph) -> None:
    leases = Path(graph.uri) / "__leases"
    pages = graph.changes(limit=2)
    next(pages)
    next(pages)
    assert list(leases.glob("*.json"))
    assert not list(pages)
    assert not list(leases.glob("*.json"))
