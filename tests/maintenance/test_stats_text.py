"""What people see of the figures: names that can be read on a narrow terminal, and an exit code for scripts."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

import omnigraph as og
from omnigraph.cli.output import Table, aligned, cut
from omnigraph.storage.durability import manifest_path
from tests.cli.conftest import Cli, cli  # noqa: F401 - a fixture
from tests.maintenance.verify import damage
from tests.support.graphs import Templates

LONG = "AVeryLongNameThatSomebodyChose"
TYPES = ("Organization", f"{LONG}1", f"{LONG}2")
SCHEMA = "\n".join(f"node {name} {{ name: String @key }}" for name in TYPES)


def _build(path: Path) -> og.Graph:
    graph = og.init(path, SCHEMA)
    graph.insert({name: [{"name": "a"}] for name in TYPES})
    return graph


@pytest.fixture
def graph(graph_templates: Templates, tmp_path: Path) -> og.Graph:
    return graph_templates.open(_build, tmp_path / "g")


def drawn(run: Cli, monkeypatch: pytest.MonkeyPatch, *args: object, columns: int) -> list[str]:
    monkeypatch.setenv("COLUMNS", str(columns))
    monkeypatch.setenv("TERM", "xterm")
    out = re.sub(r"\x1b\[[0-9;]*m", "", run(*args, tty=True).out)
    return out.splitlines()


@pytest.mark.parametrize("verb", ["stats", "maintain"])
def test_names_stand_on_one_line_of_a_narrow_terminal_and_can_be_told_apart(
    graph: og.Graph,
    cli: Cli,  # noqa: F811
    monkeypatch: pytest.MonkeyPatch,
    verb: str,
) -> None:
    lines = drawn(cli, monkeypatch, verb, graph.uri, "--quiet", columns=80)
    first = next(i for i, line in enumerate(lines) if line.startswith("node:"))
    assert {"table", "fragments", "versions"} <= set(" ".join(lines[:first]).split()), "no head is broken"
    table = [line for line in lines[first:] if line.startswith("node:")]
    assert max(len(line) for line in table) <= 80
    names = [line.split()[0] for line in table]
    assert names == [cut(f"node:{name}", len(shown)) for name, shown in zip(TYPES, names, strict=True)]
    assert len(set(names)) == 3
    assert min(len(name) for name in names) >= 12


def test_a_wide_terminal_and_a_pipe_show_names_as_they_are(
    graph: og.Graph,
    cli: Cli,  # noqa: F811
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert any(line.startswith(f"node:{LONG}1 ") for line in drawn(cli, monkeypatch, "stats", graph.uri, columns=160))
    assert f"\nnode:{LONG}1 " in cli("stats", graph.uri).out


def test_a_name_is_cut_in_its_middle() -> None:
    assert cut("node:Person", 11) == "node:Person"
    assert [cut("node:Organization", width) for width in (16, 9)] == ["node:Or…nization", "node…tion"]
    long = Table(("name", "n"), [["x" * 300, "1"]], names=True)
    assert "x" * 300 in aligned(long)


def test_a_table_that_can_not_be_opened_is_exit_code_1_and_no_reason_to_remove_older_versions(
    graph: og.Graph,
    cli: Cli,  # noqa: F811
) -> None:
    graph.insert({"Organization": [{"name": "b"}]})
    assert cli("stats", graph.uri).code == 0
    pin = damage.pin_of(graph, "Organization")
    Path(manifest_path(str(damage.folder(graph, pin)), pin.version)).unlink()
    (damage.folder(graph, pin) / "data" / "old.lance").write_bytes(bytes(6 << 20))
    result = cli("stats", graph.uri, "--json")
    assert result.code == 1
    body = json.loads(result.out)
    row = next(t for t in body["tables"] if t["table_key"] == "node:Organization")
    assert row["error"] is not None
    assert row["bytes_on_disk"] > 6 << 20
    assert (row["rows"], row["versions"]) == (0, pin.version - 1)
    assert [line for line in body["advice"] if "cleanup" in line] == []
    assert "6.0 MiB" in cli("stats", graph.uri).out
