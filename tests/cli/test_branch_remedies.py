"""What a refusal about a branch advises can be done as it stands."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.cli.conftest import Cli


@pytest.mark.parametrize(
    "args",
    [
        ("snapshot", "g", "--branch", "trial"),
        ("commit", "list", "g", "--branch", "trial"),
        ("load", "g", "--branch", "trial", "--data", "people.jsonl", "--mode", "merge"),
        ("branch", "delete", "g", "trial"),
        ("verify", "g", "--branch", "trial"),
    ],
)
def test_the_commands_for_a_missing_branch_run_as_they_are_told(
    cli: Cli, done: Cli, graph: Path, args: tuple[str, ...]
) -> None:
    error = cli(*args, "--json").error
    assert error["condition"] == "branch_not_found"
    listed, created = re.findall(r"`omnigraph ([^`]*)`", error["remedy"])
    done(*listed.split())
    done(*created.split())
    assert "trial" in done(*listed.split()).out


def test_main_can_t_be_deleted_and_the_advice_does_not_speak_of_other_branches(cli: Cli, graph: Path) -> None:
    error = cli("branch", "delete", graph, "main", "--json").error
    assert error["condition"] == "branch_in_use"
    assert "made from it" not in error["remedy"]
    assert "main branch" in error["remedy"]


def test_a_branch_that_others_were_made_from_says_what_to_delete_first(cli: Cli, done: Cli, graph: Path) -> None:
    done("branch", "create", graph, "a")
    done("branch", "create", graph, "b", "--from", "a")
    assert "made from it" in cli("branch", "delete", graph, "a", "--json").error["remedy"]
