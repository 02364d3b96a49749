"""Failures: a sentence and a remedy, the right exit code, never a traceback that nobody asked for."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

import omnigraph
from omnigraph.cli import target
from tests.cli.conftest import Cli

OMNIGRAPH = (sys.executable, "-m", "omnigraph.cli.main")


def test_people_read_the_message_and_then_the_remedy_on_stderr(cli: Cli, folder: Path) -> None:
    result = cli("snapshot", "typo")
    assert result.code == 1
    assert result.out == ""
    assert result.err == (
        f"error: there is no graph at {folder / 'typo'}.\n"
        f"→ Check the address, or create one with `omnigraph init {folder / 'typo'} --schema FILE`.\n"
    )


@pytest.mark.parametrize(
    ("args", "condition"),
    [
        (("init", "g", "--schema", "people.pg"), "graph_exists"),
        (("snapshot", "g", "--branch", "none"), "branch_not_found"),
        (("snapshot", "g", "--commit", "01JNONE"), "revision_not_found"),
        (("commit", "show", "g", "01JNONE"), "revision_not_found"),
        (("branch", "create", "g", "main"), "branch_exists"),
        (("branch", "create", "g", "trial", "--from", "none"), "revision_not_found"),
        (("branch", "delete", "g", "none"), "branch_not_found"),
        (("branch", "delete", "g", "main"), "branch_in_use"),
        (("export", "g", "--type", "Nobody"), "unknown_type"),
    ],
)
def test_refusals_of_the_graph_exit_with_1(cli: Cli, graph: Path, args: tuple[str, ...], condition: str) -> None:
    result = cli(*args) if args[0] == "export" else cli(*args, "--json")
    assert result.code == 1
    if args[0] == "export":
        assert "→ " in result.err
    else:
        assert result.error["condition"] == condition
        assert result.error["remedy"]


def test_a_name_that_is_no_branch_name_is_wrong_usage(cli: Cli, graph: Path) -> None:
    result = cli("branch", "create", graph, "bad name", "--json")
    assert result.code == 2
    assert result.error["condition"] == "invalid_branch_name"


def test_a_place_where_nothing_can_be_written_is_a_failure_of_the_store(cli: Cli, folder: Path) -> None:
    result = cli("init", "/sys/graph", "--schema", "people.pg", "--json")
    assert result.code == 1
    assert result.error["condition"] == "storage_failed"
    assert "Operation not permitted" in result.error["message"]


@pytest.mark.parametrize("place", ["people.pg", "people.pg/graph"])
def test_a_file_where_the_folder_of_a_graph_should_be_is_named(cli: Cli, folder: Path, place: str) -> None:
    for args in (("init", place, "--schema", "people.pg"), ("snapshot", place)):
        result = cli(*args, "--json")
        assert result.code == 1
        assert result.error["condition"] == "not_a_graph"
        assert "people.pg is a file" in result.error["message"]


def test_a_bug_is_told_in_short_and_in_full_on_demand(cli: Cli, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object, **__: object) -> None:
        raise ZeroDivisionError("a bug")

    monkeypatch.setattr(target, "open_graph", broken)
    monkeypatch.setattr("omnigraph.cli.commands.data.open_graph", broken)
    result = cli("snapshot", "g")
    assert result.code == 1
    assert "internal error: ZeroDivisionError: a bug" in result.err
    assert "OMNIGRAPH_DEBUG=1" in result.err
    assert "Traceback" not in result.err
    as_json = cli("snapshot", "g", "--json")
    assert as_json.code == 1
    assert as_json.error["condition"] == "internal_error"
    monkeypatch.setenv("OMNIGRAPH_DEBUG", "1")
    assert "Traceback" in cli("snapshot", "g").err


def test_ctrl_c_ends_with_130_and_changes_nothing(done: Cli, graph: Path) -> None:
    before = done("snapshot", graph, "--json").json
    args = [*OMNIGRAPH, "load", graph, "--data", "-", "--mode", "append", "--json"]
    pipe = subprocess.PIPE
    with subprocess.Popen(args, stdin=pipe, stdout=pipe, stderr=pipe) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert process.stderr.readline().startswith("→ loading into".encode())
        time.sleep(0.2)
        process.send_signal(signal.SIGINT)
        out = process.stdout.read()
        told = process.stderr.read()
    assert process.returncode == 130
    assert json.loads(out)["error"]["condition"] == "interrupted"
    assert b"Traceback" not in told
    assert done("snapshot", graph, "--json").json == before


def test_ctrl_c_in_code_that_is_run_from_text_ends_with_130_too(tmp_path: Path) -> None:
    """Under `python -m` Python itself would then end by the signal, whatever exit code it was given."""
    (tmp_path / "struck.py").write_text(
        "import sys, omnigraph.cli.main as cli\n"
        "cli._fail(KeyboardInterrupt(), [])  # what it imports would hide what is to be seen\n"
        "def struck(args): exec('raise KeyboardInterrupt')\n"
        "cli._run = struck\n"
        "sys.exit(cli.main(['snapshot', 'g']))\n"
    )
    ended = subprocess.run([sys.executable, "-m", "struck"], capture_output=True, check=False, cwd=tmp_path)
    assert ended.returncode == 130
    assert b"stopped by Ctrl-C" in ended.stderr


def test_the_installed_command_reports_through_its_exit_code(graph: Path) -> None:
    command = Path(sys.executable).parent / "omnigraph"
    for args, code in ((("snapshot", graph), 0), (("snapshot", "none"), 1), (("snapshot",), 2)):
        assert subprocess.run([command, *args], capture_output=True, check=False).returncode == code


def test_text_that_the_terminal_cannot_show_is_replaced(graph: Path) -> None:
    environment = {**os.environ, "PYTHONIOENCODING": "ascii"}
    result = subprocess.run(
        [*OMNIGRAPH, "branch", "create", graph, "trial"], capture_output=True, check=False, env=environment
    )
    assert result.returncode == 0
    assert result.stderr.startswith(b"? creating a branch of")


def test_closed_streams_change_nothing_but_what_is_said(done: Cli, graph: Path) -> None:
    line = " ".join([*OMNIGRAPH, "branch", "create", str(graph), "trial", ">&-", "2>&-", "<&-"])
    assert subprocess.run(["sh", "-c", line], check=False).returncode == 0
    assert len(done("branch", "list", graph, "--json").json["branches"]) == 2


def test_versions_agree() -> None:
    from importlib.metadata import version

    assert omnigraph.__version__ == version("omnigraph")
