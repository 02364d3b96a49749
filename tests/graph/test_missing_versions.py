"""A version that was lost is `version_missing`, one that a cleanup removed `version_reclaimed`, for every reader."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

import omnigraph as og
from omnigraph.errors import OmnigraphError, VersionMissing, VersionReclaimed
from omnigraph.storage.durability import manifest_path
from omnigraph.storage.manifest.records import Pin

SCHEMA = "node P { name: String @key }\nnode Q { name: String @key }\nedge Knows: P -> P"


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("versions") / "g"
    graph = og.init(path, SCHEMA)
    graph.insert({"P": [{"name": "a"}, {"name": "b"}], "Knows": [{"src": "a", "dst": "b"}]})
    for i in range(5):
        graph.insert({"P": [{"name": f"p{i}"}]})
    return path


@pytest.fixture
def path(template: Path, tmp_path: Path) -> Path:
    shutil.copytree(template, tmp_path / "g")
    return tmp_path / "g"


def pin_of(graph: og.Graph, name: str) -> Pin:
    view = graph._committer.view("main")
    return view.pins[view.type(name).id]


def version_file(path: Path, pin: Pin, version: int) -> Path:
    return Path(manifest_path(str(path / pin.path), version))


def commit_at(graph: og.Graph, pin: Pin, version: int) -> str:
    return next(r.commit for r in graph._manifest.head("main").recent if r.delta.get(pin.table) == pin.at(version))


VERBS: dict[str, Callable[[og.Graph, Path], object]] = {
    "nodes": lambda g, _: g.edges("Knows").num_rows,
    "query": lambda g, _: g.query("query q() { match { $a: P $a knows $b } return { $b.name } }"),
    "insert": lambda g, _: g.insert({"Knows": [{"src": "b", "dst": "a"}]}),
    "delete": lambda g, _: g.delete({"P": ["a"]}),
    "export": lambda g, out: g.export(out / "rows"),
    "lease": lambda g, _: g.lease().__enter__(),
}


@pytest.mark.parametrize("verb", sorted(VERBS))
def test_a_removed_folder_is_missing_for_every_verb(path: Path, tmp_path: Path, verb: str) -> None:
    shutil.rmtree(path / "edges")
    _refused(og.open(path, engine="local"), tmp_path, verb)


@pytest.mark.parametrize("verb", ["insert", "delete", "lease", "export"])
def test_a_removed_folder_is_missing_for_a_handle_that_had_it_open(path: Path, tmp_path: Path, verb: str) -> None:
    graph = og.open(path, engine="local")
    graph.edges("Knows")  # which Lance reads from its cache from now on
    shutil.rmtree(path / "edges")
    _refused(graph, tmp_path, verb)


def _refused(graph: og.Graph, folder: Path, verb: str) -> None:
    with pytest.raises(OmnigraphError) as refusal:
        VERBS[verb](graph, folder)
    assert (refusal.value.condition, refusal.value.fields["table_key"]) == ("version_missing", "edge:Knows")


def test_one_published_version_file_is_missing(path: Path) -> None:
    graph = og.open(path, engine="local")
    pin = pin_of(graph, "P")
    version_file(path, pin, pin.version).unlink()
    with pytest.raises(VersionMissing):
        og.open(path, engine="local").nodes("P")


def test_an_older_version_above_those_that_are_there_is_missing(path: Path) -> None:
    graph = og.open(path, engine="local")
    pin = pin_of(graph, "P")
    commit = commit_at(graph, pin, pin.version - 2)
    version_file(path, pin, pin.version - 2).unlink()
    with pytest.raises(VersionMissing):
        og.open(path, engine="local").snapshot(commit=commit).read("P")


def test_history_of_a_table_that_is_lost_is_missing(path: Path) -> None:
    graph = og.open(path, engine="local")
    pin = pin_of(graph, "P")
    commit = commit_at(graph, pin, pin.version - 2)
    shutil.rmtree(path / pin.path)
    with pytest.raises(VersionMissing):
        og.open(path, engine="local").snapshot(commit=commit).read("P")


def test_what_a_cleanup_removed_is_reclaimed(path: Path) -> None:
    graph = og.open(path, engine="local")
    pin = pin_of(graph, "P")
    commits = [commit_at(graph, pin, pin.version - back) for back in (1, 3)]
    graph.cleanup(keep=1, confirm=True)
    for commit in commits:
        with pytest.raises(VersionReclaimed) as refusal:
            og.open(path, engine="local").snapshot(commit=commit).read("P")
        assert refusal.value.condition == "version_reclaimed"


@pytest.fixture
def branched(path: Path) -> og.Graph:
    """A branch that stands on an older version of P."""
    graph = og.open(path, engine="local")
    graph.create_branch("side")
    for i in range(2):
        graph.insert({"P": [{"name": f"later{i}"}]})
    return graph


def test_what_a_cleanup_removed_above_the_base_of_a_branch_is_reclaimed(path: Path, branched: og.Graph) -> None:
    pin = pin_of(branched, "P")
    between = commit_at(branched, pin, pin.version - 1)
    branched.cleanup(keep=1, confirm=True)
    assert branched.nodes("P", branch="side").num_rows == 7
    with pytest.raises(VersionReclaimed) as refusal:
        og.open(path, engine="local").snapshot(commit=between).read("P")
    assert refusal.value.condition == "version_reclaimed"


def test_the_base_of_a_branch_is_missing(path: Path, branched: og.Graph) -> None:
    pin = pin_of(branched, "P")
    version_file(path, pin, pin.version - 2).unlink()
    with pytest.raises(VersionMissing):
        og.open(path, engine="local").nodes("P", branch="side")


def test_a_type_that_was_given_up_is_reclaimed(path: Path) -> None:
    graph = og.open(path, engine="local")
    before = graph.snapshot().commit
    graph.apply_schema(SCHEMA.replace("node Q { name: String @key }\n", ""), allow_data_loss=True)
    with pytest.raises(VersionReclaimed) as refusal:
        og.open(path, engine="local").snapshot(commit=before).read("Q")
    assert refusal.value.condition == "version_reclaimed"
