"""Small writes through the handle: one commit each, all or nothing, over real tables."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

import omnigraph as og
from omnigraph import errors


def people(graph: og.Graph, branch: str = "main") -> dict[str, int | None]:
    table = graph.snapshot(branch).read("Person")
    return dict(zip(table["name"].to_pylist(), table["age"].to_pylist(), strict=True))


def test_insert_of_several_types_is_one_commit(graph: og.Graph) -> None:
    result = graph.insert({"Person": [{"name": "Ada"}, {"name": "Bob"}], "Knows": [{"from": "Ada", "to": "Bob"}]})
    assert result.inserted == {"node:Person": 2, "edge:Knows": 1}
    assert [c.kind for c in graph.commits()] == ["write", "init"]
    assert result.ids["Person"] == ["Ada", "Bob"]


def test_insert_of_an_existing_key_is_refused_and_changes_nothing(graph: og.Graph) -> None:
    graph.insert({"Person": [{"name": "Ada", "age": 1}]})
    before = graph.snapshot().commit
    with pytest.raises(errors.KeyConflict) as refused:
        graph.insert({"Person": [{"name": "Ada", "age": 2}, {"name": "Eve"}]})
    assert refused.value.fields["entity_id"] == "Ada"
    assert graph.snapshot().commit == before
    assert people(graph) == {"Ada": 1}


def test_upsert_keeps_the_row_identity(graph: og.Graph) -> None:
    graph.insert({"Person": [{"name": "Ada", "age": 1}, {"name": "Bob", "age": 2}]})
    t = graph.schema().node["Person"]

    def row_ids() -> dict[str, int]:
        found = graph.snapshot().view.find(t, "id", pa.array(["Ada", "Bob"]), ["id"])
        return dict(zip(found["id"].to_pylist(), found["_rowid"].to_pylist(), strict=True))

    before = row_ids()
    result = graph.upsert({"Person": [{"name": "Ada", "age": 9}, {"name": "Cyd", "age": 3}]})
    assert (result.inserted, result.updated) == ({"node:Person": 1}, {"node:Person": 1})
    assert row_ids() == before
    assert people(graph) == {"Ada": 9, "Bob": 2, "Cyd": 3}


def test_rewriting_an_identical_row_makes_no_commit(graph: og.Graph) -> None:
    rows = {"Doc": [{"id": "d1", "title": "x", "body": b"\x00\x01", "tags": ["a"], "v": [1.0, 2.0, 3.0]}]}
    assert graph.upsert(rows).commit is not None
    assert graph.upsert(rows).commit is None


def test_update_keeps_the_other_values_blobs_included(graph: og.Graph) -> None:
    big = bytes(range(256)) * 20_000
    rows = [{"id": "a", "title": "a", "body": big}, {"id": "b", "title": "b", "body": b""}, {"id": "c", "title": "c"}]
    graph.insert({"Doc": rows})
    graph.update("Doc", {"title": "new"}, ids=["a", "b", "c"])
    found = {r["id"]: (r["title"], r["body"]) for r in graph.snapshot().read("Doc").to_pylist()}
    assert found == {"a": ("new", big), "b": ("new", b""), "c": ("new", None)}


def test_delete_of_a_node_takes_its_edges_along(graph: og.Graph) -> None:
    graph.insert(
        {
            "Person": [{"name": n} for n in "abc"],
            "Knows": [{"from": "a", "to": "b"}, {"from": "b", "to": "c"}, {"from": "a", "to": "c"}],
        }
    )
    result = graph.delete({"Person": ["b"]})
    assert result.deleted == {"node:Person": 1, "edge:Knows": 2}
    assert [(r["src"], r["dst"]) for r in graph.snapshot().read("Knows").to_pylist()] == [("a", "c")]


def test_deleting_nothing_is_success_without_a_commit(graph: og.Graph) -> None:
    result = graph.delete({"Person": ["nobody"]})
    assert result.commit is None
    assert result.deleted == {}


def test_a_violation_anywhere_leaves_every_table_alone(graph: og.Graph) -> None:
    before = graph.snapshot().to_json()
    with pytest.raises(errors.ConstraintViolation) as refused:
        graph.insert({"Person": [{"name": "Ada"}], "Knows": [{"from": "Ada", "to": "ghost"}]})
    assert refused.value.fields["violations"][0]["rule"] == "endpoint"
    assert graph.snapshot().to_json() == before


def test_arrow_tables_are_taken_as_rows(graph: og.Graph) -> None:
    graph.insert({"Person": pa.table({"name": ["Ada", "Bob"], "age": pa.array([1, None], pa.int32())})})
    assert people(graph) == {"Ada": 1, "Bob": None}


def test_many_small_writes_leave_few_fragments(graph: og.Graph) -> None:
    for i in range(150):
        graph.upsert({"Person": [{"name": f"p{i % 60}", "age": i}]})
    person = next(t for t in graph.snapshot().tables() if t.table_key == "node:Person")
    assert person.rows == 60
    assert person.fragments < 70
    assert people(graph) == {f"p{i}": max(k for k in range(150) if k % 60 == i) for i in range(60)}


def test_a_transaction_is_refused_when_what_it_read_has_changed(graph: og.Graph) -> None:
    graph.insert({"Person": [{"name": "Ada", "age": 1}]})
    with pytest.raises(errors.ReadSetConflict), graph.transaction() as tx:
        age = tx.get("Person", "Ada")["age"]
        graph.update("Person", {"age": 5}, ids=["Ada"])
        tx.update("Person", {"age": age + 1}, ids=["Ada"])
    assert people(graph) == {"Ada": 5}


def test_a_transaction_ignores_changes_of_what_it_did_not_read(graph: og.Graph) -> None:
    graph.insert({"Person": [{"name": "Ada", "age": 1}, {"name": "Bob", "age": 1}]})
    with graph.transaction() as tx:
        age = tx.get("Person", "Ada")["age"]
        graph.update("Person", {"age": 5}, ids=["Bob"])
        tx.update("Person", {"age": age + 1}, ids=["Ada"])
    assert people(graph) == {"Ada": 2, "Bob": 5}
    assert tx.result is not None
    assert tx.result.updated == {"node:Person": 1}


def test_statements_of_a_transaction_see_the_ones_before(graph: og.Graph) -> None:
    with graph.transaction() as tx:
        tx.insert({"Person": [{"name": "Ada", "age": 1, "email": "x"}]})
        tx.update("Person", {"email": "y"}, ids=["Ada"])
        tx.insert({"Person": [{"name": "Bob", "email": "x"}]})
    assert len(graph.commits()) == 2
    emails = graph.snapshot().read("Person")
    assert dict(zip(emails["name"].to_pylist(), emails["email"].to_pylist(), strict=True)) == {"Ada": "y", "Bob": "x"}


def test_if_commit_writes_only_on_that_commit(graph: og.Graph) -> None:
    seen = graph.snapshot().commit
    graph.insert({"Person": [{"name": "Ada"}]}, if_commit=seen)
    with pytest.raises(errors.PreconditionFailed) as lost:
        graph.insert({"Person": [{"name": "Bob"}]}, if_commit=seen)
    assert lost.value.fields["actual"] == graph.snapshot().commit
    assert people(graph) == {"Ada": None}


def test_an_operation_id_that_is_repeated_answers_with_the_first_outcome(graph: og.Graph) -> None:
    first = graph.insert({"Person": [{"name": "Ada"}]}, operation_id="op-1")
    for i in range(60):  # far enough that the record has left the head
        graph.upsert({"Person": [{"name": "Bob", "age": i}]})
    again = graph.insert({"Person": [{"name": "Ada"}]}, operation_id="op-1")
    assert again.repeated
    assert again.commit == first.commit


def test_the_actor_lands_on_the_commit(graph: og.Graph, monkeypatch: pytest.MonkeyPatch) -> None:
    assert graph.insert({"Person": [{"name": "a"}]}, actor="anna").commit.actor == "anna"
    monkeypatch.setenv("OMNIGRAPH_ACTOR", "from-environment")
    assert og.open(graph.uri).insert({"Person": [{"name": "b"}]}).commit.actor == "from-environment"


def test_address_row_ids_work_the_same(tmp_path: Path) -> None:
    graph = og.init(tmp_path / "g", "node Person { name: String @key  age: I32? }", row_ids="address")
    for i in range(80):
        graph.upsert({"Person": [{"name": f"p{i % 20}", "age": i}]})
    graph.delete({"Person": ["p3"]})
    assert people(graph) == {f"p{i}": 60 + i for i in range(20) if i != 3}
    assert not graph.snapshot().view.open(graph.schema().node["Person"]).has_stable_row_ids


def test_ids_and_values_with_quotes_and_control_characters_are_values(graph: og.Graph) -> None:
    nasty = ["a'b", 'a"b', "a\\b", "a;--", "\n\t\x01", "ü\u202e\U0001f600", "' OR '1'='1", "", "%_"]
    graph.insert({"Person": [{"name": n, "age": i} for i, n in enumerate(nasty)]})
    for i, name in enumerate(nasty):
        assert graph.update("Person", {"age": 100 + i}, ids=[name]).updated == {"node:Person": 1}
    assert people(graph) == {n: 100 + i for i, n in enumerate(nasty)}
