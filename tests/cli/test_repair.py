"""The verb repair on the command line: what it says, in text and JSON, and how it ends."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import lance
import obstore
import pyarrow as pa
import pytest

import omnigraph
from omnigraph.storage.objects.client import open_store
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
    assert list(document) == ["ok", "branch", "confirmed", "tables", "commit"]
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


@pytest.mark.parametrize("names", ["", ",", " , "])
def test_a_list_of_no_tables_is_refused(cli: Cli, graph: Path, names: str) -> None:
    drifted(graph)
    result = cli("repair", graph, "--tables", names, "--confirm", "--json")
    assert (result.code, result.error["condition"]) == (2, "wrong_usage")
    assert "no table is named" in result.error["message"]


def test_no_drift_in_the_chosen_tables_is_not_told_of_all(done: Cli, graph: Path) -> None:
    drifted(graph)
    assert done("repair", graph, "--tables", "Knows").out == (
        "no drift on main in edge:Knows; no other table was looked at\n"
    )


def test_after_rows_were_forced_verify_is_named_and_after_others_it_is_not(done: Cli, graph: Path) -> None:
    drifted(graph)
    verify = f"→ nobody checked the rows of node:Person: run omnigraph verify {graph}\n"
    assert verify in done("repair", graph, "--force", "--confirm").out
    strangers.opened(omnigraph.open(graph), "Person").create_scalar_index("age", "BTREE")
    published = done("repair", graph, "--force", "--confirm").out
    assert "published on main" in published
    assert "omnigraph verify" not in published


def test_null_ids_are_shown_as_null(done: Cli, graph: Path) -> None:
    table = strangers.opened(omnigraph.open(graph), "Person")
    table.alter_columns({"path": "id", "nullable": True})
    rows = pa.table({"id": pa.array([None, "Eve"], pa.string()), "name": ["none", "Eve"]})
    lance.write_dataset(rows, table.uri, mode="append")
    assert "node:Person: 2 rows would be inserted: null, Eve\n" in done("repair", graph).out
    assert person(done("repair", graph, "--json").json)["changes"]["inserted"]["first"] == [None, "Eve"]


def test_a_table_that_is_gone_is_a_row_that_points_at_verify(cli: Cli, done: Cli, graph: Path) -> None:
    shutil.rmtree(strangers.place(omnigraph.open(graph), "Person")[0])
    text = done("repair", graph).out
    assert "node:Person: no version of it is there" in text
    assert text.endswith("→ refused tables: see what is missing with omnigraph verify\n")
    result = cli("repair", graph, "--force", "--confirm", "--json")
    assert (result.code, person(result.json)["action"]) == (1, "refused")


def test_on_s3_a_rewrite_whose_file_is_cut_short_and_an_index_without_files_are_refused(bucket: str) -> None:
    graph = omnigraph.init(f"{bucket}/people", "node Person { name: String @key }")
    for name in ("Ada", "Bob"):
        graph.insert({"Person": [{"name": name}]})
    place = strangers.place(graph, "Person")[0].removeprefix(f"{graph.uri}/")
    store = open_store(graph._location, place)
    strangers.index(graph, "Person", "name")
    for found in obstore.list(store, "_indices").collect():
        obstore.delete(store, found["path"])
    refused = graph.repair(confirm=True).tables[0]
    assert (refused.action, "stranger_name (its files are missing)" in str(refused.error)) == ("refused", True)
    strangers.opened(graph, "Person").drop_index("stranger_name")
    strangers.compact(graph, "Person")
    file = f"data/{strangers.opened(graph, 'Person').get_fragments()[0].metadata.files[0].path}"
    obstore.put(store, file, b"cut short")
    refused = graph.repair(confirm=True).tables[0]
    assert refused.action == "refused"
    assert f"{place}/{file}, which its newest version needs, is not whole: it has 9 of " in str(refused.error)
    obstore.delete(store, file)
    assert "is missing" in str(graph.repair().tables[0].error)


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
