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
