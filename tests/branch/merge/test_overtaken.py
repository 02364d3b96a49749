"""Merges and writes on branches beside cleanups: what a branch stands on stays, and work that lost it starts anew."""

from __future__ import annotations

from pathlib import Path

import pytest

import omnigraph as og
from omnigraph.branch.merge import Merge
from omnigraph.commit import owner
from omnigraph.commit.operation import Prepared, View
from omnigraph.errors import VersionReclaimed
from omnigraph.storage import durability
from omnigraph.storage.manifest.records import Pin
from omnigraph.storage.objects import leases
from tests.commit.stepper import open_without_heart

SCHEMA = "node Person { name: String @key  age: I64? }"


@pytest.fixture
def graph(tmp_path: Path) -> og.Graph:
    """Opened without a heartbeat, so that others take it for stopped after a lease."""
    with og.init(str(tmp_path / "graph"), SCHEMA) as graph:
        graph.insert({"Person": [{"name": "Ada", "age": 1}, {"name": "Bob", "age": 1}]})
        graph.create_branch("side")
        graph.upsert({"Person": [{"name": "Ada", "age": 2}, {"name": "Cyd", "age": 3}]}, branch="side")
        graph.upsert({"Person": [{"name": "Bob", "age": 2}]})
    return open_without_heart(str(tmp_path / "graph"))


def test_a_merge_that_was_overtaken_under_its_ticket_is_prepared_again(
    graph: og.Graph, monkeypatch: pytest.MonkeyPatch
) -> None:
    prepare = Merge.prepare
    refused: list[VersionReclaimed] = []

    def stand_still(self: Merge, view: View) -> Prepared:
        if refused:
            return prepare(self, view)
        monkeypatch.setenv("OMNIGRAPH_LEASE_S", "0.1")
        other = open_without_heart(graph.uri)
        for age in (3, 4, 5):
            other.upsert({"Person": [{"name": "Bob", "age": age}]})
        other.optimize()
        other.cleanup(keep=1, confirm=True)
        monkeypatch.delenv("OMNIGRAPH_LEASE_S")
        with pytest.raises(VersionReclaimed) as caught:
            prepare(self, view)
        refused.append(caught.value)
        raise caught.value

    monkeypatch.setattr(Merge, "prepare", stand_still)
    graph._committer.contended = True  # then short work is prepared under the ticket only
    assert graph.merge("side").outcome == "merged"
    assert refused
    rows = og.open(graph.uri).nodes("Person").to_pylist()
    assert {row["name"]: row["age"] for row in rows} == {"Ada": 2, "Bob": 5, "Cyd": 3}
    assert graph.verify(full=True).ok


def test_a_version_that_is_missing_with_nobody_else_at_work_is_reported(
    graph: og.Graph, monkeypatch: pytest.MonkeyPatch
) -> None:
    attempts: list[str] = []

    def missing(self: Merge, view: View) -> Prepared:
        attempts.append(view.head.commit)
        raise VersionReclaimed(table_key="node:Person", version=2)

    monkeypatch.setattr(Merge, "prepare", missing)
    graph._committer.contended = True
    with pytest.raises(VersionReclaimed):
        graph.merge("side")
    assert len(attempts) == 1


# ---- announced by a cleanup that has not looked again yet ------------------------------------------------------------


def announce(graph: og.Graph, pin: Pin) -> None:
    """As a cleanup does that read the heads before a branch stood on this version, and has not looked again yet."""
    file = durability.manifest_path(pin.path, pin.version).removeprefix(f"{pin.root}/")
    versions = {pin.path: frozenset({pin.version})}
    leases.announce(
        graph._location, versions, {}, unreferenced={pin.root: [file]}, owner=owner.myself(), now_s=1_000_000_000.0
    )


def pin_of(graph: og.Graph, commit: str) -> Pin:
    (pin,) = graph._manifest.pins_at(commit).values()
    return pin


def test_a_branch_whose_base_is_announced_is_merged(graph: og.Graph) -> None:
    announce(graph, pin_of(graph, graph.commits("side")[1].id))
    assert graph.merge("side").outcome == "merged"
    assert graph.verify(full=True).ok


def test_a_branch_whose_head_is_announced_is_merged_and_written(graph: og.Graph) -> None:
    announce(graph, pin_of(graph, graph.snapshot("side").commit))
    graph.upsert({"Person": [{"name": "Dan", "age": 4}]}, branch="side")
    assert graph.merge("side").outcome == "merged"
    assert set(og.open(graph.uri).nodes("Person")["name"].to_pylist()) == {"Ada", "Bob", "Cyd", "Dan"}


def test_a_version_that_no_branch_stands_on_and_that_is_announced_is_refused(graph: og.Graph) -> None:
    old = graph.snapshot("side").commit
    graph.upsert({"Person": [{"name": "Dan", "age": 4}]}, branch="side")
    announce(graph, pin_of(graph, old))
    with pytest.raises(VersionReclaimed):
        graph.merge(old)
