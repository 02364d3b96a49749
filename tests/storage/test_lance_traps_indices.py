"""More of what Lance does that Omnigraph works around, as in `test_lance_traps.py`: above all what indices answer.

Each test asserts what pylance 14.0.2 does, which is not how it should be, and says what may go on the day it fails. The
last ones assert what we rely on. Names of traps as there; numbers are those of Lance's own issues.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import lance
import pyarrow as pa
import pytest
from lance import LanceDataset, LanceOperation, Transaction
from lance.commit import CommitConflictError
from lance.fragment import FragmentMetadata
from lance.query import MatchQuery

from tests.support.lance_traps import (
    ASKED,
    KINDS,
    ROWS,
    batch,
    commit,
    nearest,
    rewrite,
    rewritten,
    table,
    updated,
    words,
)

REUSE = "__lance_frag_reuse"


def deferred(made: Any, target_rows: int = 1000) -> Any:
    before = made.version
    made.optimize.compact_files(target_rows_per_fragment=target_rows, defer_index_remap=True)
    assert made.version > before, "nothing was compacted"
    return lance.dataset(made.uri)


def detached(base: Any, done: dict[str, Any], new: dict[str, Any]) -> Any:
    """What `rewritten` does, in a version of its own."""
    old = [FragmentMetadata.from_json(json.dumps(body)) for body in done["original_fragments"]]
    group = LanceOperation.RewriteGroup(old, [FragmentMetadata.from_json(json.dumps(new))])
    tx = Transaction(read_version=base.version, operation=LanceOperation.Rewrite([group], []))
    return LanceDataset.commit(base, tx, detached=True)


def asked(found: Any, column: str) -> int:
    """Rows whose `column` holds old0, as its index says."""
    return words(found, "old0") if column == "word" else int(found.count_rows(ASKED[column]))


def scanned(found: Any, column: str) -> int:
    """The same, as a scan says."""
    return sum(1 for value in found.to_table(columns=[column])[column].to_pylist() if "old0" in value)


def matches(found: Any, text: str) -> list[int]:
    rows = found.to_table(columns=["id", "_score"], full_text_query=MatchQuery(text, "word"))
    return list(rows["id"].to_pylist())


# ---- deferred compaction ---------------------------------------------------------------------------------------------


@pytest.fixture
def mixed(tmp_path: Path) -> Any:
    """A default compaction after a deferred one, under a BTREE and an INVERTED index."""
    made = table(tmp_path, 8, 10, enable_stable_row_ids=False)
    made.create_scalar_index("id", "BTREE")
    made.create_scalar_index("word", "INVERTED")
    made = deferred(made, 20)
    assert (made.count_rows("id >= 0"), words(made, "old1")) == (80, 20)
    made.optimize.compact_files(target_rows_per_fragment=1000)
    return lance.dataset(made.uri)


def test_a_plain_compaction_after_a_deferred_one_empties_btree_and_full_text_for_good(mixed: Any) -> None:
    """L1."""
    may_go = "`drain` of `maintenance.optimize.plan`, which builds indices anew first, may go"
    assert (mixed.count_rows("id >= 0"), words(mixed, "old1")) == (0, 0), may_go
    mixed.optimize.optimize_indices()
    assert (mixed.count_rows("id >= 0"), words(mixed, "old1")) == (0, 0), may_go
    mixed.create_scalar_index("id", "BTREE", replace=True)
    mixed.create_scalar_index("word", "INVERTED", replace=True)
    assert (mixed.count_rows("id >= 0"), words(mixed, "old1")) == (80, 20)


def test_a_delete_under_such_an_emptied_index_removes_nothing_and_says_nothing(mixed: Any) -> None:
    """The worst of it."""
    mixed.delete("id = 5")
    assert mixed.count_rows() == 80, "`drain` of `maintenance.optimize.plan` may go"


def test_the_reuse_index_dropped_while_indices_still_need_it_loses_their_rows(tmp_path: Path) -> None:
    """Extending them does not catch up either."""
    made = table(tmp_path, enable_stable_row_ids=False)
    made.create_scalar_index("id", "BTREE")
    made = deferred(made)
    made.optimize.optimize_indices()
    assert REUSE in {i.name for i in made.describe_indices()}, "Lance trims it by itself: `drain` may go"
    assert made.count_rows("id >= 0") == 4 * ROWS
    made.drop_index(REUSE)
    found = lance.dataset(made.uri).count_rows("id >= 0")
    assert found == 0, "`storage.indices.exchange_segments` may end the reuse index without building anew"


def test_indices_go_on_to_cover_a_fragment_that_was_deleted_before_a_deferred_compaction(tmp_path: Path) -> None:
    """lance#7374, which its change 7378 would mend: latent, as answers are right. `tests/index/test_reuse.py` has the
    dead addresses that come back unchanged.
    """
    made = table(tmp_path, enable_stable_row_ids=False)
    made.create_scalar_index("id", "BTREE")
    made.create_index("v", "IVF_FLAT", num_partitions=1)
    made.delete(f"id >= {ROWS} AND id < {2 * ROWS}")
    made = deferred(made)
    live = {f.fragment_id for f in made.get_fragments()}
    for index in made.describe_indices():
        over = {n for s in index.segments for n in s.fragment_ids}
        if index.name != REUSE:
            assert over - live == {1}, "`index.reuse` need not track removed fragments itself any more"
    assert nearest(made, 3 * ROWS) == 3 * ROWS
    assert made.count_rows("id >= 0") == 3 * ROWS


@pytest.mark.parametrize(
    ("kind", "options"), [("IVF_HNSW_SQ", {}), ("IVF_HNSW_PQ", {"num_sub_vectors": 2})], ids=["SQ", "PQ"]
)
def test_a_graph_index_that_lost_rows_needs_to_be_merged_before_it_answers(
    tmp_path: Path, kind: str, options: dict[str, Any]
) -> None:
    """After a deferred compaction. The default way to extend indices leaves it as it is."""
    may_go = "`maintenance.optimize.plan` need not build HNSW indices again before it defers"
    made = table(tmp_path, rows=80, enable_stable_row_ids=False)
    made.create_index("v", kind, num_partitions=1, **options)
    made.delete("id % 3 = 0")
    made = deferred(made)
    for extend in (False, True):
        if extend:
            made.optimize.optimize_indices()
        with pytest.raises((OSError, ValueError, RuntimeError), match="HNSW"):
            pytest.fail(f"{nearest(lance.dataset(made.uri), 10)} neighbours: {may_go}")
    made.optimize.optimize_indices(num_indices_to_merge=1)
    assert nearest(lance.dataset(made.uri), 10) == 10


# ---- stable row ids --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "options"),
    [("IVF_FLAT", {}), ("IVF_SQ", {}), ("IVF_PQ", {"num_sub_vectors": 2})],
    ids=["FLAT", "SQ", "PQ"],
)
def test_neighbours_stay_short_after_deletes_and_compaction_until_the_index_is_merged(
    tmp_path: Path, kind: str, options: dict[str, Any]
) -> None:
    """Extending it the default way does not help, as it covers everything."""
    may_go = "`index.segments._goes_along` need not look at `worn` fragments"
    made = table(tmp_path, rows=80)
    made.create_index("v", kind, num_partitions=1, **options)
    made.delete("id % 2 = 0")
    left = made.count_rows()
    assert nearest(made, left) == left
    made.optimize.compact_files(target_rows_per_fragment=1000)
    assert nearest(made, left) < left, may_go
    made.optimize.optimize_indices()
    assert nearest(lance.dataset(made.uri), left) < left, may_go
    made.optimize.optimize_indices(num_indices_to_merge=1)
    assert nearest(lance.dataset(made.uri), left) == left


def test_a_text_index_extended_beside_updated_rows_finds_a_row_twice_and_never_heals(tmp_path: Path) -> None:
    """`optimize_indices(num_indices_to_merge=0)`, which we never call."""
    may_go = "`index.segments.has_strays` need not look at INVERTED"
    made = table(tmp_path)
    made.create_scalar_index("word", "INVERTED", name="i")
    made.merge_insert("id").when_matched_update_all().execute(batch(range(20)))
    made = lance.dataset(made.uri)
    for merged in (0, None, 10):
        made.optimize.optimize_indices(**({} if merged is None else {"num_indices_to_merge": merged}))
        made = lance.dataset(made.uri)
        found = matches(made, "old1")
        assert (len(found), len(set(found))) == (45, 40), f"{may_go}: {merged}"
    made.create_scalar_index("word", "INVERTED", name="i", replace=True)
    assert len(matches(lance.dataset(made.uri), "old1")) == 40


@pytest.mark.parametrize("column", KINDS)
def test_an_index_extended_beside_updated_rows_matches_their_old_values(tmp_path: Path, column: str) -> None:
    """The same for all kinds that trust their entries; of these only a merge of BITMAP and LABEL_LIST heals."""
    may_go = f"`index.segments.has_strays` need not look at {KINDS[column]}"
    made = table(tmp_path)
    made.create_scalar_index(column, KINDS[column], name="i")
    made = updated(made, range(20))
    made.optimize.optimize_indices(num_indices_to_merge=0)
    made = lance.dataset(made.uri)
    assert asked(made, column) > scanned(made, column), may_go
    made.optimize.optimize_indices(num_indices_to_merge=10)
    made = lance.dataset(made.uri)
    assert (asked(made, column) == scanned(made, column)) is (column != "word"), may_go


@pytest.mark.parametrize(("column", "is_right"), [("word", False), ("tags", False), ("kind", True)])
def test_segments_of_before_and_after_an_update_merged_into_one(tmp_path: Path, column: str, is_right: bool) -> None:
    """Right for BITMAP only, and that is nowhere promised: so `index.segments` builds all three again, over data."""
    kind = KINDS[column]
    made = table(tmp_path)
    every = [f.fragment_id for f in made.get_fragments()]
    old = made.create_index_uncommitted(column, kind, name="i", fragment_ids=every)
    made = updated(made, range(20))
    tail = max(f.fragment_id for f in made.get_fragments())
    new = made.create_index_uncommitted(column, kind, name="i", replace=True, fragment_ids=[tail])
    merged = made.merge_existing_index_segments([old, new])
    after = commit(made, LanceOperation.CreateIndex([merged], []))
    assert (asked(after, column) == scanned(after, column)) is is_right, "look again at what `index.segments` may merge"


def test_a_segment_over_a_rewrite_that_was_left_out_speaks_of_the_next_fragment_that_gets_its_number(
    tmp_path: Path,
) -> None:
    """A BTREE over two rewrites of which one is published. The next append takes the number of the other."""
    made = table(tmp_path)
    first, second = rewrite(made, [0, 1], 5000), rewrite(made, [2, 3], 5001)
    private = detached(detached(made, *first), *second)
    segment = private.create_index_uncommitted("id", "BTREE", name="i", replace=True, fragment_ids=[5000, 5001])
    after = rewritten(commit(made, LanceOperation.CreateIndex([segment], [])), *first)
    after = lance.write_dataset(batch(range(1000, 1001)), after.uri, mode="append")
    assert 5001 in {f.fragment_id for f in after.get_fragments()}
    may_go = "`maintenance.optimize.publish._usable` may publish segments over dropped rewrites"
    assert after.count_rows("id = 1000") == 0, may_go
    with pytest.raises((OSError, ValueError, RuntimeError), match="5001"):
        pytest.fail(f"{after.count_rows('id >= 0')} rows: {may_go}")


# ---- calls -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "read",
    [
        lambda found, since: found.get_transactions(),
        lambda found, since: found.delta(compared_against=since).list_transactions(),
    ],
    ids=["get_transactions", "list_transactions"],
)
def test_a_history_with_a_rewrite_that_remapped_an_index_can_not_be_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, read: Callable[[Any, int], Any]
) -> None:
    """L3. The defaults that `storage.lance.lance_api.operations` gives the class are taken away, and given again."""
    made = table(tmp_path)
    made.create_scalar_index("id", "BTREE")
    since = made.version
    made.optimize.compact_files(target_rows_per_fragment=1000)
    init = LanceOperation.RewrittenIndex.__init__
    monkeypatch.setattr(init, "__defaults__", None)
    with pytest.raises(TypeError, match="RewrittenIndex"):
        pytest.fail(f"{read(lance.dataset(made.uri), since)}: `storage.lance.lance_api.operations` need not mend it")
    monkeypatch.setattr(init, "__defaults__", ("", b"", 0))
    assert len(read(lance.dataset(made.uri), since)) > 1


def test_extending_indices_that_do_not_exist_says_nothing(tmp_path: Path) -> None:
    """Names and options that Lance does not know are dropped. We never call it: `index.segments` plans by itself."""
    made = table(tmp_path, 2)
    made.create_scalar_index("id", "BTREE")
    before = made.version
    made.optimize.optimize_indices(index_names=["nobody"])
    made.optimize.optimize_indices(no_such_option=3)
    assert made.version == before


def test_the_name_of_a_half_made_branch_can_not_be_used_again(tmp_path: Path) -> None:
    """A process that dies after the branch's manifest and before its ref."""
    may_go = "forks need no names that are used once (`commit.stage.work_on`)"
    made = table(tmp_path, 1)
    made.create_branch("half")
    (Path(made.uri) / "_refs" / "branches" / "half.json").unlink()
    made = lance.dataset(made.uri)
    assert made.branches.list() == {}
    assert lance.dataset(f"{made.uri}/tree/half").count_rows() == ROWS, "openable all the same"
    for call in (made.create_branch, made.branches.delete, made.create_branch):
        with pytest.raises((OSError, ValueError, RuntimeError)):
            pytest.fail(f"{call('half')}: {may_go}")
    shutil.rmtree(Path(made.uri) / "tree" / "half")
    assert made.create_branch("half").count_rows() == ROWS


