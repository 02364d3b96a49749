"""A store that ignores create-only puts is refused before it loses a write: it can't decide who was first."""

from __future__ import annotations

import errno
import itertools
import os
from pathlib import Path
from typing import Any

import obstore
import pytest

import omnigraph
from omnigraph.errors import GraphExists, StorageError, UnsupportedStore
from omnigraph.storage.objects.json_objects import CLEANUP
from tests.faults.s3server import Fault, S3Server, World

URI = "s3://graphs/g"
SCHEMA = "node P { name: String @key }"
_NUMBERS = itertools.count()


def new_world(server: S3Server, *, conditional: bool = True) -> World:
    return server.add(World(f"conditional{next(_NUMBERS)}", conditional=conditional))


def options(server: S3Server, world: World, client: str, **more: str) -> dict[str, str]:
    return {
        "endpoint": server.endpoint,
        "aws_access_key_id": f"{world.name}.{client}.0",
        "aws_secret_access_key": "x",
        "region": "us-east-1",
        "allow_http": "true",
        **more,
    }


def insert(graph: Any, name: str) -> None:
    graph.insert({"P": [{"name": name}]})


def requests(world: World, client: str, part: str = "") -> list[str]:
    return [entry.operation for entry in world.log if entry.client == client and part in entry.key]


def test_init_refuses_a_store_that_ignores_create_only_puts(server: S3Server) -> None:
    world = new_world(server, conditional=False)
    with pytest.raises(UnsupportedStore) as refusal:
        omnigraph.init(URI, SCHEMA, storage_options=options(server, world, "a"))
    assert "If-None-Match" in refusal.value.message
    assert refusal.value.fields["missing"] == "create_only_put"
    assert "nothing was written" in refusal.value.remedy
    assert not world.store.objects


def write(graph: Any) -> None:
    insert(graph, "b")


def branch(graph: Any) -> None:
    graph.create_branch("b")


def load(graph: Any) -> None:
    graph.load([b'{"type": "P", "data": {"name": "b"}}\n'], mode="append", engine="local")


def cleanup(graph: Any) -> None:
    graph.cleanup(keep=1, confirm=True)


@pytest.mark.parametrize("act", [write, branch, load, cleanup])
def test_a_graph_on_such_a_store_can_be_read_and_not_written(server: S3Server, act: Any) -> None:
    world = new_world(server)
    insert(omnigraph.init(URI, SCHEMA, storage_options=options(server, world, "a")), "a")
    world.store.conditional = False
    objects = dict(world.store.objects)
    graph = omnigraph.open(URI, storage_options=options(server, world, "b"))
    with pytest.raises(UnsupportedStore, match="If-None-Match"):
        act(graph)
    assert graph.nodes("P")["name"].to_pylist() == ["a"]
    assert world.store.objects == objects


def test_the_probe_is_made_once_per_process_and_graph_and_never_by_readers(server: S3Server) -> None:
    world = new_world(server)
    graph = omnigraph.init(URI, SCHEMA, storage_options=options(server, world, "a"))
    assert requests(world, "a", CLEANUP) == ["CREATE", "CREATE"]
    assert requests(world, "a").count("BULK_DELETE") == 1
    assert not any(CLEANUP in key for key in world.store.objects)
    insert(graph, "a")
    insert(graph, "b")
    insert(omnigraph.open(URI, storage_options=options(server, world, "a")), "c")
    assert len(requests(world, "a", CLEANUP)) == 2
    reader = omnigraph.open(URI, storage_options=options(server, world, "reader"))
    assert reader.nodes("P").num_rows == 3
    assert not {"CREATE", "PUT", "BULK_DELETE"} & set(requests(world, "reader"))
    with pytest.raises(GraphExists):
        omnigraph.init(URI, SCHEMA, storage_options=options(server, world, "late"))
    assert not requests(world, "late", CLEANUP)


def test_a_store_whose_conditional_puts_are_switched_off_is_refused(server: S3Server) -> None:
    world = new_world(server)
    with pytest.raises(UnsupportedStore, match="If-None-Match"):
        omnigraph.init(URI, SCHEMA, storage_options=options(server, world, "a", conditional_put="disabled"))


@pytest.mark.parametrize("kind", ["lost", "applied_500", "error_500"])
@pytest.mark.parametrize("nth", [1, 2])
def test_a_probe_whose_answer_is_lost_blames_no_store(server: S3Server, kind: str, nth: int) -> None:
    world = new_world(server)
    seen = itertools.count(1)
    world.faults.append(Fault(kind, "a", when=lambda entry: CLEANUP in entry.key and next(seen) == nth))
    try:
        omnigraph.init(URI, SCHEMA, storage_options=options(server, world, "a"))
    except StorageError:
        omnigraph.init(URI, SCHEMA, storage_options=options(server, world, "a"))
    assert world.struck is not None


def test_a_probe_that_somebody_else_removed_in_between_blames_no_store(
    server: S3Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = new_world(server)
    real, puts = obstore.put, []

    def put(store: Any, path: str, *rest: Any, **more: Any) -> Any:
        answer = real(store, path, *rest, **more)
        if not puts:
            puts.append(path)
            obstore.delete(store, path)
        return answer

    monkeypatch.setattr(obstore, "put", put)
    omnigraph.init(URI, SCHEMA, storage_options=options(server, world, "a"))
    assert puts


@pytest.mark.parametrize("number", [errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS])
def test_init_refuses_a_file_system_without_hard_links(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    def link(*_: object, **__: object) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, "link", link)
    with pytest.raises(UnsupportedStore, match="hard links") as refusal:
        omnigraph.init(tmp_path / "g", SCHEMA)
    assert refusal.value.fields["missing"] == "hard_links"
    assert not list((tmp_path / "g").iterdir())


@pytest.mark.parametrize("number", [errno.EPERM, errno.EOPNOTSUPP])
def test_a_write_to_a_graph_that_was_copied_to_such_a_file_system_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    graph = omnigraph.init(tmp_path / "g", SCHEMA)
    real = obstore.put

    def link(*_: object, **__: object) -> None:
        raise OSError(number, os.strerror(number))

    def put(store: Any, path: str, *rest: Any, **more: Any) -> Any:
        if more.get("mode") != "create":
            return real(store, path, *rest, **more)
        detail = f"Generic LocalFileSystem error: Unable to rename file: {os.strerror(number)} (os error {number})"
        raise obstore.exceptions.GenericError(detail)

    monkeypatch.setattr(os, "link", link)
    monkeypatch.setattr(obstore, "put", put)
    with pytest.raises(UnsupportedStore, match="hard links"):
        graph.insert({"P": [{"name": "a"}]})
    monkeypatch.undo()
    graph.insert({"P": [{"name": "a"}]})
    assert not (tmp_path / "g" / CLEANUP).exists()


def test_init_on_a_local_disk_leaves_no_probe(tmp_path: Path) -> None:
    omnigraph.init(tmp_path / "g", SCHEMA)
    assert not (tmp_path / "g" / CLEANUP).exists()
