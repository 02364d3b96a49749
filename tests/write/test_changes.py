"""Statements to deltas, several statements to one write, and what a later statement reads."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from omnigraph.errors import ConstraintViolation, KeyConflict, UsageError
from omnigraph.language.schema.model import EntityType
from omnigraph.language.schema.syntax.parse import parse_schema
from omnigraph.write import changes
from omnigraph.write.delta import TypeDelta, delta
from omnigraph.write.pending_reader import OverlayReader
from omnigraph.write.rows import rows_to_table
from omnigraph.write.validate import cascade, validate
from tests.write.memory import MemoryReader

SCHEMA = parse_schema(
    """
    node Person { name: String @key  age: I32?  city: String? @default("Bern")  email: String? @unique }
    node Note { text: String }
    edge Knows: Person -> Person { since: I32? }
    """
)
PERSON, NOTE, KNOWS = SCHEMA.node["Person"], SCHEMA.node["Note"], SCHEMA.edge["Knows"]
Rows = Sequence[Mapping[str, object]]


def table(t: EntityType, rows: Rows) -> pa.Table:
    return rows_to_table(t, rows).checked()


def graph() -> MemoryReader:
    return MemoryReader(
        SCHEMA,
        {
            "Person": [{"name": "a", "age": 1}, {"name": "b", "age": 2, "city": "Rome"}, {"name": "c", "age": None}],
            "Note": [{"text": "hi", "id": "n1"}],
            "Knows": [{"from": "a", "to": "b", "id": "k1"}],
        },
    )


def test_an_insert_of_an_id_that_exists_is_a_key_conflict() -> None:
    for t, row in (
        (PERSON, {"name": "a"}),
        (NOTE, {"text": "x", "id": "n1"}),
        (KNOWS, {"from": "a", "to": "b", "id": "k1"}),
    ):
        with pytest.raises(KeyConflict) as caught:
            changes.insert(t, table(t, [row]), graph())
        assert caught.value.fields["table_key"] == t.key
    new = changes.insert(PERSON, table(PERSON, [{"name": "d"}]), graph())
    assert new.ids.to_pylist() == ["d"]
    assert new.all_new


def test_an_id_twice_in_an_insert_is_refused() -> None:
    with pytest.raises(ConstraintViolation) as caught:
        changes.insert(PERSON, table(PERSON, [{"name": "d"}, {"name": "d"}]), graph())
    assert caught.value.fields["violations"][0]["rule"] == "key"
    with pytest.raises(ConstraintViolation) as caught:
        changes.insert(NOTE, table(NOTE, [{"text": "x", "id": "1"}, {"text": "y", "id": "1"}]), graph())
    assert caught.value.fields["violations"][0]["rule"] == "id"


def test_an_upsert_row_is_the_full_image() -> None:
    d = changes.upsert(PERSON, table(PERSON, [{"name": "b"}]), graph())
    assert d.rows.to_pylist() == [{"id": "b", "name": "b", "age": None, "city": "Bern", "email": None}]


def test_an_upsert_leaves_out_rows_that_are_already_so() -> None:
    rows = [{"name": "a", "age": 1}, {"name": "b", "age": 3, "city": "Rome"}, {"name": "new"}]
    assert changes.upsert(PERSON, table(PERSON, rows), graph()).ids.to_pylist() == ["b", "new"]
    assert changes.upsert(PERSON, table(PERSON, rows[:1]), graph()).is_empty


def test_a_repeated_key_in_an_upsert_is_refused_and_of_a_repeated_edge_the_last_wins() -> None:
    with pytest.raises(ConstraintViolation):
        changes.upsert(PERSON, table(PERSON, [{"name": "d"}, {"name": "d"}]), graph())
    edges = [{"from": "a", "to": "b", "id": "k", "since": n} for n in (1, 2)]
    assert changes.upsert(KNOWS, table(KNOWS, edges), graph()).rows.column("since").to_pylist() == [2]


def test_an_update_changes_what_is_there_and_counts_only_that() -> None:
    d = changes.update(PERSON, {"age": 2}, graph(), ids=["a", "b", "nobody"])
    assert d.rows.to_pylist() == [{"id": "a", "name": "a", "age": 2, "city": "Bern", "email": None}]
    by_value = changes.update(PERSON, {"age": 9}, graph(), where={"city": "Bern", "age": 1})
    assert by_value.ids.to_pylist() == ["a"]
    assert changes.update(PERSON, {"age": 9}, graph(), where={"city": "Oslo"}).is_empty
    assert changes.update(KNOWS, {"since": 5}, graph(), where={"from": "a"}).ids.to_pylist() == ["k1"]


def test_an_update_of_a_key_is_refused() -> None:
    with pytest.raises(ConstraintViolation) as caught:
        changes.update(PERSON, {"name": "z"}, graph(), ids=["a"])
    assert caught.value.fields["violations"][0]["rule"] == "key"


def test_null_selects_nothing() -> None:
    assert changes.delete(PERSON, graph(), where={"age": None}).is_empty


def test_a_selection_must_say_something() -> None:
    for ids, where in ((None, None), (["a"], {"age": 1}), (None, {})):
        with pytest.raises(UsageError):
            changes.delete(PERSON, graph(), ids=ids, where=where)


def test_lists_and_vectors_select_nothing_and_say_so() -> None:
    schema = parse_schema("node A { tags: [String]?  n: I32? }")
    for where in ({"tags": ["a"]}, {"n": 1, "tags": ["a"]}):
        with pytest.raises(UsageError):
            changes.delete(schema.node["A"], MemoryReader(schema), where=where)


def test_a_delete_counts_each_existing_row_once_also_with_nulls() -> None:
    d = changes.delete(PERSON, graph(), ids=["c", "c", "nobody", "a"])
    assert sorted(d.deleted.to_pylist()) == ["a", "c"]


def test_an_overwrite_replaces_everything() -> None:
    d = changes.overwrite(PERSON, table(PERSON, [{"name": "z"}]))
    assert d.replaces_all
    with pytest.raises(ConstraintViolation):
        changes.overwrite(NOTE, table(NOTE, [{"text": "x", "id": "1"}, {"text": "y", "id": "1"}]))


def test_a_later_statement_reads_what_an_earlier_one_wrote() -> None:
    committed = graph()
    pending: dict[str, TypeDelta] = {}
    first = changes.insert(PERSON, table(PERSON, [{"name": "d", "email": "x@y"}]), committed)
    pending = changes.coalesce(pending, {"Person": first})
    seen = OverlayReader(committed, pending)
    with pytest.raises(KeyConflict):
        changes.insert(PERSON, table(PERSON, [{"name": "d"}]), seen)
    freed = changes.update(PERSON, {"email": None}, seen, ids=["d"])
    pending = changes.coalesce(pending, {"Person": freed})
    again = changes.update(PERSON, {"email": "x@y"}, OverlayReader(committed, pending), ids=["a"])
    pending = changes.coalesce(pending, {"Person": again})
    assert validate(SCHEMA, pending, committed) == []
    assert {r["id"]: r["email"] for r in pending["Person"].rows.to_pylist()} == {"d": None, "a": "x@y"}


def test_a_node_inserted_and_deleted_again_leaves_nothing_behind() -> None:
    committed = graph()
    pending = changes.coalesce({}, {"Person": changes.insert(PERSON, table(PERSON, [{"name": "d"}]), committed)})
    edge = changes.insert(
        KNOWS, table(KNOWS, [{"from": "a", "to": "d", "id": "k2"}]), OverlayReader(committed, pending)
    )
    pending = changes.coalesce(pending, {"Knows": edge})
    seen = OverlayReader(committed, pending)
    gone = cascade(SCHEMA, {"Person": changes.delete(PERSON, seen, ids=["d"])}, seen)
    pending = changes.coalesce(pending, gone)
    assert [d.rows.num_rows for d in pending.values()] == [0, 0]
    assert validate(SCHEMA, pending, committed) == []


def test_writing_back_and_forth_is_no_change() -> None:
    committed = graph()
    there = changes.update(PERSON, {"age": 7}, committed, ids=["a"])
    back = changes.update(PERSON, {"age": 1}, OverlayReader(committed, {"Person": there}), ids=["a"])
    pending = changes.coalesce({"Person": there}, {"Person": back})
    assert changes.without_unchanged(pending["Person"], committed).is_empty


NAMES = st.sampled_from(["a", "b", "c", "d"])
STEP = st.tuples(
    st.sampled_from(["upsert", "delete", "overwrite"]),
    st.lists(st.tuples(NAMES, st.integers(0, 2)), max_size=3, unique_by=lambda pair: pair[0]),
)


@settings(deadline=None)
@given(st.lists(STEP, max_size=5))
def test_coalesced_statements_do_what_they_do_one_after_the_other(
    steps: list[tuple[str, list[tuple[str, int]]]],
) -> None:
    committed = graph()
    stepwise = committed
    pending: dict[str, TypeDelta] = {}
    for verb, pairs in steps:
        rows = table(PERSON, [{"name": name, "age": age} for name, age in pairs])
        seen = OverlayReader(committed, pending)
        if verb == "upsert":
            d = changes.upsert(PERSON, rows, seen)
        elif verb == "delete":
            d = changes.delete(PERSON, seen, ids=[name for name, _ in pairs])
        else:
            d = changes.overwrite(PERSON, rows)
        stepwise = stepwise.applied({"Person": d})
        pending = changes.coalesce(pending, {"Person": d})
        combined = pending["Person"]
        assert not set(combined.ids.to_pylist()) & set(combined.deleted.to_pylist())
        expected = sorted(stepwise.tables["Person"].to_pylist(), key=lambda row: str(row["id"]))
        assert sorted(committed.applied(pending).tables["Person"].to_pylist(), key=lambda r: str(r["id"])) == expected
        overlay = OverlayReader(committed, pending)
        assert overlay.count(PERSON) == len(expected)
        assert sorted(overlay.scan(PERSON, ["id"]).read_all()["id"].to_pylist()) == [row["id"] for row in expected]
        for age in range(3):
            found = overlay.find(PERSON, "age", pa.array([age], pa.int32()), ["id", "age"])
            assert found.column_names == ["id", "age", "_rowid", "_rowaddr"]
            assert sorted(found["id"].to_pylist()) == [row["id"] for row in expected if row["age"] == age]


def test_rows_of_a_transaction_have_no_row_id_yet() -> None:
    pending = {"Person": delta(PERSON, rows=table(PERSON, [{"name": "z"}]))}
    found = OverlayReader(graph(), pending).find(PERSON, "id", pa.array(["a", "z"]), ["id"])
    assert {row["id"]: row["_rowid"] is None for row in found.to_pylist()} == {"a": False, "z": True}
