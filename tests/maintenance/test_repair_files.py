"""Repair publishes a version only if the files that it rests on can be used, and maintenance only if it kept the rows.

What a stranger's transaction says is not believed: files are looked at, rewritten rows compared with what they were.
"""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Any

import lance
import pyarrow as pa
import pytest

import omnigraph
from omnigraph.storage.durability import manifest_path
from omnigraph.storage.lance import lance_api
from tests.commit.deeds import SCHEMA
from tests.maintenance import strangers
from tests.support.repairs import ids, pinned, row


def cut(path: str, size: int = 10) -> None:
    os.truncate(path, size)


def newest_data(graph: Any, type_name: str = "Left") -> str:
    """The data file of the table's last fragment."""
    table = strangers.opened(graph, type_name)
    return os.path.join(table.uri, "data", table.get_fragments()[-1].metadata.files[0].path)


# ---- files of indices ------------------------------------------------------------------------------------------------


@pytest.fixture
def forked(graph: Any) -> Any:
    """Left with indices, forked on side, where a stranger rewrites a fragment with a deleted row."""
    graph.optimize(engine="local")
    graph.create_branch("side")
    graph.upsert({"Left": [{"name": "mine"}]}, branch="side")
    graph.delete({"Left": ["older"]}, branch="side")
    strangers.compact(graph, "Left", branch="side")
    return graph


def test_a_bare_compaction_of_a_fork_is_refused_because_its_indices_could_not_be_read(path: Path, forked: Any) -> None:
    found = row(forked.repair(branch="side"))
    assert (found.classification, found.action) == ("verified_maintenance", "would_refuse")
    assert "id_btree (its files are missing)" in found.error
    assert "discard the drift" in found.error
    for force in (False, True):
        assert row(forked.repair(branch="side", confirm=True, force=force)).action == "refused"
    assert row(forked.repair(branch="side", confirm=True, discard=True)).action == "discarded"
    fresh = omnigraph.open(path)
    fresh.upsert({"Left": [{"name": "mine", "n": 5}]}, branch="side")
    assert fresh.nodes("Left", where="id = 'mine'", branch="side")["n"].to_pylist() == [5]


def test_without_its_broken_indices_the_compaction_of_a_fork_is_published(path: Path, forked: Any) -> None:
    table = strangers.opened(forked, "Left", "side")
    for index in row(forked.repair(branch="side")).error.split("(its files are missing)")[:-1]:
        table.drop_index(index.split()[-1])
    assert row(forked.repair(branch="side", confirm=True)).action == "published"
    fresh = omnigraph.open(path)
    fresh.upsert({"Left": [{"name": "mine", "n": 5}]}, branch="side")
    assert fresh.nodes("Left", where="id = 'mine'", branch="side")["n"].to_pylist() == [5]


@pytest.mark.parametrize("spoil", [shutil.rmtree, lambda folder: cut(os.path.join(folder, "page_data.lance"))])
def test_a_new_index_whose_files_are_gone_or_cut_short_is_refused_and_an_old_one_is_not_looked_at(
    graph: Any, spoil: Any
) -> None:
    graph.optimize(engine="local")
    table = strangers.opened(graph, "Left")
    known = os.listdir(os.path.join(table.uri, "_indices"))
    strangers.index(graph, "Left", "n")
    made = set(os.listdir(os.path.join(table.uri, "_indices"))).difference(known).pop()
    shutil.rmtree(os.path.join(table.uri, "_indices", known[0]))
    spoil(os.path.join(table.uri, "_indices", made))
    found = row(graph.repair(confirm=True))
    assert (found.classification, found.action) == ("verified_maintenance", "refused")
    assert found.error.startswith("indices of its newest version can't be used: stranger_n (")
    strangers.opened(graph, "Left").drop_index("stranger_n")
    assert row(graph.repair(confirm=True)).action == "published"


# ---- files of rows ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [0, 10])
def test_a_data_file_that_is_cut_short_is_never_published(graph: Any, size: int) -> None:
    graph.insert({"Left": [{"name": "second"}]})
    strangers.compact(graph, "Left")
    cut(newest_data(graph), size)
    preview = row(graph.repair())
    assert (preview.action, f"it has {size} of " in preview.error) == ("would_refuse", True)
    for force in (False, True):
        assert row(graph.repair(confirm=True, force=force)).action == "refused"
    assert row(graph.repair(confirm=True, discard=True)).action == "discarded"
    assert ids(graph) == {"old", "older", "second"}


