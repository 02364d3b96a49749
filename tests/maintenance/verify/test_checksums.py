"""Bits that rot on a disk: every file that a version refers to is compared with the checksum it was written with."""

from __future__ import annotations

import json
import os
import random
import shutil
from pathlib import Path

import pytest

import omnigraph as og
from omnigraph.maintenance.verify import VerifyResult
from omnigraph.maintenance.verify.checksums import damage as damage_of
from omnigraph.maintenance.verify.history import check_manifest
from omnigraph.maintenance.verify.scope import FrozenManifest
from omnigraph.storage import durability
from omnigraph.storage.files import checksums
from omnigraph.storage.lance.tables import Tables
from omnigraph.storage.manifest.records import Record
from omnigraph.tasks.runner import perform_away, result_of, task_name
from tests.maintenance.verify import damage

FLIPS = 16


def kinds_of_files(uri: str) -> dict[str, list[Path]]:
    """The files that the newest version of Person refers to, by kind."""
    graph = og.open(uri, engine="local")
    pin = damage.pin_of(graph, "Person")
    table = damage.newest(graph, "Person")
    folder = damage.folder(graph, pin)
    fragments = [f.metadata for f in table.get_fragments()]
    data = [folder / "data" / file.path for f in fragments for file in f.files]
    indices = [folder / "_indices" / str(s.uuid) for d in table.describe_indices() for s in d.segments]
    return {
        "data": data,
        "blob": [one for file in data for one in file.with_suffix("").glob("*.blob")],
        "deletion": [
            Path(durability.deletion_path(str(folder), f.id, f.to_json()["deletion_file"]))
            for f in fragments
            if f.deletion_file
        ],
        "index": [p for one in indices for p in one.iterdir() if p.is_file()],
        "version": [folder / "_versions" / f"{2**64 - 1 - pin.version:020}.manifest"],
    }


def flip(path: Path, at: int, bit: int) -> None:
    raw = bytearray(path.read_bytes())
    raw[at] ^= 1 << bit
    path.write_bytes(raw)


def mismatches(result: VerifyResult) -> list[str]:
    return [text for f in result.findings if f.code == "checksum_mismatch" for text in f.examples]


@pytest.mark.parametrize("kind", ["data", "blob", "deletion", "index", "version"])
def test_every_flipped_bit_is_told_with_its_file(graph: og.Graph, kind: str) -> None:
    rng = random.Random(kind)
    files = kinds_of_files(graph.uri)[kind]
    assert files
    # All flips of data and indices at once: one run of verify tells of every file.
    chosen = {rng.choice(files) for _ in range(FLIPS)} if len(files) > 1 else set(files)
    for path in chosen:
        at, bit = rng.randrange(path.stat().st_size), rng.randrange(8)
        print(f"flip bit {bit} of byte {at} of {path}")
        flip(path, at, bit)
    result = og.open(graph.uri, engine="local").verify(full=True)
    assert not result.ok
    findings = [f for f in result.findings if f.code == "checksum_mismatch"]
    assert {f.table for f in findings} == {"node:Person"}
    assert sum(f.count for f in findings) == len(chosen)
    names = {str(path.relative_to(graph.uri)) for path in chosen}
    assert {text.partition(": ")[0] for text in mismatches(result)} <= names
    assert all("CRC-32 " in text and "recorded " in text for text in mismatches(result))


@pytest.mark.parametrize("kind", ["data", "deletion", "index"])
def test_no_place_of_a_file_is_left_out(graph: og.Graph, kind: str) -> None:
    """What an attacker saw: of 16 flips in a data file, 13 gave wrong rows and passed."""
    seed = 3
    rng = random.Random(seed)
    manifest = FrozenManifest(graph._manifest.location)
    known = check_manifest(manifest, [manifest.head("main")]).checksums
    for _ in range(FLIPS):
        path = rng.choice(kinds_of_files(graph.uri)[kind])
        good, name = path.read_bytes(), str(path.relative_to(graph.uri))
        expected = known.expected(name)
        assert damage_of(manifest.location, name, expected) is None
        at, bit = rng.randrange(len(good)), rng.randrange(8)
        flip(path, at, bit)
        told = damage_of(manifest.location, name, expected)
        assert told is not None, (seed, name, at, bit)
        assert told.startswith(f"{name}: CRC-32 ")
        path.write_bytes(good)


def test_files_without_a_checksum_are_counted(plain: og.Graph) -> None:
    before = plain.verify(full=True).checked
    assert (before["unchecked"], before["unchecked_bytes"]) == (0, 0)
    damage.raw_rows(plain, "City", [{"id": "Trier", "name": "Trier"}])
    after = og.open(plain.uri, engine="local").verify(full=True).checked
    assert after["unchecked"] == 2  # a stranger's data file, and the version that it made
    pin = damage.pin_of(plain, "City")
    table = Tables(plain._location).open(pin)
    new = max(table.get_fragments(), key=lambda f: f.fragment_id).metadata.files[0]
    version = os.path.getsize(durability.manifest_path(os.path.join(plain.uri, pin.path), pin.version))
    assert after["unchecked_bytes"] == new.file_size_bytes + version
    assert og.open(plain.uri, engine="local").verify(quick=True).checked["unchecked"] == 1, "versions and deletions"


