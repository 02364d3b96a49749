"""What lies around the tables: dead operations, drift, strays; and what others do while verify looks."""

from __future__ import annotations

import os
from pathlib import Path

import lance
import pytest

import omnigraph as og
from omnigraph.commit.stamp import Stamp
from omnigraph.storage.durability import manifest_path
from omnigraph.storage.lance import lance_api
from tests.commit import plant
from tests.maintenance.verify import damage
from tests.support.dead_owners import Meanwhile, gone

DAY_S = 24 * 3600.0


def test_an_operation_of_a_dead_writer(plain: og.Graph) -> None:
    body = {"nonce": "planted", "owner": gone(), "tables": [], "kind": "load"}
    file = plant.lock(Path(plain.uri), body)
    finding = damage.only(plain.verify(quick=True), "dead_ticket", severity="warning", branch="main")
    assert "load" in finding.message
    assert "omnigraph maintain" in finding.remedy
    assert file.exists(), "only looked at"


def test_an_operation_of_a_living_writer_is_no_finding(plain: og.Graph) -> None:
    plant.lock(Path(plain.uri))
    assert plain.verify(quick=True).findings == ()


def test_arrays_that_queries_keep_on_disk_are_no_strays(plain: og.Graph) -> None:
    file = Path(plain.uri, "__cache", "adjacency", "0123", "out.nodes.npy")
    file.parent.mkdir(parents=True)
    file.write_bytes(b"x")
    os.utime(file, (0, 0))
    assert plain.verify().findings == ()
    assert file.exists(), "only looked at"


@pytest.mark.parametrize("branch", ["main", "side"])
def test_a_table_that_moved_without_the_door(plain: og.Graph, branch: str) -> None:
    damage.branch_out(plain)
    damage.newest(plain, "City", branch).delete("id = 'Bonn'")
    finding = damage.only(plain.verify(), "uncovered_drift", severity="error", table="node:City", branch=branch)
    assert finding.remedy.startswith(f"Run `omnigraph repair {plain.uri} --branch {branch}`")
    assert finding.examples == ("Delete",)


def test_a_leftover_of_our_own_above_the_pin_is_no_drift(plain: og.Graph) -> None:
    pin, head = damage.pin_of(plain, "City"), plain._manifest.head("main")
    stamp = Stamp(head.incarnation, head.epoch, 0, pin.table, "0", "nonce")
    table = damage.newest(plain, "City")
    undo = lance_api.transaction(
        lance_api.operations().Restore(pin.version), read_version=pin.version, properties={lance_api.STAMP: str(stamp)}
    )
    lance.LanceDataset.commit(table, undo)
    assert damage.newest(plain, "City").version > pin.version
    assert plain.verify().findings == ()


@pytest.mark.parametrize(
    ("name", "table"),
    [
        ("data/stray.lance", "node:City"),
        ("_deletions/9-9-9.arrow", "node:City"),
        ("_indices/0e7a3a40-0000-4000-8000-000000000000/page_data.lance", "node:City"),
    ],
)
def test_a_file_that_no_version_refers_to_once_it_is_old(plain: og.Graph, name: str, table: str) -> None:
    stray = damage.folder(plain, damage.pin_of(plain, "City")) / name
    stray.parent.mkdir(parents=True, exist_ok=True)
    stray.write_bytes(b"stray")
    assert plain.verify(quick=True).findings == (), "it may belong to work in flight"
    damage.age(Path(plain.uri), days=6)
    assert plain.verify(quick=True).findings == ()
    damage.age(Path(plain.uri), days=2)
    finding = damage.only(plain.verify(quick=True), "unexplained_file", severity="warning", table=table, count=1)
    assert finding.examples == (name,)
    assert "omnigraph cleanup" in finding.remedy
    assert plain.verify(quick=True, orphans_older_than_s=30 * DAY_S).findings == ()


@pytest.mark.parametrize("folder", ["nodes/nobody-0123456789ab", "__staging/abc"])
def test_folders_that_no_commit_knows_once_they_are_old(plain: og.Graph, folder: str) -> None:
    stray = Path(plain.uri, folder, "data", "x.lance")
    stray.parent.mkdir(parents=True)
    stray.write_bytes(b"stray")
    assert plain.verify(quick=True).findings == ()
    damage.age(stray)
    finding = damage.only(plain.verify(quick=True), "unexplained_file", severity="warning", table=None)
    assert finding.examples == (folder,)


