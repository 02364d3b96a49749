"""`omnigraph changes` and `changes baseline` as a user runs them."""

from __future__ import annotations

import json
from pathlib import Path

from tests.cli.conftest import Cli


def lines(text: str) -> list[dict[str, object]]:
    return [json.loads(line) for line in text.splitlines()]


def test_changes_for_people(done: Cli, graph: Path) -> None:
    run = done("changes", graph)
    assert "init" in run.out
    assert "load" in run.out
    assert 'insert     node:Person  Ada  name: "Ada", age: 36' in run.out
    cursor = run.err.partition("--after ")[2].strip()
    again = done("changes", graph, "--after", cursor)
    assert again.out == ""
    assert cursor in again.err


def test_changes_as_lines_have_a_cursor_behind_each_page(done: Cli, graph: Path) -> None:
    run = done("changes", graph, "--format", "jsonl", "--quiet")
    assert run.err == ""
    rows = lines(run.out)
    assert [row.get("id") for row in rows] == [None, "Ada", "Bob", None, "k1", None]
    assert rows[1]["commit"] == rows[-1]["commits"][-1]["id"]  # type: ignore[index]
    rest = lines(done("changes", graph, "--after", rows[3]["cursor"], "--format", "jsonl").out)
    assert rest == rows[4:]


def test_the_document_of_changes(done: Cli, graph: Path) -> None:
    document = done("changes", graph, "--json", "--type", "Knows", "--limit", "2").json
    assert list(document) == ["branch", "steps", "cursor"]
    first, second = document["steps"]
    assert list(second) == ["commits", "merged_parent", "schema_steps", "changes"]
    assert first["changes"] == []
    (change,) = second["changes"]
    assert (change["operation"], change["src"], change["dst"]) == ("insert", "Ada", "Bob")
    now = done("changes", graph, "--from-now", "--json").json
    assert (now["steps"], now["cursor"]) == ([], document["cursor"])


def test_a_baseline_ends_with_the_cursor_to_go_on_from(done: Cli, graph: Path) -> None:
    rows = lines(done("changes", "baseline", graph, "--format", "jsonl").out)
    assert [row.get("id") for row in rows] == ["Ada", "Bob", "k1", None]
    assert done("changes", graph, "--after", rows[-1]["cursor"]).out == ""
    document = done("changes", "baseline", "--store", graph, "--type", "Person", "--json").json
    assert [c["id"] for c in document["changes"]] == ["Ada", "Bob"]
    assert document["cursor"] == rows[-1]["cursor"]
    assert "node:Person" in done("changes", "baseline", graph).out


def test_wrong_usage_costs_nothing(cli: Cli, graph: Path) -> None:
    for words in (
        ("--after", "x", "--from-now"),
        ("--json", "--follow"),
        ("--json", "--format", "jsonl"),
        ("--after", "nonsense"),
        ("--limit", "0"),
        ("more",),
    ):
        assert cli("changes", graph, *words).code == 2, words
    assert cli("changes", "baseline", graph, "--follow").code == 2
    assert cli("changes", graph, "--after", "nonsense", "--json").error["condition"] == "invalid_cursor"
