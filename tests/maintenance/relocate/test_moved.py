"""A copied or moved graph with forks is refused wherever it would touch the data of its original."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

import omnigraph as og
from omnigraph.errors import GraphMoved
from tests.cli.conftest import Cli
from tests.maintenance.relocate import graphs

VERBS: dict[str, Callable[[og.Graph], object]] = {
    "read": lambda g: g.nodes("Person", branch="review"),
    "read a fork of a fork": lambda g: g.nodes("Person", branch="deep"),
    "query": lambda g: g.query("query q() { match { $p: Person } return { $p.name } }", branch="review"),
    "upsert": lambda g: g.upsert({"Person": [{"name": "p2", "age": 200}]}, branch="review"),
    "delete": lambda g: g.delete({"Person": ["p2"]}, branch="deep"),
    "fork of a fork": lambda g: (
        g.create_branch("next", from_branch="review"),
        g.upsert({"Person": [{"name": "p2", "age": 200}]}, branch="next"),
    ),
    "optimize": lambda g: g.optimize(branch="review"),
    "repair": lambda g: g.repair(branch="review", confirm=True),
    "cleanup preview": lambda g: g.cleanup(keep=1),
    "cleanup": lambda g: g.cleanup(keep=1, confirm=True),
    "schema": lambda g: g.apply_schema(graphs.SCHEMA.replace("age: I64?", "age: I64? size: I64?"), branch="review"),
    "lease": lambda g: g.lease("review").__enter__().read("Person"),
}


@pytest.mark.parametrize("verb", VERBS)
def test_a_copy_never_touches_its_original(original: Path, copy: Path, verb: str) -> None:
    graph = og.open(copy, engine="local")
    with pytest.raises(GraphMoved) as caught:
        VERBS[verb](graph)
    assert caught.value.fields["uri"] == str(copy)
    assert caught.value.fields["recorded_root"] == str(original)
    assert f"omnigraph relocate {copy}" in caught.value.remedy


def test_a_moved_graph_does_not_write_to_its_old_place(copy: Path, original: Path, tmp_path: Path) -> None:
    graphs.build(tmp_path / "before")
    shutil.move(tmp_path / "before", tmp_path / "after")
    with pytest.raises(GraphMoved, match=str(tmp_path / "before")):
        og.open(tmp_path / "after", engine="local").upsert({"Person": [{"name": "p2"}]}, branch="review")
    assert not (tmp_path / "before").exists()


def test_main_of_a_copy_works_because_it_has_no_absolute_paths(copy: Path) -> None:
    graph = og.open(copy, engine="local")
    graph.upsert({"Person": [{"name": "new", "age": 1}]})
    assert "new" in graph.nodes("Person")["id"].to_pylist()
    graph.optimize()


def test_a_graph_without_forks_may_be_moved(tmp_path: Path) -> None:
    graph = og.init(tmp_path / "before", graphs.SCHEMA)
    graph.insert({"Person": [{"name": "p1", "age": 1}]})
    graph.create_branch("named")
    shutil.move(tmp_path / "before", tmp_path / "after")
    moved = og.open(tmp_path / "after", engine="local")
    moved.upsert({"Person": [{"name": "p1", "age": 2}]}, branch="named")
    assert moved.nodes("Person", branch="named")["age"].to_pylist() == [2]
    moved.cleanup(keep=1, confirm=True)
    assert moved.verify(full=True).ok
    assert not (tmp_path / "before").exists()


def test_cleanup_refuses_for_a_fork_that_no_branch_has(original: Path, tmp_path: Path) -> None:
    """A deleted branch leaves a fork with absolute paths: cleanup would judge files by it."""
    graph = og.init(tmp_path / "before", graphs.SCHEMA)
    graph.insert({"Person": [{"name": "p1", "age": 1}]})
    graph.create_branch("deleted")
    graph.upsert({"Person": [{"name": "p1", "age": 2}]}, branch="deleted")
    graph.delete_branch("deleted")
    moved = shutil.copytree(tmp_path / "before", tmp_path / "after")
    before = graphs.digests(Path(moved))
    with pytest.raises(GraphMoved):
        og.open(moved, engine="local").cleanup(keep=1, confirm=True)
    assert {p: d for p, d in graphs.digests(Path(moved)).items() if not p.startswith("__")} == {
        p: d for p, d in before.items() if not p.startswith("__")
    }


def test_verify_tells_of_every_moved_fork_and_checks_the_rest(copy: Path, original: Path) -> None:
    result = og.open(copy, engine="local").verify(full=True)
    moved = [f for f in result.findings if f.code == "graph_moved"]
    assert {f.branch for f in moved} == {"review", "deep", "trial"}
    assert {f.code for f in result.findings if f.severity == "error"} == {"graph_moved"}
    assert str(original) in " ".join(moved[0].examples)


@pytest.mark.parametrize("spelling", ["relative", "link", "file", "slash"])
def test_other_spellings_of_the_same_place_are_the_same_graph(
    original: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, spelling: str
) -> None:
    monkeypatch.chdir(original.parent)
    os.symlink(original.parent, tmp_path / "link")
    address = {
        "relative": "./graph",
        "link": str(tmp_path / "link" / "graph"),
        "file": f"file://{original}",
        "slash": f"{original}/",
    }[spelling]
    assert og.open(address).nodes("Person", branch="deep").num_rows == 5


def test_the_command_line_says_what_to_do(cli: Cli, copy: Path, original: Path) -> None:
    failed = cli("export", copy, "--branch", "review")
    assert failed.code == 1
    assert str(original) in failed.err
    assert f"omnigraph relocate {copy}" in failed.err
    refused = cli("optimize", copy, "--branch", "review", "--json").error
    assert (refused["condition"], refused["recorded_root"]) == ("graph_moved", str(original))
