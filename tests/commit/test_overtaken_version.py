"""A version that another process rolled back and cleanup removed, while its writer stood still right after making it.

The writer finds its own file missing. That is no failure of the store: it prepares again and is acknowledged.
"""

from __future__ import annotations

from pathlib import Path

import pytest

import omnigraph as og
from omnigraph.storage import durability
from omnigraph.storage.files import checksums
from tests.commit.stepper import open_without_heart

SCHEMA = "node Person { name: String @key  age: I32? }\nnode City { name: String @key }"


@pytest.mark.parametrize("call", ["note", "sync_files"])
def test_a_writer_whose_version_was_collected_prepares_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    monkeypatch.setenv("OMNIGRAPH_FSYNC", "on")
    og.init(str(tmp_path / "graph"), SCHEMA).close()
    graph = open_without_heart(str(tmp_path / "graph"))
    graph.insert({"Person": [{"name": "Ada", "age": 1}]})
    module = checksums if call == "note" else durability
    original = getattr(module, call)
    paused: list[str] = []

    def stand_still(paths: object) -> None:
        """The first call for a new version of the table waits until another process has settled and cleaned."""
        paths = list(paths)  # type: ignore[call-overload]
        if not paused and any("/nodes/" in p and p.endswith(".manifest") for p in paths):
            paused.append(paths[0])
            monkeypatch.setenv("OMNIGRAPH_LEASE_S", "0.1")
            other = open_without_heart(graph.uri)
            for age in (2, 3, 4):
                other.upsert({"Person": [{"name": "Ada", "age": age}], "City": [{"name": f"{age}"}]})
            other.delete({"City": ["2", "3", "4"]})
            other.cleanup(keep=1, confirm=True)
            monkeypatch.delenv("OMNIGRAPH_LEASE_S")
            assert not Path(paused[0]).exists()
        original(paths)

    monkeypatch.setattr(module, call, stand_still)
    graph.insert({"Person": [{"name": "Bob", "age": 9}], "City": [{"name": "Bern"}]})
    assert paused
    rows = og.open(graph.uri).nodes("Person")
    assert sorted(zip(rows["name"].to_pylist(), rows["age"].to_pylist(), strict=True)) == [("Ada", 4), ("Bob", 9)]
    assert og.open(graph.uri).nodes("City")["name"].to_pylist() == ["Bern"]
    assert graph.verify(full=True).ok
