"""The JSON that scripts rely on: keys and shapes of every answer, pinned."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.cli.conftest import SCHEMA, Cli

COMMIT = {
    *(
        "id",
        "branch",
        "parent",
        "merged_parent",
        "parents",
        "actor",
        "kind",
        "created_at",
        "schema",
        "manifest_version",
    ),
    *("operation_id", "tables", "summary", "recovery"),
}


def commit_of(document: dict[str, Any]) -> dict[str, Any]:
    commit = document["commit"]
    assert set(commit) == COMMIT
    assert isinstance(commit, dict)
    return commit


def test_init(done: Cli, folder: Path) -> None:
    document = done("init", "g", "--schema", "people.pg", "--row-ids", "address", "--json").json
    assert list(document) == ["uri", "branch", "commit", "row_ids"]
    assert document["uri"] == str(folder / "g")
    assert document["branch"] == "main"
    assert document["row_ids"] == "address"
    assert commit_of(document)["kind"] == "init"


def test_load(done: Cli, empty: Path) -> None:
    document = done("load", empty, "--data", "people.jsonl", "--mode", "append", "--as", "anna", "--json").json
    assert set(document) == {
        *("branch", "mode", "commit", "inserted", "updated", "deleted", "lines", "rejected", "rejected_by_rule"),
        *("quarantine", "repeated", "engine", "emptied"),
    }
    assert document["engine"] == "local"
    assert document["branch"] == "main"
    assert document["mode"] == "append"
    assert document["inserted"] == {"node:Person": 2, "edge:Knows": 1}
    assert document["updated"] == document["deleted"] == {}
    assert document["lines"] == 3
    assert document["rejected"] == 0
    assert document["quarantine"] is None
    assert commit_of(document)["actor"] == "anna"


def test_a_write_that_changes_nothing_has_no_commit(done: Cli, graph: Path) -> None:
    document = done("load", graph, "--data", "people.jsonl", "--mode", "merge", "--json").json
    assert document["commit"] is None
    assert document["inserted"] == document["updated"] == document["deleted"] == {}


def test_snapshot(done: Cli, graph: Path) -> None:
    document = done("snapshot", graph, "--json").json
    assert list(document) == ["branch", "commit", "manifest_version", "internal_schema_version", "tables"]
    assert document["branch"] == "main"
    assert isinstance(document["manifest_version"], int)
    assert isinstance(document["internal_schema_version"], int)
    assert [t["table_key"] for t in document["tables"]] == ["node:Person", "edge:Knows"]
    for table in document["tables"]:
        assert list(table) == ["table_key", "version", "rows", "fragments", "path"]
        assert (graph / table["path"]).is_dir()
    assert [t["rows"] for t in document["tables"]] == [2, 1]


def test_branches(done: Cli, graph: Path) -> None:
    head = done("snapshot", graph, "--json").json["commit"]
    made = done("branch", "create", graph, "trial", "--json").json
    assert made == {"branch": "trial", "from": "main", "head": head, "commit": None}
    assert done("branch", "list", graph, "--json").json == {
        "branches": [
            {"name": "main", "commit": head, "parent_branch": None},
            {"name": "trial", "commit": head, "parent_branch": "main"},
        ]
    }
    gone = done("branch", "delete", graph, "trial", "--json").json
    assert gone == {"branch": "trial", "head": head, "deleted": True, "commit": None}


def test_commits(done: Cli, graph: Path) -> None:
    listed = done("commit", "list", graph, "--json").json
    assert list(listed) == ["commits"]
    assert [c["kind"] for c in listed["commits"]] == ["load", "init"]
    newest = listed["commits"][0]
    assert set(newest) == COMMIT
    assert newest["parent"] == listed["commits"][1]["id"]
    assert done("commit", "list", graph, "--limit", "1", "--json").json == {"commits": [newest]}
    assert done("commit", "show", graph, newest["id"], "--json").json == {"commit": newest}


def test_schema_show(done: Cli, graph: Path) -> None:
    document = done("schema", "show", graph, "--json").json
    assert list(document) == ["branch", "source", "schema"]
    assert document["source"] == SCHEMA
    assert [n["name"] for n in document["schema"]["nodes"]] == ["Person"]


def test_schema_plan_and_apply(done: Cli, graph: Path) -> None:
    Path("next.pg").write_text(SCHEMA.replace("age: I32?", "age: I32?\n    email: String?"))
    plan = done("schema", "plan", graph, "--schema", "next.pg", "--json").json
    assert list(plan) == ["supported", "changed", "steps", "findings"]
    assert plan["supported"] is True
    assert [s["kind"] for s in plan["steps"]] == ["add_property"]
    applied = done("schema", "apply", graph, "--schema", "next.pg", "--json").json
    assert list(applied) == ["applied", "commit", "plan", "held_by", "left_for_cleanup"]
    assert applied["applied"] is True
    assert [s["kind"] for s in applied["plan"]["steps"]] == ["add_property"]
    commit_of(applied)
    again = done("schema", "apply", graph, "--schema", "next.pg", "--json").json
    assert again["applied"] is False
    assert again["commit"] is None


def test_export_to_a_file(done: Cli, graph: Path) -> None:
    head = done("snapshot", graph, "--json").json["commit"]
    document = done("export", graph, "--out", "all.jsonl", "--json").json
    rows = {"node:Person": 2, "edge:Knows": 1}
    assert document.pop("seconds") >= 0
    told = {"format": "jsonl", "out": "all.jsonl", "files": 1, "engine": "local"}
    assert document == {"branch": "main", "commit": head, "rows": rows, **told}


def test_export_to_a_folder(done: Cli, graph: Path) -> None:
    head = done("snapshot", graph, "--json").json["commit"]
    document = done("export", graph, "--out", "all", "--format", "parquet", "--engine", "local", "--json").json
    rows = {"node:Person": 2, "edge:Knows": 1}
    assert document.pop("seconds") >= 0
    told = {"format": "parquet", "out": str(graph.parent / "all"), "files": 2, "engine": "local"}
    assert document == {"branch": "main", "commit": head, "rows": rows, **told}


def test_version(done: Cli) -> None:
    assert list(done("version", "--json").json) == ["version", "python", "lance"]


def test_errors_carry_condition_message_and_remedy_first(cli: Cli, folder: Path) -> None:
    result = cli("snapshot", "g", "--json")
    assert result.code == 1
    assert list(result.json) == ["error"]
    assert list(result.error)[:3] == ["condition", "message", "remedy"]
    assert result.error["condition"] == "graph_not_found"
    assert result.err == ""
