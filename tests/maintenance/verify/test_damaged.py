"""Bytes that are wrong although every file has its size: each is told of what it is in, and stops nothing else."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import lance
import pytest

import omnigraph as og
from omnigraph.maintenance.verify.checksums import Checksums
from omnigraph.maintenance.verify.indices import check_index, index_tasks
from omnigraph.maintenance.verify.scope import FrozenManifest, location_json, scope_of
from tests.commit import plant
from tests.maintenance.verify import damage
from tests.support.dead_owners import gone


def garbage(file: Path) -> None:
    file.write_bytes(b"\xff" * file.stat().st_size)


def fresh(graph: og.Graph) -> og.Graph:
    graph.close()
    return og.open(graph.uri, engine="local")


# ---- rows ------------------------------------------------------------------------------------------------------------


@pytest.fixture
def restored(plain: og.Graph) -> og.Graph:
    """A table whose newest deletion file is the one before it, of the same size: deleted rows are back."""
    folder = damage.folder(plain, damage.pin_of(plain, "Knows")) / "_deletions"
    ids = damage.newest(plain, "Knows").to_table(columns=["id"]).column("id").to_pylist()
    plain.delete({"Knows": ids[:1]})
    before = set(folder.iterdir())
    plain.delete({"Knows": ids[1:3]})
    (newest,) = set(folder.iterdir()) - before
    older = max(before, key=lambda p: p.stat().st_mtime_ns)
    assert older.stat().st_size == newest.stat().st_size
    newest.write_bytes(older.read_bytes())
    return fresh(plain)


@pytest.mark.parametrize("full", [False, True], ids=["sampled", "full"])
def test_rows_that_were_deleted_and_are_back(restored: og.Graph, full: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """As an older program wrote it, without checksums."""
    monkeypatch.setattr(Checksums, "expected", lambda *_: [])
    told = {f.code: f for f in restored.verify(full=full).findings}
    finding = told["unreadable_data"]
    assert (finding.severity, finding.table, finding.branch) == ("error", "edge:Knows", "main")
    assert "it marks 5 rows, not 7" in finding.examples[0]
    assert "omnigraph commit list" in finding.remedy
    assert restored.verify(quick=True).ok, "no row is read"


@pytest.mark.parametrize("quick", [False, True], ids=["sampled", "quick"])
def test_a_deletion_file_that_is_another_is_known_by_its_checksum(restored: og.Graph, quick: bool) -> None:
    finding = damage.only(restored.verify(quick=quick), "checksum_mismatch", table="edge:Knows", branch="main", count=1)
    assert "_deletions/" in finding.examples[0]


@pytest.mark.usefixtures("unsummed")
def test_data_below_an_index_is_not_called_a_broken_index(tmp_path: Path) -> None:
    graph = og.init(tmp_path / "g", "node N { name: String @key  n: I32? @index }")
    graph.insert({"N": [{"name": f"n{i}"} for i in range(20)]})
    table = damage.newest(graph, "N")
    before = set(Path(table.uri, "data").iterdir())
    table.drop_columns(["n"])
    table.add_columns({"n": "cast(length(name) as int)"})
    damage.publish(graph, "N")
    damage.index(graph, kinds={"N": [("n", "BTREE"), ("id", "BTREE")]})
    assert graph.verify().ok
    (column,) = set(Path(table.uri, "data").iterdir()) - before
    garbage(column)
    finding = damage.only(fresh(graph).verify(), "unreadable_data", severity="error", table="node:N", branch="main")
    assert finding.examples[0].startswith("n: ")
    assert "omnigraph commit list" in finding.remedy


# ---- indices ---------------------------------------------------------------------------------------------------------


def tasks_of(graph: og.Graph, table: str) -> Iterator[dict[str, Any]]:
    manifest = FrozenManifest(graph._manifest.location)
    lines = [line for line in scope_of(manifest, [manifest.head("main")]).lines if line.type.key == table]
    facts = {
        line.version_id: {"fragments": [], "indices": [{"name": "id_btree", "kind": "BTREE", "column": "id"}]}
        for line in lines
    }
    yield from index_tasks(location_json(manifest.location), lines, facts, full=False, seed=1)


def test_whatever_byte_of_an_index_is_wrong_it_is_a_finding_of_its_table(plain: og.Graph) -> None:
    (task,) = tasks_of(plain, "node:City")
    pages = next(damage.folder(plain, damage.pin_of(plain, "City")).glob("_indices/*/page_lookup.lance"))
    whole = pages.read_bytes()
    codes: set[str] = set()
    for place in range(0, len(whole), 11):
        pages.write_bytes(whole[:place] + bytes([whole[place] ^ 0x55]) + whole[place + 1 :])
        codes |= {f["code"] for f in check_index(task)["findings"]}
    assert "index_unreadable" in codes
    assert codes <= {"index_unreadable", "index_wrong_answer", "index_stale"}


@pytest.mark.parametrize("options", [{}, {"quick": True}, {"full": True}], ids=["sampled", "quick", "full"])
def test_an_index_of_a_column_that_is_gone(plain: og.Graph, options: dict[str, bool]) -> None:
    damage.index(plain, kinds={"Person": [("age", "BTREE")]})
    table = damage.newest(plain, "Person")
    body = {**damage.segment(table, "weight", "BTREE"), "fields": [99]}
    lance.LanceDataset.commit(table, damage.exchange(table, body))
    damage.publish(plain, "Person")
    finding = damage.only(
        plain.verify(**options), "index_unreadable", severity="error", table="node:Person", branch="main"
    )
    assert "weight_btree (BTREE)" in finding.message
    assert finding.remedy.startswith(f"Run `omnigraph optimize {plain.uri} --tables node:Person --branch main`:")


# ---- the manifest ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("quick", [False, True], ids=["sampled", "quick"])
def test_rows_of_the_manifest_that_can_not_be_read(plain: og.Graph, quick: bool) -> None:
    for file in Path(plain.uri, "__manifest", "data").iterdir():
        garbage(file)
    finding = damage.only(fresh(plain).verify(quick=quick), "manifest_unreadable", severity="error", table="__manifest")
    assert "back from a copy" in finding.remedy


def test_what_heads_hold_is_checked_without_the_rows_of_the_manifest(plain: og.Graph) -> None:
    damage.branch_out(plain)
    pin = damage.pin_of(plain, "City")
    knows = damage.pin_of(plain, "Knows")
    damage.newest(plain, "Knows").delete("src = 'p001'")
    plant.lock(Path(plain.uri), {"nonce": "planted", "owner": gone(), "tables": [], "kind": "load"})
    Path(plain.uri, "notes.txt").write_text("stray")
    for file in Path(plain.uri, "__manifest", "data").iterdir():
        garbage(file)
    for file in damage.folder(plain, pin).glob("data/*.lance"):
        file.unlink()
    result = fresh(plain).verify(orphans_older_than_s=0)
    told = {(f.code, f.table, f.branch) for f in result.findings if f.code != "index_uncovered"}
    assert told == {
        ("manifest_unreadable", "__manifest", None),
        ("missing_file", f"node:{pin.table}", "main"),
        ("missing_file", f"node:{pin.table}", "side"),
        ("uncovered_drift", f"edge:{knows.table}", "main"),
        ("dead_ticket", None, "main"),
        ("unexplained_file", None, None),
    }
