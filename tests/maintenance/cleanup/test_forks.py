"""Forks that nobody can read again are reclaimed; those of live branches and of living writers never."""

from __future__ import annotations

from pathlib import Path

import lance
import pytest

import omnigraph as og
from omnigraph.commit import operation
from omnigraph.errors import StorageError
from tests.maintenance.cleanup.conftest import files, folder_of, make_old, pin_of, root_of, rows, versions


def stray_fork(graph: og.Graph, name: str) -> Path:
    lance.dataset(str(root_of(graph))).create_branch(name)
    return root_of(graph) / "tree" / name


def test_a_fork_unknown_to_the_manifest_is_reclaimed_and_a_second_run_does_nothing(history: og.Graph) -> None:
    before, kept = rows(history), versions(root_of(history))
    fork = stray_fork(history, "0123456789ab-3-deadbeef")
    result = history.cleanup(keep=100, confirm=True)
    assert [f.fork.reason for f in result.reclaimed_forks] == ["branch_gone"]
    assert not fork.exists()
    assert lance.dataset(str(root_of(history))).branches.list() == {}
    assert rows(history) == before
    assert versions(root_of(history)) == kept
    assert history.cleanup(keep=100, confirm=True).reclaimed_forks == ()


def test_an_orphan_beside_the_fork_of_a_live_branch_goes_and_that_one_stays(history: og.Graph) -> None:
    history.create_branch("live")
    history.upsert({"Person": [{"name": "own"}]}, branch="live")
    incarnation = history._manifest.head("live").incarnation
    orphan = stray_fork(history, f"{incarnation}-1-deadbeef")
    legitimate, before = folder_of(history, branch="live"), rows(history, "live")
    result = history.cleanup(keep=1, confirm=True)
    assert [f.fork.reason for f in result.reclaimed_forks] == ["never_published"]
    assert not orphan.exists()
    assert legitimate.exists()
    assert rows(history, "live") == before


def test_the_fork_of_a_deleted_branch_goes_with_its_files_in_the_root(history: og.Graph) -> None:
    history.create_branch("trial")
    before = files(root_of(history))
    for i in range(3):
        history.upsert({"Person": [{"name": f"t{i}"}]}, branch="trial")
    assert {n for n in files(root_of(history)) - before if n.startswith("data/")}
    history.delete_branch("trial")
    result = history.cleanup(keep=100, confirm=True)
    assert {f.reason for f in result.table("node:Person").files} == {"only_in_removed_versions"}
    assert files(root_of(history)) == before
    history.create_branch("trial")
    history.upsert({"Person": [{"name": "again"}]}, branch="trial")
    assert "again" in rows(history, "trial")


def test_files_in_the_root_that_only_a_live_fork_refers_to_stay(history: og.Graph) -> None:
    history.create_branch("side")
    for i in range(4):
        history.upsert({"Person": [{"name": f"s{i}", "age": i}]}, branch="side")
    history.delete({"Person": ["s1"]}, branch="side")
    for i in range(3):
        history.upsert({"Person": [{"name": f"m{i}"}]})
    main, side = rows(history), rows(history, "side")
    make_old(Path(history.uri))
    for limit in ({"keep": 1}, {"older_than": "0s"}):
        history.cleanup(**limit, confirm=True)  # type: ignore[arg-type]
        assert rows(history) == main
        assert rows(history, "side") == side
    assert len(versions(folder_of(history, branch="side"))) == 1


def test_a_fork_of_a_fork_keeps_what_it_reads_of_its_parent(history: og.Graph) -> None:
    history.create_branch("parent")
    history.upsert({"Person": [{"name": "a"}, {"name": "b"}]}, branch="parent")
    history.delete({"Person": ["a"]}, branch="parent")
    history.create_branch("child", from_branch="parent")
    history.upsert({"Person": [{"name": "c"}]}, branch="child")
    expected = rows(history, "child")
    for i in range(3):
        history.upsert({"Person": [{"name": f"p{i}"}]}, branch="parent")
    parent = rows(history, "parent")
    make_old(Path(history.uri))
    history.cleanup(keep=1, confirm=True)
    assert rows(history, "child") == expected
    assert rows(history, "parent") == parent
    history.upsert({"Person": [{"name": "d"}]}, branch="child")
    assert set(rows(history, "child")) == {*expected, "d"}


