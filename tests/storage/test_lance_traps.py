"""What Lance does that Omnigraph works around, one test per trap.

Each asserts how the version that is installed behaves today, which is not how it should. A test that fails after an
upgrade is good news: its docstring names the module that works around the trap, so that the detour can be taken out, or
the assertion brought up to date if the trap has only moved. Traps have names: L are those of the library as such, O
those of index segments and own rewrites, B those of branches.

More of them stand beside what they are about: `tests/maintenance/optimize/test_deferred.py` (L1: a plain compaction
after a deferred one empties indices; L7: deferral is refused on stable row ids), `test_optimize.py` there (O5: a
full-text segment must be merged first), `tests/index/test_reuse.py` (dead addresses are not translated to null), and in
`test_lance_traps_indices.py` here those of indices in more of their kinds.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import lance
import pyarrow as pa
import pytest
from lance import LanceDataset, LanceOperation, Transaction
from lance.fragment import RowIdSequence, write_fragments
from lance.optimize import Compaction

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

# ---- keys and commits ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("with_index", "copies"), [(False, 1), (True, 2)])
def test_the_primary_key_fences_upserts_only_until_the_key_has_an_index(
    tmp_path: Path, with_index: bool, copies: int
) -> None:
    """Two stale handles upsert one new key. Worked around by the committer (`commit`), which holds writers apart."""
    field = pa.field("id", pa.int64(), nullable=False, metadata={"lance-schema:unenforced-primary-key": "true"})
    rows = pa.table({"id": [1, 2]}, schema=pa.schema([field]))
    made = lance.write_dataset(rows, str(tmp_path / "t"), enable_stable_row_ids=True)
    if with_index:
        made.create_scalar_index("id", "BTREE")
    handles = [lance.dataset(str(tmp_path / "t")) for _ in range(2)]
    for handle in handles:
        new = pa.table({"id": [3]}, schema=rows.schema)
        handle.merge_insert("id").when_matched_update_all().when_not_matched_insert_all().execute(new)
    assert lance.dataset(str(tmp_path / "t")).count_rows("id = 3") == copies


def test_the_same_transaction_committed_twice_appends_twice(tmp_path: Path) -> None:
    """A commit is not idempotent. Worked around by `commit.attempt`: the outcome is asked for, never tried again."""
    made = table(tmp_path, 1)
    fragments = write_fragments(batch(range(3)), made, mode="append", enable_stable_row_ids=True)
    tx = Transaction(read_version=made.version, operation=LanceOperation.Append(fragments))
    LanceDataset.commit(made, tx)
    LanceDataset.commit(made, tx)
    assert lance.dataset(made.uri).count_rows() == ROWS + 6


def test_a_restore_lands_over_anything(tmp_path: Path) -> None:
    """It can't be conditional. Worked around by `commit.effect`: what it restored is the base of the same operation."""
    made = table(tmp_path, 1)
    stale = lance.dataset(made.uri, version=1)
    lance.write_dataset(batch(range(100, 103)), made.uri, mode="append")
    commit(stale, LanceOperation.Restore(1))
    assert lance.dataset(made.uri).count_rows() == ROWS


# ---- history ---------------------------------------------------------------------------------------------------------


