"""schema apply --allow-data-loss removes what it drops as cleanup would: it excludes branch creation, and leaves what a
branch, a tag or a lease holds. Nothing is refused after the schema has changed.
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import lance
import pytest

import omnigraph as og
from omnigraph.commit import owner
from omnigraph.errors import StorageError, SymlinkInGraph, VersionReclaimed
from omnigraph.storage.manifest.table import HEAD, REFS
from tests.commit import plant
from tests.maintenance.cleanup.conftest import files, root_of, versions

SCHEMA = "node P { name: String @key  secret: String? }\nnode Q { name: String @key }"
WITHOUT_Q = "node P { name: String @key  secret: String? }"
WITHOUT_SECRET = "node P { name: String @key }\nnode Q { name: String @key }"
DROPS = pytest.mark.parametrize(
    ("schema", "dropped"), [(WITHOUT_Q, "Q"), (WITHOUT_SECRET, "P")], ids=["type", "property"]
)


@pytest.fixture(scope="module")
def _three_commits(tmp_path_factory: pytest.TempPathFactory) -> Path:
    graph = og.init(tmp_path_factory.mktemp("dropped") / "graph", SCHEMA)
    for i in range(3):
        graph.insert({"P": [{"name": f"p{i}", "secret": "s"}], "Q": [{"name": f"q{i}"}]})
    return Path(graph.uri)


@pytest.fixture
def graph(_three_commits: Path, tmp_path: Path) -> og.Graph:
    return og.open(shutil.copytree(_three_commits, tmp_path / "graph"), engine="local")


def errors_of(graph: og.Graph) -> list[str]:
    return [f"{f.code}: {f.message}" for f in og.open(graph.uri).verify().findings if f.severity == "error"]


def left(result: og.SchemaResult) -> dict[str, tuple[str, ...]]:
    return {one.table_key: one.because for one in result.left_for_cleanup}


@DROPS
def test_a_branch_that_is_being_created_meanwhile_stays_readable(graph: og.Graph, schema: str, dropped: str) -> None:
    creator = og.open(graph.uri)
    update = creator._manifest.update
    applied: list[og.SchemaResult] = []

    def paused(updates: Mapping[str, str | None], *, read_version: int) -> int:
        if not applied:
            applied.append(graph.apply_schema(schema, allow_data_loss=True))
        return update(updates, read_version=read_version)

    creator._manifest.update = paused  # type: ignore[method-assign]
    creator.create_branch("review")
    seen = og.open(graph.uri)
    assert applied[0].left_for_cleanup == ()
    assert seen.nodes("P", branch="review").num_rows == 3
    assert seen.schema("review") == seen.schema("main"), "it was made from the state after the change"
    assert errors_of(graph) == []


@DROPS
def test_a_branch_that_comes_before_the_exclusion_holds_what_it_was_made_from(
    graph: og.Graph, schema: str, dropped: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    from omnigraph.maintenance.cleanup import execute

    creator = og.open(graph.uri)._manifest
    start = creator.head("main")
    announce = execute.announce

    def meanwhile(*args: Any) -> str:
        # The swap of a create_branch that has read the head before the schema changed.
        head = replace(start, branch="review", incarnation="0" * 12, epoch=0, base=start.commit, pins={}, recent=())
        creator.update({HEAD + "review": head.dumps(), REFS: "1"}, read_version=start.version)
        return announce(*args)

    monkeypatch.setattr(execute, "announce", meanwhile)
    result = graph.apply_schema(schema, allow_data_loss=True)
    assert og.open(graph.uri).nodes(dropped, branch="review").num_rows == 3
    assert any(b.startswith("branch:review") for b in left(result)[f"node:{dropped}"])
    assert errors_of(graph) == []


@DROPS
def test_the_version_that_a_branch_was_made_from_stays(graph: og.Graph, schema: str, dropped: str) -> None:
    graph.create_branch("b")
    graph.upsert({dropped: [{"name": "new"}]}, branch="b")
    graph.upsert({dropped: [{"name": "later"}]})
    graph.optimize(branch="b")
    result = graph.apply_schema(schema, allow_data_loss=True)
    assert "base:b" in left(result)[f"node:{dropped}"]
    assert errors_of(graph) == []
    seen = og.open(graph.uri, engine="local")
    assert seen.nodes(dropped, branch="b").num_rows == 4
    seen.upsert({dropped: [{"name": "again"}]}, branch="b")
    kept = seen.cleanup(keep=1, confirm=True)
    assert not kept.failed
    assert errors_of(graph) == []


@DROPS
def test_a_tagged_version_stays_and_is_told(graph: og.Graph, schema: str, dropped: str) -> None:
    table = root_of(graph, dropped)
    lance.dataset(str(table)).tags.create("keepme", 3)
    result = graph.apply_schema(schema, allow_data_loss=True)
    assert result.applied
    assert left(result) == {f"node:{dropped}": ("lance_tag:keepme",)}
    assert lance.dataset(str(table), version="keepme").count_rows() == 2
    assert 3 in versions(table)
    assert errors_of(graph) == []
    lance.dataset(str(table)).tags.delete("keepme")
    og.open(graph.uri).cleanup(keep=1, confirm=True)
    assert 3 not in versions(table)


@DROPS
def test_a_leased_state_stays_readable(graph: og.Graph, schema: str, dropped: str) -> None:
    reader = og.open(graph.uri)
    table = root_of(graph, dropped)
    with reader.lease() as snapshot:
        expected = snapshot.read(dropped).to_pylist()
        result = graph.apply_schema(schema, allow_data_loss=True)
        assert [b.partition(":")[0] for b in left(result)[f"node:{dropped}"]] == ["lease"]
        assert snapshot.read(dropped).to_pylist() == expected
        assert og.open(graph.uri).snapshot(commit=snapshot.commit).read(dropped).to_pylist() == expected
    graph.cleanup(keep=1, confirm=True)
    assert len(versions(table)) == (0 if dropped == "Q" else 1)


@DROPS
def test_without_anything_that_holds_it_all_old_versions_go(graph: og.Graph, schema: str, dropped: str) -> None:
    table, old = root_of(graph, dropped), graph.commits()[0].id
    result = graph.apply_schema(schema, allow_data_loss=True)
    assert result.left_for_cleanup == ()
    assert len(versions(table)) == (0 if dropped == "Q" else 1)
    if dropped == "Q":
        assert not table.exists()
    with pytest.raises(VersionReclaimed):
        og.open(graph.uri).snapshot(commit=old).read(dropped)
    assert not (Path(graph.uri) / "__cleanup").exists()
    assert errors_of(graph) == []


def test_another_branch_keeps_the_history_of_its_own_tables(graph: og.Graph) -> None:
    graph.create_branch("b")
    commits = [graph.upsert({"P": [{"name": f"on-b{i}"}]}, branch="b").commit for i in range(2)]
    graph.apply_schema(WITHOUT_SECRET, allow_data_loss=True)
    assert commits[0] is not None
    assert og.open(graph.uri).snapshot("b", commit=commits[0].id).read("P").num_rows == 4


@DROPS
def test_what_can_not_be_listed_is_refused_before_the_change(
    graph: og.Graph, tmp_path: Path, schema: str, dropped: str
) -> None:
    (tmp_path / "outside").mkdir()
    (root_of(graph, dropped) / "data" / "link").symlink_to(tmp_path / "outside")
    before = (graph.commits()[0].id, files(Path(graph.uri)))
    with pytest.raises(SymlinkInGraph):
        graph.apply_schema(schema, allow_data_loss=True)
    assert (og.open(graph.uri).commits()[0].id, files(Path(graph.uri))) == before


@DROPS
@pytest.mark.parametrize("at", ["announce", "exclude", "Remover"])
def test_a_store_that_fails_after_the_change_is_told_and_not_raised(
    graph: og.Graph, schema: str, dropped: str, at: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    from omnigraph.maintenance.cleanup import execute
    from omnigraph.storage.objects.store import ObjectStore

    def fails(*_: Any, **__: Any) -> None:
        raise StorageError(doing="removing", detail="no space left on device")

    with monkeypatch.context() as patched:
        where, name = (ObjectStore, "delete_many") if at == "Remover" else (execute, at)
        patched.setattr(where, name, fails)
        result = graph.apply_schema(schema, allow_data_loss=True)
    assert result.applied
    assert "no space left" in left(result)[f"node:{dropped}"][0]
    assert result.to_json()["left_for_cleanup"][0]["table_key"] == f"node:{dropped}"
    assert errors_of(graph) == []
    assert leases_and_announcements(graph) == set()
    graph.cleanup(keep=1, confirm=True)
    assert len(versions(root_of(graph, "P"))) == 1
    assert errors_of(graph) == []


def leases_and_announcements(graph: og.Graph) -> set[str]:
    return files(Path(graph.uri) / "__cleanup") if (Path(graph.uri) / "__cleanup").exists() else set()


def test_an_operation_of_a_dead_writer_leaves_the_removal_to_cleanup(graph: og.Graph) -> None:
    graph.create_branch("b")
    dead = {"nonce": "n", "owner": {**owner.myself(), "start": "1"}, "tables": [], "kind": "write"}
    plant.lock(Path(graph.uri), dead, branch="b")
    result = graph.apply_schema(WITHOUT_Q, allow_data_loss=True)
    assert result.applied
    assert "not recovered" in left(result)["node:Q"][0]
