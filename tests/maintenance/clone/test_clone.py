"""A clone holds what its source holds, shares nothing with it that anybody changes, and is a graph of its own."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any

import lance
import pyarrow as pa
import pytest

import omnigraph as og
from omnigraph.errors import GraphExists, GraphMoved, GraphNotFound, StorageError, UsageError
from omnigraph.storage import durability
from tests.cli.conftest import Cli
from tests.maintenance.relocate import graphs
from tests.maintenance.verify import damage


def states(graph: og.Graph) -> dict[str, Any]:
    """Every commit of every branch with its rows."""
    fresh = og.open(graph.uri, engine="local")
    commits = {c.id: b.name for b in fresh.branches() for c in fresh.commits(b.name)}
    return {
        commit: {n: graphs.comparable(fresh.snapshot(branch, commit=commit).read(n).to_pylist()) for n in ("Person",)}
        for commit, branch in commits.items()
    }


def inodes(root: Path) -> dict[str, int]:
    return {str(p.relative_to(root)): p.stat().st_ino for p in root.rglob("*") if p.is_file()}


def test_the_whole_history_with_every_branch_and_state(original: Path, tmp_path: Path) -> None:
    result = og.clone(original, tmp_path / "clone", verify="full")
    assert (result.ok, result.missing, result.branch) == (True, (), None)
    graph = og.open(tmp_path / "clone", engine="local")
    assert graphs.contents(graph) == graphs.contents(og.open(original))
    assert states(graph) == states(og.open(original))
    assert sorted(p.name for p in (tmp_path / "clone").iterdir()) == ["__manifest", "__reserve", "edges", "nodes"]
    assert not (original / "__leases").exists()


def test_a_clone_is_written_optimized_and_cleaned_up_on_its_own(original: Path, tmp_path: Path) -> None:
    og.clone(original, tmp_path / "clone")
    graph = og.open(tmp_path / "clone", engine="local")
    for branch in graphs.BRANCHES:
        graph.upsert({"Person": [{"name": "later", "age": 1}]}, branch=branch)
    graph.optimize()
    before = graphs.contents(graph)
    assert graph.cleanup(keep=1, confirm=True).old_versions_removed
    assert graphs.contents(graph) == before
    assert graph.verify(full=True).ok


def test_what_happens_to_the_source_does_not_reach_the_clone(tmp_path: Path) -> None:
    source = graphs.build(tmp_path / "source")
    og.clone(source.uri, tmp_path / "clone")
    graph = og.open(tmp_path / "clone", engine="local")
    before, bytes_before = graphs.contents(graph), graphs.digests(tmp_path / "clone")
    for branch in ("deep", "review", "trial"):
        source.delete_branch(branch)
    source.optimize()
    source.cleanup(keep=1, confirm=True)
    shutil.rmtree(source.uri)
    assert graphs.digests(tmp_path / "clone") == bytes_before
    assert graphs.contents(graph) == before


def test_only_files_that_never_change_are_hard_links(original: Path, tmp_path: Path) -> None:
    result = og.clone(original, tmp_path / "clone", verify="none")
    shared = {path for path, inode in inodes(tmp_path / "clone").items() if inode in inodes(original).values()}
    assert len(shared) == result.copied.linked > 0
    assert all(path.split("/")[-2] in ("data", "_deletions", "_transactions") for path in shared)
    copied = og.clone(original, tmp_path / "copied", links=False)
    assert (copied.ok, copied.copied.linked, copied.copied.files) == (True, 0, result.copied.files)
    assert not set(inodes(tmp_path / "copied").values()) & set(inodes(original).values())


@pytest.mark.parametrize("branch", graphs.BRANCHES)
def test_one_branch_becomes_main_and_needs_no_other_folder(original: Path, tmp_path: Path, branch: str) -> None:
    result = og.clone(original, tmp_path / "clone", branch=branch, verify="full")
    assert (result.ok, result.branch, result.tables, result.versions) == (True, branch, 3, 3)
    assert not list((tmp_path / "clone").glob("*/*/tree"))
    moved = shutil.move(tmp_path / "clone", tmp_path / "moved")
    graph, source = og.open(moved, engine="local"), og.open(original)
    for name in ("Person", "Place", "Visited"):
        rows = graphs.comparable(graph.snapshot().read(name).to_pylist())
        assert rows == graphs.comparable(source.snapshot(branch).read(name).to_pylist())
    [commit] = graph.commits()
    assert (commit.kind, commit.parent) == ("clone", None)
    assert (commit.summary or {})["cloned_from"] == {
        "uri": str(original),
        "branch": branch,
        "commit": source.branches()[[b.name for b in source.branches()].index(branch)].commit,
    }
    graph.upsert({"Person": [{"name": "p1", "age": 7}, {"name": "later"}]})
    graph.create_branch("next")
    graph.delete({"Person": ["later"]}, branch="next")
    graph.optimize()
    assert not graph.cleanup(keep=1, confirm=True).failed
    assert graph.verify(full=True).ok


def test_an_older_state_by_its_commit_and_by_its_time(original: Path, tmp_path: Path) -> None:
    source = og.open(original)
    commit = source.commits()[-2]
    og.clone(original, tmp_path / "commit", commit=commit.id)
    og.clone(original, tmp_path / "time", as_of=commit.created_at)
    expected = graphs.comparable(source.snapshot(commit=commit.id).read("Person").to_pylist())
    assert expected != graphs.comparable(source.snapshot().read("Person").to_pylist())
    for name in ("commit", "time"):
        assert graphs.comparable(og.open(tmp_path / name).nodes("Person").to_pylist()) == expected


@pytest.mark.slow
def test_indices_blobs_and_vectors_go_along(tmp_path: Path) -> None:
    source = damage.make(tmp_path / "source")
    damage.branch_out(source)
    whole = og.clone(source.uri, tmp_path / "whole", verify="full")
    state = og.clone(source.uri, tmp_path / "state", branch="side", verify="full")
    expected = og.open(source.uri, engine="local").verify(full=True)
    for result in (whole, state):
        assert result.verified is not None
        assert (result.ok, result.verified.checked["index_questions"] > 0) == (True, True)
        assert result.verified.checked["blobs"] > 0
    assert whole.verified is not None
    assert {f.code for f in whole.verified.findings} == {f.code for f in expected.findings}


@pytest.mark.parametrize("options", [{}, {"branch": "deep"}], ids=["whole", "state"])
def test_checksums_of_the_source_hold_for_the_clone(original: Path, tmp_path: Path, options: dict[str, Any]) -> None:
    result = og.clone(original, tmp_path / "clone", verify="full", links=False, **options)
    assert result.verified is not None
    assert (result.ok, result.verified.checked["unchecked"]) == (True, 0)
    assert result.verified.checked["checksums"] > 5
    pin = og.open(tmp_path / "clone")._committer.view("main" if options else "deep").pins
    table = next(p for p in pin.values() if p.version > 3)
    for pattern in (f"{table.root}/data/*.lance", durability.manifest_path(table.path, table.version)):
        files = {file: file.read_bytes() for file in (tmp_path / "clone").glob(pattern)}
        for file, raw in files.items():
            file.write_bytes(raw[:-30] + bytes([raw[-30] ^ 1]) + raw[-29:])
        codes = {f.code for f in og.open(tmp_path / "clone", engine="local").verify(full=True).findings}
        assert "checksum_mismatch" in codes, pattern
        for file, raw in files.items():
            file.write_bytes(raw)


def test_what_is_not_decided_is_not_part_of_a_clone(tmp_path: Path) -> None:
    """Versions above what is published belong to writers at work, or to nobody."""
    source = og.init(tmp_path / "source", graphs.SCHEMA)
    source.insert({"Person": [{"name": "p1", "age": 1}]})
    source.create_branch("side")
    source.upsert({"Person": [{"name": "p2", "age": 1}]}, branch="side")
    for branch in ("main", "side"):
        view = source._committer.view(branch)
        line = source._location.join(view.pins[view.type("Person").id].path)
        lance.write_dataset(pa.table({"id": ["x"], "name": ["x"], "age": [1]}), line, mode="append")
    (tmp_path / "source" / "__staging" / "job").mkdir(parents=True)
    (tmp_path / "source" / "__staging" / "job" / "file").write_bytes(b"staged")
    assert {f.code for f in source.verify().findings if f.severity == "error"} == {"uncovered_drift"}
    result = og.clone(source.uri, tmp_path / "clone", verify="full")
    assert result.ok
    assert sorted(p.name for p in (tmp_path / "clone").iterdir()) == ["__manifest", "__reserve", "edges", "nodes"]
    assert og.open(tmp_path / "clone").nodes("Person", branch="side")["id"].to_pylist() == ["p1", "p2"]


def test_tags_of_lance_go_along_with_what_they_name(tmp_path: Path) -> None:
    source = og.init(tmp_path / "source", graphs.SCHEMA)
    source.insert({"Person": [{"name": "p1", "age": 1}]})
    pin = next(p for p in source._committer.view("main").pins.values() if p.version > 1)
    table = lance.dataset(source._location.join(pin.path))
    table.tags.create("kept", pin.version)
    table.tags.create("above", lance.write_dataset(table.to_table(), table.uri, mode="append").version)
    og.clone(source.uri, tmp_path / "clone", verify="none")
    assert set(lance.dataset(str(tmp_path / "clone" / pin.path)).tags.list()) == {"kept"}


def test_a_damaged_source_is_copied_as_far_as_it_goes_and_told(tmp_path: Path, cli: Cli) -> None:
    source = og.init(tmp_path / "source", graphs.SCHEMA)
    source.insert({"Person": [{"name": "p1", "age": 1}]})
    [data] = (tmp_path / "source").glob("nodes/*/data/*.lance")
    data.unlink()
    with pytest.raises(StorageError, match=data.name):
        og.clone(source.uri, tmp_path / "state", branch="main")
    assert not (tmp_path / "state" / "__clone").exists()
    done = cli("clone", source.uri, tmp_path / "clone")
    assert (done.code, data.name in done.out, "missing_file" in done.out) == (1, True, True)


def test_refusals_leave_no_trace(original: Path, tmp_path: Path) -> None:
    for target in (original, original / "inside", original.parent):
        with pytest.raises(UsageError, match="of its own"):
            og.clone(original, target)
    with pytest.raises(GraphNotFound):
        og.clone(tmp_path / "nothing", tmp_path / "clone")
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "mine.txt").write_text("mine")
    with pytest.raises(UsageError, match="not empty"):
        og.clone(original, tmp_path / "full")
    (tmp_path / "file").write_text("mine")
    with pytest.raises(UsageError, match="is a file"):
        og.clone(original, tmp_path / "file")
    with pytest.raises(og.errors.BranchNotFound):
        og.clone(original, tmp_path / "clone", branch="never")
    with pytest.raises(og.errors.CommitNotFound):
        og.clone(original, tmp_path / "clone", commit="never")
    with pytest.raises(UsageError, match="verify is"):
        og.clone(original, tmp_path / "clone", verify="some")  # type: ignore[arg-type]
    og.init(tmp_path / "graph", graphs.SCHEMA)
    with pytest.raises(GraphExists):
        og.clone(original, tmp_path / "graph")
    assert {p.name for p in tmp_path.iterdir()} - {"full", "file", "graph"} <= {"clone"}
    assert not any((tmp_path / "clone").glob("**/*")) if (tmp_path / "clone").exists() else True


def test_a_moved_source_is_refused(original: Path, tmp_path: Path) -> None:
    moved = shutil.copytree(original, tmp_path / "moved")
    with pytest.raises(GraphMoved):
        og.clone(moved, tmp_path / "clone")
    og.clone(moved, tmp_path / "main", branch="main")


def test_the_command(original: Path, tmp_path: Path, cli: Cli) -> None:
    done = cli("clone", original, tmp_path / "clone")
    assert (done.code, "the whole history" in done.out, "ok" in done.out) == (0, True, True)
    document = cli("clone", original, tmp_path / "state", "--branch", "deep", "--copy", "--json").json
    assert (document["ok"], document["branch"], document["linked"], document["verify"]["ok"]) == (
        True,
        "deep",
        0,
        True,
    )
    assert cli("clone", original, tmp_path / "state").code == 1
    assert cli("clone", original).code == 2
    assert cli("verify", tmp_path / "state", "--full").code == 0


def test_a_source_that_may_only_be_read(original: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from omnigraph.storage.objects import leases

    def refused(*_: object, **__: object) -> None:
        raise StorageError(doing="writing __leases", detail="403 Forbidden: AccessDenied")

    monkeypatch.setattr(leases.HeldLease, "renew", refused)
    assert og.clone(original, tmp_path / "clone").ok


def test_links_that_the_file_system_refuses_are_copies(
    original: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    link = os.link

    def across(source: Any, target: Any, **options: Any) -> None:
        if str(source).startswith(str(original)):
            raise OSError(18, "Invalid cross-device link")
        link(source, target, **options)

    monkeypatch.setattr(os, "link", across)
    result = og.clone(original, tmp_path / "clone")
    assert (result.ok, result.copied.linked) == (True, 0)
