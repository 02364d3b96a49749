"""The verb mutate: its documents, exit codes, and what it refuses before anything is written."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from tests.cli.conftest import Cli

QUERIES = """
query birthday($name: String) {
    update Person set { age: coalesce(age, 0) + 1 } where name = $name returning { name, age as years }
}
query meet($a: String, $b: String, $since: I32?) { insert Knows { from: $a, to: $b, since: $since } }
query all() { match { $p: Person } return { $p.name } }
"""


@pytest.fixture(autouse=True)
def _queries(folder: Path) -> None:
    (folder / "people.gq").write_text(QUERIES)


def ages(done: Cli, graph: Path) -> dict[str, int | None]:
    found = done("query", graph, "-e", "query q() { match { $p: Person } return { $p.name, $p.age } }", "--json").json
    return {r["p.name"]: r["p.age"] for r in found["rows"]}


def test_the_document_says_what_was_done_and_returned(done: Cli, graph: Path) -> None:
    run = done("mutate", graph, "birthday", "--query", "people.gq", "--param", "name=Ada", "--as", "anna", "--json")
    document = run.json
    commit = document.pop("commit")
    assert (commit["actor"], commit["kind"], commit["id"]) == ("anna", "mutate", document.pop("graph_commit_id"))
    assert document == {
        "query_name": "birthday",
        "target": str(graph),
        "branch": "main",
        "affected": 1,
        "inserted": {},
        "updated": {"node:Person": 1},
        "deleted": {},
        "ids": {},
        "repeated": False,
        "row_count": 1,
        "columns": ["name", "years"],
        "rows": [{"name": "Ada", "years": 37}],
    }
    assert run.err == ""
    assert ages(done, graph) == {"Ada": 37, "Bob": None}


def test_nothing_changed_is_success_with_a_null_commit(done: Cli, graph: Path) -> None:
    document = done("mutate", graph, "-e", 'query q() { delete Person where name = "x" }', "--json").json
    assert (document["commit"], document["affected"], document["rows"]) == (None, 0, [])
    assert document["graph_commit_id"] is not None


def test_people_get_a_line_and_tables(done: Cli, graph: Path) -> None:
    shown = done("mutate", graph, "--file", "people.gq", "--name", "birthday", "-p", "name=Bob").out
    assert shown.startswith("1 updated on main, commit ")
    lines = [line.split() for line in shown.splitlines() if line]
    assert ["node:Person", "0", "1", "0"] in lines
    assert lines[-2:] == [["name", "years"], ["Bob", "1"]]


def test_parameters_come_as_json_or_one_by_one(done: Cli, graph: Path) -> None:
    given = ("--params", '{"a": "Bob", "b": "nobody"}', "--param", "b=Ada", "-p", "since=1999")
    document = done("mutate", graph, "meet", "--query", "people.gq", *given, "--json").json
    assert document["inserted"] == {"edge:Knows": 1}
    assert len(document["ids"]["Knows"]) == 1


def test_if_commit_that_lost_exits_with_4_and_has_no_effect(cli: Cli, done: Cli, graph: Path) -> None:
    birthday = ("mutate", graph, "birthday", "--query", "people.gq", "--param", "name=Ada", "--json")
    known = done("commit", "list", graph, "--json").json["commits"][0]["id"]
    first = done(*birthday, "--if-commit", known).json
    lost = cli(*birthday, "--if-commit", known)
    assert (lost.code, lost.error["condition"]) == (4, "precondition_failed")
    assert (lost.error["expected"], lost.error["actual"]) == (known, first["graph_commit_id"])
    assert ages(done, graph)["Ada"] == 37
    done(*birthday, "--if-commit", first["graph_commit_id"])


def test_an_operation_id_is_done_once(done: Cli, graph: Path) -> None:
    birthday = ("mutate", graph, "birthday", "--query", "people.gq", "--param", "name=Ada", "--operation-id", "b1")
    first = done(*birthday, "--json").json
    again = done(*birthday, "--json").json
    assert (first["repeated"], again["repeated"]) == (False, True)
    assert again["commit"] == first["commit"]
    assert "done before" in done(*birthday).out
    assert ages(done, graph)["Ada"] == 37


def test_rows_come_in_every_form_and_stderr_says_what_was_done(done: Cli, graph: Path, folder: Path) -> None:
    birthday = ("mutate", graph, "birthday", "--query", "people.gq", "--param", "name=Ada")
    table = done(*birthday, "--format", "csv")
    assert list(csv.reader(table.out.splitlines())) == [["name", "years"], ["Ada", "37"]]
    assert table.err.startswith("→ 1 updated on main, commit ")
    lines = [json.loads(line) for line in done(*birthday, "--format", "jsonl", "--quiet").out.splitlines()]
    assert (lines[0]["updated"], lines[1]) == ({"node:Person": 1}, {"name": "Ada", "years": 38})
    assert done(*birthday, "--format", "kv", "-q").out == "name: Ada\nyears: 39\n"
    done(*birthday, "--format", "parquet", "--out", "rows.parquet")
    assert pq.read_table(folder / "rows.parquet").to_pylist() == [{"name": "Ada", "years": 40}]
    done(*birthday, "--format", "json", "--out", "rows.json")
    assert json.loads((folder / "rows.json").read_text())["rows"] == [{"name": "Ada", "years": 41}]


@pytest.mark.parametrize(
    ("args", "says"),
    [
        (("all", "--query", "people.gq"), "only reads"),
        (("--query", "people.gq"), "name one of them: birthday, meet, all"),
        (("meet",), "neither is given"),
        (("meet", "--query", "people.gq", "-e", "x"), "both of them are given"),
        (("-e", " "), "is empty"),
        (("meet", "--query", "people.gq", "-p", "a=Ada", "-p", "b=Bob", "--format", "csv"), "returns no rows"),
        (("meet", "--query", "people.gq", "-p", "a=Ada", "-p", "b=Bob", "--json", "--format", "csv"), "contradict"),
    ],
)
def test_wrong_usage_is_said_before_anything_is_written(
    cli: Cli, done: Cli, graph: Path, args: tuple[str, ...], says: str
) -> None:
    before = done("commit", "list", graph, "--json").out
    wrong = cli("mutate", graph, *args)
    assert wrong.code == 2
    assert says in wrong.out + wrong.err
    assert done("commit", "list", graph, "--json").out == before


def test_a_file_that_cannot_be_written_is_said_before_the_write(cli: Cli, done: Cli, graph: Path) -> None:
    wrong = cli(
        *("mutate", graph, "birthday", "--query", "people.gq", "-p", "name=Ada"),
        *("--format", "csv", "--out", "no/such/folder.csv"),
    )
    assert wrong.code == 1
    assert ages(done, graph)["Ada"] == 36


def test_a_query_that_writes_is_refused_by_query(cli: Cli, graph: Path) -> None:
    wrong = cli("query", graph, "meet", "--query", "people.gq", "-p", "a=Ada", "-p", "b=Bob")
    assert wrong.code == 2
    assert "`mutate` runs it" in wrong.err


def test_a_broken_rule_is_a_failure_with_its_condition(cli: Cli, graph: Path) -> None:
    wrong = cli("mutate", graph, "meet", "--query", "people.gq", "-p", "a=Ada", "-p", "b=nobody", "--json")
    assert (wrong.code, wrong.error["condition"], wrong.error["by_rule"]) == (
        1,
        "constraint_violation",
        {"endpoint": 1},
    )
    typo = cli("mutate", graph, "-e", "query q() { update Person set { agee: 1 } where true }", "--json")
    assert (typo.code, typo.error["code"]) == (1, "T11")
    assert "Did you mean age?" in typo.error["message"]


def test_the_old_name_warns(done: Cli, graph: Path) -> None:
    run = done("change", graph, "birthday", "--query", "people.gq", "-p", "name=Ada", "--json")
    assert run.json["affected"] == 1
    assert "`omnigraph change` is now called `omnigraph mutate`" in run.err
