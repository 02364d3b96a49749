"""The verb repair on the command line: what it says, in text and JSON, and how it ends."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import omnigraph
from tests.cli.conftest import Cli
from tests.maintenance import strangers

FIELDS = [
    "table_key",
    "classification",
    "action",
    "manifest_version",
    "lance_head_version",
    "operations",
    "error",
    "changes",
]


def drifted(uri: Any) -> Any:
    graph = omnigraph.open(uri)
    strangers.opened(graph, "Person").delete("id = 'Ada'")
    return graph


def person(document: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = next(t for t in document["tables"] if t["table_key"] == "node:Person")
    return found


def test_the_preview_tells_what_would_change_and_ends_well(done: Cli, graph: Path) -> None:
    drifted(graph)
    document = done("repair", graph, "--json").json
    assert list(document) == ["branch", "confirmed", "tables", "commit"]
    row = person(document)
    assert list(row) == FIELDS
    assert (row["classification"], row["action"], row["operations"]) == ("suspicious", "would_refuse", ["Delete"])
    assert row["changes"]["deleted"] == {"count": 1, "first": ["Ada"]}
    text = done("repair", graph)
    assert "1 row would be deleted: Ada" in text.out
    assert "--discard --confirm" in text.out
    assert text.err.startswith(f"→ repairing {graph} (branch main)")


def test_refused_tables_are_told_and_the_exit_code_is_1(cli: Cli, graph: Path) -> None:
    drifted(graph)
    result = cli("repair", graph, "--confirm", "--json")
    assert result.code == 1
    assert person(result.json)["action"] == "refused"
    assert result.json["commit"] is None
    assert cli("repair", graph, "--confirm").code == 1


@pytest.mark.parametrize(("flag", "action", "rows"), [("--force", "forced", 1), ("--discard", "discarded", 2)])
def test_force_and_discard_end_well(done: Cli, graph: Path, flag: str, action: str, rows: int) -> None:
    drifted(graph)
    document = done("repair", graph, flag, "--confirm", "--json").json
    assert person(document)["action"] == action
    assert document["commit"]["actor"] == "omnigraph:repair"
    assert omnigraph.open(graph).nodes("Person").num_rows == rows
    assert "no drift on main" in done("repair", graph).out


def test_a_table_can_be_chosen_and_both_ways_at_once_are_refused(cli: Cli, done: Cli, graph: Path) -> None:
    drifted(graph)
    assert [t["table_key"] for t in done("repair", graph, "--tables", "Knows", "--json").json["tables"]] == [
        "edge:Knows"
    ]
    assert cli("repair", graph, "--tables", "Person,Nobody", "--json").error["condition"] == "unknown_type"
    assert cli("repair", graph, "--force", "--discard", "--json").error["condition"] == "wrong_usage"
    assert cli("repair", graph, "--branch", "none", "--json").error["condition"] == "branch_not_found"


def test_on_s3_drift_of_a_table_and_of_a_fork_is_published_and_discarded(done: Cli, bucket: str, folder: Path) -> None:
    uri = f"{bucket}/people"
    done("init", uri, "--schema", "people.pg")
    done("load", uri, "--data", "people.jsonl", "--mode", "append")
    done("branch", "create", uri, "side")
    done(
        "load",
        uri,
        "--data",
        "-",
        "--mode",
        "merge",
        "--branch",
        "side",
        stdin='{"type": "Person", "data": {"name": "Eve"}}',
    )
    graph = drifted(uri)
    strangers.opened(graph, "Person", "side").delete("id = 'Bob'")
    assert person(done("repair", uri, "--json").json)["changes"]["deleted"]["first"] == ["Ada"]
    side = person(done("repair", uri, "--branch", "side", "--json").json)
    assert side["changes"]["deleted"] == {"count": 1, "first": ["Bob"]}
    assert person(done("repair", uri, "--force", "--confirm", "--json").json)["action"] == "forced"
    assert person(done("repair", uri, "-b", "side", "--force", "--confirm", "--json").json)["action"] == "forced"
    fresh = omnigraph.open(uri)
    assert fresh.nodes("Person")["id"].to_pylist() == ["Bob"]
    assert set(fresh.nodes("Person", branch="side")["id"].to_pylist()) == {"Ada", "Eve"}
    strangers.opened(fresh, "Person").delete("true")
    assert person(done("repair", uri, "--discard", "--confirm", "--json").json)["action"] == "discarded"
    assert omnigraph.open(uri).nodes("Person")["id"].to_pylist() == ["Bob"]
