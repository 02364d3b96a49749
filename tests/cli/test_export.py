"""export: stable, loadable again, complete or not at all."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tests.cli.conftest import Cli

OMNIGRAPH = (sys.executable, "-m", "omnigraph.cli.main")


def test_an_export_loads_into_a_new_graph_that_exports_the_same_bytes(done: Cli, graph: Path) -> None:
    first = done("export", graph).out
    assert len(first.splitlines()) == 3
    done("init", "copy", "--schema", "people.pg")
    done("load", "copy", "--data", "-", "--mode", "append", stdin=first)
    assert done("export", "copy").out == first


def test_an_older_commit_and_single_types_can_be_exported(done: Cli, graph: Path) -> None:
    before = done("export", graph).out
    head = done("snapshot", graph, "--json").json["commit"]
    more = '{"type": "Person", "data": {"name": "Cyd"}}'
    done("load", graph, "--data", "-", "--mode", "append", stdin=more)
    assert done("export", graph, "--commit", head).out == before
    people = done("export", graph, "--type", "Person").out
    assert len(people.splitlines()) == 3
    assert "Knows" not in people


def test_a_packed_file_holds_the_same_lines_and_is_loadable(done: Cli, graph: Path) -> None:
    done("init", "copy", "--schema", "people.pg")
    for name in ("all.jsonl.gz", "all.jsonl.zst"):
        done("export", graph, "--out", name)
        done("load", "copy", "--data", name, "--mode", "overwrite")
        assert done("export", "copy").out == done("export", graph).out


def test_a_failing_export_leaves_the_old_file_and_nothing_beside_it(cli: Cli, graph: Path) -> None:
    Path("all.jsonl").write_text("old")
    before = sorted(p.name for p in Path().iterdir())
    result = cli("export", graph, "--out", "all.jsonl", "--type", "Nobody", "--json")
    assert result.code == 1
    assert result.error["condition"] == "unknown_type"
    assert Path("all.jsonl").read_text() == "old"
    assert sorted(p.name for p in Path().iterdir()) == before


def test_a_file_that_cannot_be_written_is_told(cli: Cli, graph: Path) -> None:
    result = cli("export", graph, "--out", "no/such/folder/all.jsonl", "--json")
    assert result.code == 1
    assert result.error["condition"] == "file_unwritable"


def test_a_reader_that_goes_away_ends_the_export_without_a_word(done: Cli, empty: Path) -> None:
    lines = "\n".join(f'{{"type": "Person", "data": {{"name": "{i:060}"}}}}' for i in range(5000))
    done("load", empty, "--data", "-", "--mode", "append", stdin=lines)
    with subprocess.Popen([*OMNIGRAPH, "export", empty], stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert process.stdout.readline().startswith(b'{"type"')
        process.stdout.close()
        told = process.stderr.read()
    assert process.returncode == 1
    assert told == b""


def test_a_full_disk_behind_stdout_is_a_failure(graph: Path) -> None:
    with Path("/dev/full").open("wb") as full:
        for verb, told in (("export", b"the store failed"), ("snapshot", b"the command is done")):
            result = subprocess.run([*OMNIGRAPH, verb, graph], stdout=full, stderr=subprocess.PIPE, check=False)
            assert result.returncode == 1
            assert told in result.stderr
            assert b"No space left" in result.stderr
            assert b"Traceback" not in result.stderr
