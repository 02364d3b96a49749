"""A damaged deletion file is a typed error that names it. Lance would end the process."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

import omnigraph as og
from omnigraph.cli.main import main
from omnigraph.errors import HostileOrDamagedManifest, StorageError
from omnigraph.storage import deletions
from omnigraph.storage.records import Head


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
            deletions.require_whole(str(file), rows=2)
        except StorageError:
            refused += 1
        file.write_bytes(good)
    assert refused > 30


def test_every_verb_names_the_file(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (file,) = path.glob("nodes/*/_deletions/*.arrow")
    # A high byte of the length of the only block's body: Lance would allocate 256 GiB for it.
    flip(file, len(file.read_bytes()) - 22, 0x40)
    with pytest.raises(StorageError):
        deletions.require_whole(str(file), rows=2)
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
