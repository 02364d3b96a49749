"""commit list --graph: how histories with branches and merges are drawn, and in which order."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest

import omnigraph as og
from omnigraph.cli.history_graph import WIDTH_MAX, drawn, rows
from omnigraph.cli.main import main
from omnigraph.graph.results import CommitInfo


def commit(name: str, *parents: str) -> CommitInfo:
    first, second, *_ = (*parents, None, None)
    at = datetime(2026, 1, 31, tzinfo=UTC)
    return CommitInfo(name, "main", first, second, None, "write", at, "s", 1)


def drawing(*commits: CommitInfo) -> list[str]:
    return [f"{lane} {c.id if c else ''}".rstrip() for lane, c in rows(commits)]


def test_a_line() -> None:
    assert drawing(commit("b", "a"), commit("a")) == ["* b", "* a"]


def test_a_branch_and_its_merge() -> None:
    found = drawing(commit("m", "b", "x"), commit("x", "a"), commit("b", "a"), commit("a", "i"), commit("i"))
    assert found == ["* m", "|\\", "| * x", "* | b", "|/", "* a", "* i"]


def test_three_branches_of_one_commit() -> None:
    found = drawing(commit("x", "a"), commit("y", "a"), commit("z", "a"), commit("a"))
    assert found == ["* x", "| * y", "| | * z", "|_|/", "|/", "* a"]


def test_a_merge_left_of_other_lanes_makes_room() -> None:
    found = drawing(commit("x", "b"), commit("y", "a"), commit("b", "a", "c"), commit("c", "a"), commit("a"))
    assert found == ["* x", "| * y", "* | b", "|\\ \\", "| * | c", "|_|/", "|/", "* a"]


def test_a_root_beside_another_lane() -> None:
    assert drawing(commit("x"), commit("y", "a"), commit("a")) == ["* x", "* y", "* a"]
    found = drawing(commit("m", "x", "y"), commit("x"), commit("y"))
    assert found == ["* m", "|\\", "* | x", " /", "* y"]


def test_many_lanes_are_cut_and_the_commit_is_marked() -> None:
    lines = drawn([commit(f"c{i:03d}", "a") for i in range(60)], [], [])
    commits = [line for line in lines if "c0" in line]
    assert len(commits) == 60
    assert all(line.index(" c0") <= WIDTH_MAX and "*" in line for line in commits)


@pytest.fixture
def graph(tmp_path: Path) -> og.Graph:
    """main and work, of which the first commit was merged into main."""
    graph = og.init(tmp_path / "graph", "node Person { name: String @key  age: I32? }")
    graph.insert({"Person": [{"name": "Ada"}]})
    graph.create_branch("work")
    side = graph.insert({"Person": [{"name": "Bob"}]}, branch="work").commit
    assert side is not None
    graph.insert({"Person": [{"name": "Cyd"}]}, branch="work")
    graph.insert({"Person": [{"name": "Dan"}]})
    head = graph._manifest.head("main")
    merged = replace(head.recent[-1], merged_parent=side.id)
    graph._manifest.swap(head, replace(head, recent=(*head.recent[:-1], merged)))
    return graph


def test_children_come_before_parents_whatever_the_clocks_say(graph: og.Graph) -> None:
    head = graph._manifest.head("work")
    early = tuple(replace(record, created_at_us=1) for record in head.recent)
    graph._manifest.swap(head, replace(head, recent=early))
    found = graph.commit_graph()
    place = {commit.id: i for i, commit in enumerate(found)}
    assert len(place) == len(found) == 5
    assert all(place[parent] > i for i, commit in enumerate(found) for parent in commit.parents)
    assert {c.id for c in graph.commit_graph(["main"])} < place.keys()
    assert len(graph.commit_graph(limit=2)) == 2


def test_the_command_draws_all_branches(graph: og.Graph, capsys: pytest.CaptureFixture[str]) -> None:
    graph.create_tag("v1", graph.commits()[-1].id)
    assert main(["commit", "list", graph.uri, "--graph"]) == 0
    shown = capsys.readouterr().out.splitlines()
    assert sum("*" in line for line in shown) == 5
    assert any("(main)" in line for line in shown)
    assert any("(work)" in line for line in shown)
    assert "init  (tag v1)" in shown[-1]
    assert main(["commit", "list", graph.uri, "--graph", "--branch", "work", "--json"]) == 0
    commits = json.loads(capsys.readouterr().out)["commits"]
    assert [c["parents"] for c in commits] == [[c["parent"]] if c["parent"] else [] for c in commits]
    assert main(["commit", "list", graph.uri, "--json"]) == 0
    newest = json.loads(capsys.readouterr().out)["commits"][0]
    assert newest["parents"] == [newest["parent"], newest["merged_parent"]]