def test_a_rewrite_that_remapped_an_index_can_not_be_read_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`read_transaction` raises TypeError. Worked around by `storage.lance.lance_api.operations`, which gives the
    class the defaults that it lacks (they are taken away here, as another test may have been first).
    """
    made = table(tmp_path)
    made.create_scalar_index("id", "BTREE")
    made.optimize.compact_files(target_rows_per_fragment=1000)
    monkeypatch.setattr(LanceOperation.RewrittenIndex.__init__, "__defaults__", None)
    with pytest.raises(TypeError):
        lance.dataset(made.uri).read_transaction(made.version)


def test_a_reservation_of_fragments_has_no_name_in_python(tmp_path: Path) -> None:
    """It reads as a bare BaseOperation. Worked around by `storage.history`, which compares the two versions."""
    made = table(tmp_path)
    options = {"target_rows_per_fragment": 1000}
    done = [task.execute(made) for task in Compaction.plan(made, options).tasks]
    before = made.version
    Compaction.commit(made, done, options)
    assert type(made.read_transaction(before + 1).operation).__name__ == "BaseOperation"


# ---- compaction ------------------------------------------------------------------------------------------------------


def test_deletes_and_compaction_leave_neighbours_short_on_stable_row_ids(tmp_path: Path) -> None:
    """L4, O4: KNN returns fewer than asked for. Worked around by `index.segments`: a segment whose rewrite loses rows
    is built again.
    """
    made = table(tmp_path)
    made.create_index("v", "IVF_FLAT", num_partitions=1)
    made.delete("id % 2 = 0")
    assert nearest(made, 60) == 60
    made.optimize.compact_files(target_rows_per_fragment=1000)
    assert nearest(made, 60) < 60
    made.optimize.optimize_indices(num_indices_to_merge=1)
    assert nearest(made, 60) == 60


def test_a_compaction_of_fragments_that_were_touched_meanwhile_is_refused_and_leaves_a_version(tmp_path: Path) -> None:
    """Writers starve it. Worked around by `storage.lance.rewrite`, which replays what was deleted meanwhile."""
    made = table(tmp_path)
    options = {"target_rows_per_fragment": 1000}
    done = [task.execute(made) for task in Compaction.plan(made, options).tasks]
    lance.dataset(made.uri).delete("id = 1")
    with pytest.raises(OSError, match="conflict"):
        Compaction.commit(made, done, options)
    assert lance.dataset(made.uri).version == made.version + 2


def test_a_rewrite_on_the_newest_version_brings_deleted_rows_back(tmp_path: Path) -> None:
    """Lance compares versions, not rows. Worked around by `storage.lance.rewrite.Replayer`."""
    made = table(tmp_path)
    done, new = rewrite(made, [0, 1], 5000)
    made.delete("id < 5")
    assert made.count_rows() == 4 * ROWS - 5
    old = {**done, "original_fragments": [made.get_fragment(n).metadata.to_json() for n in (0, 1)]}
    assert rewritten(made, old, new).count_rows() == 4 * ROWS


def test_an_own_rewrite_drops_a_btree_and_keeps_the_coverage_of_others(tmp_path: Path) -> None:
    """Entries of a BTREE name places, those of the others rows. Relied on by `index.segments`."""
    made = table(tmp_path)
    made.create_scalar_index("id", "BTREE")
    made.create_scalar_index("kind", "BITMAP")
    after = rewritten(made, *rewrite(made, [0, 1], 5000))
    covered = {i.field_names[0]: {n for s in i.segments for n in s.fragment_ids} for i in after.describe_indices()}
    live = {f.fragment_id for f in after.get_fragments()}
    assert covered["id"] & live == {2, 3}
    assert covered["kind"] & live == {2, 3, 5000}


def test_a_compaction_whose_commit_fails_takes_its_files_along(tmp_path: Path) -> None:
    """lance#8123, where the failure hides a success; `storage.lance.rewrite.commit_deferred` and who calls it."""
    made = table(tmp_path)
    task = Compaction.plan(made, {"target_rows_per_fragment": 1_000}).tasks[0]
    before = set(Path(made.uri).rglob("*.lance"))
    result = task.execute(made)
    assert len(set(Path(made.uri).rglob("*.lance")) - before) == 1
    (Path(made.uri) / "_transactions").rename(tmp_path / "aside")
    (Path(made.uri) / "_transactions").touch()
    with pytest.raises((OSError, RuntimeError)):
        Compaction.commit(made, [result])
    assert set(Path(made.uri).rglob("*.lance")) == before