def test_a_living_writers_unpublished_fork_is_never_reclaimed_by_another_handle(history: og.Graph) -> None:
    history.create_branch("busy")
    beside = og.open(history.uri)
    seen: list[object] = []

    def observe(phase: str) -> None:
        if phase == "lock" and not seen:
            # The fork is made, its files are written, nothing of it is published.
            seen.append(beside.cleanup(keep=1, older_than="0s", confirm=True).reclaimed_forks)

    og.open(history.uri, observer=observe).upsert({"Person": [{"name": "mine"}]}, branch="busy")
    assert seen == [()]
    assert "mine" in rows(history, "busy")


def test_an_unpublished_fork_that_nobody_has_touched_for_long_is_reclaimed(history: og.Graph) -> None:
    history.create_branch("slow")
    incarnation = history._manifest.head("slow").incarnation
    fork = stray_fork(history, f"{incarnation}-1-deadbeef")
    assert history.cleanup(keep=100, confirm=True).reclaimed_forks == ()
    make_old(fork, days=6)
    make_old(root_of(history) / "_refs", days=6)
    assert history.cleanup(keep=100, confirm=True).reclaimed_forks == ()
    make_old(fork, days=8)
    make_old(root_of(history) / "_refs", days=8)
    result = history.cleanup(keep=100, confirm=True)
    assert [f.fork.reason for f in result.reclaimed_forks] == ["abandoned"]
    assert not fork.exists()


