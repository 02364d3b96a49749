"""`omnigraph branch merge`, `commit revert` and `commit cherry-pick` as a user runs them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import omnigraph as og
from tests.branch.merge.support import make_graph, people
from tests.cli.conftest import Cli


@pytest.fixture
def graph(tmp_path: Path) -> og.Graph:
    graph = make_graph(tmp_path / "graph")
    graph.create_branch("x")
    graph.update("Person", {"age": 31}, ids=["Alice"], branch="x")
    return graph


def test_a_merge_says_what_it_did(cli: Cli, graph: og.Graph) -> None:
    graph.update("Person", {"age": 4}, ids=["Dan"])
    run = cli("branch", "merge", graph.uri, "x", "--delete-branch")
    assert run.code == 0
    assert "merging x into" in run.err
    assert "merged x into main (three-way), commit" in run.out
    assert "node:Person" in run.out
    assert "deleted x" in run.out
    assert people(og.open(graph.uri))["Alice"] == (31, None)


def test_a_merge_runs_its_tasks_on_the_engine_that_it_is_told(
    cli: Cli, graph: og.Graph, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("omnigraph.pipeline.merge_tasks.TASKS_BYTES_MIN", 0)
    run = cli("branch", "merge", graph.uri, "x", "--engine", "local")
    assert run.code == 0
    assert "→ engine local: as asked for" in run.err
    assert "comparing node:Person: 1 task" in run.err
    assert "writing node:Person: 1 task" in run.err
    assert people(og.open(graph.uri))["Alice"] == (31, None)
    assert cli("branch", "merge", graph.uri, "x", "--engine", "cluster").code == 2


def test_the_document_of_a_merge(cli: Cli, graph: og.Graph) -> None:
    document = cli("branch", "merge", graph.uri, "x", "--json").json
    assert document["commit"]["merged_parent"] == {b.name: b.commit for b in graph.branches()}["x"]
    fields = {k: v for k, v in document.items() if k not in ("commit", "base", "bases")}
    assert fields == {
        "source": "x",
        "target": "main",
        "outcome": "fast_forward",
        "tables": [
            {
                "table_key": "node:Person",
                "inserted": 0,
                "updated": 1,
                "deleted": 0,
                "adopted_fragments": 0,
                "copied_rows": 1,
            }
        ],
        "schema_steps": [],
        "conflicts": [],
        "conflict_count": 0,
        "repeated": False,
    }
    again = cli("branch", "merge", graph.uri, "x", "--json").json
    assert (again["outcome"], again["commit"]) == ("already_up_to_date", None)


def test_conflicts_go_through_a_file_and_back(cli: Cli, graph: og.Graph, tmp_path: Path) -> None:
    graph.update("Person", {"age": 32}, ids=["Alice"])
    file = tmp_path / "conflicts.jsonl"
    refused = cli("branch", "merge", graph.uri, "x", "--conflicts", str(file))
    assert refused.code == 1
    assert "1 conflict; nothing was changed" in refused.out
    assert "divergent_update" in refused.out
    (conflict,) = [json.loads(line) for line in file.read_text().splitlines()]
    assert conflict.pop("digest")
    assert conflict == {
        "kind": "divergent_update",
        "table_key": "node:Person",
        "id": "Alice",
        "properties": ["age"],
        "property": "age",
        "base": {"id": "Alice", "name": "Alice", "age": 30, "nick": None, "email": None},
        "ours": {"id": "Alice", "name": "Alice", "age": 32, "nick": None, "email": None},
        "theirs": {"id": "Alice", "name": "Alice", "age": 31, "nick": None, "email": None},
        "message": "both sides changed age to different values",
        "resolution": None,
    }
    file.write_text(file.read_text().replace('"resolution":null', '"resolution":{"age":33}'))
    assert cli("branch", "merge", graph.uri, "x", "--resolve", str(file), "--json").json["outcome"] == "merged"
    assert people(og.open(graph.uri))["Alice"] == (33, None)


def test_a_plan_changes_nothing(cli: Cli, graph: og.Graph) -> None:
    before = graph.branches()
    run = cli("branch", "merge", graph.uri, "x", "--plan")
    assert run.code == 0
    assert "would merge x into main (fast-forward)" in run.out
    assert og.open(graph.uri).branches() == before
    graph.update("Person", {"age": 32}, ids=["Alice"])
    planned = cli("branch", "merge", graph.uri, "x", "--plan", "--json")
    assert (planned.code, planned.json["conflict_count"]) == (1, 1)


def test_a_lost_precondition_exits_with_4(cli: Cli, graph: og.Graph) -> None:
    head = graph.branches()[0].commit
    graph.update("Person", {"age": 4}, ids=["Dan"])
    assert cli("branch", "merge", graph.uri, "x", "--if-commit", head).code == 4


def test_files_of_resolutions_that_can_not_be_used(cli: Cli, graph: og.Graph, tmp_path: Path) -> None:
    bad = tmp_path / "bad.jsonl"
    for text, said in (("{", "line 1"), ('{"table_key": "node:Person", "id": "A", "resolution": "mine"}', "mine")):
        bad.write_text(text)
        run = cli("branch", "merge", graph.uri, "x", "--resolve", str(bad))
        assert run.code in (1, 2)
        assert said in run.err
    assert cli("branch", "merge", graph.uri, "x", "--resolve", str(tmp_path / "none")).code == 1
    assert cli("branch", "merge", graph.uri, "nowhere").code == 1


def test_revert_and_cherry_pick(cli: Cli, graph: og.Graph) -> None:
    commit = graph.branches()[1].commit
    assert cli("commit", "cherry-pick", graph.uri, commit, "--json").json["commit"]["kind"] == "cherry_pick"
    assert people(og.open(graph.uri))["Alice"] == (31, None)
    picked = og.open(graph.uri).branches()[0].commit
    assert cli("commit", "revert", graph.uri, picked, "--json").json["commit"]["kind"] == "revert"
    assert people(og.open(graph.uri))["Alice"] == (30, None)
