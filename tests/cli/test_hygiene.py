"""Settings, files and texts that can't be used end in an error of ours that names them, never in an internal one."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import omnigraph as og
from omnigraph.errors import InvalidFilter, StorageError, UsageError
from omnigraph.language.schema.model import PropertyType
from omnigraph.rules.problem import Problem
from omnigraph.storage.lance import lance_api
from omnigraph.write import values
from tests.cli.conftest import Cli

QUERY = "query q() { match { $a: Person  $a knows $b } return { $b.name } }"
VARIABLES = [
    *(("OMNIGRAPH_WRITE_TIMEOUT", text) for text in ("abc", "-1", "nan", "inf", "0")),
    *(("OMNIGRAPH_LEASE_S", text) for text in ("abc", "-1", "nan")),
    ("OMNIGRAPH_FSYNC", "maybe"),
    *(("OMNIGRAPH_THREADS", text) for text in ("-3", "x", "²", "9" * 30)),
    *(("OMNIGRAPH_MAINTENANCE_CONCURRENCY", text) for text in ("0", "²", "x")),
    *(("OMNIGRAPH_QUERY_CACHE_BYTES", text) for text in ("²", "1GB")),
    ("OMNIGRAPH_QUERY_DISK", "maybe"),
    ("OMNIGRAPH_ENGINE", "flink"),
    ("OMNIGRAPH_TRAVERSE", "magic"),
]
COMMANDS = {
    "OMNIGRAPH_THREADS": ("optimize", "--json"),
    "OMNIGRAPH_ENGINE": ("optimize", "--json"),
    "OMNIGRAPH_MAINTENANCE_CONCURRENCY": ("optimize", "--json"),
    "OMNIGRAPH_QUERY_CACHE_BYTES": ("query", "-e", QUERY, "--json"),
    "OMNIGRAPH_QUERY_DISK": ("query", "-e", QUERY, "--json"),
    "OMNIGRAPH_TRAVERSE": ("query", "-e", QUERY, "--json"),
}
WRITE = ("mutate", "-e", 'query m() { insert Person { name: "new" } }', "--json")


@pytest.mark.parametrize(("name", "text"), VARIABLES)
def test_a_variable_that_cant_be_used_is_named(
    graph: Path, cli: Cli, monkeypatch: pytest.MonkeyPatch, name: str, text: str
) -> None:
    verb, *rest = COMMANDS.get(name, WRITE)
    monkeypatch.setenv(name, text)
    found = cli(verb, graph, *rest)
    assert (found.code, found.error["condition"]) == (2, "wrong_usage")
    assert name in found.error["message"]
    monkeypatch.delenv(name)
    assert og.open(graph).nodes("Person").num_rows == 2, "nothing was done"


@pytest.mark.parametrize("command", [("optimize",), ("cleanup", "--confirm")], ids=" ".join)
def test_a_plan_that_is_nested_without_end_is_refused(
    graph: Path, cli: Cli, tmp_path: Path, command: tuple[str, ...]
) -> None:
    for depth in (2_000, 100_000):
        plan = tmp_path / "plan.json"
        plan.write_text('{"tables": ' + "[" * depth + "]" * depth + "}")
        found = cli(command[0], graph, *command[1:], "--apply", plan, "--json")
        assert found.error["condition"] in ("file_unreadable", "plan_unusable")


def test_parameters_and_policies_that_are_nested_without_end_are_refused(graph: Path, cli: Cli, tmp_path: Path) -> None:
    deep = "[" * 100_000 + "]" * 100_000
    query = "query q($x: I64) { match { $p: Person  $p.age = $x } return { $p.name } }"
    found = cli("query", graph, "-e", query, "--params", f'{{"x": {deep}}}', "--json")
    assert found.error["condition"] == "wrong_usage"
    assert cli("query", graph, "-e", query, "--param", f"x={deep}", "--json").error["condition"] == "query_parameter"
    policy = tmp_path / "policy.yaml"
    policy.write_text(f"retention: {'[' * 5000}{']' * 5000}\n")
    assert cli("cleanup", graph, "--policy", policy, "--json").error["condition"] == "policy_file"
    assert cli("maintain", graph, "--policy", policy, "--json").error["condition"] == "policy_file"


@pytest.mark.parametrize(
    "where",
    ["1=1) OR (1=1", "name = 'Ada') --", "name = 'Ada'; DELETE", "(name = 'Ada'", "name = 'Ada", "`name = 'Ada'", ")("],
)
def test_a_filter_stays_inside_of_its_parentheses(graph: Path, where: str) -> None:
    with pytest.raises(InvalidFilter) as refused:
        og.open(graph).nodes("Person", where=where)
    assert refused.value.fields["filter"] == where


@pytest.mark.parametrize(
    "where", ["name = 'Ada' -- it's (", "name = 'Ada' /* ) */", "name = 'Ada' AND name <> ')('", "((name = 'Ada'))"]
)
def test_brackets_in_texts_and_comments_are_none(graph: Path, where: str) -> None:
    assert og.open(graph).nodes("Person", where=where)["name"].to_pylist() == ["Ada"]


def test_a_text_that_is_too_long_for_a_string_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(values, "STRING_BYTES_MAX", 5)
    assert values.convert(PropertyType("String"), "12345") == "12345"
    refused = values.convert(PropertyType("String"), "123é5")
    assert isinstance(refused, Problem)
    assert "a String holds up to 5" in refused.message


def test_what_arrow_cant_decode_is_a_damaged_file() -> None:
    import pyarrow as pa

    with pytest.raises(StorageError), lance_api.reading("reading", decodes=True):
        pa.array(["x"]).cast(pa.int64())
    with pytest.raises(pa.ArrowInvalid), lance_api.reading("writing"):
        pa.array(["x"]).cast(pa.int64())


def test_a_graph_of_a_cluster_has_a_name_that_is_no_path(cli: Cli, tmp_path: Path) -> None:
    state = tmp_path / "__cluster/state.json"
    state.parent.mkdir()
    resources = {f"graph.{name}": {} for name in ("../x", "a/b", "a\x00b", "a\x1b[2J", "", "a\\b")}
    state.write_text(json.dumps({"version": 1, "applied_revision": {"resources": resources}}))
    found = cli("stats", "--cluster", tmp_path, "--graph", "a\\b", "--json")
    assert found.error["condition"] == "cluster_empty"
    state.write_text('{"version": 1, "applied_revision": ' + "[" * 100_000 + "]" * 100_000 + "}")
    found = cli("stats", "--cluster", tmp_path, "--graph", "x", "--json")
    assert found.error["condition"] == "invalid_state_json"


def test_a_setting_of_a_program_is_refused_too(graph: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMNIGRAPH_WRITE_TIMEOUT", "soon")
    with pytest.raises(UsageError, match="OMNIGRAPH_WRITE_TIMEOUT is a number of seconds"):
        og.open(graph).insert({"Person": [{"name": "new"}]})
