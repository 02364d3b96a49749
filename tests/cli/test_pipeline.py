"""The verbs of pipeline files: what they print, their JSON, their failures."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.cli.conftest import Cli

FILE = """\
graph: g
schema: people.pg
mode: merge
nodes:
  Person: {path: people.csv, map: {full_name: name}}
edges:
  Knows: {path: knows.csv, from: a, to: b}
data: ["people*.jsonl"]
"""


@pytest.fixture
def file(folder: Path) -> Path:
    (folder / "people.csv").write_text("full_name,age\nEve,40\nMax,\n")
    (folder / "knows.csv").write_text("id,a,b,since\nx1,Eve,Ada,1999\n")
    (folder / "p.yaml").write_text(FILE)
    return folder / "p.yaml"


def test_validate_says_what_a_run_would_do(done: Cli, file: Path) -> None:
    shown = done("pipeline", "validate", "p.yaml")
    assert shown.out.splitlines() == [
        "p.yaml is valid; running it would",
        "  1. create the graph with people.pg",
        "  2. load Person, Knows, people*.jsonl in one commit",
    ]
    assert shown.err == ""
    document = done("pipeline", "validate", "p.yaml", "--json").json
    assert list(document) == ["valid", "file", "graph", "creates_graph", "branch", "mode", "types", "steps"]
    assert document["graph"] == str(file.parent / "g")
    assert not (file.parent / "g").exists()


def test_plan_shows_files_and_columns(done: Cli, file: Path) -> None:
    shown = done("pipeline", "plan", "p.yaml").out
    assert "full_name → name, age" in shown
    assert "a → from, b → to" in shown
    assert "engine local: starting a JVM would take longer than the work" in shown
    document = done("pipeline", "plan", "p.yaml", "--json").json
    assert list(document) == [
        *("file", "graph", "creates_graph", "branch", "mode", "on_error", "engine", "steps", "targets", "data"),
        *("size_bytes", "fits"),
    ]
    assert document["fits"] is True
    assert document["data"][0]["files"] == 1
    assert not (file.parent / "g").exists()


def test_plan_tells_what_a_run_would_refuse(done: Cli, file: Path) -> None:
    file.write_text(FILE.replace("full_name: name", "full_name: age"))
    shown = done("pipeline", "plan", "p.yaml").out
    assert "node:Person: 1 column fits no property: age; map them, or skip them" in shown
    assert "node:Person: nothing fills name" in shown


def test_run_creates_loads_and_says_where(done: Cli, file: Path) -> None:
    shown = done("pipeline", "run", "p.yaml", "--as", "anna")
    assert shown.err.splitlines()[:2] == [
        f"→ creating and loading {file.parent / 'g'} (branch main)",
        "→ engine local: starting a JVM would take longer than the work",
    ]
    assert re.search(r"^reading: \d tasks, 6 rows, .* s$", shown.err, re.MULTILINE)
    assert re.search(r"^node:Person +4 +0 +0$", shown.out, re.MULTILINE)
    assert re.search(r"^edge:Knows +2 +0 +0$", shown.out, re.MULTILINE)
    assert re.fullmatch(r"done in \d\.\d s", shown.out.splitlines()[-1])
    assert done("commit", "list", "g", "--json").json["commits"][0]["actor"] == "anna"


def test_running_the_same_file_again_makes_no_commit_and_quiet_says_nothing(done: Cli, file: Path) -> None:
    first = done("pipeline", "run", "p.yaml", "--json").json
    assert list(first) == ["file", "graph", "created_graph", "load", "embed", "optimize", "cleanup", "seconds"]
    assert first["created_graph"] is True
    assert first["load"]["inserted"] == {"node:Person": 4, "edge:Knows": 2}
    again = done("pipeline", "run", "p.yaml", "--json", "--quiet")
    assert again.json["created_graph"] is False
    assert again.json["load"]["commit"] is None
    assert again.err == ""


def test_the_spark_of_a_run_is_named_by_options(cli: Cli, file: Path) -> None:
    wrong = cli("pipeline", "run", "p.yaml", "--conf", "spark.driver.memory")
    assert wrong.code == 2
    assert "--conf takes key=value" in wrong.err
    assert not (file.parent / "g").exists()


def test_overwriting_a_remote_graph_needs_consent(cli: Cli, done: Cli, file: Path, bucket: str) -> None:
    file.write_text(FILE.replace("graph: g", f"graph: {bucket}/people").replace("merge", "overwrite"))
    done("pipeline", "run", "p.yaml")
    refused = cli("pipeline", "run", "p.yaml", "--json")
    assert refused.code == 2
    assert refused.error["condition"] == "consent_required"
    done("pipeline", "run", "p.yaml", "--yes")


def test_a_broken_file_is_told_with_its_place(cli: Cli, file: Path) -> None:
    file.write_text(FILE.replace("Person:", "Persn:"))
    for verb in ("run", "validate", "plan"):
        result = cli("pipeline", verb, "p.yaml")
        assert result.code == 1
        assert result.err.splitlines()[:3] == [
            "error: p.yaml:5:3: the schema has no node type Persn. Did you mean Person?",
            "  Persn: {path: people.csv, map: {full_name: name}}",
            "  ^",
        ]
        error = cli("pipeline", verb, "p.yaml", "--json").error
        assert (error["condition"], error["line"], error["column"]) == ("pipeline_file", 5, 3)
    assert not (file.parent / "g").exists()


def test_variables_come_from_the_option_or_the_environment(
    cli: Cli, done: Cli, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file.write_text(FILE.replace("people.csv", "${WHO}.csv"))
    file.write_text(file.read_text().replace("{path: ${WHO}.csv", '{path: "${WHO}.csv"'))
    missing = cli("pipeline", "validate", "p.yaml")
    assert missing.code == 1
    assert "the variable WHO has no value" in missing.err
    assert "→ Set WHO in the environment, or give it with --var WHO=VALUE; nothing was written." in missing.err
    assert done("pipeline", "plan", "p.yaml", "--var", "WHO=people", "--json").json["fits"] is True
    monkeypatch.setenv("WHO", "people")
    done("pipeline", "validate", "p.yaml")
    wrong = cli("pipeline", "validate", "p.yaml", "--var", "WHO")
    assert wrong.code == 2
    assert "--var takes NAME=VALUE" in wrong.err


def test_optimize_and_cleanup_are_told_as_by_their_own_commands(cli: Cli, done: Cli, file: Path) -> None:
    file.write_text(FILE + "optimize: true\ncleanup: {keep: 1}\n")
    told = done("pipeline", "run", "p.yaml").out
    assert re.search(r"^merged 0 fragments into 0, built \d+ segments of indices in .* s, commit ", told, re.MULTILINE)
    assert re.search(r"^removed \d+ versions, .* in .* s$", told, re.MULTILINE)
    again = done("pipeline", "run", "p.yaml", "--json").json
    assert again["load"]["commit"] is None
    assert again["optimize"]["commit"] is None
    assert again["cleanup"]["confirmed"] is True


def test_cleanup_of_a_graph_that_is_not_local_needs_yes(cli: Cli, done: Cli, folder: Path, bucket: str) -> None:
    done("init", f"{bucket}/g", "--schema", "people.pg")
    Path("p.yaml").write_text(f"graph: {bucket}/g\nmode: merge\ncleanup: {{keep: 3}}\n")
    refused = cli("pipeline", "run", "p.yaml", "--json")
    assert (refused.code, refused.error["condition"]) == (2, "consent_required")
    done("pipeline", "run", "p.yaml", "--yes", "--json")