@pytest.mark.parametrize("name", ["notes.txt", "backup/people.jsonl", "nodes/notes.txt", "edges/notes.txt"])
def test_files_of_strangers_where_omnigraph_puts_none(plain: og.Graph, name: str) -> None:
    stray = Path(plain.uri, name)
    stray.parent.mkdir(exist_ok=True)
    stray.write_bytes(b"stray")
    finding = damage.only(plain.verify(quick=True), "unexplained_file", severity="warning", table=None, count=1)
    assert finding.examples == (name if "backup" not in name else "backup/",)
    assert finding.remedy.endswith(f"move it out of {plain.uri}.")
    stray.unlink()
    if "backup" in name:
        stray.parent.rmdir()
    assert plain.verify(quick=True).findings == ()


@pytest.mark.parametrize(
    "name",
    [
        *("nodes/TABLE/foo/x", "nodes/TABLE/x", "nodes/photos/x.png", "__manifest/stray", "__manifest/foo/x"),
        *("__recovery/loose.txt", "__recovery/what/x.json", "__recovery/0123/000000000001.0.json/x"),
    ],
)
def test_files_that_cleanup_leaves_alone_are_not_left_to_cleanup(plain: og.Graph, name: str) -> None:
    stray = Path(plain.uri, name.replace("nodes/TABLE", damage.pin_of(plain, "City").path))
    stray.parent.mkdir(parents=True, exist_ok=True)
    stray.write_bytes(b"stray")
    assert plain.verify(quick=True).findings == (), "it may be a file of work in flight"
    damage.age(Path(plain.uri))
    finding = damage.only(plain.verify(quick=True), "unexplained_file", severity="warning", count=1)
    assert finding.examples[0] in f"{name}/"
    assert finding.remedy.endswith(f"move it out of {plain.uri}.")
    assert plain.cleanup(older_than="7d", confirm=True) is not None
    assert stray.exists()
    stray.unlink()
    assert plain.verify(quick=True).findings == ()


@pytest.mark.parametrize("name", ["0123456789ab/000000000001.0.json", "0123456789ab/000000000001.plan0.json"])
def test_old_control_objects_are_no_files_of_strangers(plain: og.Graph, name: str) -> None:
    file = Path(plain.uri, "__recovery", name)
    file.parent.mkdir(parents=True)
    file.write_text("{}")
    damage.age(Path(plain.uri))
    assert plain.verify(quick=True).findings == ()


def test_a_history_that_can_not_be_read_is_told_where_it_would_explain_files(plain: og.Graph) -> None:
    pin = damage.pin_of(plain, "City")
    file = Path(manifest_path(str(damage.folder(plain, pin)), pin.version - 1))
    file.write_bytes(file.read_bytes()[:40])
    stray = damage.folder(plain, pin) / "data" / "stray.lance"
    stray.write_bytes(b"stray")
    damage.age(Path(plain.uri))
    finding = damage.only(og.open(plain.uri).verify(quick=True), "history_unreadable", table="node:City")
    assert finding.severity == "warning"


def test_files_of_older_versions_and_of_dropped_types_are_explained(plain: og.Graph) -> None:
    plain.upsert({"City": [{"name": "Bonn"}, {"name": "Trier"}]})
    schema = damage.SCHEMA.replace("node City { name: String @key }", "").replace("edge LivesIn: Person -> City\n", "")
    plain.apply_schema(schema)
    damage.age(Path(plain.uri))
    assert plain.verify(quick=True).findings == ()


def test_a_fork_that_no_branch_has_once_it_is_old(plain: og.Graph) -> None:
    damage.branch_out(plain)
    table = damage.newest(plain, "City")
    table.create_branch("0123456789ab-7-feed")
    assert plain.verify(quick=True).findings == ()
    damage.age(damage.folder(plain, damage.pin_of(plain, "City")) / "tree" / "0123456789ab-7-feed")
    finding = damage.only(plain.verify(quick=True), "orphan_fork", severity="warning", table="node:City")
    assert finding.examples == ("0123456789ab-7-feed",)


def test_a_version_that_was_replaced_and_collected_meanwhile_is_no_error(plain: og.Graph) -> None:
    def replace_and_collect() -> None:
        other = og.open(plain.uri)
        other.upsert({"City": [{"name": "Trier"}]})
        lance.dataset(str(damage.folder(plain, damage.pin_of(other, "City")))).cleanup_old_versions(retain_versions=1)

    watcher = Meanwhile("looking at files", replace_and_collect)
    result = og.open(plain.uri, engine="local", watcher=watcher).verify()
    assert result.ok
    finding = damage.only(result, "collected_meanwhile", severity="info", table="node:City")
    assert "while it was being checked" in finding.message
    assert {f.code for f in plain.verify().findings} == {"index_uncovered"}
