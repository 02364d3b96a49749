"""A damaged deletion file is a typed error that names it. Lance would end the process."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

import omnigraph as og
from omnigraph.cli.main import main
from omnigraph.errors import HostileOrDamagedManifest, StorageError
from omnigraph.storage.files import deletion_files
from omnigraph.storage.layout import locate
from omnigraph.storage.manifest.records import Head
from tests.faults.s3server import S3Server, World


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("deletions") / "g"
    graph = og.init(path, "node P { name: String @key }")
    graph.insert({"P": [{"name": f"p{i}"} for i in range(30)]})
    graph.delete({"P": ["p3", "p7"]})
    return path


@pytest.fixture
def path(template: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(template, tmp_path / "g"))


def flip(path: Path, at: int, mask: int) -> None:
    raw = bytearray(path.read_bytes())
    raw[at] ^= mask
    path.write_bytes(raw)


def test_lengths_that_make_lance_ask_for_terabytes(path: Path) -> None:
    """Every byte of the last block: its lengths are what Lance allocates by."""
    (file,) = path.glob("nodes/*/_deletions/*.arrow")
    good = file.read_bytes()
    refused = 0
    for at in range(len(good) - 120, len(good)):
        flip(file, at, 0x40)
        try:
            deletion_files.require_whole(locate(path), str(file), rows=2)
        except StorageError:
            refused += 1
        file.write_bytes(good)
    assert refused > 30


def test_every_verb_names_the_file(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (file,) = path.glob("nodes/*/_deletions/*.arrow")
    # A high byte of the length of the only block's body: Lance would allocate 256 GiB for it.
    flip(file, len(file.read_bytes()) - 22, 0x40)
    with pytest.raises(StorageError):
        deletion_files.require_whole(locate(path), str(file), rows=2)
    for arguments in (["verify", "--quick"], ["optimize"], ["cleanup", "--keep", "1"], ["maintain"], ["stats"]):
        code = main([arguments[0], str(path), *arguments[1:], "-q"])
        shown = capsys.readouterr()
        assert code == 1, (arguments, shown)
        assert file.name in shown.out + shown.err, (arguments, shown)
    with pytest.raises(StorageError, match=file.name):
        og.open(path, engine="local").nodes("P")


def test_a_bit_of_a_head_is_not_taken_for_another_state(path: Path) -> None:
    text = og.open(path)._manifest.head("main").dumps()
    assert Head.loads("main", text, version=1).dumps() == text
    changed = text.replace('"epoch":2', '"epoch":3', 1)
    assert changed != text
    with pytest.raises(ValueError, match="checksum"):
        Head.loads("main", changed, version=1)
    older = text.rpartition(',"crc":')[0] + "}"
    assert Head.loads("main", older, version=1).dumps() == text


def test_a_damaged_head_is_told_as_such(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    graph = og.open(path)
    text = graph._manifest.head("main").dumps().replace('"epoch":2', '"epoch":3', 1)
    monkeypatch.setattr(Head, "dumps", lambda _: text)
    graph._manifest.swap(graph._manifest.head("main"), graph._manifest.head("main"))
    with pytest.raises(HostileOrDamagedManifest):
        og.open(path).nodes("P")


# ---- on an object store ----------------------------------------------------------------------------------------------


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    with S3Server() as server:
        variables = {"AWS_SECRET_ACCESS_KEY": "test", "AWS_REGION": "us-east-1", "AWS_ENDPOINT_URL": server.endpoint}
        for name, value in {**variables, "AWS_ACCESS_KEY_ID": "deletions.test.0", "AWS_ALLOW_HTTP": "true"}.items():
            monkeypatch.setenv(name, value)
        yield server.add(World("deletions"))


def test_a_bucket_is_looked_at_before_lance_reads_it(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    graph = og.init("s3://graphs/g", "node P { name: String @key }")
    graph.insert({"P": [{"name": f"p{i}"} for i in range(30)]})
    graph.create_branch("side")
    graph.delete({"P": ["p3", "p7"]}, branch="side")
    monkeypatch.setattr(deletion_files, "_checked", set())
    assert og.open(graph.uri).nodes("P", branch="side").num_rows == 28
    (name,) = [key for key in world.store.objects if "/_deletions/" in key]
    good = world.store.objects[name]
    raw = bytearray(good.body)
    raw[-22] ^= 0x40
    world.store.objects[name] = replace(good, body=bytes(raw))
    monkeypatch.setattr(deletion_files, "_checked", set())
    with pytest.raises(StorageError, match=name.rpartition("/")[2]):
        og.open(graph.uri).nodes("P", branch="side")
    found = og.open(graph.uri, engine="local").verify().findings
    assert {f.code for f in found} == {"checksum_mismatch"}
    assert name.rpartition("/")[2] in found[0].examples[0]


def test_what_this_process_has_written_is_not_read_for_that(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    graph = og.init("s3://graphs/g", "node P { name: String @key }")
    graph.insert({"P": [{"name": f"p{i}"} for i in range(30)]})
    checked = list[str]()
    real = deletion_files.require_whole
    monkeypatch.setattr(deletion_files, "require_whole", lambda *a, **b: (checked.append(a[1]), real(*a, **b)))
    for i in range(3):
        graph.delete({"P": [f"p{i}"]})
    assert og.open(graph.uri).nodes("P").num_rows == 27
    assert checked == []