def test_fragments_under_and_outside_an_index_are_not_compacted_together(tmp_path: Path) -> None:
    """Worked around by `storage.lance.rewrite`, which makes tasks of its own choice of fragments."""
    made = table(tmp_path, 2)
    made.create_scalar_index("id", "BTREE")
    for k in range(2, 4):
        made = lance.write_dataset(batch(range(k * ROWS, (k + 1) * ROWS)), made.uri, mode="append")
    tasks = Compaction.plan(made, {"target_rows_per_fragment": 1000}).tasks
    assert len(tasks) == 2


def test_compact_files_on_a_branch_breaks_its_btree(tmp_path: Path) -> None:
    """The index is written below the branch and looked for in the root. Worked around by `storage.lance.rewrite`, whose
    own Rewrite and segments are right there too.
    """
    made = table(tmp_path)
    made.create_scalar_index("id", "BTREE")
    made.create_branch("side")
    side = lance.dataset(f"{made.uri}/tree/side")
    side.optimize.compact_files(target_rows_per_fragment=1000)
    with pytest.raises((OSError, ValueError, RuntimeError), match=r"[Nn]ot found"):
        lance.dataset(f"{made.uri}/tree/side").count_rows("id = 7")


# ---- index segments --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("column", KINDS)
def test_an_extra_segment_beside_one_of_updated_rows_answers_with_old_values(tmp_path: Path, column: str) -> None:
    """Only for kinds that trust their entries. Worked around by `index.segments.has_strays`: such a segment is built
    again over what is left of it.
    """
    made = table(tmp_path)
    made.create_scalar_index(column, KINDS[column], name="i")
    made = updated(made, range(20))
    tail = max(f.fragment_id for f in made.get_fragments())
    segment = made.create_index_uncommitted(column, KINDS[column], name="i", replace=True, fragment_ids=[tail])
    if KINDS[column] == "INVERTED":
        segment = made.merge_existing_index_segments([segment])
    after = commit(made, LanceOperation.CreateIndex([segment], []))

    def asked(found: Any) -> int:
        return words(found, "old0") if column == "word" else int(found.count_rows(ASKED[column]))

    right = sum(1 for row in after.to_table(columns=[column])[column].to_pylist() if "old0" in row)
    assert asked(after) > right


@pytest.mark.parametrize(("named", "is_right"), [(True, True), (False, False)])
def test_moved_rows_count_as_covered_unless_every_field_is_named(tmp_path: Path, named: bool, is_right: bool) -> None:
    """An Update that says that rows moved and names no field marks the new fragment as covered by all indices.
    Worked around by `storage.edit`, which names every field.
    """
    made = table(tmp_path)
    made.create_scalar_index("kind", "BITMAP", name="i")
    moved = made.to_table(columns=["id"], filter="id < 20", with_row_id=True, with_row_address=True)
    offsets = [int(a) & 0xFFFFFFFF for a in moved["_rowaddr"].to_pylist()]
    new = write_fragments(batch(range(20), word="new"), made, mode="append", enable_stable_row_ids=True)
    new[0].row_id_meta = RowIdSequence(pa.array(moved["_rowid"].to_pylist(), pa.uint64())).to_inline_metadata()
    after = commit(
        made,
        LanceOperation.Update(
            removed_fragment_ids=[],
            updated_fragments=[made.get_fragment(0).delete_rows(offsets)],
            new_fragments=new,
            fields_modified=[],
            fields_for_preserving_frag_bitmap=[f.id() for f in made.lance_schema.fields()] if named else [],
            update_mode="rewrite_rows",
        ),
    )
    assert (after.count_rows("kind = 'new0'") == 7) is is_right


def test_the_default_way_to_extend_indices_can_be_told_to_go_wrong(tmp_path: Path) -> None:
    """`optimize_indices(num_indices_to_merge=0)` after an update: the same stale answers. We never call it."""
    made = table(tmp_path)
    made.create_scalar_index("kind", "BITMAP", name="i")
    made = updated(made, range(20))
    made.optimize.optimize_indices(num_indices_to_merge=0)
    right = sum(1 for kind in made.to_table(columns=["kind"])["kind"].to_pylist() if kind == "old0")
    assert made.count_rows("kind = 'old0'") > right


