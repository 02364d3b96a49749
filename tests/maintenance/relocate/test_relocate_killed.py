"""Relocate struck at every change of the store: what is not done is refused, and the next run completes it."""

from __future__ import annotations

import itertools
import os
import random
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import omnigraph as og
from omnigraph.errors import GraphMoved, StorageError
from omnigraph.storage import durability
from omnigraph.storage.files import rebase
from tests.faults.s3server import Fault, S3Server, World
from tests.maintenance.relocate import graphs

KILLED_RELOCATE = """
import os, signal, sys
import omnigraph as og
at = [int(sys.argv[2])]
def counted(call):
    def struck(*args, **options):
        at[0] -= 1
        if at[0] == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        return call(*args, **options)
    return struck
graph = og.open(sys.argv[1], engine="local")
os.replace, os.utime = counted(os.replace), counted(os.utime)
graph.relocate(confirm=True)
"""


class Struck(BaseException):
    """Stands for the end of the process."""


def tables(root: Path) -> dict[str, str]:
    """Without half-written files, and without the manifest, to which every run adds its checksums."""
    left_out = ("/.tmp_rebase_", "__manifest/")
    return {path: digest for path, digest in graphs.digests(root).items() if not any(part in path for part in left_out)}


def require_refused_or_right(root: Path, expected: dict[str, Any]) -> int:
    """How many branches are refused; the others hold what they held."""
    refused = 0
    graph = og.open(root, engine="local")
    for branch in ("main", "review", "deep"):
        try:
            rows = graph.snapshot(branch).read("Person").to_pylist()
        except GraphMoved:
            refused += 1
            continue
        assert graphs.comparable(rows) == expected[f"{branch}:Person"]
    return refused


@pytest.fixture
def small(tmp_path: Path) -> Iterator[Path]:
    """A graph of few versions, whose bytes are the same after the test."""
    graph = og.init(tmp_path / "original", graphs.SCHEMA)
    graph.insert({"Person": [{"name": "p1", "age": 1}]})
    for name, of in (("review", "main"), ("deep", "review")):
        graph.create_branch(name, from_branch=of)
        graph.upsert({"Person": [{"name": name, "age": 1}]}, branch=name)
    before = graphs.digests(Path(graph.uri))
    yield Path(graph.uri)
    assert graphs.digests(Path(graph.uri)) == before


@pytest.mark.slow
def test_struck_at_every_file_operation(small: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("omnigraph.maintenance.relocate.verify", lambda *_: None)
    expected = graphs.contents(og.open(small))
    copy = tmp_path / "copy"

    def run(at: int) -> bool:
        """Whether it came to its end before its `at`th operation."""
        left = itertools.count(at, -1)

        def counted(call: Callable[..., Any]) -> Callable[..., Any]:
            def struck(*args: Any, **options: Any) -> Any:
                if next(left) == 0:
                    raise Struck
                return call(*args, **options)

            return struck

        with monkeypatch.context() as patch:
            for module, name in (
                (os, "utime"),
                (os, "replace"),
                (durability, "sync_files"),
                (durability, "require_size"),
            ):
                patch.setattr(module, name, counted(getattr(module, name)))
            patch.setattr(rebase.os, "unlink", lambda _: None)  # a process that is killed tidies nothing up
            try:
                og.open(copy, engine="local").relocate(confirm=True)
            except Struck:
                return False
            return True

    shutil.copytree(small, copy)
    assert run(10_000)
    goal = tables(copy)
    refused = []
    for at in itertools.count():
        shutil.rmtree(copy)
        shutil.copytree(small, copy)
        if run(at):
            break
        refused.append(require_refused_or_right(copy, expected))
        assert run(10_000)
        assert tables(copy) == goal, f"struck at operation {at}"
    assert len(refused) >= 20, "4 versions of 5 operations each, and the checksums that they will have"
    assert (refused[0], refused[-1]) == (2, 0)


@pytest.mark.slow
def test_a_killed_process_is_followed_by_one_that_completes(small: Path, tmp_path: Path) -> None:
    expected = graphs.contents(og.open(small))
    copy = Path(shutil.copytree(small, tmp_path / "copy"))
    seed = random.randrange(1 << 30)
    print("seed", seed)
    command = [sys.executable, "-c", KILLED_RELOCATE, str(copy), str(random.Random(seed).randint(2, 7))]
    assert subprocess.run(command, timeout=120, check=False).returncode == -signal.SIGKILL
    require_refused_or_right(copy, expected)
    graph = og.open(copy, engine="local")
    assert graph.relocate(confirm=True).ok
    assert graphs.contents(graph) == expected
    half_written = list(copy.rglob(".tmp_rebase_*"))
    for file in half_written:
        os.utime(file, (0, 0))
    assert not graph.cleanup(keep=100, confirm=True).failed
    assert not list(copy.rglob(".tmp_rebase_*")), "cleanup takes what the killed ones left"


@pytest.fixture(scope="module")
def server() -> Iterator[S3Server]:
    with S3Server() as running:
        yield running


@pytest.fixture
def world(server: S3Server) -> Iterator[World]:
    """`s3://bucket/live`, and `s3://bucket/backup` as a plain copy of its objects."""
    world = server.add(World("relocate"))
    graphs.build("s3://bucket/live", storage_options=options(server))
    copied = {key.replace("live/", "backup/", 1): one for key, one in world.store.objects.items()}
    world.store.objects.update(copied)
    yield world
    server.remove(world)


def options(server: S3Server) -> dict[str, str]:
    return {
        "aws_access_key_id": "relocate.me.0",
        "aws_secret_access_key": "test",
        "region": "us-east-1",
        "endpoint": server.endpoint,
        "allow_http": "true",
    }


def objects(world: World, prefix: str) -> dict[str, bytes]:
    return {key: one.body for key, one in world.store.objects.items() if key.startswith(prefix)}


@pytest.mark.slow
def test_a_copy_in_a_bucket_whose_answers_are_lost_and_refused(
    server: S3Server, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    def opened(name: str) -> og.Graph:
        return og.open(f"s3://bucket/{name}", engine="local", storage_options=options(server))

    before = objects(world, "live/")
    expected = graphs.contents(opened("live"))
    with pytest.raises(GraphMoved, match="s3://bucket/live"):
        opened("backup").nodes("Person", branch="review")
    for kind in ("lost", "applied_500", "denied"):
        world.faults.append(Fault(kind, "me", when=lambda entry: entry.operation == "SWAP"))
    with monkeypatch.context() as patch:
        patch.setenv("OMNIGRAPH_MAINTENANCE_CONCURRENCY", "1")
        with pytest.raises(StorageError, match="rewriting"):
            opened("backup").relocate(confirm=True)
    world.clients["me"].denied = False
    assert len(opened("backup").relocate().versions) == 10, "one was rewritten, although no answer said so"
    world.faults.append(Fault("lost", "me", when=lambda entry: entry.operation == "SWAP"))
    result = opened("backup").relocate(confirm=True)
    assert (result.ok, result.rewritten) == (True, 10)
    assert graphs.contents(opened("backup")) == expected
    assert objects(world, "live/") == before
    assert opened("backup").verify(full=True).ok
