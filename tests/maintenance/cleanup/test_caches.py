"""Arrays that queries keep on disk go with the version that they were made from, and not before."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import omnigraph as og
from tests.cli.conftest import Cli, cli  # noqa: F401 - a fixture
from tests.maintenance.cleanup.conftest import make_old

PAIRS = "query q() { match { $a: Person $a knows $b } return { $a.name, $b.name } }"


@pytest.fixture
def people(graph: og.Graph, monkeypatch: pytest.MonkeyPatch) -> og.Graph:
    """Ada knows Bob, and a query has kept its arrays."""
    monkeypatch.setattr("omnigraph.query.traversal.adjacency_files.EDGES_MIN", 1)
    monkeypatch.setenv("OMNIGRAPH_QUERY_DISK", "on")
    graph.insert({"Person": [{"name": "Ada"}, {"name": "Bob"}], "Knows": [{"from": "Ada", "to": "Bob"}]})
    assert asked(graph) == 1
    assert len(kept(graph)) == 1
    return graph


def asked(graph: og.Graph, branch: str = "main") -> int:
    """By a handle of its own, which knows nothing yet."""
    return og.open(graph.uri).query(PAIRS, branch=branch).num_rows


def kept(graph: og.Graph) -> list[Path]:
    return sorted(Path(graph.uri, "__cache", "adjacency").glob("*"))


def test_they_stay_while_their_version_is_there(people: og.Graph) -> None:
    before = kept(people)
    make_old(Path(people.uri), 400)
    assert people.cleanup(keep=1, confirm=True).caches == ()
    people.insert({"Knows": [{"from": "Bob", "to": "Ada"}]})
    assert people.cleanup(keep=3, confirm=True).caches == ()
    assert kept(people) == before


def test_they_go_with_the_version_and_the_plan_says_why(people: og.Graph, cli: Cli) -> None:  # noqa: F811
    (folder,) = kept(people)
    size = sum(f.stat().st_size for f in folder.iterdir())
    people.insert({"Knows": [{"from": "Bob", "to": "Ada"}]})
    plan = people.plan_cleanup(keep=1)
    (one,) = json.loads(json.dumps(plan.to_json()))["caches"]
    assert {f["path"] for f in one.pop("files")} == {f.name for f in folder.iterdir()}
    path = f"__cache/adjacency/{folder.name}"
    assert one == {"path": path, "reason": "version_gone", "bytes": size, "error": None}
    told = cli("cleanup", people.uri, "--keep", "1", "--quiet").out
    assert f"would remove {path}, " in told
    assert "arrays of a version that is gone" in told
    assert folder.exists(), "a plan removes nothing"
    done = people.cleanup(plan=plan, confirm=True)
    assert [c.staged.path for c in done.caches] == [path]
    assert done.bytes_removed >= size
    assert not folder.exists()
    assert asked(people) == 2


def test_a_plan_removes_only_the_arrays_that_it_names(people: og.Graph) -> None:
    plan = people.plan_cleanup(keep=1)
    before = kept(people)
    people.insert({"Knows": [{"from": "Bob", "to": "Ada"}]})
    assert len(people.plan_cleanup(keep=1).caches) == 1, "a new plan would name them"
    assert people.cleanup(plan=plan, confirm=True).caches == ()
    assert kept(people) == before


def test_those_of_a_version_that_went_before_go_too(people: og.Graph) -> None:
    (folder,) = kept(people)
    meta = json.loads((folder / "meta.json").read_text())
    meta["edges"][1] = 999
    (folder / "meta.json").write_text(json.dumps(meta))
    assert [c.staged.reason for c in people.cleanup(keep=100, confirm=True).caches] == ["version_gone"]
    assert kept(people) == []


def test_those_of_a_branch_go_with_its_fork(people: og.Graph) -> None:
    people.create_branch("side")
    people.insert({"Knows": [{"from": "Bob", "to": "Ada"}]}, branch="side")
    assert asked(people, "side") == 2
    assert people.cleanup(keep=1, confirm=True).caches == ()
    assert len(kept(people)) == 2
    people.delete_branch("side")
    assert [c.staged.reason for c in people.cleanup(keep=1, confirm=True).caches] == ["version_gone"]
    assert len(kept(people)) == 1
    assert asked(people) == 1


def test_half_written_ones_go_when_they_are_old(people: og.Graph) -> None:
    (folder,) = kept(people)
    half = folder.with_name("0123.77.part")
    half.mkdir()
    (half / "out.nodes.npy").write_bytes(b"x")
    assert people.cleanup(keep=1, confirm=True).caches == ()
    make_old(half, 8)
    assert [c.staged.reason for c in people.cleanup(keep=1, confirm=True).caches] == ["abandoned"]
    assert kept(people) == [folder]


def test_a_plan_that_was_saved_before_there_were_any_is_read(people: og.Graph) -> None:
    body = people.plan_cleanup(keep=1).to_json()
    del body["caches"]
    assert people.cleanup(plan=body, confirm=True).caches == ()