# ---- relied on -------------------------------------------------------------------------------------------------------


def put(uri: str, key: str, value: str | None, *, on: int) -> int:
    update = LanceOperation.UpdateConfig(config_updates=LanceOperation.UpdateMap({key: value}))
    return int(LanceDataset.commit(uri, Transaction(read_version=on, operation=update)).version)


def test_a_key_of_the_config_is_set_by_one_of_those_who_saw_the_same_version(tmp_path: Path) -> None:
    """The compare-and-swap of a head. A failure here is no good news: `storage.manifest` rests on it."""
    uri = str(tmp_path / "t")
    seen = lance.write_dataset(pa.table({"id": [1]}), uri).version
    put(uri, "head", "first", on=seen)
    put(uri, "other", "beside", on=seen)
    for value in ("second", None):
        with pytest.raises(CommitConflictError):
            put(uri, "head", value, on=seen)
    now = lance.dataset(uri)
    assert now.config() == {"head": "first", "other": "beside"}
    put(uri, "head", "second", on=now.version)
    assert lance.dataset(uri).config()["head"] == "second"


def test_two_who_delete_a_key_of_the_config_do_not_notice_each_other(tmp_path: Path) -> None:
    """So nothing may be decided by deleting a key: `branch.delete` sets another one (`refs`) with it."""
    uri = str(tmp_path / "t")
    seen = put(uri, "head", "x", on=lance.write_dataset(pa.table({"id": [1]}), uri).version)
    assert put(uri, "head", None, on=seen) < put(uri, "head", None, on=seen), "deleting a key is a swap too now"
