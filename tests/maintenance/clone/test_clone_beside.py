"""Clones beside writers and cleanups: one state of the source, and nothing that came later by halves."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest

import omnigraph as og
from omnigraph.maintenance.clone import transfer
from tests.maintenance.relocate import graphs


@pytest.fixture
def source(tmp_path: Path) -> og.Graph:
    graph = og.init(tmp_path / "source", graphs.SCHEMA)
    graph.insert({"Person": [{"name": "a", "age": 0}, {"name": "b", "age": 0}]})
    graph.create_branch("side")
    for age in range(1, 4):
        graph.upsert({"Person": [{"name": name, "age": age} for name in "ab"]}, branch="side")
        graph.upsert({"Person": [{"name": name, "age": age} for name in "ab"]})
    return graph


def test_a_cleanup_and_writers_in_the_middle_of_a_clone(
    source: og.Graph, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Everything happens between the first file and the second one: the lease holds what is being copied."""
    before = graphs.contents(source)
    other = og.open(source.uri, engine="local")
    copy_file = transfer.Transfer.file
    happened: list[Any] = []

    def interrupted(self: Any, file: Any) -> Any:
        if not happened:
            happened.append(True)
            other.upsert({"Person": [{"name": "a", "age": 99}]})
            other.upsert({"Person": [{"name": "late", "age": 99}]}, branch="side")
            other.delete_branch("side")
            other.optimize()
            happened.append(other.cleanup(keep=1, confirm=True))
        return copy_file(self, file)

    monkeypatch.setattr(transfer.Transfer, "file", interrupted)
    result = og.clone(source.uri, tmp_path / "clone", verify="full")
    assert result.ok
    assert not happened[1].failed
    clone = og.open(tmp_path / "clone", engine="local")
    assert graphs.contents(clone) == before
    for commit in clone.commits():
        clone.snapshot(commit=commit.id).read("Person")
    after = source.cleanup(keep=1, confirm=True)
    assert after.old_versions_removed, "the lease is gone with the clone"


@pytest.mark.slow
def test_clones_beside_a_writer_are_states_that_it_committed(source: og.Graph, tmp_path: Path) -> None:
    stop = threading.Event()
    trouble: list[BaseException] = []

    def write() -> None:
        graph = og.open(source.uri, engine="local")
        try:
            for age in range(100, 10_000):
                if stop.is_set():
                    return
                graph.upsert({"Person": [{"name": name, "age": age} for name in "ab"], "Place": [{"name": str(age)}]})
                graph.upsert({"Person": [{"name": name, "age": age} for name in "ab"]}, branch="side")
                if age % 7 == 0:
                    graph.cleanup(keep=2, confirm=True)
        except BaseException as error:  # noqa: BLE001 - the test's own thread raises it again
            trouble.append(error)

    writer = threading.Thread(target=write)
    writer.start()
    try:
        for number in range(4):
            options: dict[str, Any] = {} if number % 2 else {"branch": "side"}
            result = og.clone(source.uri, tmp_path / f"clone{number}", verify="full", **options)
            assert result.ok
            clone = og.open(tmp_path / f"clone{number}", engine="local")
            for branch in clone.branches():
                ages = clone.nodes("Person", branch=branch.name)["age"].to_pylist()
                assert len(set(ages)) == 1, "both rows are of one commit"
    finally:
        stop.set()
        writer.join()
    assert not trouble
    assert source.verify(full=True).ok
