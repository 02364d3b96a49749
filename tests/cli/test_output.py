"""What people see: answers on stdout, targets and failures on stderr, tables that fit the terminal."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from omnigraph.cli import progress
from omnigraph.cli.output import Table, aligned
from omnigraph.cli.progress import Progress
from omnigraph.config.sizes import size_text
from tests.cli.conftest import SCHEMA, Cli


def test_every_write_says_on_stderr_where_it_goes_unless_quiet(done: Cli, folder: Path) -> None:
    graph = folder / "g"
    Path("next.pg").write_text(SCHEMA + "\nnode City\n{ name: String @key }\n")
    writes: list[tuple[tuple[object, ...], str]] = [
        (("init", "g", "--schema", "people.pg"), f"→ creating a graph at {graph}\n"),
        (
            ("load", "g", "--data", "people.jsonl", "--mode", "append"),
            f"→ loading into {graph} (branch main)\n→ engine local: starting a JVM would take longer than the work\n",
        ),
        (("schema", "apply", "g", "--schema", "next.pg"), f"→ applying the schema to {graph} (branch main)\n"),
        (("branch", "create", "g", "trial"), f"→ creating a branch of {graph} (branch trial)\n"),
        (("branch", "delete", "g", "trial"), f"→ deleting a branch of {graph} (branch trial)\n"),
    ]
    for args, echo in writes:
        assert done(*args).err == echo
    quiet = [
        ("load", "g", "--data", "people.jsonl", "--mode", "merge", "--quiet"),
        ("branch", "create", "g", "trial", "--quiet"),
        ("branch", "delete", "g", "trial", "-q"),
        ("init", "other", "--schema", "people.pg", "-q"),
    ]
    for args in quiet:
        assert done(*args).err == ""


def test_reads_say_nothing_on_stderr(done: Cli, graph: Path) -> None:
    for verb in ("snapshot", "schema show", "branch list", "commit list", "export"):
        assert done(*verb.split(), graph).err == ""


def test_tables_are_plain_columns_without_a_terminal(done: Cli, graph: Path) -> None:
    lines = done("snapshot", graph).out.splitlines()
    assert lines[3].split() == ["table", "version", "rows", "fragments", "path"]
    assert lines[4].split()[:3] == ["node:Person", "2", "2"]


@pytest.mark.parametrize("columns", ["40", "100"])
def test_tables_fit_the_width_of_a_terminal(
    done: Cli, graph: Path, monkeypatch: pytest.MonkeyPatch, columns: str
) -> None:
    monkeypatch.setenv("COLUMNS", columns)
    monkeypatch.setenv("TERM", "xterm")
    shown = re.sub(r"\x1b\[[0-9;]*m", "", done("commit", "list", graph, tty=True).out)
    assert "init" in shown
    assert max(len(line) for line in shown.splitlines()) <= int(columns)


def test_numbers_are_aligned_to_the_right() -> None:
    table = Table(("name", "n"), [["a", "1"], ["long", "1,000"]], frozenset({"n"}))
    assert aligned(table) == "name      n\na         1\nlong  1,000\n"


def test_a_commit_is_shown_field_by_field(done: Cli, graph: Path) -> None:
    newest = done("commit", "list", graph, "--json").json["commits"][0]
    shown = done("commit", "show", newest["id"], "--store", graph).out
    assert f"id: {newest['id']}\n" in shown
    assert "kind: load\n" in shown
    assert "  inserted: node:Person 2, edge:Knows 1\n" in shown


def test_a_long_command_shows_one_line_on_a_terminal_and_wipes_it(
    done: Cli, graph: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(progress, "SILENT_S", 0.0)
    shown = done("schema", "apply", graph, "--schema", "people.pg", tty=True).err
    assert "\x1b[2K  applying: 0 s" in shown
    assert shown.endswith("\r\x1b[2K")


def test_a_short_command_shows_no_progress(done: Cli, graph: Path) -> None:
    assert "\x1b" not in done("load", graph, "--data", "people.jsonl", "--mode", "merge", tty=True).err


def test_progress_stops_when_the_work_fails() -> None:
    shown = Progress("working", quiet=False)
    with pytest.raises(ValueError, match="gone wrong"), shown:
        raise ValueError("gone wrong")
    assert shown._thread is None or not shown._thread.is_alive()


def test_sizes_are_readable() -> None:
    assert [size_text(n) for n in (0, 1023, 1024, 3 << 20, 5 << 40)] == [
        *("0 B", "1023 B", "1.0 KiB", "3.0 MiB", "5120.0 GiB")
    ]