def test_a_fork_whose_fresh_check_is_not_possible_is_skipped_and_a_later_run_reclaims_it(
    history: og.Graph, monkeypatch: pytest.MonkeyPatch
) -> None:
    from omnigraph.maintenance.cleanup import run as module

    fork = stray_fork(history, "0123456789ab-3-deadbeef")
    looks = iter(range(100))
    read = module.read_retained_versions

    def failing(*args: object, **options: object) -> object:
        if next(looks) >= 2:  # planning and excluding have looked
            raise StorageError(doing="reading the manifest", detail="not now")
        return read(*args, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(module, "read_retained_versions", failing)
    result = history.cleanup(keep=1, confirm=True)
    assert fork.exists()
    assert "not now" in str(result.reclaimed_forks[0].error)
    assert result.failed
    assert len(versions(root_of(history))) == 1, "the rest is done"
    monkeypatch.undo()
    assert history.cleanup(keep=1, confirm=True).reclaimed_forks[0].error is None
    assert not fork.exists()


def test_half_of_a_fork_is_reclaimed(history: og.Graph) -> None:
    fork = stray_fork(history, "0123456789ab-3-deadbeef")
    mention = root_of(history) / "_refs" / "branches" / "0123456789ab-3-deadbeef.json"
    for path in (fork / "_versions").iterdir():
        path.write_bytes(path.read_bytes()[:40])
    assert [f.error for f in history.cleanup(keep=1, confirm=True).reclaimed_forks] == [None]
    assert not fork.exists()
    assert not mention.exists()
    mention.write_text("{}")
    history.cleanup(keep=1, confirm=True)
    assert not mention.exists()


def test_a_branch_that_is_created_while_it_works_loses_nothing(
    history: og.Graph, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The branch is made from a head that cleanup has seen as an old one."""
    from omnigraph.maintenance.cleanup import execute

    beside = og.open(history.uri)
    announce, before = execute.announce, rows(history)

    def meanwhile(*args: object) -> str:
        beside.create_branch("quick")
        history.upsert({"Person": [{"name": "later"}]})
        return announce(*args)  # type: ignore[arg-type]

    monkeypatch.setattr(execute, "announce", meanwhile)
    history.cleanup(keep=1, confirm=True)
    assert rows(history, "quick") == before


def test_a_branch_creation_that_read_its_head_before_loses_against_the_swap(
    history: og.Graph, monkeypatch: pytest.MonkeyPatch
) -> None:
    from omnigraph.branch import create

    stale, told = og.open(history.uri), []
    require_free = create.require_free

    def between(*args: object) -> None:
        if not told:
            told.append(True)
            history.upsert({"Person": [{"name": "later"}]})
            history.cleanup(keep=1, confirm=True)
        require_free(*args)  # type: ignore[arg-type]

    monkeypatch.setattr(create, "require_free", between)
    stale.create_branch("quick")
    assert "later" in rows(history, "quick"), "it stands on what was there when cleanup was done"


def test_the_answer_to_the_swap_may_be_lost(history: og.Graph, monkeypatch: pytest.MonkeyPatch) -> None:
    manifest = history._manifest
    update = manifest.update

    def lost(updates: object, *, read_version: int) -> int:
        update(updates, read_version=read_version)  # type: ignore[arg-type]
        raise StorageError(doing="publishing", detail="the answer was lost")

    monkeypatch.setattr(manifest, "update", lost)
    assert history.cleanup(keep=1, confirm=True).old_versions_removed > 0


def test_a_branch_delete_that_dies_midway_leaves_what_cleanup_converges(history: og.Graph) -> None:
    history.create_branch("trial")
    history.upsert({"Person": [{"name": "own"}]}, branch="trial")
    fork = folder_of(history, branch="trial")
    history.delete_branch("trial")
    assert fork.exists(), "storage is left to cleanup"
    history.create_branch("trial")
    history.upsert({"Person": [{"name": "other"}]}, branch="trial")
    history.cleanup(keep=1, confirm=True)
    assert not fork.exists()
    assert "other" in rows(history, "trial")
    assert "own" not in rows(history, "trial")


def test_merge_bases_of_live_branches_are_kept_on_both_lines(history: og.Graph) -> None:
    """Merged commits count as history: what two branches share last is what a merge compares them with."""
    from dataclasses import replace

    from omnigraph.maintenance.cleanup.merge_bases import merge_bases

    history.create_branch("side")
    for i in range(3):
        history.upsert({"Person": [{"name": f"s{i}"}]}, branch="side")
    side = history.snapshot("side").commit
    history.upsert({"Person": [{"name": "m"}]})
    heads = history._manifest.heads()
    assert set(merge_bases(history._manifest, heads)) == {heads["side"].base}
    main = heads["main"]
    merged = replace(main.recent[-1], merged_parent=side)
    heads = {**heads, "main": replace(main, recent=(*main.recent[:-1], merged))}
    assert side in merge_bases(history._manifest, heads)


def test_forks_are_named_after_the_branch_that_made_them(history: og.Graph) -> None:
    """What tells the owner of a fork: the door names forks, cleanup reads these names."""
    history.create_branch("b")
    history.upsert({"Person": [{"name": "own"}]}, branch="b")
    assert pin_of(history, branch="b").fork.startswith(f"{history._manifest.head('b').incarnation}-")
    assert operation.PREPARED_MAX_S == 3 * 86_400


@pytest.mark.parametrize("outer", ["team", "data", "_versions"])
def test_a_tagged_fork_below_another_and_called_like_a_folder_of_a_table_stays(history: og.Graph, outer: str) -> None:
    """Lance lets a fork lie in the folder of another, under any name."""
    table = lance.dataset(str(root_of(history)))
    table.create_branch(outer)
    inner = table.create_branch(f"{outer}/exp")
    for name in ("p0", "p1"):
        inner.delete(f"id = '{name}'")
    table.tags.create("keepme", (f"{outer}/exp", inner.version))
    expected = inner.to_table().num_rows
    reclaimed = history.cleanup(keep=100, confirm=True).reclaimed_forks
    assert [f.fork.fork for f in reclaimed] == [outer]
    again = lance.dataset(str(root_of(history) / "tree" / outer / "exp"), version=inner.version)
    assert again.to_table().num_rows == expected
    assert history.cleanup(keep=100, confirm=True).reclaimed_forks == ()


def test_a_fork_called_like_a_folder_of_a_table_takes_nothing_of_others_along(history: og.Graph) -> None:
    history.create_branch("side")
    history.upsert({"Person": [{"name": "own"}]}, branch="side")
    stray_fork(history, "data/x")
    expected = files(folder_of(history, branch="side"))
    reclaimed = history.cleanup(keep=100, confirm=True).reclaimed_forks
    assert [f.fork.fork for f in reclaimed] == ["data/x"]
    assert files(folder_of(history, branch="side")) == expected
    assert "own" in rows(history, "side")
