"""The reserve of a local graph: allocated, replaced and not written to, known to every check of the layout."""

from __future__ import annotations

import os
import shutil
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

import omnigraph as og
from omnigraph.errors import StorageError, SymlinkInGraph
from omnigraph.maintenance.clone import clone_graph
from omnigraph.storage.layout import RESERVE, Location, locate
from omnigraph.storage.objects import reserve

SCHEMA = "node P { name: String @key }"


@pytest.fixture
def graph(tmp_path: Path) -> Path:
    og.init(tmp_path / "g", SCHEMA)
    return tmp_path / "g"


def location_of(graph: Path) -> Location:
    return locate(graph)


def test_init_keeps_allocated_space(graph: Path) -> None:
    status = (graph / RESERVE).stat()
    assert status.st_size == reserve.SIZE_MIN_BYTES
    assert status.st_blocks * 512 >= status.st_size


def test_a_file_with_holes_is_replaced(graph: Path) -> None:
    (graph / RESERVE).unlink()
    with open(graph / RESERVE, "wb") as file:
        file.truncate(reserve.SIZE_MIN_BYTES)
    reserve.keep(location_of(graph))
    assert (graph / RESERVE).stat().st_blocks * 512 >= reserve.SIZE_MIN_BYTES


def test_what_is_in_its_place_is_never_written_to(graph: Path, tmp_path: Path) -> None:
    mine = tmp_path / "mine"
    mine.write_bytes(b"mine")
    (graph / RESERVE).unlink()
    os.link(mine, graph / RESERVE)
    reserve.keep(location_of(graph))
    assert mine.read_bytes() == b"mine"
    assert (graph / RESERVE).stat().st_size == reserve.SIZE_MIN_BYTES


def test_a_link_is_refused_like_any_layout_name(graph: Path, tmp_path: Path) -> None:
    (graph / RESERVE).unlink()
    (graph / RESERVE).symlink_to(tmp_path / "elsewhere")
    with pytest.raises(SymlinkInGraph):
        og.open(graph).nodes("P")
    assert not (tmp_path / "elsewhere").exists()


def test_a_folder_in_its_place_is_left_alone(graph: Path) -> None:
    (graph / RESERVE).unlink()
    (graph / RESERVE).mkdir()
    location = location_of(graph)
    reserve.keep(location)
    assert not reserve.release(location)
    assert (graph / RESERVE).is_dir()


def test_verify_knows_it(graph: Path) -> None:
    assert og.open(graph, engine="local").verify().findings == ()


def test_cleanup_and_optimize_keep_one_for_a_graph_that_has_none(graph: Path) -> None:
    for verb in (lambda g: g.cleanup(keep=3, confirm=True), lambda g: g.optimize()):
        (graph / RESERVE).unlink()
        verb(og.open(graph, engine="local"))
        assert (graph / RESERVE).stat().st_size == reserve.SIZE_MIN_BYTES


def test_a_preview_keeps_none(graph: Path) -> None:
    (graph / RESERVE).unlink()
    og.open(graph).plan_cleanup(keep=3)
    assert not (graph / RESERVE).exists()


def test_a_clone_has_its_own(graph: Path, tmp_path: Path) -> None:
    clone_graph(graph, tmp_path / "clone")
    assert (tmp_path / "clone" / RESERVE).stat().st_size == reserve.SIZE_MIN_BYTES


def test_init_over_what_a_dead_init_left(graph: Path) -> None:
    shutil.rmtree(graph / "__manifest")
    og.init(graph, SCHEMA)


def test_many_may_keep_and_release_at_once(graph: Path) -> None:
    location = location_of(graph)
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda n: (reserve.keep if n % 2 else reserve.release)(location), range(200)))
    reserve.keep(location)
    assert (graph / RESERVE).stat().st_size == reserve.SIZE_MIN_BYTES


def test_only_a_full_disk_releases_it(graph: Path) -> None:
    location, calls = location_of(graph), list[str]()

    def work() -> str:
        calls.append("")
        if (graph / RESERVE).exists():
            raise StorageError(doing="writing", detail=details[0])
        return "done"

    details = ["Permission denied (os error 13)"]
    with pytest.raises(StorageError):
        reserve.spending(location, work)
    assert len(calls) == 1
    for details[0] in ("No space left on device (os error 28)", "Disk quota exceeded (os error 122)"):
        reserve.keep(location)
        assert reserve.spending(location, work) == "done"


def test_one_that_others_keep_meanwhile_is_released_again_a_few_times(graph: Path) -> None:
    location, calls = location_of(graph), list[str]()

    def work() -> None:
        calls.append("")
        reserve.keep(location)
        raise StorageError(doing="writing", detail="No space left on device (os error 28)")

    with pytest.raises(StorageError):
        reserve.spending(location, work)
    assert len(calls) == reserve.RELEASES_MAX + 1
