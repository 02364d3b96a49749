"""Clones between disks and buckets, in every direction."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import omnigraph as og
from omnigraph.errors import CloneUnfinished, StorageError
from omnigraph.maintenance.clone import transfer
from omnigraph.maintenance.clone.plan import CopiedFile
from omnigraph.storage.layout import locate
from omnigraph.storage.objects.client import open_store
from tests.faults.s3server import Fault, World
from tests.maintenance.relocate import graphs


def operations(world: World) -> set[str]:
    return {entry.operation for entry in world.log}


@pytest.mark.slow
def test_from_disk_to_bucket_to_bucket_and_back_to_disk(
    original: Path, tmp_path: Path, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = graphs.contents(og.open(original))
    up = og.clone(original, "s3://bucket/up")
    assert (up.ok, up.copied.linked) == (True, 0)
    world.log.clear()
    assert og.clone("s3://bucket/up", "s3://bucket/beside").ok
    assert "COPY" in operations(world), "the store copies by itself within a bucket"
    world.log.clear()
    monkeypatch.setattr(transfer, "PIECE_BYTES", 600)
    assert og.clone("s3://bucket/beside", "s3://other/across").ok
    assert {"MP_START", "MP_PART", "MP_FINISH"} <= operations(world), "large files go in pieces"
    assert "COPY" not in operations(world)
    assert og.clone("s3://other/across", tmp_path / "down", verify="full").ok
    for place in ("s3://bucket/up", "s3://bucket/beside", "s3://other/across", tmp_path / "down"):
        assert graphs.contents(og.open(place)) == expected, place
    assert not any("/__" in key and "/__manifest/" not in key for key in world.store.objects)


def test_one_state_of_a_bucket_on_a_disk_and_back(original: Path, tmp_path: Path, world: World) -> None:
    og.clone(original, "s3://bucket/up", verify="none")
    expected = graphs.comparable(og.open(original).snapshot("deep").read("Person").to_pylist())
    assert og.clone("s3://bucket/up", tmp_path / "down", branch="deep").ok
    assert og.clone(tmp_path / "down", "s3://bucket/again", branch="main").ok
    for place in (tmp_path / "down", "s3://bucket/again"):
        graph = og.open(place, engine="local")
        assert graphs.comparable(graph.snapshot().read("Person").to_pylist()) == expected
        graph.upsert({"Person": [{"name": "later", "age": 1}]})
        assert graph.verify().ok


def test_answers_that_are_lost_and_requests_that_are_refused(original: Path, world: World) -> None:
    expected = graphs.contents(og.open(original))
    world.faults.append(Fault("denied", "me", when=lambda entry: "/data/" in entry.key and entry.operation == "PUT"))
    with pytest.raises(StorageError):
        og.clone(original, "s3://bucket/clone")
    world.clients["me"].denied = False
    for refused in (lambda: og.open("s3://bucket/clone").branches(), lambda: og.init("s3://bucket/clone", "node P {}")):
        with pytest.raises(CloneUnfinished, match="not finished"):
            refused()
    # The last put of all: it has happened, and nobody is told.
    world.faults.append(Fault("lost", "me", when=lambda e: e.operation == "CREATE" and "__manifest/_versions" in e.key))
    result = og.clone(original, "s3://bucket/clone")
    assert result.ok
    assert world.struck is not None
    assert world.struck.fault == "lost"
    assert graphs.contents(og.open("s3://bucket/clone")) == expected
    assert not any("/__clone/" in key for key in world.store.objects)


def test_an_upload_that_fails_in_the_middle_never_shows(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    import obstore

    monkeypatch.setattr(transfer, "PIECE_BYTES", 600)
    source, target = locate("s3://bucket/source"), locate("s3://other/target")
    obstore.put(open_store(source, ""), "file", bytes(5000))
    file = CopiedFile("file", "file", 5000)
    pieces = transfer.Transfer._pieces

    def cut_short(self: transfer.Transfer, one: CopiedFile) -> Iterator[Any]:
        yield next(pieces(self, one))
        raise OSError("the network is gone")

    with monkeypatch.context() as patch, pytest.raises(StorageError, match="network is gone"):
        patch.setattr(transfer.Transfer, "_pieces", cut_short)
        transfer.Transfer(source, target).file(file)
    assert "target/file" not in world.store.objects
    transfer.Transfer(source, target).file(file)
    assert world.store.objects["target/file"].body == bytes(5000)
