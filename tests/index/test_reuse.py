"""Row addresses are followed through compactions and deletions: no ghost, no lost row.

Everything is compared with a full scan, by a column that names each image of a row, on real Lance tables whose row ids
are addresses.
"""

from __future__ import annotations

import json
import os
import random
from pathlib import Path
from typing import Any

import lance
import numpy as np
import pyarrow as pa
import pytest

from omnigraph.errors import VersionReclaimed
from omnigraph.index.reuse import (
    Group,
    HistoryBroken,
    NewFragment,
    OldFragment,
    Reuse,
    ReuseVersion,
    live_rows,
    reuse_between,
    runs_of,
)
from omnigraph.storage.durability import manifest_path
from omnigraph.storage.lance import lance_api

lance_api.operations()  # with Lance's reader of transactions mended
ROWS = 100
SEEDS = [int(s) for s in os.environ.get("OMNIGRAPH_SEEDS", "1,2,3,4,5,6").split(",")]


def rows(first: int, count: int) -> pa.Table:
    return pa.table({"i": pa.array(range(first, first + count), pa.int64())})


def table_of(folder: Path, fragments: int = 4, *, per_fragment: int = ROWS) -> Any:
    """`i` names the image of a row; an update gives it a new name."""
    uri = str(folder / "t.lance")
    made = lance.write_dataset(
        rows(0, fragments * per_fragment), uri, max_rows_per_file=per_fragment, enable_stable_row_ids=False
    )
    made.create_scalar_index("i", "BTREE")
    assert not made.has_stable_row_ids
    return made


def places(table: Any) -> dict[int, int]:
    found = table.to_table(columns=["i"], with_row_address=True)
    return dict(zip(found["i"].to_pylist(), found["_rowaddr"].to_pylist(), strict=True))


def compact(table: Any) -> None:
    before = table.version
    table.optimize.compact_files(
        defer_index_remap=True, target_rows_per_fragment=10**6, materialize_deletions_threshold=0.0
    )
    assert table.version > before, "nothing was compacted"


def judge(table: Any, taken: dict[int, int], first: int) -> Reuse:
    """Every address that was taken at version `first` translates to where its row is, or to nothing."""
    reuse = reuse_between(table, first)
    now = places(table)
    images = list(taken)
    found = reuse.translate(np.array([taken[i] for i in images], dtype=np.uint64))
    fragments = {f.fragment_id for f in table.get_fragments()}
    lives = live_rows(table, found.addresses) & found.alive
    for image, address, alive, live in zip(images, found.addresses.tolist(), found.alive, lives, strict=True):
        if image in now:
            assert alive, f"row {image} lives at {now[image]} and was lost"
            assert address == now[image], f"row {image} is at {now[image]}, not at {address}"
            assert live
        else:
            assert not live, f"row {image} is gone and came back as a ghost at {address}"
            assert not alive or address >> 32 in fragments, f"row {image} points into a fragment that is gone"
    assert Reuse.of_json(json.loads(json.dumps(reuse.to_json()))) == reuse
    return reuse


def fragment_of(address: int) -> int:
    return address >> 32


# ---- the scenarios of the seed ---------------------------------------------------------------------------------------


def test_rows_of_a_fully_deleted_fragment_translate_to_nothing_after_a_deferred_compaction(tmp_path: Path) -> None:
    table = table_of(tmp_path)
    taken, first = places(table), table.version
    table.delete("i >= 100 AND i < 200")
    compact(table)
    reuse = judge(table, taken, first)
    assert [reuse.translate_one(taken[i]) for i in (100, 150, 199)] == [None] * 3
    assert all(reuse.translate_one(taken[i]) is not None for i in (0, 99, 200, 399))


def test_a_fragment_merged_by_one_compaction_and_deleted_before_the_next_is_pruned_after_chaining(
    tmp_path: Path,
) -> None:
    table = table_of(tmp_path, 2)
    taken, first = places(table), table.version
    compact(table)
    merged = fragment_of(next(iter(places(table).values())))
    for start in (200, 300):
        lance.write_dataset(rows(start, 100), table.uri, mode="append")
    table = lance.dataset(table.uri)
    later = places(table)
    table.delete("i < 200")
    compact(table)
    reuse = judge(table, taken, first)
    assert reuse.translate(np.array(list(taken.values()), dtype=np.uint64)).to_list() == [None] * 200
    assert merged in {f for v in reuse.versions for f in v.removed}
    assert merged not in {fragment_of(a) for a in taken.values()}, "only the final address shows it"
    judge(table, {i: later[i] for i in later if i >= 200}, first)


def test_several_fully_deleted_fragments_are_all_pruned(tmp_path: Path) -> None:
    table = table_of(tmp_path, 6)
    taken, first = places(table), table.version
    table.delete("i < 100 OR (i >= 200 AND i < 300) OR i >= 500")
    compact(table)
    reuse = judge(table, taken, first)
    assert {f for v in reuse.versions for f in v.removed} == {fragment_of(taken[i]) for i in (0, 200, 500)}


