"""diff, history and commit show --changes: what people and scripts see."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.cli.conftest import Cli

MORE = '{"type": "Person", "data": {"name": "Ada", "age": 37}}\n{"type": "Person", "data": {"name": "Cyd"}}\n'


@pytest.fixture
def changed(done: Cli, graph: Path) -> Path:
    """Branch x has an older Ada and Cyd; main has lost Bob."""
    done("branch", "create", graph, "x")
    done("load", graph, "--data", "-", "--mode", "merge", "--branch", "x", stdin=MORE)
    done("mutate", graph, "-e", 'query d() { delete Person where name = "Bob" }', "--as", "anna")
    return graph


def test_one_line_per_change_nodes_before_edges(done: Cli, changed: Path) -> None:
    assert done("diff", changed, "main..x").out.splitlines() == [
        "~ node:Person Ada  age: 36 → 37",
        "+ node:Person Bob  name: Bob",
        "+ node:Person Cyd  name: Cyd",
        "+ edge:Knows k1  Ada → Bob  since: 2001",
        "3 inserted, 1 updated, 0 deleted",
    ]
    assert done("diff", changed, "...x", "--op", "update").out.splitlines() == [
        "~ node:Person Ada  age: 36 → 37",
        "0 inserted, 1 updated, 0 deleted",
    ]
    assert done("diff", "--store", changed, "main..main").out == "no entity differs\n"


def test_lines_fit_a_terminal(done: Cli, changed: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    long = json.dumps({"type": "Person", "data": {"name": "A" * 100}})
    done("load", changed, "--data", "-", "--mode", "append", "--branch", "x", stdin=long)
    lines = done("diff", changed, "main..x", tty=True).out.splitlines()
    assert any(line.endswith("…") for line in lines)
    assert max(map(len, lines)) <= 40


def test_json_documents(done: Cli, changed: Path) -> None:
    document = done("diff", changed, "main...x", "--json").json
    assert list(document) == ["base", "target", "schema", "changes"]
    assert list(document["changes"][0]) == [
        *("operation", "table_key", "id", "src", "dst", "changed", "before", "after")
    ]
    stat = done("diff", changed, "main...x", "--stat", "--json").json
    assert stat["stat"] == {"node:Person": {"insert": 1, "update": 1, "delete": 0}}
    lines = done("diff", changed, "main...x", "--format", "jsonl").out.splitlines()
    assert [json.loads(line) for line in lines] == document["changes"]
    done("diff", changed, "main...x", "--format", "jsonl", "--out", "changes.jsonl.gz")
    assert Path("changes.jsonl.gz").stat().st_size > 0


def test_counts_as_a_table(done: Cli, changed: Path) -> None:
    lines = done("diff", changed, "x..main", "--stat").out.splitlines()
    assert [line.split() for line in lines] == [
        ["type", "inserted", "updated", "deleted"],
        ["node:Person", "0", "1", "2"],
        ["edge:Knows", "0", "0", "1"],
    ]


def test_tables_are_one_file_per_type(done: Cli, changed: Path) -> None:
    done("diff", changed, "main..x", "--format", "parquet", "--out", "out/")
    assert pq.read_table("out/nodes/Person.parquet")["id"].to_pylist() == ["Ada", "Bob", "Cyd"]
    assert pq.read_table("out/edges/Knows.parquet")["src"].to_pylist() == ["Ada"]
    done("diff", changed, "main..x", "--format", "arrow", "--out", "k.arrow", "--type", "Knows")
    assert pa.ipc.open_stream(Path("k.arrow").read_bytes()).read_all()["operation"].to_pylist() == ["insert"]


def test_wrong_options_are_refused(cli: Cli, changed: Path) -> None:
    for words in (
        ("main",),
        ("main..x", "--op", "upsert"),
        ("main..x", "--stat", "--format", "jsonl"),
        ("main..x", "--format", "parquet"),
        ("main..x", "--format", "parquet", "--out", "s3://bucket/out"),
        ("main..x", "--engine", "spark"),
        ("main..x", "--json", "--format", "jsonl"),
    ):
        assert cli("diff", changed, *words).code == 2, words
    assert cli("diff", changed, "main..nothing", "--json").error["condition"] == "revision_not_found"
    assert cli("diff", changed, "main..x", "--type", "Nobody", "--json").error["condition"] == "unknown_type"


def test_what_a_commit_did(done: Cli, changed: Path) -> None:
    head = done("snapshot", changed, "--json").json["commit"]
    lines = done("commit", "show", changed, head, "--changes").out.splitlines()
    assert lines[-3:] == [
        "  - node:Person Bob",
        "  - edge:Knows k1  Ada → Bob",
        "  0 inserted, 0 updated, 2 deleted",
    ]
    document = done("commit", "show", changed, head, "--changes", "--json").json
    assert list(document) == ["commit", "schema", "changes"]
    assert [row["id"] for row in document["changes"]] == ["Bob", "k1"]


def test_the_history_of_an_entity(done: Cli, cli: Cli, changed: Path) -> None:
    document = done("history", changed, "--type", "Person", "--id", "Bob", "--json").json
    assert list(document) == ["table_key", "id", "branch", "versions", "collected"]
    assert [(v["operation"], v["actor"]) for v in document["versions"]] == [("delete", "anna"), ("insert", None)]
    shown = done("history", changed, "--type", "Person", "--id", "Ada", "--branch", "x").out.splitlines()
    assert [line.split("  ")[-1].strip() for line in shown] == ["values", "age: 37", "name: Ada, age: 36"]
    nothing = done("history", changed, "--type", "Person", "--id", "Nobody").out
    assert nothing == "node:Person Nobody never existed on main\n"
    assert cli("history", changed, "--type", "Nobody", "--id", "x", "--json").error["condition"] == "unknown_type"
