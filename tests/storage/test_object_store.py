"""The object store: the same results on a disk and on S3, and what only one of them has."""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from omnigraph.errors import StorageError, SymlinkInGraph
from omnigraph.storage.layout import Location, locate
from omnigraph.storage.objects.client import store_errors
from omnigraph.storage.objects.control_objects import ControlObjects
from omnigraph.storage.objects.store import ObjectStore, all_exist, shared_store
from tests.faults.s3server import Fault, S3Server, World

_NUMBERS = itertools.count()


@pytest.fixture(scope="module")
def server() -> Iterator[S3Server]:
    with S3Server() as running:
        yield running


@pytest.fixture
def world(server: S3Server) -> World:
    return server.add(World(f"objects{next(_NUMBERS)}"))


@pytest.fixture
def bucket(server: S3Server, world: World) -> Location:
    options = {
        "endpoint": server.endpoint,
        "aws_access_key_id": f"{world.name}.a.0",
        "aws_secret_access_key": "x",
        "region": "us-east-1",
        "allow_http": "true",
    }
    return locate("s3://graphs/g", options=options)


@pytest.fixture(params=["disk", "s3"])
def location(request: pytest.FixtureRequest, tmp_path: Path) -> Location:
    return locate(tmp_path) if request.param == "disk" else request.getfixturevalue("bucket")


def names(store: ObjectStore, *args: Any) -> list[str]:
    return sorted(file.path for file in store.list_files(*args))


def test_an_object_is_listed_read_and_deleted_under_its_name(location: Location) -> None:
    store = ObjectStore(location, "__leases")
    assert store.list_files() == []
    store.put("a.json", b"12345")
    store.put("deep/er/b.json", b"1")
    assert names(store) == ["a.json", "deep/er/b.json"]
    assert names(store, "deep") == ["deep/er/b.json"]
    assert store.children() == (["a.json"], ["deep"], [])
    assert names(ObjectStore(location)) == ["__leases/a.json", "__leases/deep/er/b.json"]
    assert store.get("a.json") == b"12345"
    assert store.get_range("a.json", 1, 3) == b"23"
    assert store.get_range("a.json", 3, 99) == b"45"
    assert store.sizes(["a.json", "none", "deep/er/b.json"]) == [5, None, 1]
    store.delete(["none", "a.json"])
    store.delete_many(["none", "deep/er/b.json", "deep/none", "neither/none"])
    assert store.list_files() == []


def test_a_listing_and_a_look_at_one_object_say_the_same(location: Location) -> None:
    store = ObjectStore(location, "__leases")
    store.put("a", b"1")
    [first] = store.list_files()
    head = store.head("a")
    assert (head.path, head.size) == (first.path, first.size)
    assert int(head.modified_s) == int(first.modified_s), "S3 has whole seconds in the answer about one object"
    store.put("a", b"22")
    [second] = store.list_files()
    assert second.etag != first.etag
    assert second.size == 2


def test_a_missing_object_is_a_missing_file(location: Location) -> None:
    store = ObjectStore(location, "__leases")
    store.put("folder/a", b"1")
    for call in (
        lambda: store.get("none"),
        lambda: store.get_range("none", 0, 1),
        lambda: store.head("none"),
        lambda: store.get("folder"),
        lambda: ObjectStore(location, "nowhere").get("none"),
    ):
        with pytest.raises(FileNotFoundError):
            call()
    assert all_exist(location, ["__leases/folder/a"])
    assert not all_exist(location, ["__leases/folder/a", "__leases/folder/a/b"])


def test_a_create_only_put_never_replaces(location: Location) -> None:
    store = ObjectStore(location, "__recovery")
    store.create("x/1.0.json", b"mine")
    with pytest.raises(FileExistsError):
        store.create("x/1.0.json", b"yours")
    assert store.get("x/1.0.json") == b"mine"


def test_a_renamed_object_has_the_new_name_only(location: Location) -> None:
    store = ObjectStore(location, "nodes")
    store.put("fork/data/a", b"1")
    store.put("data/b", b"2")
    store.rename("fork/data/a", "data/a")
    assert names(store) == ["data/a", "data/b"]
    assert store.get("data/a") == b"1"


# ---- a bucket --------------------------------------------------------------------------------------------------------


def test_an_object_is_replaced_only_while_it_is_the_one_that_was_read(bucket: Location) -> None:
    store = ObjectStore(bucket, "nodes")
    store.put("v", b"old")
    raw, etag = store.get_tagged("v")
    assert raw == b"old"
    assert store.replace("v", b"new", etag=etag)
    assert not store.replace("v", b"late", etag=etag)
    assert not store.replace("none", b"late", etag=etag)
    assert store.get("v") == b"new"


def test_many_objects_go_with_one_request(bucket: Location, world: World) -> None:
    store = ObjectStore(bucket, "nodes")
    for number in range(20):
        store.put(f"data/{number}", b"1")
    before = len(world.log)
    store.delete_many([f"data/{number}" for number in range(20)])
    assert len(world.log) == before + 1
    assert store.list_files() == []


