"""Damage to files and to the manifest: each is found, named, and told how to mend."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import lance
import orjson
import pyarrow as pa
import pytest

import omnigraph as og
from omnigraph.maintenance.verify import Finding
from omnigraph.storage.durability import manifest_path
from tests.maintenance.verify import damage


def one_of(graph: og.Graph, pattern: str, type_name: str = "Person") -> Path:
    """A file that the published version needs."""
    pin = damage.pin_of(graph, type_name)
    table = lance.dataset(str(damage.folder(graph, pin)), version=pin.version)
    needed = {f.path for fragment in table.get_fragments() for f in fragment.data_files()}
    needed |= {Path(fragment.deletion_file() or "").name for fragment in table.get_fragments()}
    found = sorted(damage.folder(graph, pin).glob(pattern))
    return next(p for p in found if p.name in needed or "_indices" in p.parts)


NEEDED = {
    "data": ("data/*.lance", "data file"),
    "deletion": ("_deletions/*", "deletion file"),
    "index": ("_indices/*/page_data.lance", "index "),
}


@pytest.mark.parametrize("what", NEEDED)
def test_a_file_that_is_gone(graph: og.Graph, what: str) -> None:
    pattern, told = NEEDED[what]
    lost = one_of(graph, pattern)
    if what == "index":
        shutil.rmtree(lost.parent)
    else:
        lost.unlink()
    finding = damage.only(
        graph.verify(quick=True), "missing_file", severity="error", table="node:Person", branch="main"
    )
    assert told in finding.message
    assert lost.name in finding.examples[0] or lost.parent.name in finding.examples[0]
    named = "omnigraph optimize" if what == "index" else "omnigraph commit list"
    assert f"`{named} {graph.uri} " in finding.remedy
    if what == "index":
        assert graph.verify().checked["rows"] > 0, "what does not need the index is checked all the same"


@pytest.mark.parametrize("what", ["data", "index"])
def test_a_file_that_is_cut_short(graph: og.Graph, what: str) -> None:
    short = one_of(graph, NEEDED[what][0])
    short.write_bytes(short.read_bytes()[:-10])
    finding = damage.only(graph.verify(quick=True), "wrong_size", severity="error", table="node:Person")
    assert "bytes, not" in finding.examples[0]


def test_a_deletion_file_that_is_empty(graph: og.Graph) -> None:
    one_of(graph, NEEDED["deletion"][0]).write_bytes(b"")
    damage.only(graph.verify(quick=True), "wrong_size", severity="error", table="node:Person")


@pytest.mark.usefixtures("unsummed")
def test_data_that_is_garbage_of_the_right_size(plain: og.Graph) -> None:
    bad = one_of(plain, "data/*.lance", "City")
    bad.write_bytes(b"\xff" * bad.stat().st_size)
    result = plain.verify()
    assert {f.code for f in result.findings} >= {"unreadable_data"}
    assert {f.table for f in result.findings} == {"node:City"}
    assert not result.ok


@pytest.mark.usefixtures("unsummed")
@pytest.mark.parametrize("quick", [False, True], ids=["sampled", "quick"])
@pytest.mark.parametrize("how", ["gone", "short"])
def test_a_large_blob_whose_file_is_gone_or_short(plain: og.Graph, how: str, quick: bool) -> None:
    blob = max(
        damage.folder(plain, damage.pin_of(plain, "Person")).glob("data/*/*.blob"), key=lambda p: p.stat().st_size
    )
    if how == "gone":
        blob.unlink()
    else:
        blob.write_bytes(b"x" * 100)
    fresh = og.open(plain.uri, engine="local")
    result = fresh.verify(quick=quick)
    finding = damage.only(result, "unreadable_blob", severity="error", table="node:Person", branch="main")
    assert result.checked["blobs"] > 0
    assert blob.name in finding.examples[0]


def test_a_published_version_that_is_gone(plain: og.Graph) -> None:
    pin = damage.pin_of(plain, "City")
    plain.upsert({"City": [{"name": "Trier"}]})
    damage.commit(plain, {pin.table: pin})
    Path(manifest_path(str(damage.folder(plain, pin)), pin.version)).unlink()
    fresh = og.open(plain.uri, engine="local")
    finding = damage.only(fresh.verify(), "version_missing", severity="error", table="node:City", branch="main")
    assert f"version {pin.version}" in finding.message


def test_a_published_version_that_is_cut_short(plain: og.Graph) -> None:
    pin = damage.pin_of(plain, "City")
    file = Path(manifest_path(str(damage.folder(plain, pin)), pin.version))
    file.write_bytes(file.read_bytes()[:40])
    fresh = og.open(plain.uri, engine="local")
    damage.only(fresh.verify(), "checksum_mismatch", severity="error", table="node:City", branch="main")


def test_the_base_of_a_live_branch_that_is_gone(graph: og.Graph) -> None:
    pin = damage.pin_of(graph, "City")
    graph.create_branch("side")
    graph.upsert({"City": [{"name": "Trier"}]})
    Path(manifest_path(str(damage.folder(graph, pin)), pin.version)).unlink()
    fresh = og.open(graph.uri, engine="local")
    damage.only(fresh.verify(quick=True), "version_missing", table="node:City", branch="side")


def test_a_graph_with_forks_that_was_moved_as_a_folder(plain: og.Graph, tmp_path: Path) -> None:
    damage.branch_out(plain)
    shutil.move(plain.uri, tmp_path / "elsewhere")
    result = og.open(tmp_path / "elsewhere", engine="local").verify()
    codes = {(f.code, f.branch) for f in result.findings}
    assert codes <= {("graph_moved", "side"), ("version_unreadable", "side")}
    assert not result.ok


def test_columns_that_the_schema_does_not_have(plain: og.Graph) -> None:
    damage.newest(plain, "City").add_columns({"extra": "1"})
    damage.publish(plain, "City")
    finding = damage.only(plain.verify(), "schema_mismatch", severity="error", table="node:City", branch="main")
    assert finding.examples == ("extra is not declared",)
    assert "omnigraph repair" in finding.remedy


def test_counts_that_the_head_notes_wrong(graph: og.Graph) -> None:
    pin = damage.pin_of(graph, "City")
    damage.commit(graph, {pin.table: replace(pin, rows=99)})
    finding = damage.only(graph.verify(quick=True), "wrong_count", severity="warning", table="node:City")
    assert "99 rows" in finding.message


# ---- the manifest ----------------------------------------------------------------------------------------------------


def manifest_of(graph: og.Graph) -> Any:
    return lance.dataset(f"{graph.uri}/__manifest")


def append_row(graph: og.Graph, **row: Any) -> None:
    table = manifest_of(graph)
    lance.write_dataset(pa.Table.from_pylist([row], table.schema), table.uri, mode="append")


def row_of(graph: og.Graph, prefix: str) -> dict[str, Any]:
    found: dict[str, Any] = manifest_of(graph).to_table(filter=f"object_id LIKE '{prefix}%'").to_pylist()[0]
    return found


def checked(graph: og.Graph, code: str, **wanted: Any) -> Finding:
    return damage.only(og.open(graph.uri).verify(quick=True), code, severity="error", **wanted)


def test_a_row_of_the_manifest_that_is_nonsense(graph: og.Graph) -> None:
    append_row(graph, object_id="commit:X", kind="commit", inc="i", epoch=1, body='{"b": 1}')
    assert checked(graph, "manifest_row_broken").examples == ("commit:X",)


def test_a_row_under_the_id_of_another(graph: og.Graph) -> None:
    append_row(graph, **{**row_of(graph, "commit:"), "object_id": "commit:Y"})
    assert checked(graph, "manifest_row_broken").examples == ("commit:Y",)


def test_one_object_twice_with_different_contents(graph: og.Graph) -> None:
    row = row_of(graph, "commit:")
    append_row(graph, **row)
    assert og.open(graph.uri).verify(quick=True).findings == (), "the same twice is what a lost answer leaves"
    body = {**orjson.loads(row["body"]), "k": "forged"}
    append_row(graph, **{**row, "body": orjson.dumps(body).decode()})
    assert checked(graph, "manifest_duplicate").examples == (row["object_id"],)


def test_a_commit_without_a_record(graph: og.Graph) -> None:
    lost = row_of(graph, "commit:")["object_id"]
    manifest_of(graph).delete(f"object_id = '{lost}'")
    assert checked(graph, "record_missing", branch="main").examples == (lost.removeprefix("commit:"),)


def test_an_epoch_without_a_record(graph: og.Graph) -> None:
    manifest = graph._manifest
    head = manifest.head("main")
    manifest.swap(head, replace(head, epoch=head.epoch + 1))
    codes = {f.code for f in og.open(graph.uri).verify(quick=True).findings}
    assert codes == {"record_missing", "head_mismatch"}


def test_a_head_that_pins_what_no_record_says(graph: og.Graph) -> None:
    manifest = graph._manifest
    head = manifest.head("main")
    pin = damage.pin_of(graph, "City")
    older = replace(pin, version=pin.version - 1, rows=None)
    manifest.swap(head, replace(head, pins={**head.pins, pin.table: older}))
    finding = checked(graph, "head_mismatch", branch="main")
    assert f"version {pin.version}" in finding.examples[0]


def test_a_schema_that_is_gone(graph: og.Graph) -> None:
    manifest_of(graph).delete("kind = 'schema'")
    checked(graph, "schema_missing", branch="main")


def test_a_branch_whose_origin_is_gone(graph: og.Graph) -> None:
    graph.create_branch("side")
    manifest = graph._manifest
    head = manifest.head("side")
    manifest.swap(head, replace(head, made_from=("gone", "0123456789ab")))
    checked(graph, "branch_broken", branch="side")
