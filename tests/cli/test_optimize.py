"""optimize on the command line: JSON contracts, plans that are saved and applied, what people read, misuse."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import omnigraph as og
from tests.cli.conftest import Cli

SCHEMA = "node Person { name: String @key  age: I32? @index }\nedge Knows: Person -> Person"


@pytest.fixture
def worn(tmp_path: Path) -> str:
    graph = og.init(tmp_path / "people", SCHEMA)
    for k in range(3):
        graph.insert({"Person": [{"name": f"p{k}", "age": k}]})
    return graph.uri


def answer(cli: Cli, *words: str) -> Any:
    done = cli(*words, "--json")
    assert done.code == 0, done
    return json.loads(done.out)


def test_the_json_of_a_run_is_a_contract(cli: Cli, worn: str) -> None:
    body = answer(cli, "optimize", worn)
    assert set(body) == {"ok", "branch", "tables", "commit", "commits", "engine", "seconds", "rounds"}
    assert body["engine"] == "local"
    assert body["commit"]["actor"] == "omnigraph:optimize"
    assert body["commits"] == [body["commit"]]
    person = next(t for t in body["tables"] if t["table_key"] == "node:Person")
    assert set(person) == {
        "table_key",
        "fragments_removed",
        "fragments_added",
        "committed",
        "skipped",
        "manifest_version",
        "lance_head_version",
        "pending_indexes",
        "bytes_before",
        "bytes_after",
        "coverage_before",
        "coverage_after",
        "indexes_built",
        "rows_replayed",
        "left_fragments",
        "left_indexes",
        "seconds",
        "error",
    }
    assert (person["fragments_removed"], person["fragments_added"], person["committed"]) == (3, 1, True)
    again = answer(cli, "optimize", worn)
    assert again["commit"] is None
    assert again["engine"] is None


def test_a_plan_is_saved_and_applied(cli: Cli, worn: str, tmp_path: Path) -> None:
    plan = answer(cli, "optimize", worn, "--plan")
    assert plan["kind"] == "optimize"
    assert og.open(worn).snapshot().tables()[0].fragments == 3
    file = tmp_path / "plan.json"
    file.write_text(json.dumps(plan))
    done = answer(cli, "optimize", worn, "--apply", str(file))
    assert done["commit"] is not None
    assert og.open(worn).snapshot().tables()[0].fragments == 1


def test_a_plan_keeps_its_time_and_a_stale_one_is_told_to_people(cli: Cli, worn: str, tmp_path: Path) -> None:
    og.open(worn).insert({"Knows": [{"from": "p0", "to": "p1"}]})
    file = tmp_path / "plan.json"
    file.write_text(json.dumps(answer(cli, "optimize", worn, "--plan", "--max-time", "20m", "--concurrency", "2")))
    plan = json.loads(file.read_text())
    assert (plan["graph"], plan["options"]["max_time_s"], plan["options"]["concurrency"]) == (worn, 1200.0, 2)
    cli("optimize", worn, "--tables", "Person")
    done = cli("optimize", worn, "--apply", str(file))
    assert done.code == 0
    assert "node:Person: skipped, what the plan names in it has changed since; make a new plan" in done.out
    again = cli("optimize", worn, "--apply", str(file), "--json")
    assert again.code == 1
    assert again.error["condition"] == "stale_view"
    assert again.error["remedy"] == "Make a new plan; nothing was changed."
    assert again.error["tables"] == ["node:Person", "edge:Knows"]


def test_a_file_that_is_no_plan_or_one_of_another_graph_is_told(cli: Cli, worn: str, tmp_path: Path) -> None:
    file = tmp_path / "bad.json"
    file.write_text("{}")
    done = cli("optimize", worn, "--apply", str(file), "--json")
    assert (done.code, done.error["condition"]) == (1, "plan_unusable")
    expected = f"{file} can't be applied: it is no plan that `omnigraph optimize --plan --json` made."
    assert done.error["message"] == expected
    file.write_text(json.dumps(answer(cli, "optimize", worn, "--plan")))
    other = og.init(tmp_path / "other", SCHEMA).uri
    assert f"it was made for {worn}, not for {other}" in cli("optimize", other, "--apply", str(file)).err
    assert "--branch names review" in cli("optimize", worn, "--apply", str(file), "--branch", "review").err


def test_people_read_a_table_a_summary_and_where_it_ran(cli: Cli, worn: str) -> None:
    planned = cli("optimize", worn, "--plan")
    assert "rewrite 3 fragments into 1" in planned.out
    assert "build BTREE of age" in planned.out
    done = cli("optimize", worn)
    assert "node:Person" in done.out
    assert "3 → 1" in done.out
    assert "0 % → 100 %" in done.out
    assert f"→ optimizing {worn} (branch main)" in done.err
    assert "→ engine local" in done.err
    quiet = cli("optimize", worn, "--quiet")
    assert quiet.err == ""
    assert quiet.out == "nothing to optimize on main; no commit was made\n"


def test_a_table_that_fails_is_told_and_the_code_is_1(cli: Cli, worn: str) -> None:
    graph = og.open(worn)
    table = graph.snapshot().view.open(graph.snapshot().view.type("Person"))
    (Path(table.uri) / "data" / table.get_fragments()[0].metadata.files[0].path).write_bytes(b"")
    done = cli("optimize", worn)
    assert done.code == 1
    assert "node:Person: failed:" in done.out


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("--max-bytes", "lots"), "500MiB"),
        (("--max-time", "soon"), "15m"),
        (("--tables", "Nobody"), "no node or edge type named 'Nobody'"),
        (("--concurrency", "0"), "--concurrency is a number of at least 1"),
        (("--max-time", "0s"), "--max-time is more than 0 seconds"),
        (("--max-rows", "0"), "--max-rows is a number of at least 1"),
        (("--plan", "--max-time", "0s"), "--max-time is more than 0 seconds"),
        (("--defer-index-remap", "--drain"), "--defer-index-remap opens the window that --drain closes"),
        (("--apply", "missing.json"), "missing.json"),
        (("--apply", "x.json", "--tables", "Person"), "takes no further choice"),
        (("--defer-index-remap",), "--defer-index-remap is for graphs that were made with row ids by address"),
        (("--server", "http://x"), "--server"),
    ],
)
def test_misuse_is_told_in_words(cli: Cli, worn: str, words: tuple[str, ...], told: str) -> None:
    done = cli("optimize", worn, *words)
    assert done.code != 0
    assert told in done.err
    assert "Traceback" not in done.err


def test_an_unknown_table_is_the_same_error_as_in_repair(cli: Cli, worn: str) -> None:
    done = [cli(verb, worn, "--tables", "Persn", "--json") for verb in ("optimize", "repair")]
    assert [(d.code, d.error["condition"]) for d in done] == [(1, "unknown_type")] * 2
    assert done[0].error == done[1].error
    assert "Did you mean 'Person'?" in done[0].error["remedy"]
