"""A symbolic link below the root of a graph is never followed: what it points to is neither read nor removed."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

import omnigraph as og
from omnigraph.errors import StorageError, SymlinkInGraph
from omnigraph.storage.layout import LAYOUT_NAMES
from omnigraph.storage.objects import nofollow
from omnigraph.storage.objects.store import ObjectStore
from tests.maintenance.cleanup.conftest import files, make_old, root_of, rows


@pytest.fixture
def outside(tmp_path: Path) -> Path:
    """A home folder with files that are older than every limit."""
    home = tmp_path / "home"
    for name in ("Documents/thesis.txt", "Documents/deep/photo.jpg", ".ssh/id_ed25519"):
        (home / name).parent.mkdir(parents=True, exist_ok=True)
        (home / name).write_text("precious")
    make_old(home)
    return home


VERBS: dict[str, Callable[[Path], object]] = {
    "open": lambda path: og.open(path).snapshot(),
    "write": lambda path: og.open(path).upsert({"Person": [{"name": "new"}]}),
    "cleanup": lambda path: og.open(path).cleanup(keep=1, confirm=True),
    "preview": lambda path: og.open(path).plan_cleanup(keep=1),
    "verify": lambda path: og.open(path).verify(),
    "init": lambda path: og.init(path, "node P { name: String @key }"),
}


@pytest.mark.parametrize("name", [*LAYOUT_NAMES, "__cache/adjacency"])
def test_a_layout_name_that_is_a_link_is_refused_by_every_verb(history: og.Graph, outside: Path, name: str) -> None:
    place = Path(history.uri) / name
    place.parent.mkdir(exist_ok=True)
    if place.exists():
        # The graph works through the link, if it is followed.
        shutil.move(place, outside / name)
        place.symlink_to(outside / name)
    else:
        place.symlink_to(outside)
    before = files(outside)
    for verb, call in VERBS.items():
        with pytest.raises(SymlinkInGraph) as refusal:
            call(Path(history.uri))
        assert refusal.value.condition == "symlink_in_graph"
        assert refusal.value.fields["path"] == f"{history.uri}/{name}", verb
    with pytest.raises(SymlinkInGraph):
        history.cleanup(keep=1, confirm=True)
    with pytest.raises(SymlinkInGraph):
        history.upsert({"Person": [{"name": "by an open handle"}]})
    assert files(outside) == before


def test_the_root_may_be_reached_through_a_link(history: og.Graph, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(history.uri)
    graph = og.open(tmp_path / "link")
    graph.upsert({"Person": [{"name": "new"}]})
    assert graph.cleanup(keep=1, confirm=True).old_versions_removed > 0
    assert "new" in rows(history)


@pytest.mark.parametrize("part", ["", "_versions", "data", "_transactions"])
def test_a_table_that_is_reached_through_a_link_is_refused(history: og.Graph, outside: Path, part: str) -> None:
    place = root_of(history) / part
    shutil.move(place, outside / "moved")
    place.symlink_to(outside / "moved")
    before = files(outside)
    graph = og.open(history.uri)
    for call in (
        lambda: graph.snapshot().read("Person"),
        lambda: graph.upsert({"Person": [{"name": "new"}]}),
        lambda: graph.cleanup(keep=1, confirm=True),
    ):
        with pytest.raises(SymlinkInGraph) as refusal:
            call()
        assert refusal.value.fields["path"] == str(place).rstrip("/")
    assert any("symbolic link" in str(f.examples) for f in graph.verify().findings if f.severity == "error")
    assert files(outside) == before


def test_a_link_inside_a_table_keeps_the_table_and_is_named(history: og.Graph, outside: Path) -> None:
    table = root_of(history)
    (table / "data" / "more").symlink_to(outside)
    (table / "_indices").mkdir(exist_ok=True)
    (table / "_indices" / "photo.jpg").symlink_to(outside / "Documents/deep/photo.jpg")
    before = (files(outside), files(table))
    result = history.cleanup(keep=1, confirm=True)
    assert "symbolic link" in (result.table("node:Person").error or "")
    assert result.table("node:Place").error is None
    assert result.table("node:Place").old_versions_removed == 2, "the other tables are done"
    assert (files(outside), files(table)) == before
    finding = next(f for f in history.verify().findings if f.code == "symlink")
    assert (finding.severity, finding.table, finding.count) == ("error", "node:Person", 2)


@pytest.mark.parametrize("folder", ["__staging", "__cache/adjacency"])
@pytest.mark.parametrize("deep", [False, True], ids=["the job", "in the job"])
def test_links_among_staged_files_and_arrays_are_left_alone(
    history: og.Graph, outside: Path, folder: str, deep: bool
) -> None:
    place = Path(history.uri) / folder
    place.mkdir(parents=True)
    if deep:
        (place / "job").mkdir()
        (place / "job" / "old").write_text("staged")
    link = place / "job" / "home" if deep else place / "job"
    link.symlink_to(outside)
    make_old(outside)
    before = files(outside)
    result = history.cleanup(keep=1, confirm=True)
    assert files(outside) == before
    assert link.is_symlink()
    assert any("symbolic link" in w and str(link) in w for w in result.plan.warnings)


def test_a_link_among_leases_announcements_and_tickets_is_not_followed(history: og.Graph, outside: Path) -> None:
    root = Path(history.uri)
    lease = outside / "lease.json"
    lease.write_text('{"pins": {}, "seconds": 5}')
    for folder in ("__leases", "__cleanup", "__recovery"):
        (root / folder).mkdir(exist_ok=True)
        (root / folder / "a.json").symlink_to(lease)
        (root / folder / "deep").symlink_to(outside)
    before = files(outside)
    history.upsert({"Person": [{"name": "new"}]})
    history.cleanup(keep=1, confirm=True)
    assert files(outside) == before
    inc = history._manifest.head("main").incarnation
    (root / "__recovery" / inc).rmdir()
    (root / "__recovery" / inc).symlink_to(outside)
    with pytest.raises(SymlinkInGraph):
        history.upsert({"Person": [{"name": "through a link"}]})
    assert files(outside) == before


def test_removal_does_not_go_through_a_link_that_came_after_the_plan(history: og.Graph, outside: Path) -> None:
    table = root_of(history)
    make_old(outside)
    (table / "data" / "late").symlink_to(outside)
    inside = table.relative_to(history.uri).as_posix()
    store = ObjectStore(history._location, inside)
    with pytest.raises(SymlinkInGraph):
        store.delete_many(["data/late/Documents/thesis.txt"])
    with pytest.raises(StorageError):
        store.delete_many(["../../../home/Documents/thesis.txt"])
    (outside / "empty").mkdir()
    nofollow.remove_empty_folders(history._location, [f"{inside}/data/late"])
    assert (outside / "empty").is_dir()
    assert files(outside) == {"Documents/thesis.txt", "Documents/deep/photo.jpg", ".ssh/id_ed25519"}


def test_a_table_swapped_for_a_link_between_plan_and_removal_loses_nothing_outside(
    history: og.Graph, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from omnigraph.maintenance.cleanup import execute

    table = root_of(history)
    copy = tmp_path / "copy"
    announce = execute.announce

    def meanwhile(*args: object) -> str:
        shutil.copytree(table, copy)
        os.rename(table, tmp_path / "aside")
        table.symlink_to(copy)
        return announce(*args)  # type: ignore[arg-type]

    monkeypatch.setattr(execute, "announce", meanwhile)
    result = history.cleanup(keep=1, confirm=True)
    assert "symbolic link" in (result.table("node:Person").error or "")
    assert files(copy) == files(tmp_path / "aside")


def test_listing_names_files_as_they_lie(tmp_path: Path) -> None:
    from omnigraph.storage.layout import locate

    (tmp_path / "nodes/a/b").mkdir(parents=True)
    (tmp_path / "nodes/a/b/c").write_text("12345")
    (tmp_path / "nodes/d").write_text("1")
    listed = {path: stat.st_size for path, stat in nofollow.files(locate(tmp_path), "nodes")}
    assert listed == {"a/b/c": 5, "d": 1}
    assert list(nofollow.files(locate(tmp_path), "edges")) == []