def test_a_deletion_file_that_is_empty_is_never_published(graph: Any) -> None:
    strangers.delete(graph, "Left", "old")
    folder = os.path.join(strangers.opened(graph, "Left").uri, "_deletions")
    cut(os.path.join(folder, os.listdir(folder)[0]), 0)
    found = row(graph.repair(confirm=True, force=True))
    assert (found.action, "is not whole" in found.error) == ("refused", True)


def test_a_preview_tells_of_a_missing_file_and_still_shows_the_way_back(graph: Any) -> None:
    strangers.append(graph, "Left", "raw")
    os.unlink(newest_data(graph))
    found = row(graph.repair())
    assert (found.action, found.may_publish, found.may_discard) == ("would_refuse", False, True)
    assert "is missing" in found.error


def test_a_rewrite_that_can_not_be_read_stops_a_confirmed_run_and_can_be_discarded(graph: Any) -> None:
    graph.insert({"Left": [{"name": "second"}]})
    strangers.compact(graph, "Left")
    strangers.index(graph, "Right", "n")
    with open(newest_data(graph), "r+b") as file:
        file.write(b"\xff" * (os.path.getsize(file.name) - 40))
    preview = graph.repair()
    assert (row(preview).classification, row(preview).action) == ("unverifiable", "would_refuse")
    assert row(preview, "node:Right").action == "would_publish"
    before = graph.snapshot().commit
    with pytest.raises(omnigraph.errors.StorageError):
        graph.repair(confirm=True)
    assert graph.snapshot().commit == before
    assert row(graph.repair(confirm=True, discard=True)).action == "discarded"
    assert ids(graph) == {"old", "older", "second"}


@pytest.mark.parametrize("lost", ["folder", "versions"])
def test_a_table_that_is_gone_is_told_in_its_row_and_the_others_are_repaired(path: Path, graph: Any, lost: str) -> None:
    uri, at = strangers.place(graph, "Left")
    assert ids(graph), "this handle has the table open"
    strangers.index(graph, "Right", "n")
    shutil.rmtree(uri if lost == "folder" else os.path.join(uri, "_versions"))
    for handle in (graph, omnigraph.open(path)):
        found = row(handle.repair())
        assert (found.classification, found.action) == ("unverifiable", "would_refuse")
        assert (found.manifest_version, found.lance_head_version) == (at, 0)
        assert (found.may_publish, found.may_discard) == (False, False)
        assert "no version of it is there" in found.error
    result = omnigraph.open(path).repair(confirm=True, force=True)
    assert (row(result).action, row(result, "node:Right").action) == ("refused", "published")
    assert row(omnigraph.open(path).repair(confirm=True, discard=True)).action == "refused"


# ---- rows ------------------------------------------------------------------------------------------------------------


def forge(graph: Any, rows: pa.Table, *, row_ids: bool) -> None:
    """A Rewrite of Left whose new fragment holds these rows, under the row ids of the old ones."""
    from lance.fragment import FragmentMetadata, write_fragments

    table = strangers.opened(graph, "Left")
    old = [f.metadata for f in table.get_fragments()]
    body = write_fragments(rows, table, mode="append")[0].to_json()
    body |= {"id": 100, "row_id_meta": old[0].to_json()["row_id_meta"] if row_ids else None}
    new = FragmentMetadata.from_json(json.dumps(body))
    group = lance_api.operations().RewriteGroup(old, [new])
    tx = lance_api.transaction(lance_api.operations().Rewrite([group], []), read_version=table.version)
    lance_api.commit(graph._location, table, tx)


def test_a_rewrite_with_other_values_in_as_many_rows_is_not_taken_for_maintenance(tmp_path: Path) -> None:
    graph = omnigraph.init(tmp_path / "address", SCHEMA, row_ids="address")
    graph.insert({"Left": [{"name": "old", "n": 0}, {"name": "older", "n": 0}]})
    rows = strangers.opened(graph, "Left").to_table()
    forge(graph, rows.set_column(2, rows.schema.field(2), pa.array([0, 9], pa.int64())), row_ids=False)
    found = row(graph.repair())
    assert (found.classification, found.action, found.operations) == ("suspicious", "would_refuse", ("Rewrite",))
    assert (found.changes.updated.count, found.changes.updated.first) == (1, ("older",))
    assert "by maintenance alone" in found.error
    assert row(graph.repair(confirm=True)).action == "refused"
    assert row(graph.repair(confirm=True, force=True)).action == "forced"