def test_an_upload_that_is_not_closed_never_shows(bucket: Location) -> None:
    store = ObjectStore(bucket, "nodes")
    writer = store.writer("big", chunk_bytes=5 << 20)
    writer.write(bytes(12 << 20))
    assert store.list_files() == []
    writer.close()
    assert [file.size for file in store.list_files()] == [12 << 20]
    assert sum(len(chunk) for chunk in store.stream("big", chunk_bytes=1 << 20)) == 12 << 20


def test_an_error_of_the_store_has_its_reason_and_what_was_done(bucket: Location, world: World) -> None:
    world.faults = [Fault("denied", "a", when=lambda _: True)]
    store = ObjectStore(bucket, "__leases")
    for call, doing in (
        (lambda: store.put("a", b""), "writing __leases/a"),
        (lambda: store.create("a", b""), "creating __leases/a"),
        (lambda: store.get("a"), "reading __leases/a"),
        (lambda: store.get("a", doing="reading a version of it"), "reading a version of it"),
        (store.list_files, "listing __leases"),
        (lambda: store.delete(["a"]), "deleting __leases/a"),
    ):
        with pytest.raises(StorageError) as failure:
            call()  # type: ignore[operator]
        assert failure.value.fields["doing"] == doing
        assert failure.value.fields["reason"] == "access_denied"


def test_a_request_that_fails_on_the_way_is_repeated(bucket: Location, world: World) -> None:
    world.faults = [Fault("error_503", "a", at=1)]
    store = ObjectStore(bucket, "__leases")
    store.put("a", b"1")
    assert store.get("a") == b"1"
    assert world.struck is not None


def test_a_shared_store_is_the_same_for_the_same_address(bucket: Location) -> None:
    again = Location(bucket.uri, bucket.is_local, dict(bucket.options))
    assert shared_store(bucket, "x") is shared_store(again, "x")
    assert shared_store(bucket, "x") is not shared_store(bucket, "y")


# ---- a disk ----------------------------------------------------------------------------------------------------------


def test_reading_creates_no_folder(tmp_path: Path) -> None:
    objects = ControlObjects(locate(tmp_path))
    assert objects.entries() == []
    assert objects.read("x/1.0.json") is None
    objects.delete(["x/1.0.json"])
    assert os.listdir(tmp_path) == []


def test_no_link_is_followed(tmp_path: Path) -> None:
    outside, graph = tmp_path / "outside", tmp_path / "graph"
    outside.mkdir()
    (outside / "a").write_bytes(b"secret")
    (graph / "__leases").mkdir(parents=True)
    (graph / "__leases/link").symlink_to(outside)
    (graph / "__leases/file").symlink_to(outside / "a")
    store = ObjectStore(locate(graph), "__leases")
    for call in (
        lambda: store.get("link/a"),
        lambda: store.get("file"),
        lambda: store.get_range("file", 0, 1),
        lambda: store.put("link/b", b""),
        lambda: store.put("file", b""),
        lambda: store.create("link/b", b""),
        lambda: store.delete(["link/a"]),
        lambda: store.delete_many(["link/a"]),
        store.list_files,
    ):
        with pytest.raises(SymlinkInGraph):
            call()
    links: list[str] = []
    assert store.list_files(links=links) == []
    assert sorted(links) == ["file", "link"]
    store.remove_empty_folder("link")
    assert os.listdir(outside) == ["a"]
    assert (outside / "a").read_bytes() == b"secret"


def test_a_put_whose_folder_is_removed_meanwhile_is_repeated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import obstore
    from obstore.exceptions import GenericError

    real, calls = obstore.put, []
    gone = FileNotFoundError("__leases"), GenericError("Unable to rename file: No such file or directory (os error 2)")

    def put(*args: Any, **options: Any) -> Any:
        calls.append(args)
        if len(calls) <= len(gone):
            os.rmdir(tmp_path / "__leases")
            raise gone[len(calls) - 1]
        return real(*args, **options)

    monkeypatch.setattr(obstore, "put", put)
    store = ObjectStore(locate(tmp_path), "__leases")
    store.put("a", b"1")
    assert store.get("a") == b"1"
    assert len(calls) == 3


def test_other_errors_of_a_put_are_not_repeated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import obstore
    from obstore.exceptions import GenericError

    calls: list[Any] = []

    def put(*args: Any, **_: Any) -> Any:
        calls.append(args)
        raise GenericError("Unable to rename file: No space left on device (os error 28)")

    monkeypatch.setattr(obstore, "put", put)
    with pytest.raises(StorageError) as failure:
        ObjectStore(locate(tmp_path), "__leases").put("a", b"1")
    assert failure.value.fields["reason"] == "disk_full"
    assert len(calls) == 1


def test_errors_of_our_own_are_not_translated() -> None:
    with pytest.raises(KeyError), store_errors("reading"):
        raise KeyError("a")
    with pytest.raises(StorageError), store_errors("reading", also=(KeyError,)):
        raise KeyError("a")
