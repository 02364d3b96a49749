"""-v, -vv and OMNIGRAPH_LOG: log lines of the library on stderr, for every command, and never on stdout."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

import omnigraph
from tests.cli.conftest import Cli

LINE = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z (DEBUG|INFO|WARNING|ERROR) omnigraph(\.\w+)+ \S.*")


@pytest.fixture
def worn(graph: Path) -> Path:
    """A graph with several small fragments."""
    opened = omnigraph.open(graph)
    for number in range(4):
        opened.insert({"Person": [{"name": f"p{number}"}]})
    return graph


def log_lines(err: str) -> list[str]:
    return [line for line in err.splitlines() if LINE.fullmatch(line)]


def test_without_the_option_nothing_is_logged(done: Cli, worn: Path) -> None:
    assert log_lines(done("optimize", worn).err) == []


@pytest.mark.parametrize("option", ["-v", "--verbose"])
def test_verbose_shows_decisions_of_optimize_with_graph_branch_epoch_and_table(
    done: Cli, worn: Path, option: str
) -> None:
    result = done("optimize", worn, option, "--json")
    lines = log_lines(result.err)
    tables = result.json["commit"]["tables"]
    (planned,) = [line for line in lines if " optimize planned " in line and "table_key=node:Person" in line]
    (committed,) = [line for line in lines if " optimize committed " in line and "fragments_removed=5" in line]
    for line in (planned, committed):
        assert f" graph={worn} branch=main epoch=" in line
        assert any(f" table={table} " in line for table in tables)
    assert "fragments_in=5 fragments_out=1" in planned
    assert not [line for line in lines if " DEBUG " in line]
    json.loads(result.out)


def test_twice_verbose_shows_debug_lines(done: Cli, worn: Path) -> None:
    done("optimize", worn)
    skipped = [line for line in log_lines(done("optimize", worn, "-vv").err) if " optimize skipped " in line]
    assert len(skipped) == 2
    assert all(" DEBUG " in line and 'reason="it needs nothing"' in line for line in skipped)


def test_cleanup_logs_each_removal(done: Cli, worn: Path) -> None:
    done("optimize", worn)
    result = done("cleanup", worn, "--keep", "1", "--older-than", "0s", "--confirm", "-v", "--json")
    removals = [line for line in log_lines(result.err) if " versions removed " in line]
    assert removals
    by_key = {t["table_key"]: t for t in result.json["tables"]}
    for line in removals:
        key = re.search(r"table_key=(\S+)", line)
        assert key is not None
        assert f" graph={worn} " in line
        assert f" versions={by_key[key[1]]['old_versions_removed']} " in line
        assert f" bytes={by_key[key[1]]['bytes_removed']}" in line


@pytest.mark.parametrize(("level", "shown"), [("info", True), ("debug", True), ("warning", False), ("off", False)])
def test_the_variable_sets_the_level(
    done: Cli, worn: Path, monkeypatch: pytest.MonkeyPatch, level: str, shown: bool
) -> None:
    monkeypatch.setenv("OMNIGRAPH_LOG", level)
    assert bool(log_lines(done("optimize", worn).err)) is shown


def test_the_option_comes_before_the_variable(done: Cli, worn: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMNIGRAPH_LOG", "off")
    assert log_lines(done("optimize", worn, "-v").err)


def test_a_wrong_level_is_wrong_usage(cli: Cli, graph: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMNIGRAPH_LOG", "loud")
    result = cli("snapshot", graph, "--json")
    assert result.code == 2
    assert "OMNIGRAPH_LOG is one of off, error, warning, info, debug, not 'loud'." in result.error["message"]


def test_log_lines_end_with_the_command(done: Cli, worn: Path) -> None:
    done("optimize", worn, "-v")
    assert log_lines(done("optimize", worn, "--rebuild-indexes").err) == []


def test_no_bars_are_drawn_between_log_lines(done: Cli, worn: Path) -> None:
    result = done("optimize", worn, "--engine", "local", "-v", tty=True)
    assert "\x1b[" not in result.err
    assert log_lines(result.err)
