"""Cleanup and recovery work on a full disk, with the space that the graph keeps for them.

The disk is that of `localdisk`: it has as many bytes as the test says, and every call that needs more fails.
"""

from __future__ import annotations

import errno
import os
import re
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

import omnigraph as og
from omnigraph.maintenance.cleanup import space
from omnigraph.storage.layout import CACHE, RESERVE
from omnigraph.storage.objects import reserve
from tests.faults.forkserver import Ended, ForkServer
from tests.faults.localdisk import Call, DiskFault, Supervisor, allocated_bytes, fast_directory

SCHEMA = "node P { name: String @key }\nnode Q { name: String @key }\nnode R { name: String @key }"
ENVIRONMENT = {"OMNIGRAPH_FSYNC": "off", "OMNIGRAPH_WRITE_TIMEOUT": "10"}


def build(graph: Path) -> Path:
    handle = og.init(graph, SCHEMA)
    for i in range(3):
        for name in "PQR":
            handle.insert({name: [{"name": f"{name}{i}-{j}"} for j in range(200)]})
    handle.insert({"Q": [{"name": "late"}]})
    return graph


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(tmp_path_factory.mktemp("full") / "g")


@pytest.fixture
def graph(template: Path) -> Iterator[Path]:
    folder = fast_directory()
    shutil.copytree(template, folder / "g")
    reserve.keep(og.open(folder / "g")._manifest.location)
    yield folder / "g"
    shutil.rmtree(folder)


def on_disk(
    forks: ForkServer, graph: Path, job: str, *, free_bytes: int, error: int = errno.ENOSPC, **arguments: object
) -> Ended:
    capacity = allocated_bytes(graph) + free_bytes
    supervisor = Supervisor(graph, DiskFault("small", capacity_bytes=capacity, error=error))
    ended = supervisor.run(forks, job, {"uri": str(graph), **arguments}, ENVIRONMENT)
    assert allocated_bytes(graph) <= capacity
    return ended


def is_whole(graph: Path) -> bool:
    handle = og.open(graph, engine="local")
    return handle.nodes("P").num_rows == 600 and handle.verify(full=True).ok


def failure_of(ended: Ended) -> dict[str, str]:
    assert ended.result is not None
    assert "error" in ended.result, ended.result
    return ended.result["error"]


@pytest.mark.parametrize(("free_bytes", "error"), [(0, errno.ENOSPC), (4096, errno.ENOSPC), (0, errno.EDQUOT)])
def test_cleanup_with_nothing_free_uses_the_reserve_and_keeps_a_new_one(
    forks: ForkServer, graph: Path, free_bytes: int, error: int
) -> None:
    done = on_disk(forks, graph, "clean", free_bytes=free_bytes, error=error, keep=1).value
    assert done["bytes"] > 4_000
    assert done["errors"] == []
    status = (graph / RESERVE).stat()
    assert status.st_blocks * 512 >= status.st_size >= reserve.SIZE_MIN_BYTES // 2
    assert is_whole(graph)


def test_without_a_reserve_it_says_what_to_free(forks: ForkServer, graph: Path) -> None:
    (graph / RESERVE).unlink()
    before = sorted(graph.rglob("*"))
    failed = failure_of(on_disk(forks, graph, "clean", free_bytes=0, keep=1))
    assert failed["condition"] == "cleanup_needs_space", failed
    needed = re.search(r"about (\d+) bytes", failed["message"])
    assert needed is not None, failed
    needed_bytes = int(needed[1])
    assert needed_bytes < 200_000
    assert [p for p in before if p.is_file()] == [p for p in sorted(graph.rglob("*")) if p.is_file()]
    assert on_disk(forks, graph, "clean", free_bytes=needed_bytes, keep=1).value["bytes"] > 4_000
    assert is_whole(graph)


def test_without_a_reserve_arrays_of_queries_make_room(forks: ForkServer, graph: Path) -> None:
    (graph / RESERVE).unlink()
    arrays = graph / CACHE / "0123"
    arrays.mkdir(parents=True)
    (arrays / "out.nodes.npy").write_bytes(os.urandom(200_000))
    assert on_disk(forks, graph, "clean", free_bytes=0, keep=1).value["bytes"] > 4_000
    assert not arrays.exists()
    assert is_whole(graph)


@pytest.mark.slow
def test_an_announcement_that_does_not_fit_leaves_tables_out(forks: ForkServer, graph: Path) -> None:
    """A table with very many unreferenced files of its own, and a reserve that is too small for their names."""
    (graph / RESERVE).unlink()
    table = max(graph.glob("nodes/*"))
    for _ in range(450):  # with names as long as a file system allows: every call on a file goes through the supervisor
        file = table / "data" / f"{os.urandom(120).hex()}.lance"
        file.touch()
        os.utime(file, (0, 0))
    (graph / RESERVE).write_bytes(os.urandom(80_000))
    done = on_disk(forks, graph, "clean", free_bytes=0, keep=1).value
    assert done["errors"] == [space.LEFT_OUT]
    assert done["bytes"] > 2_000
    assert is_whole(graph)


def test_a_cleanup_that_dies_on_the_way_leaves_a_graph_that_the_next_one_cleans(forks: ForkServer, graph: Path) -> None:
    def is_swap(call: Call) -> bool:
        return call.kind == "link" and "__manifest/_versions" in call.path

    supervisor = Supervisor(graph, DiskFault("kill_after", when=is_swap))
    reserve.release(og.open(graph)._manifest.location)
    supervisor.run(forks, "clean", {"uri": str(graph), "keep": 1}, ENVIRONMENT)
    assert supervisor.struck is not None
    assert not (graph / RESERVE).exists()
    assert on_disk(forks, graph, "clean", free_bytes=500_000, keep=1).value["bytes"] > 4_000
    assert (graph / RESERVE).stat().st_size >= 1 << 17
    assert is_whole(graph)


def test_recovery_settles_a_dead_writer_on_a_full_disk(forks: ForkServer, graph: Path) -> None:
    supervisor = Supervisor(
        graph, DiskFault("kill_after", when=lambda c: c.kind == "link" and c.path.startswith("nodes/"))
    )
    supervisor.run(forks, "insert_into", {"uri": str(graph), "names": ["P", "Q"]}, ENVIRONMENT)
    assert failure_of(on_disk(forks, graph, "clean", free_bytes=0, keep=1))["condition"] == "recovery_pending"
    assert on_disk(forks, graph, "recover", free_bytes=0).value == 1
    assert (graph / RESERVE).exists()
    assert on_disk(forks, graph, "clean", free_bytes=0, keep=1).value["bytes"] > 4_000
    assert is_whole(graph)
