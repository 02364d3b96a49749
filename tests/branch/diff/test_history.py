"""The history of one entity, against the states of all commits."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest

import omnigraph as og
from omnigraph.storage.diff.table_version import TableVersion
from tests.branch.diff.oracle import NAMES, History, expected_changes
from tests.branch.merge.support import make_graph
from tests.support.graphs import Templates


@pytest.fixture
def graph(graph_templates: Templates, tmp_path: Path) -> og.Graph:
    return graph_templates.open(make_graph, tmp_path / "graph")


def told(history: Any) -> list[tuple[str | None, tuple[str, ...], Any]]:
    return [(v.operation, v.changed, v.image and v.image["age"]) for v in history.versions]


def test_every_version_newest_first_with_who_and_what(graph: og.Graph) -> None:
    graph.update("Person", {"age": 31}, ids=["Alice"], actor="anna")
    graph.update("Person", {"age": 99}, ids=["Bob"])
    graph.optimize()
    graph.delete({"Person": ["Alice"]})
    graph.insert({"Person": [{"name": "Alice", "age": 5}]})
    history = graph.history("Person", "Alice")
    assert told(history) == [
        ("insert", (), 5),
        ("delete", (), None),
        ("update", ("age",), 31),
        ("insert", (), 30),
    ]
    assert history.versions[2].commit.actor == "anna"
    assert history.collected is None
    assert graph.history("Person", "Nobody").versions == ()


def test_a_branch_has_the_versions_of_the_branch_it_was_made_from(graph: og.Graph) -> None:
    graph.create_branch("x")
    graph.update("Person", {"age": 31}, ids=["Alice"])
    graph.update("Person", {"age": 32}, ids=["Alice"], branch="x")
    assert told(graph.history("Person", "Alice", branch="x")) == [("update", ("age",), 32), ("insert", (), 30)]


def test_collected_states_end_the_history(graph: og.Graph) -> None:
    graph.update("Person", {"age": 31}, ids=["Alice"])
    graph.update("Person", {"age": 32}, ids=["Alice"])
    graph.cleanup(keep=1, older_than="0s", confirm=True)
    history = og.open(graph.uri).history("Person", "Alice")
    assert told(history) == [(None, (), 32)]
    assert history.collected == graph.commits()[1].id


def test_commits_that_did_not_touch_the_entity_are_not_read(graph: og.Graph, monkeypatch: pytest.MonkeyPatch) -> None:
    for i in range(20):
        graph.update("Person", {"age": i}, ids=["Bob"])
    reads: list[int] = []
    opened = TableVersion.open

    def counted(tables: Any, pin: Any, t: Any) -> TableVersion:
        reads.append(pin.version)
        return opened(tables, pin, t)

    monkeypatch.setattr(TableVersion, "open", staticmethod(counted))
    assert len(graph.history("Person", "Alice").versions) == 1
    assert len(reads) == 2


@pytest.mark.parametrize("row_ids", ["stable", "address"])
@pytest.mark.parametrize("seed", [11, *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(12, 16))])
def test_random_histories(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int, row_ids: str) -> None:
    monkeypatch.setattr("omnigraph.commit.operation.FOLD_AT", 4)
    print(f"seed {seed}, row ids {row_ids}")
    made = History(tmp_path / "graph", seed, row_ids=row_ids)
    made.run(30)
    chance = random.Random(seed)
    for branch in made.branches[:2]:
        type_name, *_ = made.people(branch)
        type_id = made.graph.schema(branch).node[type_name].id
        commits = made.graph.commits(branch)
        by_id: dict[str, list[tuple[Any, ...]]] = {}
        for commit in commits:
            if commit.parent is None:
                continue
            for row in expected_changes(made, made.view(commit.parent), made.view(commit.id), type_id):
                version = (commit.id, row["operation"], tuple(row["changed"]), repr(row["after"]))
                by_id.setdefault(row["id"], []).append(version)
        for name in chance.sample(NAMES, 8):
            history = made.graph.history(type_name, name, branch=branch)
            versions = [(v.commit.id, v.operation, v.changed, repr(v.image)) for v in history.versions]
            assert versions == by_id.get(name, []), name
