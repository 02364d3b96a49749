"""schema apply --allow-data-loss tells the truth: what is gone, what a branch still holds, why an old commit can't be
read.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli.conftest import SCHEMA, Cli

WITHOUT_AGE = SCHEMA.replace("    age: I32?\n", "")
WITHOUT_KNOWS = SCHEMA[: SCHEMA.index("edge Knows")]


def old_commit(done: Cli, graph: Path) -> str:
    return str(done("snapshot", graph, "--json").json["commit"])


@pytest.mark.parametrize(("schema", "name"), [(WITHOUT_AGE, "node:Person.age"), (WITHOUT_KNOWS, "edge:Knows")])
def test_a_drop_names_the_branches_that_still_hold_what_it_drops(
    done: Cli, graph: Path, schema: str, name: str
) -> None:
    old = old_commit(done, graph)
    before = done("export", graph, "--commit", old).out
    done("branch", "create", graph, "trial")
    done("branch", "create", graph, "audit")
    Path("next.pg").write_text(schema)
    told = done("schema", "apply", graph, "--schema", "next.pg", "--allow-data-loss").out
    assert "for good" not in told
    assert f"{name} is not removed: the branches audit, trial" in told
    assert "can't be read any more" not in told
    assert done("export", graph, "--commit", old).out == before
    assert done("export", graph, "--branch", "trial").out == before


def test_the_branches_are_in_the_document(done: Cli, graph: Path) -> None:
    done("branch", "create", graph, "trial")
    Path("next.pg").write_text(WITHOUT_AGE)
    told = done("schema", "apply", graph, "--schema", "next.pg", "--allow-data-loss", "--json").json
    assert told["held_by"] == {"node:Person.age": ["trial"]}
    told = done(
        "schema", "apply", graph, "--schema", "next.pg", "--branch", "trial", "--allow-data-loss", "--json"
    ).json
    assert told["held_by"] == {}


def test_a_drop_without_other_branches_says_that_old_commits_are_gone_and_so_does_the_read(
    cli: Cli, done: Cli, graph: Path
) -> None:
    old = old_commit(done, graph)
    Path("next.pg").write_text(WITHOUT_AGE)
    told = done("schema", "apply", graph, "--schema", "next.pg", "--allow-data-loss").out
    assert "not removed" not in told
    assert "can't be read any more" in told
    refused = cli("export", graph, "--commit", old, "--out", "past", "--engine", "local", "--json")
    assert refused.code == 1
    error = json.loads(refused.out)["error"]
    assert error["condition"] == "version_reclaimed"
    assert "schema change" in error["message"]
    assert "can't be brought back" in error["remedy"]


def test_a_soft_drop_says_nothing_of_removal(done: Cli, graph: Path) -> None:
    old = old_commit(done, graph)
    Path("next.pg").write_text(WITHOUT_AGE)
    told = done("schema", "apply", graph, "--schema", "next.pg").out
    assert "until cleanup" in told
    assert "removed" not in told
    assert '"age":36' in done("export", graph, "--commit", old).out.replace(" ", "")


# ---- everything at once ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("text", ["", "// all of it is gone\n"])
def test_an_empty_schema_file_drops_nothing(cli: Cli, done: Cli, graph: Path, text: str) -> None:
    before = done("export", graph).out
    Path("next.pg").write_text(text)
    planned = done("schema", "plan", graph, "--schema", "next.pg", "--json").json
    assert not planned["supported"]
    refused = cli("schema", "apply", graph, "--schema", "next.pg", "--json")
    assert refused.code == 1
    assert refused.error["condition"] == "unsupported_schema_change"
    assert "every type of the graph is dropped (Person, Knows)" in refused.error["message"]
    assert done("export", graph).out == before


@pytest.mark.parametrize(("answer", "code"), [("g\n", 0), ("yes\n", 1), ("\n", 1)])
def test_on_a_terminal_the_name_of_the_graph_confirms_it(
    cli: Cli, done: Cli, graph: Path, answer: str, code: int
) -> None:
    Path("next.pg").write_text("")
    told = cli("schema", "apply", graph, "--schema", "next.pg", stdin=answer, tty=True)
    assert told.code == code
    assert "every type of main is dropped" in told.err
    assert "Type the graph's name, g, to go on" in told.err
    types = done("schema", "show", graph, "--json").json["schema"]
    assert bool(types["nodes"]) == bool(code)


def test_allow_data_loss_says_it_too(done: Cli, graph: Path) -> None:
    Path("next.pg").write_text("")
    told = done("schema", "apply", graph, "--schema", "next.pg", "--allow-data-loss", "--json").json
    assert told["plan"]["supported"]
    assert not done("schema", "show", graph, "--json").json["schema"]["nodes"]
