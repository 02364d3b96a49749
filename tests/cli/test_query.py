"""omnigraph query and omnigraph lint."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.cli.conftest import Cli

FILE = """
query people() { match { $p: Person } return { $p.name, $p.age as years } order { $p.name } }
query one($name: String, $least: I64?) {
  match { $p: Person { name: $name }  $least is null or $p.age >= $least }
  return { $p.age }
}
query friends($name: String) { match { $p: Person { name: $name } $p knows $f } return { $f.name } }
query rename($name: String) { update Person set { age: 1 } where name = $name }
"""


@pytest.fixture
def queries(graph: Path) -> Path:
    """The graph; the file people.gq lies beside it."""
    (graph.parent / "people.gq").write_text(FILE)
    return graph


def test_the_envelope_of_json(queries: Path, done: Cli) -> None:
    found = done("query", queries, "people", "--query", "people.gq", "--json").json
    commit = done("commit", "list", queries, "--json").json["commits"][0]["id"]
    assert found == {
        "query_name": "people",
        "target": str(queries),
        "branch": "main",
        "graph_commit_id": commit,
        "row_count": 2,
        "columns": ["p.name", "years"],
        "rows": [{"p.name": "Ada", "years": 36}, {"p.name": "Bob", "years": None}],
    }
    assert list(found["rows"][0]) == ["p.name", "years"]


def test_the_graph_and_the_query_are_named_in_any_of_these_ways(queries: Path, done: Cli) -> None:
    ways = (
        (queries, "friends", "--query", "people.gq"),
        (queries, "--file", "people.gq", "--name", "friends"),
        ("friends", "--store", queries, "--query", "people.gq"),
    )
    for way in ways:
        assert done("query", *way, "--param", "name=Ada").out == "f.name\nBob\n"
    text = "query q() { match { $p: Person } return { count(*) as n } }"
    assert done("query", queries, "-e", text).out == "n\n2\n"
    assert done("query", queries, "--query", "-", stdin=text).out == "n\n2\n"


@pytest.mark.parametrize(
    "given",
    [
        ["--param", "name=Ada", "--param", "least=30"],
        ["--params", '{"name": "Ada", "least": 30}'],
        ["--params", "@params.json"],
        ["--params", '{"name": "Bob", "least": 30}', "--param", "name=Ada"],
    ],
)
def test_parameters_in_every_form(queries: Path, done: Cli, given: list[str]) -> None:
    (queries.parent / "params.json").write_text('{"name": "Ada", "least": 30}')
    found = done("query", queries, "one", "--query", "people.gq", *given, "--json").json
    assert found["rows"] == [{"p.age": 36}]


def test_formats(queries: Path, done: Cli) -> None:
    run = ("query", queries, "people", "--query", "people.gq", "--format")
    assert done(*run, "table").out == "p.name  years\nAda        36\nBob\n"
    assert done(*run, "csv").out == "p.name,years\nAda,36\nBob,\n"
    assert done(*run, "kv").out == "p.name: Ada\nyears: 36\n\np.name: Bob\nyears: \n"
    lines = [json.loads(line) for line in done(*run, "jsonl").out.splitlines()]
    assert lines[0]["row_count"] == 2
    assert "rows" not in lines[0]
    assert lines[1:] == [{"p.name": "Ada", "years": 36}, {"p.name": "Bob", "years": None}]
    assert json.loads(done(*run, "json").out)["row_count"] == 2


def test_files_of_arrow_and_parquet(queries: Path, done: Cli) -> None:
    run = ("query", queries, "people", "--query", "people.gq")
    done(*run, "--format", "parquet", "--out", "out.parquet")
    done(*run, "--format", "arrow", "--out", "out.arrow")
    expected = [{"p.name": "Ada", "years": 36}, {"p.name": "Bob", "years": None}]
    assert pq.read_table("out.parquet").to_pylist() == expected
    with pa.ipc.open_stream("out.arrow") as stream:
        assert stream.read_all().to_pylist() == expected


def test_time_travel(queries: Path, done: Cli) -> None:
    commits = [c["id"] for c in done("commit", "list", queries, "--json").json["commits"]]
    run = ("query", queries, "people", "--query", "people.gq", "--json")
    assert done(*run, "--commit", commits[-1]).json["row_count"] == 0
    assert done(*run, "--as-of", "2999-01-01").json["row_count"] == 2
    done("branch", "create", queries, "trial")
    assert done(*run, "--branch", "trial").json["branch"] == "trial"


def test_explain_shows_steps_instead_of_rows(queries: Path, done: Cli) -> None:
    run = ("query", queries, "friends", "--query", "people.gq", "-p", "name=Ada", "--explain")
    assert done(*run).out.splitlines()[0].split() == ["step", "rows", "guessed", "ms", "about", "by"]
    steps = done(*run, "--json").json["steps"]
    assert [s["step"] for s in steps] == ["scan", "expand", "order", "columns"]
    assert set(steps[0]) == {"step", "detail", "depth", "estimated_rows", "rows", "used", "ms"}


@pytest.mark.parametrize(
    ("options", "condition", "code"),
    [
        (["people", "--query", "people.gq", "--max-rows", "1"], "resource_limit", 1),
        (["people", "--query", "people.gq", "--max-memory", "1B"], "resource_limit", 1),
        (["people", "--query", "people.gq", "--timeout", "0.0000001"], "query_timeout", 1),
        (["one", "--query", "people.gq"], "query_parameter", 1),
        (["-e", "query q() { match { $p: Persn } return { $p } }"], "query_check", 1),
        (["-e", "query q("], "query_syntax", 1),
        (["-e", " "], "wrong_usage", 2),
        (["--query", "people.gq"], "wrong_usage", 2),
        (["nobody", "--query", "people.gq"], "wrong_usage", 2),
        (["rename", "--query", "people.gq", "-p", "name=Ada"], "wrong_usage", 2),
        (["people", "--query", "people.gq", "-e", "x"], "wrong_usage", 2),
        (["people"], "wrong_usage", 2),
        (["people", "more", "--query", "people.gq"], "wrong_usage", 2),
        (["people", "--query", "people.gq", "--params", "[1]"], "wrong_usage", 2),
        (["people", "--query", "people.gq", "--param", "x"], "wrong_usage", 2),
        (["people", "--query", "none.gq"], "file_unreadable", 1),
        (["people", "--query", "people.gq", "--format", "csv"], "wrong_usage", 2),
    ],
)
def test_failures_have_their_conditions(queries: Path, cli: Cli, options: list[str], condition: str, code: int) -> None:
    result = cli("query", queries, *options, "--json")
    assert (result.code, result.error["condition"]) == (code, condition)


# ---- lint ------------------------------------------------------------------------------------------------------------


def test_lint_of_a_file_with_warnings_succeeds(queries: Path, done: Cli) -> None:
    for address in ([queries], ["--schema", "people.pg"], ["--store", queries]):
        body = done("lint", *address, "--query", "people.gq", "--json").json
        assert [q["name"] for q in body["queries"]] == ["people", "one", "friends", "rename"]
        assert body["queries"][0]["operation"] == {
            "result": [
                {"name": "p.name", "kind": "string", "nullable": False},
                {"name": "years", "kind": "int", "nullable": True},
            ],
            "reads": [{"kind": "node", "type_name": "Person"}],
            "writes": [],
        }


def test_lint_of_a_file_with_errors_fails_and_shows_the_place(queries: Path, cli: Cli) -> None:
    (queries.parent / "bad.gq").write_text("query q() { match { $p: Person } return { $p.nmae } }")
    result = cli("lint", queries, "--query", "bad.gq")
    assert result.code == 1
    assert "bad.gq:1:46: error: T6" in result.out
    assert "Did you mean name?" in result.out
    assert "^" in result.out
    assert cli("lint", queries, "--query", "bad.gq", "--json").json["status"] == "error"


@pytest.mark.parametrize("old", [["check"], ["query", "lint"], ["query", "check"]])
def test_old_names_of_lint_warn_and_do_the_same(queries: Path, done: Cli, old: list[str]) -> None:
    new = done("lint", queries, "--query", "people.gq", "--json")
    result = done(*old, queries, "--query", "people.gq", "--json")
    assert result.out == new.out
    assert result.err == f"warning: `omnigraph {' '.join(old)}` is now called `omnigraph lint`.\n"


def test_the_old_name_read_warns_and_does_the_same(queries: Path, done: Cli) -> None:
    new = done("query", queries, "people", "--query", "people.gq", "--json")
    old = done("read", queries, "people", "--query", "people.gq", "--json")
    assert old.out == new.out
    assert old.err == "warning: `omnigraph read` is now called `omnigraph query`.\n"


def test_a_schema_named_twice_is_refused(queries: Path, cli: Cli) -> None:
    assert cli("lint", queries, "--schema", "people.pg", "--query", "people.gq").code == 2


def test_lint_without_a_schema_says_how_to_give_one(queries: Path, cli: Cli) -> None:
    refused = cli("lint", "--query", "people.gq")
    assert refused.code == 2
    assert "--schema" in refused.err


def test_a_query_that_the_file_does_not_have_is_suggested(queries: Path, cli: Cli) -> None:
    refused = cli("query", queries, "peple", "--query", "people.gq")
    assert refused.code == 2
    assert "Did you mean people?" in refused.err
