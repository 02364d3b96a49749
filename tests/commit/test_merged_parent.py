"""Commits with a second parent: recorded as they are, also when no table moves, also when recovery publishes them."""

from __future__ import annotations

from pathlib import Path

import pytest

import omnigraph as og
from omnigraph.commit.committer import Committer
from tests.branch.operations import Lineage, record_merge, run
from tests.commit import deeds


@pytest.fixture
def graph(tmp_path: Path) -> og.Graph:
    deeds.create_with_fork(str(tmp_path / "graph"))
    return og.open(tmp_path / "graph")


def test_a_commit_without_tables_records_its_second_parent(graph: og.Graph) -> None:
    before = graph.snapshot()
    side = graph.snapshot("side").commit
    commit = record_merge(graph, "side")
    newest = og.open(graph.uri).commits()[0]
    assert (newest.id, newest.parent, newest.merged_parent) == (commit, before.commit, side)
    assert graph._committer.view("main").pins == before.view.pins


def test_the_second_parent_survives_in_rows_of_the_manifest(graph: og.Graph) -> None:
    side = graph.snapshot("side").commit
    commit = record_merge(graph, "side")
    for n in range(30):
        graph.upsert({"Left": [{"name": "later", "n": n}]})
    assert commit not in {record.commit for record in graph._manifest.head("main").recent}
    assert og.open(graph.uri)._manifest.record(commit).merged_parent == side


class Stopped(BaseException):
    """Ends an operation at a phase as a kill would: nothing after it runs."""


@pytest.mark.parametrize("phase", ["plan", "publish", "acknowledge", "release"])
def test_an_interrupted_commit_without_tables_is_there_or_not_at_all(graph: og.Graph, phase: str) -> None:
    side = graph.snapshot("side").commit
    before = len(graph.commits())

    def observer(name: str) -> None:
        if name == phase:
            raise Stopped

    committer = Committer(graph._manifest, observer=observer)
    with pytest.raises(Stopped):
        run(graph, Lineage(side), committer=committer)
    graph.upsert({"Left": [{"name": "next", "n": 1}]})
    merged = [c for c in og.open(graph.uri).commits() if c.merged_parent == side]
    assert len(merged) == (0 if phase == "plan" else 1)
    restores = [c for c in og.open(graph.uri).commits() if c.kind == "recovery"]
    assert len(og.open(graph.uri).commits()) == before + 1 + len(merged) + len(restores)
    assert graph.verify().findings == ()
