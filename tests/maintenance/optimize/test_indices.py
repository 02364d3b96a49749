"""Which index a property gets, when it is built, and when it waits."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import omnigraph as og
from omnigraph.storage.lance.indices import built_indices
from tests.maintenance.optimize.answers import disagreements
from tests.maintenance.optimize.conftest import SCHEMA, people
from tests.maintenance.optimize.tables import opened
from tests.support.exchanged_vectors import exchange_vectors

ALL_KINDS = """
node All {
  name: String @key
  flag: Bool? @index
  kind: enum(a, b)? @index
  number: I64? @index
  real: F64? @index
  day: Date? @index
  moment: DateTime? @index
  tags: [String]? @index
  text: String? @index
  vec: Vector(4)? @index
  plain: String?
}
"""


def _all_rows(first: int, last: int, *, vectors: bool = True) -> list[dict[str, Any]]:
    return [
        {
            "name": f"n{i}",
            "flag": i % 2 == 0,
            "kind": "ab"[i % 2],
            "number": i,
            "real": i / 2,
            "day": f"2024-01-{i % 28 + 1:02}",
            "moment": f"2024-01-{i % 28 + 1:02}T00:00:00Z",
            "tags": ["t", f"t{i % 3}"],
            "text": f"word{i % 5} common",
            "vec": [1.0, i, i % 3, 2.0] if vectors else None,
            "plain": "x",
        }
        for i in range(first, last)
    ]


def test_every_declared_property_gets_the_index_of_its_kind(tmp_path: Path) -> None:
    graph = og.init(tmp_path / "g", ALL_KINDS)
    graph.insert({"All": _all_rows(0, 300)})
    result = graph.optimize()
    assert result.ok
    assert result.table("node:All").pending_indexes == ()
    table = opened(graph, "All")
    assert {(i.column, i.kind) for i in built_indices(table)} == {
        ("id", "BTREE"),
        ("name", "BTREE"),
        ("name", "INVERTED"),
        ("flag", "BITMAP"),
        ("kind", "BITMAP"),
        ("number", "BTREE"),
        ("real", "BTREE"),
        ("day", "BTREE"),
        ("moment", "BTREE"),
        ("tags", "LABEL_LIST"),
        ("text", "BTREE"),
        ("text", "INVERTED"),
        ("vec", "IVF_FLAT"),
    }
    assert table.count_rows("starts_with(text, 'word1')") == 60
    assert "ScalarIndexQuery" in table.scanner(filter="number = 7").explain_plan()


def test_a_vector_index_without_vectors_is_pending_and_the_others_are_built_in_one_commit(tmp_path: Path) -> None:
    graph = og.init(tmp_path / "g", ALL_KINDS)
    graph.insert({"All": _all_rows(0, 300, vectors=False)})
    before = len(graph.commits())
    result = graph.optimize()
    row = result.table("node:All")
    assert [(p.property, p.kind, p.reason) for p in row.pending_indexes] == [("vec", "IVF", "no vectors yet")]
    assert row.error is None
    assert row.coverage_after == 1.0
    assert len(graph.commits()) == before + 1
    assert len(built_indices(opened(graph, "All"))) == 12
    assert graph.optimize().commit is None
    graph.upsert({"All": _all_rows(0, 10)})
    assert graph.optimize().table("node:All").pending_indexes[0].reason == "10 vectors of at least 256"
    graph.upsert({"All": _all_rows(0, 300)})
    assert graph.optimize().table("node:All").pending_indexes == ()
    assert disagreements(opened(graph, "All")) == []


def test_a_vector_property_named_as_a_column_of_lance_itself_gets_an_index_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from omnigraph.maintenance.optimize import indices

    monkeypatch.setattr(indices, "VECTORS_MIN", 8)
    graph = og.init(tmp_path / "g", "node Doc { key: String @key  flat: Vector(2) @index }")
    graph.insert({"Doc": [{"key": f"d{i}", "flat": [i + 1.0, 2.0]} for i in range(40)]})
    assert graph.optimize().table("node:Doc").pending_indexes == ()
    table = opened(graph, "Doc")
    assert {i.kind for i in built_indices(table) if i.column == "flat"} == {"IVF_SQ"}
    near = {"column": "flat", "q": np.array([1.0, 2.0], np.float32), "k": 40, "metric": "cosine"}
    assert sorted(table.to_table(columns=["id"], nearest=near)["id"].to_pylist()) == sorted(f"d{i}" for i in range(40))


def test_an_index_declared_after_the_data_is_built(graph: og.Graph) -> None:
    people(graph, 0, 20)
    graph.optimize()
    graph.apply_schema(
        SCHEMA.replace("since: I32?", "since: I32? @index").replace("City { name", "City { zip: I32? @index  name")
    )
    graph.insert({"City": [{"name": "Bern", "zip": 3000}]})
    graph.optimize()
    assert ("zip", "BTREE") in {(i.column, i.kind) for i in built_indices(opened(graph, "City"))}


def test_a_renamed_type_and_property_keep_their_rows_and_get_their_indices(graph: og.Graph) -> None:
    people(graph, 0, 20)
    text = SCHEMA.replace("node Person {", 'node Human @rename_from("Person") {').replace("Person ->", "Human ->")
    text = text.replace("-> Person", "-> Human").replace("age: I32? @index", 'years: I32? @index @rename_from("age")')
    graph.apply_schema(text)
    graph.optimize()
    table = opened(graph, "Human")
    assert ("years", "BTREE") in {(i.column, i.kind) for i in built_indices(table)}
    assert len(graph.nodes("Human")) == 20


def test_a_property_renamed_after_its_index_was_built_keeps_that_index(graph: og.Graph) -> None:
    people(graph, 0, 20)
    graph.optimize()
    old = {s.uuid for i in built_indices(opened(graph, "Person")) for s in i.segments}
    graph.apply_schema(SCHEMA.replace("age: I32? @index", 'years: I32? @index @rename_from("age")'))
    assert graph.optimize().table("node:Person").indexes_built == 0
    assert {s.uuid for i in built_indices(opened(graph, "Person")) for s in i.segments} == old


def test_vectors_exchanged_in_place_do_not_leave_their_old_neighbours_behind(tmp_path: Path) -> None:
    schema = 'node Post { name: String @key  text: String?  vec: Vector(8)? @embed("text") @index }'
    graph = og.init(tmp_path / "g", schema)
    graph.insert({"Post": [{"name": f"p{i}", "text": f"text {i}", "vec": [1.0 + i] * 7 + [1.0]} for i in range(400)]})
    graph.optimize()
    exchange_vectors(graph)
    graph.insert({"Post": [{"name": f"q{i}", "text": None, "vec": [3.0 + i] * 7 + [2.0]} for i in range(5)]})
    graph.optimize(target_rows_per_fragment=100)
    assert disagreements(opened(graph, "Post")) == []


def test_an_index_gets_another_name_where_a_renamed_property_has_kept_its_own(tmp_path: Path) -> None:
    graph = og.init(tmp_path / "graph", "node Doc { key: String @key  a: I32? @index }")
    graph.insert({"Doc": [{"key": f"d{i}", "a": i} for i in range(10)]})
    graph.optimize()
    graph.apply_schema('node Doc { key: String @key  b: I32? @index @rename_from("a") }')
    graph.apply_schema("node Doc { key: String @key  b: I32? @index  a: I32? @index }")
    graph.upsert({"Doc": [{"key": f"d{i}", "a": 100 - i} for i in range(10)]})
    result = graph.optimize()
    assert (result.rounds, result.table("node:Doc").skipped) == (1, None)
    found = {i.name: i.column for i in built_indices(opened(graph, "Doc"))}
    assert (found["a_btree"], found["a_btree_2"]) == ("b", "a")
    assert graph.optimize().commit is None
    assert graph.verify(full=True).findings == ()