def test_a_vector_column_named_as_one_of_lance_itself_panics(tmp_path: Path) -> None:
    """Building IVF_FLAT over a column `flat`. Worked around by `index.build.vector_kind`, which takes IVF_SQ there."""
    rows = batch(range(300)).rename_columns(["id", "word", "kind", "tags", "flat"])
    made = lance.write_dataset(rows, str(tmp_path / "t"))
    with pytest.raises(BaseException, match="unwrap") as caught:
        made.create_index("flat", "IVF_FLAT", num_partitions=1)
    assert not isinstance(caught.value, Exception), "a panic, which no `except Exception` sees"


def test_a_second_whole_vector_segment_beside_the_first_panics(tmp_path: Path) -> None:
    """PanicException is no Exception. Worked around by `index.segments` (what is built again replaces what was) and
    `storage.lance.lance_api.reading` (a panic is a failure of the store).
    """
    made = table(tmp_path)
    made.create_index("v", "IVF_FLAT", name="i", num_partitions=1)
    every = [f.fragment_id for f in made.get_fragments()]
    segment = made.create_index_uncommitted("v", "IVF_FLAT", name="i", replace=True, fragment_ids=every)
    with pytest.raises(BaseException) as caught:  # noqa: PT011  the panic's class is not importable
        nearest(commit(made, LanceOperation.CreateIndex([segment], [])), 10)
    assert type(caught.value).__name__ == "PanicException"


def test_a_graph_index_that_lost_rows_in_a_deferred_compaction_can_not_be_asked(tmp_path: Path) -> None:
    """HNSW after partial deletes. Worked around by `maintenance.optimize.plan`, which builds it again first."""
    made = table(tmp_path, rows=80, enable_stable_row_ids=False)
    made.create_index("v", "IVF_HNSW_SQ", num_partitions=1)
    made.delete("id % 3 = 0")
    made.optimize.compact_files(target_rows_per_fragment=1000, defer_index_remap=True)
    with pytest.raises((OSError, ValueError, RuntimeError), match="HNSW"):
        nearest(lance.dataset(made.uri), 10)


# ---- cleanup and reads -----------------------------------------------------------------------------------------------


def test_cleanup_of_unverified_files_takes_what_another_writer_is_about_to_commit(tmp_path: Path) -> None:
    """The commit then succeeds and the table can't be read. Worked around by `maintenance.cleanup.orphans`: what is
    younger than any preparation may be stays.
    """
    from datetime import timedelta

    made = table(tmp_path, 1)
    in_flight = write_fragments(batch(range(3)), made, mode="append", enable_stable_row_ids=True)
    made.cleanup_old_versions(older_than=timedelta(0), delete_unverified=True)
    after = commit(made, LanceOperation.Append(in_flight))
    with pytest.raises((OSError, ValueError, RuntimeError)):
        lance.dataset(after.uri).to_table()


def test_detached_versions_are_left_by_cleanup(tmp_path: Path) -> None:
    """Worked around by `storage.lance.rewrite.remove_detached` and `maintenance.cleanup`."""
    from datetime import timedelta

    made = table(tmp_path, 1)
    tx = Transaction(read_version=made.version, operation=LanceOperation.Delete([], [], "false"))
    LanceDataset.commit(made, tx, detached=True)
    made.cleanup_old_versions(older_than=timedelta(0), delete_unverified=True)
    assert [p.name for p in (tmp_path / "t" / "_versions").iterdir() if p.name.startswith("d")]


def test_stable_row_ids_asked_for_after_creation_are_silently_ignored(tmp_path: Path) -> None:
    """Worked around by `storage.table`, which asks at creation, and `storage.manifest`, which knows what was asked."""
    made = table(tmp_path, 1, enable_stable_row_ids=False)
    again = lance.write_dataset(batch(range(3)), made.uri, mode="append", enable_stable_row_ids=True)
    assert not again.has_stable_row_ids
