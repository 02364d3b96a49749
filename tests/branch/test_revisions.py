"""Revisions: commits by id, branch, tag or time, wherever a commit is accepted."""

from __future__ import annotations

import json
from datetime import timedelta
from pathlib import Path

import pytest

import omnigraph as og
from omnigraph import errors
from omnigraph.branch import create
from omnigraph.branch.revisions import resolve

SCHEMA = "node Person { name: String @key  age: I32? }\nnode City { name: String @key }"


@pytest.fixture
def graph(tmp_path: Path) -> og.Graph:
    graph = og.init(tmp_path / "graph", SCHEMA)
    for age in range(4):
        graph.upsert({"Person": [{"name": "Ada", "age": age}]})
    graph.create_branch("work")
    graph.upsert({"Person": [{"name": "Ada", "age": 50}]}, branch="work")
    graph.create_tag("v1", graph.commits()[2].id)
    return graph


def ages(graph: og.Graph, **state: str) -> list[int]:
    return graph.nodes("Person", **state)["age"].to_pylist()


def test_every_form_names_a_commit(graph: og.Graph) -> None:
    manifest, commits = graph._manifest, graph.commits()
    assert resolve(manifest, commits[1].id) == commits[1].id
    assert resolve(manifest, "work") == graph.snapshot("work").commit
    assert resolve(manifest, "v1") == commits[2].id
    exact = (commits[1].created_at + timedelta(microseconds=1)).isoformat()
    assert resolve(manifest, exact) == commits[1].id
    assert resolve(manifest, "9999-01-01", branch="work") == graph.snapshot("work").commit


def test_what_is_nothing_of_all_that_is_told(graph: og.Graph) -> None:
    with pytest.raises(errors.RevisionNotFound) as caught:
        resolve(graph._manifest, "wrok")
    assert "did you mean 'work'?" in str(caught.value)
    assert caught.value.fields["branches"] == ["main", "work"]
    assert caught.value.fields["tags"] == ["v1"]
    with pytest.raises(errors.NoCommitAtThatTime):
        resolve(graph._manifest, "1999-01-01")


def test_a_commit_id_is_never_shadowed_by_a_name(graph: og.Graph) -> None:
    old = graph.commits()[2].id
    graph.create_branch(old, from_branch="work")
    assert resolve(graph._manifest, old) == old


def test_reads_take_revisions(graph: og.Graph) -> None:
    assert ages(graph, commit="v1") == [1]
    assert ages(graph, commit="work") == [50]
    assert graph.snapshot(commit="v1").commit == graph.commits()[2].id
    assert graph.scan("Person", commit="v1").read_all()["age"].to_pylist() == [1]
    assert graph.get_commit("v1") == graph.commits()[2]
    query = "query q() { match { $p: Person } return { $p.age } }"
    assert graph.query(query, commit="v1").to_arrow().column(0).to_pylist() == [1]
    lines: list[bytes] = []
    graph.export(lines.append, commit="v1")
    assert json.loads(b"".join(lines).splitlines()[0])["data"]["age"] == 1
    with graph.lease(commit="v1") as snapshot:
        assert snapshot.read("Person")["age"].to_pylist() == [1]
    with pytest.raises(errors.RevisionNotFound):
        ages(graph, commit="nothing")


def test_a_branch_starts_at_any_revision(graph: og.Graph) -> None:
    made = graph.create_branch("old", from_branch="v1")
    assert (made.commit, made.parent_branch) == (graph.commits()[2].id, "main")
    graph.upsert({"Person": [{"name": "Bob", "age": 7}]}, branch="old")
    assert ages(og.open(graph.uri), branch="old") == [1, 7]
    assert [c.id for c in graph.commits("old")][1:] == [c.id for c in graph.commits()][2:]
    graph.cleanup(keep=1, confirm=True)
    assert ages(og.open(graph.uri), branch="old") == [1, 7]
    assert graph.verify(full=True).ok
    with pytest.raises(errors.PreconditionFailed):
        graph.create_branch("other", from_branch="v1", if_commit=graph.commits()[0].id)


def test_a_branch_starts_at_a_commit_of_a_deleted_branch(graph: og.Graph) -> None:
    commit = graph.snapshot("work").commit
    graph.delete_branch("work")
    made = graph.create_branch("again", from_branch=commit)
    assert made.parent_branch is None
    graph.cleanup(keep=1, confirm=True)
    graph.upsert({"Person": [{"name": "Bob", "age": 7}]}, branch="again")
    graph.cleanup(keep=1, confirm=True)
    assert ages(og.open(graph.uri), branch="again") == [50, 7]
    assert graph.verify(full=True).ok
    graph.delete_branch("again")


def test_a_branch_does_not_start_at_what_was_collected(graph: og.Graph) -> None:
    old = graph.commits()[1].id
    graph.delete_branch("work")
    graph.cleanup(keep=1, confirm=True)
    with pytest.raises(errors.VersionReclaimed):
        graph.create_branch("old", from_branch=old)
    assert [b.name for b in graph.branches()] == ["main"]


def test_a_cleanup_between_look_and_swap_makes_the_branch_lose(
    graph: og.Graph, monkeypatch: pytest.MonkeyPatch
) -> None:
    old, other, original = graph.commits()[1].id, og.open(graph.uri), create.require_available
    runs: list[int] = []

    def then_cleanup(*args: object) -> None:
        original(*args)  # type: ignore[arg-type]
        if not runs:
            runs.append(1)
            other.cleanup(keep=1, confirm=True)

    graph.delete_branch("work")
    monkeypatch.setattr(create, "require_available", then_cleanup)
    with pytest.raises(errors.VersionReclaimed):
        graph.create_branch("old", from_branch=old)
    assert [b.name for b in graph.branches()] == ["main"]


def test_the_command_line(graph: og.Graph, capsys: pytest.CaptureFixture[str]) -> None:
    from omnigraph.cli.main import main

    assert main(["snapshot", graph.uri, "--commit", "v1", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["commit"] == graph.commits()[2].id
    assert main(["branch", "create", graph.uri, "old", "--from", "v1", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["head"] == graph.commits()[2].id
    assert main(["commit", "show", graph.uri, "v1", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["commit"]["id"] == graph.commits()[2].id
    assert main(["snapshot", graph.uri, "--commit", "v2", "--json"]) == 1
    assert json.loads(capsys.readouterr().out)["error"]["condition"] == "revision_not_found"
