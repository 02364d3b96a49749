"""Wrong usage: refused with a sentence and exit code 2, as JSON where --json is given, never silently ignored."""

from __future__ import annotations

from pathlib import Path

import pytest

from omnigraph.cli.app import VERBS
from omnigraph.cli.planes import MAINTENANCE
from tests.cli.conftest import Cli

LOAD = ("load", "g", "--data", "people.jsonl", "--mode", "append")


def test_omnigraph_alone_shows_the_help(cli: Cli) -> None:
    alone, asked = cli(), cli("--help")
    assert alone == asked
    assert alone.code == 0
    assert "omnigraph init ./people --schema people.pg" in alone.out


@pytest.mark.parametrize("group", ["schema", "branch", "tag", "commit"])
def test_a_group_alone_shows_its_help(cli: Cli, group: str) -> None:
    result = cli(group)
    assert result.code == 0
    assert f"Usage: omnigraph {group}" in result.out


ADDRESSES = ("--server", "--graph", "--cluster", "--profile", "--target")
FOREIGN = [
    (verb.words, flag)
    for verb in VERBS
    for flag in ADDRESSES
    if verb.words not in MAINTENANCE or flag not in ("--graph", "--cluster")
    if (verb.words, flag) != ("commit list", "--graph")  # which draws the history there
]


@pytest.mark.parametrize(("verb", "flag"), FOREIGN)
def test_addresses_of_other_planes_are_refused_by_every_verb(cli: Cli, verb: str, flag: str) -> None:
    result = cli(*verb.split(), flag, "x", "--json")
    assert result.code == 2
    assert result.error["condition"] == ("direct_only" if verb in MAINTENANCE else "wrong_usage")
    assert flag in result.error["message"]
    assert verb in result.error["message"]


@pytest.mark.parametrize(
    "words",
    ["init g --schema people.pg", "schema plan g --schema people.pg", "snapshot g", "branch list g", "commit list g"],
)
def test_as_is_refused_where_no_actor_is_recorded(cli: Cli, folder: Path, words: str) -> None:
    result = cli(*words.split(), "--as", "anna")
    assert result.code == 2
    assert "--as can't be used" in result.err
    assert not (folder / "g").exists()


@pytest.mark.parametrize("flag", ["--if-commit", "--yes"])
def test_flags_of_writes_are_refused_by_reads(cli: Cli, flag: str) -> None:
    result = cli("snapshot", "g", flag, "x")
    assert result.code == 2
    assert f"{flag} can't be used with snapshot" in result.err


@pytest.mark.parametrize("flag", ["--json", "--as", "--server"])
def test_options_before_the_command_are_refused_with_advice(cli: Cli, flag: str) -> None:
    result = cli(flag, "snapshot", "g")
    assert result.code == 2
    told = result.out if flag == "--json" else result.err
    assert f"{flag} is no option of omnigraph itself." in told
    assert f"omnigraph COMMAND {flag}" in told


def test_the_mode_of_a_load_is_required(cli: Cli, folder: Path) -> None:
    result = cli("load", "g", "--data", "people.jsonl")
    assert result.code == 2
    assert "--mode" in result.err
    assert "append, merge, overwrite" in result.err


@pytest.mark.parametrize(
    ("args", "told"),
    [
        (("snapshot",), "not named"),
        (("snapshot", "g", "--store", "g"), "named twice"),
        (("branch", "create", "g"), "two arguments"),
        (("branch", "create", "g", "a", "b"), "two arguments"),
        (("branch", "delete", "g", "a", "--store", "g"), "exactly one argument"),
        (("commit", "show", "--store", "g"), "exactly one argument"),
        (("commit", "list", "g", "--limit", "0"), "--limit is a number from 1 up"),
        ((*LOAD, "--engine", "flink"), "'auto', 'spark', 'local'"),
        ((*LOAD, "--conf", "nonsense"), "key=value"),
        (("load", "g", "--mode", "append"), "nothing to load"),
        ((*LOAD, "--nodes", "Person"), "Type=PATH"),
        ((*LOAD, "--nodes", "Person=x.csv,from=a"), "only edges"),
        ((*LOAD, "--nodes", "Person=x.csv,map=a"), "column:property"),
        ((*LOAD, "--nodes", "Person=a.csv", "--nodes", "Person=b.csv"), "twice"),
        ((*LOAD, "--from", "main"), "--branch"),
        ((*LOAD, "--quarantine", "x"), "--on-error quarantine"),
        ((*LOAD, "--data", "-", "--data", "-"), "once only"),
        ((*LOAD, "--data", "gs://bucket/file"), "not from gs://bucket/file"),
        ((*LOAD, "--as", " "), "empty"),
        ((*LOAD, "--as", "omnigraph:recovery"), "the program's own"),
        ((*LOAD, "--mode", "replace"), "'append', 'merge', 'overwrite'"),
        ((*LOAD, "--store", "g"), "named twice"),
        (("laod", "g"), "Did you mean 'load'?"),
        (("snapshot", "g", "--brnch", "x"), "--branch"),
    ],
)
def test_wrong_arguments_are_told_in_a_sentence(cli: Cli, folder: Path, args: tuple[str, ...], told: str) -> None:
    result = cli(*args)
    assert result.code == 2, result.err
    assert result.out == ""
    assert told in result.err.splitlines()[0]
    assert result.err.splitlines()[1].startswith("→ ")
    as_json = cli(*args, "--json")
    assert as_json.code == 2
    assert as_json.error["condition"] == "wrong_usage"
    assert told in as_json.error["message"]


def test_export_as_json_needs_a_file_because_stdout_can_carry_one_document_only(cli: Cli) -> None:
    result = cli("export", "g", "--json")
    assert result.code == 2
    assert "--out" in result.error["message"]


@pytest.mark.parametrize(
    "address", ["http://host/g", "https://host/g", "gs://bucket/g", "s3:/bucket/g", "s3:bucket/g", "s3://bucket", ""]
)
def test_addresses_that_hold_no_graph_are_typed_errors(cli: Cli, folder: Path, address: str) -> None:
    before = sorted(folder.iterdir())
    result = cli("init", address, "--schema", "people.pg", "--json")
    assert result.code == 2
    assert result.error["condition"] == "unsupported_store"
    assert result.error["remedy"]
    assert sorted(folder.iterdir()) == before


def test_files_that_the_shell_expanded_behind_data_are_loaded_not_taken_for_the_graph(
    cli: Cli, done: Cli, empty: Path
) -> None:
    for name in ("a", "b", "c"):
        Path(f"{name}.jsonl").write_text(f'{{"type": "Person", "data": {{"name": "{name}"}}}}\n')
    loaded = done("load", empty, "--data", "a.jsonl", "b.jsonl", "c.jsonl", "--mode", "append", "--json")
    assert loaded.json["inserted"] == {"node:Person": 3}
    merged = done("load", "--store", empty, "--data", "a.jsonl", "b.jsonl", "--mode", "merge", "--json")
    assert merged.json["commit"] is None
    wrong = cli("load", "--data", "a.jsonl", "b.jsonl", "c.jsonl", empty, "--mode", "merge")
    assert wrong.code == 2
    assert "b.jsonl is a file, not a graph" in wrong.err