def test_a_survivor_of_an_earlier_compaction_that_is_deleted_later_is_pruned_as_it_passes_through(
    tmp_path: Path,
) -> None:
    table = table_of(tmp_path, 2, per_fragment=50)
    lance.write_dataset(rows(1000, 400), table.uri, mode="append", max_rows_per_file=400)
    table = lance.dataset(table.uri)
    taken, first = places(table), table.version
    big = fragment_of(taken[1000])
    table.optimize.compact_files(defer_index_remap=True, target_rows_per_fragment=200)
    assert big in {f.fragment_id for f in table.get_fragments()}, "left untouched by the first compaction"
    table.delete("i >= 1000")
    for start in (2000, 2050):  # Lance does not merge these with what an index covers, but with each other
        lance.write_dataset(rows(start, 50), table.uri, mode="append")
    table = lance.dataset(table.uri)
    compact(table)
    reuse = judge(table, taken, first)
    assert reuse.translate_one(taken[1200]) is None
    assert reuse.translate_one(taken[7]) is not None


def test_a_delete_after_the_compaction_is_told_by_the_new_fragments_deletions(tmp_path: Path) -> None:
    table = table_of(tmp_path)
    taken, first = places(table), table.version
    table.delete("i >= 100 AND i < 200")
    table.delete("i % 7 = 0")
    compact(table)
    table.delete("i % 5 = 0")
    reuse = judge(table, taken, first)
    assert reuse.translate_one(taken[7]) is None, "deleted before it was rewritten"
    moved = reuse.translate_one(taken[5])
    assert moved is not None
    assert not live_rows(table, np.array([moved], dtype=np.uint64))[0]
    table.delete("true")
    judge(table, taken, first)


# ---- beside Lance ----------------------------------------------------------------------------------------------------


def test_lances_own_remap_still_returns_addresses_of_removed_fragments_and_ours_does_not(tmp_path: Path) -> None:
    """A guard: the day Lance prunes them (its change 7378), this fails and the note on it can go."""
    table = table_of(tmp_path)
    taken, first = places(table), table.version
    table.delete("i >= 100 AND i < 200")
    table.delete("i = 5")
    compact(table)
    wanted = [taken[i] for i in (0, 5, 150, 399)]
    lances = table.remap_row_addrs(pa.array(wanted, pa.uint64())).to_pylist()
    ours = reuse_between(table, first).translate(np.array(wanted, dtype=np.uint64)).to_list()
    now = places(table)
    assert ours == [now[0], None, None, now[399]]
    assert lances == [now[0], None, taken[150], now[399]], "the dead address comes back unchanged"
    assert fragment_of(taken[150]) not in {f.fragment_id for f in table.get_fragments()}


def test_where_no_fragment_was_removed_lance_and_we_say_the_same(tmp_path: Path) -> None:
    table = table_of(tmp_path)
    taken, first = places(table), table.version
    table.delete("i % 3 = 0")
    compact(table)
    lance.write_dataset(rows(1000, 100), table.uri, mode="append")
    table = lance.dataset(table.uri)
    table.delete("i % 5 = 0")
    compact(table)
    wanted = np.array(list(taken.values()), dtype=np.uint64)
    assert (
        reuse_between(table, first).translate(wanted).to_list() == table.remap_row_addrs(pa.array(wanted)).to_pylist()
    )


# ---- other ways of a table -------------------------------------------------------------------------------------------


def test_updates_and_overwrites_leave_old_images_dead(tmp_path: Path) -> None:
    table = table_of(tmp_path)
    taken, first = places(table), table.version
    table.update({"i": "i + 10000"}, where="i >= 50 AND i < 200")
    judge(table, taken, first)
    compact(table)
    judge(table, taken, first)
    table = lance.write_dataset(rows(5000, 10), table.uri, mode="overwrite")
    reuse = judge(table, taken, first)
    assert not reuse.translate(np.array(list(taken.values()), dtype=np.uint64)).alive.any()


def test_a_restore_takes_back_what_came_after_the_version_that_it_restores(tmp_path: Path) -> None:
    table = table_of(tmp_path)
    taken, first = places(table), table.version
    table.delete("i < 50")
    kept = table.version
    table.delete("i >= 100 AND i < 200")
    compact(table)
    table.checkout_version(kept).restore()
    table = lance.dataset(table.uri)
    reuse = judge(table, taken, first)
    assert reuse.versions == ()
    compact(table)
    judge(table, taken, first)
    with pytest.raises(HistoryBroken, match="restored version"):
        reuse_between(table, kept + 1)


def test_a_version_that_was_collected_is_a_typed_error(tmp_path: Path) -> None:
    table = table_of(tmp_path)
    first = table.version
    table.delete("i < 50")
    table.delete("i < 60")
    os.unlink(manifest_path(table.uri, first + 1))
    with pytest.raises((VersionReclaimed, HistoryBroken)):
        reuse_between(lance.dataset(table.uri), first)


