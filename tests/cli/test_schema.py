"""schema show, plan, apply: one file goes around, refusals say why."""

from __future__ import annotations

from pathlib import Path

from tests.cli.conftest import SCHEMA, Cli


def test_what_show_prints_can_be_applied_again_and_changes_nothing(done: Cli, graph: Path) -> None:
    Path("shown.pg").write_text(done("schema", "show", graph).out)
    assert "nothing to do" in done("schema", "plan", graph, "--schema", "shown.pg").out
    assert "nothing to do" in done("schema", "apply", graph, "--schema", "shown.pg").out


def test_a_plan_changes_nothing_and_apply_does_what_it_says(done: Cli, graph: Path) -> None:
    Path("next.pg").write_text(SCHEMA + "\nnode City { name: String @key }\n")
    before = done("snapshot", graph, "--json").json
    plan = done("schema", "plan", graph, "--schema", "next.pg").out
    assert "add node City" in plan
    assert done("snapshot", graph, "--json").json == before
    assert "add node City" in done("schema", "apply", graph, "--schema", "next.pg", "--as", "anna").out
    assert "node City" in done("schema", "show", graph).out
    assert done("commit", "list", graph, "--json").json["commits"][0]["actor"] == "anna"


def test_apply_moves_one_branch_only(done: Cli, graph: Path) -> None:
    done("branch", "create", graph, "trial")
    Path("next.pg").write_text(SCHEMA + "\nnode City { name: String @key }\n")
    done("schema", "apply", graph, "--schema", "next.pg", "--branch", "trial")
    assert "node City" in done("schema", "show", graph, "--branch", "trial").out
    assert "node City" not in done("schema", "show", graph).out


def test_an_unsupported_plan_says_why_and_is_refused_by_apply(cli: Cli, done: Cli, graph: Path) -> None:
    Path("next.pg").write_text(SCHEMA.replace("age: I32?", "age: String?"))
    plan = done("schema", "plan", graph, "--schema", "next.pg", "--json").json
    assert plan["supported"] is False
    assert plan["steps"][0]["kind"] == "unsupported_change"
    assert "can't be applied" in done("schema", "plan", graph, "--schema", "next.pg").out
    refused = cli("schema", "apply", graph, "--schema", "next.pg", "--json")
    assert refused.code == 1
    assert refused.error["condition"] == "unsupported_schema_change"


def test_a_wrong_schema_is_shown_with_file_line_and_caret(cli: Cli, folder: Path) -> None:
    Path("bad.pg").write_text("node Person {\n    name: Strin @key\n}\n")
    result = cli("init", "g", "--schema", "bad.pg")
    assert result.code == 1
    assert "bad.pg:2:" in result.err
    assert "^" in result.err
    assert not (folder / "g").exists()


def test_a_schema_is_read_from_stdin_for_a_dash(done: Cli, folder: Path) -> None:
    done("init", "g", "--schema", "-", stdin=SCHEMA)
    assert done("schema", "show", "g").out == SCHEMA


def test_a_schema_file_that_cannot_be_read_is_told(cli: Cli, folder: Path) -> None:
    Path("latin.pg").write_bytes(b"node P { n: String } // \xe9")
    for name in ("missing.pg", ".", "latin.pg"):
        result = cli("init", "g", "--schema", name, "--json")
        assert result.code == 1
        assert result.error["condition"] == "file_unreadable"
        assert result.error["path"] == name
    assert not (folder / "g").exists()
