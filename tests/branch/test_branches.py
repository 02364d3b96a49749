"""Branches: cheap to make, isolated, deleted without a trace; the rules of their names."""

from __future__ import annotations

from pathlib import Path

import pytest

import omnigraph as og
from omnigraph import errors
from tests.support.graphs import Templates

SCHEMA = "node Person { name: String @key  age: I32? }\nnode City { name: String @key }\nedge In: Person -> City"


def _build(path: Path) -> og.Graph:
    graph = og.init(path, SCHEMA)
    graph.insert({"Person": [{"name": "Ada", "age": 1}], "City": [{"name": "Bern"}]})
    return graph


@pytest.fixture
def graph(graph_templates: Templates, tmp_path: Path) -> og.Graph:
    return graph_templates.open(_build, tmp_path / "graph")


def names(graph: og.Graph, branch: str) -> list[str]:
    return sorted(graph.snapshot(branch).read("Person")["name"].to_pylist())


def test_a_branch_starts_where_its_base_stands_and_goes_its_own_way(graph: og.Graph) -> None:
    made = graph.create_branch("work")
    assert made.commit == graph.snapshot().commit
    graph.insert({"Person": [{"name": "Bob"}]}, branch="work")
    graph.insert({"Person": [{"name": "Cyd"}]})
    assert names(graph, "work") == ["Ada", "Bob"]
    assert names(graph, "main") == ["Ada", "Cyd"]
    assert graph.commits("work")[1].id == made.commit


def test_only_the_table_that_is_written_is_forked(graph: og.Graph) -> None:
    graph.create_branch("work")
    assert not list(Path(graph.uri).rglob("tree"))
    graph.upsert({"Person": [{"name": "Ada", "age": 2}]}, branch="work")
    forked = [p.parent.name.split("-")[0] for p in Path(graph.uri).rglob("tree")]
    assert forked == [graph.schema().node["Person"].id]


def test_branches_of_branches_see_their_own_past(graph: og.Graph) -> None:
    for i in range(40):
        graph.create_branch(f"b{i}", from_branch="main" if i == 0 else f"b{i - 1}")
        graph.upsert({"Person": [{"name": f"p{i}"}, {"name": "Ada", "age": i}]}, branch=f"b{i}")
    fresh = og.open(graph.uri)
    assert names(fresh, "b39") == sorted(["Ada", *(f"p{i}" for i in range(40))])
    assert names(fresh, "b5") == sorted(["Ada", *(f"p{i}" for i in range(6))])
    assert len(fresh.commits("b39")) == 42


def test_many_writes_on_a_branch_fold_there(graph: og.Graph) -> None:
    graph.create_branch("work")
    for i in range(100):
        graph.upsert({"Person": [{"name": f"p{i}", "age": i}]}, branch="work")
    found = og.open(graph.uri).snapshot("work")
    person = next(t for t in found.tables() if t.table_key == "node:Person")
    assert (person.rows, person.fragments < 50) == (101, True)
    assert names(graph, "main") == ["Ada"]


def test_data_files_of_a_fork_lie_in_the_root_table(graph: og.Graph) -> None:
    graph.create_branch("work")
    graph.insert({"Person": [{"name": "Bob"}]}, branch="work")
    fork = next(Path(graph.uri).rglob("tree/*"))
    assert not list(fork.rglob("*.lance"))


def test_list_is_sorted_and_names_the_parent(graph: og.Graph) -> None:
    graph.create_branch("z")
    graph.create_branch("a", from_branch="z")
    assert [(b.name, b.parent_branch) for b in graph.branches()] == [("a", "z"), ("main", None), ("z", "main")]


def test_delete_refuses_main_and_branches_that_others_come_from(graph: og.Graph) -> None:
    graph.create_branch("a")
    graph.create_branch("b", from_branch="a")
    for name in ("main", "a"):
        with pytest.raises(errors.BranchInUse):
            graph.delete_branch(name)
    graph.delete_branch("b")
    graph.delete_branch("a")
    assert [b.name for b in graph.branches()] == ["main"]
    with pytest.raises(errors.BranchNotFound):
        graph.delete_branch("a")


def test_a_name_can_be_used_again_at_once_and_starts_anew(graph: og.Graph) -> None:
    for i in range(3):
        graph.create_branch("work")
        graph.insert({"Person": [{"name": f"only{i}"}]}, branch="work")
        assert names(graph, "work") == ["Ada", f"only{i}"]
        graph.delete_branch("work")


def test_commits_of_a_deleted_branch_can_still_be_looked_up(graph: og.Graph) -> None:
    graph.create_branch("work")
    commit = graph.insert({"Person": [{"name": "Bob"}]}, branch="work").commit
    graph.delete_branch("work")
    assert og.open(graph.uri).get_commit(commit.id) == commit


@pytest.mark.parametrize("name", ["", "a//b", "/a", "a/", "__system", "a b", "ä", "..", "a/../b", "x" * 201, "a\n"])
def test_bad_names_are_refused(graph: og.Graph, name: str) -> None:
    with pytest.raises(errors.InvalidBranchName):
        graph.create_branch(name)


@pytest.mark.parametrize("name", ["a", "feature/x-1", "v1.2", "A_b"])
def test_good_names_are_taken(graph: og.Graph, name: str) -> None:
    assert graph.create_branch(name).name == name


def test_no_live_name_is_a_folder_of_another(graph: og.Graph) -> None:
    graph.create_branch("review/anna")
    for name in ("review", "review/anna/2", "review/anna", "main", "main/x"):
        with pytest.raises(errors.BranchExists):
            graph.create_branch(name)
    graph.create_branch("review/bert")


def test_a_branch_that_is_missing_is_never_created_by_accident(graph: og.Graph) -> None:
    with pytest.raises(errors.BranchNotFound):
        graph.insert({"Person": [{"name": "x"}]}, branch="missing")
    with pytest.raises(errors.RevisionNotFound):
        graph.create_branch("new", from_branch="missing")
    assert [b.name for b in graph.branches()] == ["main"]


def test_create_can_be_conditional(graph: og.Graph) -> None:
    old = graph.snapshot().commit
    graph.insert({"City": [{"name": "Genf"}]})
    with pytest.raises(errors.PreconditionFailed):
        graph.create_branch("late", if_commit=old)
