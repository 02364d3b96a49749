"""load: where input comes from, what becomes of wrong lines, when a write is conditional."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pyarrow as pa
import pytest

from tests.cli.conftest import ADA, BOB, SCHEMA, Cli

WRONG = '{"type": "Person", "data": {"name": "Eve", "age": "old"}}'


def rows(done: Cli, graph: Path, branch: str = "main") -> dict[str, int]:
    tables = done("snapshot", graph, "--branch", branch, "--json").json["tables"]
    return {t["table_key"]: t["rows"] for t in tables}


def test_stdin_is_read_for_a_dash(done: Cli, empty: Path) -> None:
    done("load", empty, "--data", "-", "--mode", "append", stdin=f"{ADA}\n\n{BOB}")
    assert rows(done, empty)["node:Person"] == 2


def test_packed_files_are_unpacked_by_their_ending(done: Cli, empty: Path) -> None:
    # Two members in one file are what `cat a.gz b.gz` makes.
    Path("a.jsonl.gz").write_bytes(gzip.compress(f"{ADA}\n".encode()) + gzip.compress(f"{BOB}\n".encode()))
    with pa.output_stream("b.jsonl.zst", compression="zstd") as file:
        file.write(b'{"type": "Person", "data": {"name": "Cyd"}}')
    done("load", empty, "--data", "a.jsonl.gz", "--data", "b.jsonl.zst", "--mode", "append")
    assert rows(done, empty)["node:Person"] == 3


def test_patterns_name_several_files_also_when_the_shell_leaves_them_alone(done: Cli, empty: Path) -> None:
    Path("day").mkdir()
    Path("day/1.jsonl").write_text(ADA)
    Path("day/2.jsonl").write_text(BOB)
    Path("day/other.txt").write_text("not meant")
    done("load", empty, "--data", "day/*.jsonl", "--mode", "append")
    assert rows(done, empty)["node:Person"] == 2


def test_a_damaged_file_loads_nothing(cli: Cli, done: Cli, empty: Path) -> None:
    whole = gzip.compress("\n".join(f'{{"type": "Person", "data": {{"name": "n{i}"}}}}' for i in range(999)).encode())
    Path("cut.jsonl.gz").write_bytes(whole[: len(whole) // 2])
    result = cli("load", empty, "--data", "cut.jsonl.gz", "--mode", "append", "--json")
    assert result.code == 1
    assert result.error["condition"] != "internal_error"
    assert "cut.jsonl.gz" in result.error["message"]
    assert rows(done, empty)["node:Person"] == 0


def test_a_wrong_line_fails_the_load_and_is_named_by_its_number(cli: Cli, done: Cli, empty: Path) -> None:
    Path("bad.jsonl").write_text(f"{ADA}\n\n{WRONG}\n")
    result = cli("load", empty, "--data", "bad.jsonl", "--mode", "append")
    assert result.code == 1
    assert "line 3" in result.err
    assert "quarantine" in result.err
    assert rows(done, empty)["node:Person"] == 0


def test_among_several_files_a_wrong_line_is_named_by_its_file_and_its_number_there(cli: Cli, empty: Path) -> None:
    Path("good.jsonl").write_text(f"{ADA}\n{BOB}")
    Path("bad.jsonl").write_text(f"\n{WRONG}")
    result = cli("load", empty, "--data", "good.jsonl", "--data", "bad.jsonl", "--mode", "append", "--json")
    assert result.code == 1
    assert "bad.jsonl" in result.error["message"]
    assert "line 2" in result.error["message"]


def test_quarantine_puts_wrong_lines_aside_and_loads_the_rest(done: Cli, empty: Path) -> None:
    Path("mixed.jsonl").write_text(f"{ADA}\n{WRONG}\n{BOB}\n")
    args = ("--data", "mixed.jsonl", "--mode", "append", "--on-error", "quarantine")
    result = done("load", empty, *args, "--quarantine", "aside.jsonl", "--json").json
    assert result["rejected"] == 1
    assert Path(result["quarantine"]).name == "aside.jsonl"
    assert rows(done, empty)["node:Person"] == 2
    (aside,) = (json.loads(line) for line in Path("aside.jsonl").read_text().splitlines())
    assert aside["line"] == 2


@pytest.mark.parametrize(("name", "expected"), [("mixed.jsonl", "mixed.jsonl"), ("-", "stdin")])
def test_quarantine_without_a_file_lies_beside_the_input(done: Cli, empty: Path, name: str, expected: str) -> None:
    text = f"{ADA}\n{WRONG}\n"
    Path("mixed.jsonl").write_text(text)
    result = done("load", empty, "--data", name, "--mode", "append", "--on-error", "quarantine", stdin=text)
    assert f"{expected}.rejected.jsonl" in result.out
    assert Path(f"{expected}.rejected.jsonl").exists()


def test_if_commit_lets_a_write_happen_once_and_lose_with_exit_code_4(cli: Cli, done: Cli, empty: Path) -> None:
    head = done("snapshot", empty, "--json").json["commit"]
    done("load", empty, "--data", "people.jsonl", "--mode", "append", "--if-commit", head)
    lost = cli("load", empty, "--data", "people.jsonl", "--mode", "merge", "--if-commit", head, "--json")
    assert lost.code == 4
    assert lost.error["condition"] == "precondition_failed"
    assert lost.error["expected"] == head
    Path("next.pg").write_text(SCHEMA + "\nnode City { name: String @key }\n")
    for args in (("schema", "apply", empty, "--schema", "next.pg"), ("branch", "create", empty, "trial")):
        assert cli(*args, "--if-commit", head).code == 4


def test_the_actor_comes_from_as_before_the_environment(
    done: Cli, graph: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OMNIGRAPH_ACTOR", "everyone")
    Path("more.jsonl").write_text('{"type": "Person", "data": {"name": "Cyd"}}')
    done("load", graph, "--data", "more.jsonl", "--mode", "append")
    done("load", graph, "--data", "people.jsonl", "--mode", "overwrite", "--as", "anna")
    commits = done("commit", "list", graph, "--limit", "2", "--json").json["commits"]
    assert [c["actor"] for c in commits] == ["anna", "everyone"]


def test_init_records_the_actor_of_the_environment(done: Cli, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMNIGRAPH_ACTOR", "anna")
    assert done("init", "g", "--schema", "people.pg", "--json").json["commit"]["actor"] == "anna"


def test_a_missing_branch_is_made_only_with_from(cli: Cli, done: Cli, graph: Path) -> None:
    args = ("load", graph, "--data", "more.jsonl", "--mode", "append", "--branch", "review/anna")
    Path("more.jsonl").write_text('{"type": "Person", "data": {"name": "Cyd"}}')
    missing = cli(*args, "--json")
    assert missing.code == 1
    assert missing.error["condition"] == "branch_not_found"
    done(*args, "--from", "main")
    assert rows(done, graph, "review/anna")["node:Person"] == 3
    assert rows(done, graph)["node:Person"] == 2


def test_a_conflicting_key_is_a_typed_error(cli: Cli, graph: Path) -> None:
    result = cli("load", graph, "--data", "people.jsonl", "--mode", "append", "--json")
    assert result.code == 1
    assert result.error["condition"] == "key_conflict"


@pytest.mark.parametrize("engine", ["auto", "local"])
def test_both_engines_of_this_version_run_in_this_process(done: Cli, empty: Path, engine: str) -> None:
    done("load", empty, "--data", "people.jsonl", "--mode", "append", "--engine", engine)
    assert rows(done, empty) == {"node:Person": 2, "edge:Knows": 1}
