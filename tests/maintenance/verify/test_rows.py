"""Rows that break a rule between rows, or with `full` a rule of their own, written past the door."""

from __future__ import annotations

from datetime import date
from pathlib import Path
from typing import Any

import pytest

import omnigraph as og
from omnigraph.maintenance.verify import rows
from tests.maintenance.verify import damage


@pytest.mark.parametrize("end", ["src", "dst"])
def test_an_edge_whose_node_is_not_there(plain: og.Graph, end: str) -> None:
    edge = {"id": "bad", "src": "p001", "dst": "p002", end: "p010"}
    damage.raw_rows(plain, "Knows", [edge])
    finding = damage.only(plain.verify(), "dangling_endpoint", severity="error", table="edge:Knows", branch="main")
    assert finding.examples == (f"'bad' {end}='p010'",), "p010 was deleted"
    assert finding.count == 1
    assert f"`omnigraph load {plain.uri} --data FILE --mode merge --branch main`" in finding.remedy


def test_an_edge_of_a_fork_counts_against_the_nodes_of_its_branch(plain: og.Graph) -> None:
    damage.branch_out(plain)
    damage.raw_rows(plain, "LivesIn", [{"id": "far", "src": "p001", "dst": "Köln"}])
    damage.only(plain.verify(), "dangling_endpoint", table="edge:LivesIn", branch="main")


@pytest.mark.parametrize(("type_name", "row"), [("City", {"id": "Bonn", "name": "Bonn"}), ("LivesIn", None)])
def test_an_id_that_is_there_twice(plain: og.Graph, type_name: str, row: dict[str, Any] | None) -> None:
    if row is None:
        row = damage.newest(plain, type_name).to_table(limit=1).to_pylist()[0]
    damage.raw_rows(plain, type_name, [row])
    finding = damage.only(plain.verify(), "duplicate_key", severity="error", branch="main", count=1)
    assert len(finding.examples) == 2, "both rows are named"
    assert all(example.startswith(repr(row["id"])) for example in finding.examples)
    assert len(set(finding.examples)) == 2, "and can be told apart"
    assert f"`omnigraph export {plain.uri} --type {type_name} --branch main --out rows.jsonl`" in finding.remedy


def test_a_unique_value_that_is_there_twice(plain: og.Graph) -> None:
    damage.raw_rows(plain, "Person", [{"id": "new", "name": "new", "email": "p1@example.org"}])
    finding = damage.only(plain.verify(), "duplicate_value", severity="error", table="node:Person", count=1)
    assert finding.examples == ("'p001' email='p1@example.org'", "'new' email='p1@example.org'")


def test_rows_that_clash_are_named_beside_each_other(plain: og.Graph) -> None:
    clashing = [{"id": f"new{i}", "name": f"new{i}", "email": f"p{i}@example.org"} for i in (7, 2, 5)]
    damage.raw_rows(plain, "Person", clashing)
    finding = damage.only(plain.verify(), "duplicate_value", count=3)
    assert [example.partition(" ")[0] for example in finding.examples] == [
        *("'p002'", "'new2'", "'p005'", "'new5'", "'p007'")
    ]


def test_a_node_that_is_there_twice_has_its_edges_once(tmp_path: Path) -> None:
    graph = og.init(tmp_path / "g", "node P { name: String @key }\nedge L: P -> P @card(1..1)")
    graph.insert({"P": [{"name": "a"}], "L": [{"src": "a", "dst": "a"}]})
    damage.raw_rows(graph, "P", [{"id": "a", "name": "a"}])
    damage.only(graph.verify(engine="local"), "duplicate_key", table="node:P", count=1)


@pytest.mark.parametrize(
    ("type_name", "column", "told"),
    [
        ("Knows", "id", "rows have no id"),
        ("LivesIn", "src", "edges have no src"),
        ("LivesIn", "dst", "edges have no dst"),
    ],
)
def test_an_id_or_an_end_that_is_null(plain: og.Graph, type_name: str, column: str, told: str) -> None:
    damage.without(plain, type_name, column)
    result = plain.verify()
    finding = damage.only(result, "null_key", severity="error", branch="main", count=1)
    assert finding.message == told
    assert len(finding.examples) == 1


def test_nulls_are_not_unique_values(plain: og.Graph) -> None:
    damage.raw_rows(plain, "Person", [{"id": f"new{i}", "name": f"new{i}"} for i in range(3)])
    assert plain.verify(full=True).ok


def test_more_edges_than_a_node_may_have(plain: og.Graph) -> None:
    extra = [{"id": f"x{i}", "src": "p001", "dst": "p002"} for i in range(3)]
    damage.raw_rows(plain, "Knows", extra)
    finding = damage.only(plain.verify(), "cardinality", severity="error", table="edge:Knows", branch="main")
    assert finding.examples == ("'p001'",)


@pytest.mark.parametrize(
    ("row", "told"),
    [
        ({"age": 200}, "range"),
        ({"level": "middle"}, "enum"),
        ({"email": "nobody"}, "check"),
    ],
)
def test_a_rule_of_a_row_is_checked_with_full_only(plain: og.Graph, row: dict[str, Any], told: str) -> None:
    damage.raw_rows(plain, "Person", [{"id": "new", "name": "new", "born": date(2000, 1, 1), **row}])
    assert plain.verify().ok
    finding = damage.only(plain.verify(full=True), "broken_rule", severity="error", table="node:Person", branch="main")
    assert told in finding.message
    assert "'new'" in finding.examples[0]


def test_an_id_that_is_not_the_one_of_its_key(plain: og.Graph) -> None:
    damage.raw_rows(plain, "City", [{"id": "Trier", "name": "Wien"}])
    finding = damage.only(plain.verify(full=True), "key_mismatch", severity="error", table="node:City")
    assert finding.examples == ("Trier",)


def test_a_required_value_that_is_null(plain: og.Graph) -> None:
    damage.raw_rows(plain, "City", [{"id": "Trier", "name": None}])
    codes = {f.code for f in plain.verify(full=True).findings}
    assert codes >= {"broken_rule", "key_mismatch"}


def test_many_buckets_and_small_groups_find_the_same(plain: og.Graph, monkeypatch: pytest.MonkeyPatch) -> None:
    damage.raw_rows(plain, "Knows", [{"id": f"bad{i}", "src": "p001", "dst": f"none{i}"} for i in range(9)])
    damage.raw_rows(plain, "City", [{"id": "Bonn", "name": "Bonn"}] * 2)
    whole = plain.verify().findings
    monkeypatch.setattr(rows, "BUCKET_ROWS", 16)
    monkeypatch.setattr(rows, "grouped", lambda fragments: ([f] for f, _ in fragments))
    assert plain.verify().findings == whole
    assert {f.code for f in whole} >= {"dangling_endpoint", "duplicate_key", "cardinality"}