def test_an_index_that_caught_up_needs_only_what_came_since(tmp_path: Path) -> None:
    table = table_of(tmp_path)
    first, taken = table.version, places(table)
    compact(table)
    between, then = table.version, places(table)
    lance.write_dataset(rows(1000, 100), table.uri, mode="append")
    table = lance.dataset(table.uri)
    table.delete("i >= 200 AND i < 300")
    compact(table)
    whole = reuse_between(table, first)
    assert whole.since(between) == reuse_between(table, between)
    assert reuse_between(table.checkout_version(between), first).then(whole.since(between)) == whole
    judge(table, taken, first)
    judge(table, then, between)


# ---- from explicit lists ---------------------------------------------------------------------------------------------


def address(fragment: int, offset: int) -> int:
    return fragment << 32 | offset


def test_groups_are_followed_from_explicit_lists_of_fragments_and_deleted_offsets() -> None:
    group = Group(
        (OldFragment(7, 5, runs_of([1, 2])), OldFragment(3, 4, runs_of([3]))), (NewFragment(10, 4), NewFragment(11, 2))
    )
    reuse = Reuse((ReuseVersion(2, (group,)), ReuseVersion(3, (), (11,))))
    assert [reuse.translate_one(address(7, o)) for o in range(6)] == [
        address(10, 0),
        None,
        None,
        address(10, 1),
        address(10, 2),
        None,
    ]
    assert [reuse.translate_one(address(3, o)) for o in range(4)] == [address(10, 3), None, None, None]
    assert reuse.translate_one(address(8, 3)) == address(8, 3), "a fragment that nobody touched"
    assert reuse.translate(np.empty(0, dtype=np.uint64)).to_list() == []


def test_a_fragment_whose_every_row_was_deleted_may_be_rewritten_into_nothing() -> None:
    reuse = Reuse((ReuseVersion(2, (Group((OldFragment(1, 3, ((0, 3),)),), ()),)),))
    assert reuse.translate_one(address(1, 1)) is None


def test_lists_that_do_not_add_up_are_refused() -> None:
    with pytest.raises(HistoryBroken, match="5 live rows became 4"):
        Group((OldFragment(1, 5),), (NewFragment(2, 4),))


def test_runs_hold_offsets_exactly() -> None:
    assert runs_of([]) == ()
    assert runs_of([0, 1, 2, 5, 7, 8]) == ((0, 3), (5, 6), (7, 9))


def test_a_million_addresses_are_followed_at_once() -> None:
    old = tuple(OldFragment(f, 10_000, runs_of(range(f % 7, 10_000, 11))) for f in range(100))
    live = sum(f.live for f in old)
    reuse = Reuse((ReuseVersion(2, (Group(old, (NewFragment(200, live),)),), (201,)),))
    taken = np.concatenate([np.arange(10_000, dtype=np.uint64) | np.uint64(f << 32) for f in range(100)])
    found = reuse.translate(taken)
    assert found.alive.sum() == live
    assert (found.addresses[found.alive] == np.arange(live, dtype=np.uint64) + np.uint64(200 << 32)).all()


# ---- many rounds -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", SEEDS)
def test_many_random_rounds_neither_lose_a_row_nor_raise_a_ghost(tmp_path: Path, seed: int) -> None:
    print(f"replay with OMNIGRAPH_SEEDS={seed}")
    chance = random.Random(seed)
    table = table_of(tmp_path, 5, per_fragment=40)
    fresh = 1_000_000
    snapshots = [(table.version, places(table))]
    for turn in range(15):
        deed = chance.choice(["delete", "delete_fragment", "append", "update", "compact", "compact", "index"])
        live = sorted(places(table))
        if deed == "delete" and live:
            gone = chance.sample(live, min(len(live), chance.choice([1, 20])))
            table.delete(f"i IN ({','.join(map(str, gone))})")
        elif deed == "delete_fragment" and table.get_fragments():
            victim = chance.choice(table.get_fragments()).to_table(columns=["i"])["i"].to_pylist()
            table.delete(f"i IN ({','.join(map(str, victim))})")
        elif deed == "append":
            lance.write_dataset(rows(fresh, 30), table.uri, mode="append", max_rows_per_file=chance.choice([10, 30]))
            fresh += 30
        elif deed == "update" and live:
            low = chance.choice(live)
            table.update({"i": f"i + {fresh}"}, where=f"i >= {low} AND i < {low + 15}")
            fresh += 10_000_000
        elif deed == "compact":
            table.optimize.compact_files(
                defer_index_remap=True,
                target_rows_per_fragment=chance.choice([60, 100, 10**6]),
                materialize_deletions_threshold=0.0,
            )
        elif deed == "index":
            table.create_scalar_index("i", "BTREE", replace=True)
        table = lance.dataset(table.uri)
        if chance.random() < 0.3:
            snapshots.append((table.version, places(table)))
        first, taken = chance.choice(snapshots)
        try:
            judge(table, taken, first)
        except AssertionError as error:
            raise AssertionError(f"seed {seed}, turn {turn}, {deed}: {error}") from error
    for first, taken in snapshots:
        judge(table, taken, first)