def test_checksums_survive_cleanup_optimize_and_branches(tmp_path: Path) -> None:
    graph = og.init(tmp_path / "g", "node City { name: String @key }")
    graph.insert({"City": [{"name": "Bonn"}, {"name": "Ulm"}]})
    graph.create_branch("side")
    graph.delete({"City": ["Ulm"]}, branch="side")
    for i in range(34):  # more records than a head holds, and enough fragments to be folded
        graph.insert({"City": [{"name": f"c{i}"}]})
    graph.optimize()
    graph.cleanup(keep=1, confirm=True)
    result = og.open(graph.uri, engine="local").verify(full=True)
    assert result.ok, result.findings
    assert result.checked["unchecked"] == 0
    assert result.checked["checksums"] > 5


def test_an_index_is_rebuilt_only_from_sound_rows(graph: og.Graph) -> None:
    files = kinds_of_files(graph.uri)
    flip(files["index"][0], 40, 3)
    finding = next(f for f in og.open(graph.uri, engine="local").verify(full=True).findings if f.severity == "error")
    assert (finding.code, finding.table) == ("checksum_mismatch", "node:Person")
    assert "--rebuild-indexes" in finding.remedy
    flip(files["data"][0], 40, 3)
    result = og.open(graph.uri, engine="local").verify(full=True)
    errors = [f for f in result.findings if f.severity == "error"]
    assert len(errors) == 2
    assert not any("--rebuild-indexes" in f.remedy for f in errors)


def test_the_remedy_for_a_damaged_index_mends_it(graph: og.Graph) -> None:
    flip(kinds_of_files(graph.uri)["index"][0], 40, 3)
    fresh = og.open(graph.uri, engine="local")
    fresh.optimize(tables=["node:Person"], rebuild_indexes=True)
    result = og.open(graph.uri, engine="local").verify(full=True)
    assert result.ok, result.findings


def test_a_file_that_is_put_back_is_sound(plain: og.Graph) -> None:
    path = next(damage.folder(plain, damage.pin_of(plain, "Knows")).glob("data/*.lance"))
    good = path.read_bytes()
    flip(path, 100, 1)
    assert not og.open(plain.uri, engine="local").verify(full=True).ok
    path.write_bytes(good)
    assert og.open(plain.uri, engine="local").verify(full=True).ok


def test_files_of_the_manifest_are_compared(plain: og.Graph) -> None:
    for i in range(30):
        plain.insert({"City": [{"name": f"c{i}"}]})
    newest = max(Path(plain.uri, "__manifest", "data").glob("*.lance"), key=lambda p: p.stat().st_mtime_ns)
    raw = newest.read_bytes()
    at = raw.index(b'"k":"write"') + 6 if b'"k":"write"' in raw else len(raw) // 3
    flip(newest, at, 0)
    result = og.open(plain.uri, engine="local").verify()
    assert any(f.table == "__manifest" and f.severity == "error" for f in result.findings), result.findings


def test_a_record_of_many_files_is_a_row_and_heads_stay_small(tmp_path: Path) -> None:
    types = "\n".join(f"node T{i} {{ name: String @key }}" for i in range(checksums.INLINE_MAX))
    graph = og.init(tmp_path / "g", types)
    graph.insert({f"T{i}": [{"name": "a"}] for i in range(checksums.INLINE_MAX)})
    record = graph._manifest.head("main").recent[-1]
    assert record.checksum_row is not None
    assert checksums.count(record.checksums) <= checksums.INLINE_MAX
    assert checksums.count(graph._manifest.checksums(record)) >= 2 * checksums.INLINE_MAX
    result = og.open(graph.uri, engine="local").verify(full=True)
    assert result.ok
    assert result.checked["unchecked"] == 0


def test_older_records_have_no_checksums(plain: og.Graph) -> None:
    body = plain._manifest.head("main").recent[-1].to_json()
    body.pop("h")
    assert Record.from_json(json.loads(json.dumps(body))).checksums == ""


def test_a_graph_is_checked_where_it_was_copied_to(plain: og.Graph, tmp_path: Path) -> None:
    shutil.copytree(plain.uri, tmp_path / "copy")
    assert og.open(tmp_path / "copy", engine="local").verify(full=True).checked["unchecked"] == 0


def test_checksums_of_a_task_travel_with_itsresult_of(plain: og.Graph) -> None:
    """As on Spark, where the driver has not written the files."""
    pin = damage.pin_of(plain, "City")
    path = next(damage.folder(plain, pin).glob("data/*.lance"))
    done = perform_away(task_name(noting), json.dumps({"path": str(path)}))
    assert checksums.noted(plain.uri, [pin.table]) == {}
    assert result_of(done) == "done"
    expected = {str(path.relative_to(plain.uri)): checksums.crc_of(str(path))}
    assert checksums.noted(plain.uri, [pin.table]) == expected
    checksums.published(plain.uri, expected)


def noting(task: dict[str, str]) -> str:
    checksums.note([task["path"]])
    return "done"


def test_a_write_syncs_no_more_often_for_its_checksums(plain: og.Graph, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMNIGRAPH_FSYNC", "on")
    syncs: list[int] = []
    fsync = os.fsync
    monkeypatch.setattr(os, "fsync", lambda handle: (syncs.append(handle), fsync(handle)))
    counts = []
    for name, note in (("with", checksums.note), ("without", lambda paths: None)):
        monkeypatch.setattr(checksums, "note", note)
        before = len(syncs)
        plain.insert({"City": [{"name": name}]})
        counts.append(len(syncs) - before)
    assert counts[0] == counts[1] > 0