def test_a_rewrite_that_swaps_row_ids_is_not_taken_for_maintenance(graph: Any) -> None:
    rows = strangers.opened(graph, "Left").to_table()
    forge(graph, rows.take([1, 0]), row_ids=True)
    found = row(graph.repair(confirm=True))
    assert (found.classification, found.action) == ("suspicious", "refused")
    assert "row ids" in found.error


@pytest.mark.parametrize("row_ids", ["stable", "address"])
def test_a_compaction_of_every_kind_of_value_and_of_ids_that_stand_there_twice_is_verified(
    tmp_path: Path, row_ids: str
) -> None:
    schema = "node Thing { name: String @key  f: F64?  tags: [String]?  v: Vector(3)?  raw: Blob? }"
    graph = omnigraph.init(tmp_path / "things", schema, row_ids=row_ids)
    for start in (0, 50):
        rows = [
            {"name": f"t{n}", "f": n / 3, "tags": ["a", str(n)], "v": [n, 1, 2], "raw": bytes([n]) * n}
            for n in range(start, start + 50)
        ]
        graph.insert({"Thing": [*rows, {"name": f"empty{start}"}]})
    table = strangers.opened(graph, "Thing")
    twins = pa.table({"id": ["t7", "t7"], "name": ["t7", "other"], "f": [1.0, 2.0]})
    lance.write_dataset(twins, table.uri, mode="append")
    strangers.opened(graph, "Thing").delete("id IN ('t1', 't60')")
    assert row(graph.repair(confirm=True, force=True), "node:Thing").action == "forced"
    strangers.compact(graph, "Thing")
    found = row(graph.repair(confirm=True), "node:Thing")
    assert (found.classification, found.action, found.error) == ("verified_maintenance", "published", None)


def test_only_rewritten_fragments_are_read(graph: Any) -> None:
    """The file of another fragment is gone, and nobody misses it."""
    graph.insert({"Left": [{"name": f"many{n}"} for n in range(100)]})
    large = newest_data(graph)
    for name in ("one", "two"):
        graph.insert({"Left": [{"name": name}]})
    table = strangers.opened(graph, "Left")
    table.optimize.compact_files(target_rows_per_fragment=50)
    assert len(table.get_fragments()) == 3
    os.unlink(large)
    assert row(graph.repair(confirm=True)).action == "published"


# ---- columns ---------------------------------------------------------------------------------------------------------


def test_ids_that_may_be_null_are_never_published_and_can_be_discarded(graph: Any) -> None:
    table = strangers.opened(graph, "Left")
    table.alter_columns({"path": "id", "nullable": True})
    shape = strangers.opened(graph, "Left").schema
    rows = pa.table({"id": [None, "raw"], "name": ["none", "raw"], "n": [1, 2]}, schema=shape)
    lance.write_dataset(rows, table.uri, mode="append")
    found = row(graph.repair())
    assert (found.classification, found.action) == ("suspicious", "would_refuse")
    assert "may be null where a row needs a value (id)" in found.error
    assert (found.changes.inserted.count, found.changes.inserted.first) == (2, (None, "raw"))
    assert row(graph.repair(confirm=True, force=True)).action == "refused"
    assert row(graph.repair(confirm=True, discard=True)).action == "discarded"
    graph.upsert({"Left": [{"name": "new"}]})
    assert ids(graph) == {"old", "older", "new"}


def test_a_column_of_another_type_is_never_published_and_can_be_discarded(graph: Any) -> None:
    strangers.opened(graph, "Left").alter_columns({"path": "n", "data_type": pa.int32()})
    found = row(graph.repair(confirm=True, force=True))
    assert (found.classification, found.action) == ("suspicious", "refused")
    assert "have not the types of the schema (n)" in found.error
    assert row(graph.repair(confirm=True, discard=True)).action == "discarded"
    assert graph.nodes("Left")["n"].type == pa.int64()


def test_a_head_below_the_pin_is_neither_published_nor_discarded(path: Path, graph: Any) -> None:
    graph.upsert({"Left": [{"name": "new"}]})
    uri, at = strangers.place(graph, "Left")
    os.unlink(manifest_path(uri, at))
    before = graph.snapshot().commit
    for way in ({}, {"force": True}, {"discard": True}):
        found = row(omnigraph.open(path).repair(confirm=True, **way))
        assert (found.classification, found.action) == ("unverifiable", "refused")
        assert found.lance_head_version < found.manifest_version == at
        assert f"the published version {at} no longer exists" in found.error
    assert (pinned(graph), graph.snapshot().commit) == (at, before)
