"""Permissions: what a graph holds has those of the umask, what is being written is private and follows no link."""

from __future__ import annotations

import json
import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from omnigraph.cli.files import written
from omnigraph.pipeline.load.quarantine_file import SHAPE, write_quarantine_file
from omnigraph.storage.objects.atomic_file import placed

LIFE = """
import json, os, stat, sys
import pyarrow as pa
import omnigraph as og

root, mask = sys.argv[1], 0o027
os.umask(mask)
SCHEMA = "node P { name: String @key  bio: String? @index  v: Vector(64)? @embed(bio) %s}\\nedge E: P -> P"
wrong = {}

def look(after):
    for folder, folders, files in os.walk(root):
        for name in (*folders, *files):
            path = os.path.join(folder, name)
            mode = stat.S_IMODE(os.lstat(path).st_mode)
            if mode != (0o777 if name in folders else 0o666) & ~mask:
                wrong[os.path.relpath(path, root)] = [after, oct(mode)]

graph = og.init(root, SCHEMA % "")
look("init")
graph.insert({"P": [{"name": "a", "bio": "hello"}, {"name": "b"}], "E": [{"from": "a", "to": "b"}]})
with graph.lease():
    look("a lease")
graph.load(nodes={"P": pa.table({"name": ["x", "y"]})}, mode="append", engine="local")
look("a bulk load")
graph.create_branch("side")
graph.insert({"P": [{"name": "z"}]}, branch="side")
graph.embed(engine="local", provider="local")
graph.optimize()
graph.apply_schema(SCHEMA % "n: I32 @default(1) ")
graph.cleanup(keep=1, confirm=True)
look("cleanup")
print(json.dumps(wrong))
"""


def test_every_file_of_a_graph_has_the_permissions_of_the_umask(tmp_path: Path) -> None:
    words = [sys.executable, "-c", LIFE, str(tmp_path / "g")]
    done = subprocess.run(words, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == {}


def mode_of(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


@pytest.fixture
def mask() -> int:
    found = os.umask(0)
    os.umask(found)
    return found


def test_a_file_of_out_is_private_until_it_is_complete(tmp_path: Path, mask: int) -> None:
    path = tmp_path / "out.jsonl"
    with written(str(path)) as file:
        file.write(b"row\n")
        (partial,) = tmp_path.iterdir()
        assert mode_of(partial) == 0o600
        assert not path.exists()
    assert list(tmp_path.iterdir()) == [path]
    assert mode_of(path) == 0o666 & ~mask


def test_a_file_that_is_replaced_keeps_its_permissions(tmp_path: Path) -> None:
    path = tmp_path / "out.jsonl"
    path.write_text("old")
    path.chmod(0o604)
    with written(str(path)) as file:
        file.write(b"new")
    assert (path.read_text(), mode_of(path)) == ("new", 0o604)


def test_links_in_the_way_of_out_are_not_followed(tmp_path: Path) -> None:
    victim, shared = tmp_path / "victim", tmp_path / "shared"
    victim.write_text("precious")
    shared.mkdir()
    path = shared / "out.jsonl"
    for name in (path.name, f"{path.name}.{os.getpid()}.part"):
        (shared / name).symlink_to(victim)
    with written(str(path)) as file:
        file.write(b"row\n")
    assert victim.read_text() == "precious"
    assert not path.is_symlink()
    assert path.read_text() == "row\n"


@pytest.mark.parametrize("name", ["out.jsonl", "out.jsonl.gz", "out.jsonl.zst"])
def test_a_write_that_fails_leaves_what_was_there(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    path.write_text("old")

    def interrupted() -> None:
        with written(str(path)) as file:
            file.write(b"half")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert list(tmp_path.iterdir()) == [path]
    assert path.read_text() == "old"


def test_a_pipe_is_written_to_and_not_replaced(tmp_path: Path) -> None:
    path = tmp_path / "pipe"
    os.mkfifo(path)
    reader = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    with placed(str(path)) as file:
        file.write(b"row\n")
    assert os.read(reader, 100) == b"row\n"
    os.close(reader)
    assert stat.S_ISFIFO(path.stat().st_mode)


def test_rejected_rows_are_for_their_owner_alone(tmp_path: Path) -> None:
    path = tmp_path / "in.jsonl.rejected.jsonl"
    path.write_text("old")
    path.chmod(0o644)
    write_quarantine_file(str(path), [SHAPE.empty_table()])
    assert mode_of(path) == 0o600
