"""Statements of mutation queries: what parses, and to what."""

from __future__ import annotations

from datetime import UTC, date, datetime

import pytest

from omnigraph.language.query import model as m
from omnigraph.language.query import operation, terms
from omnigraph.language.query.types import Type
from tests.language.query.texts import checked, write


def one(text: str, parameters: str = "") -> m.Statement:
    (found,) = write(text, parameters)
    return found


def settings(values: tuple[m.Setting, ...]) -> list[str]:
    return [v.name for v in values]


def test_an_insert_of_a_keyed_node_is_an_upsert_and_any_other_is_strict() -> None:
    keyed = one('insert Person { slug: "a", name: "A" }')
    free = one('insert Note { text: "a" }')
    edge = one('insert Knows { from: "a", to: "b" }')
    assert [isinstance(s, m.Insert) and s.upsert for s in (keyed, free, edge)] == [True, False, False]


def test_values_are_resolved_typed_and_dated() -> None:
    found = one(
        'update Person set { born: "2024-02-29", joined: "2024-02-29T00:00:00Z", age: age + 1 } where slug = $s',
        "$s: String",
    )
    assert isinstance(found, m.Update)
    born, joined, age = found.values
    assert born.value == terms.Constant(date(2024, 2, 29), Type("Date"))
    assert joined.value == terms.Constant(datetime(2024, 2, 29, tzinfo=UTC), Type("DateTime"))
    assert isinstance(age.value, terms.Arithmetic)
    assert isinstance(age.value.left, terms.Property)
    assert age.value.left.variable == found.row
    assert age.property_id


@pytest.mark.parametrize(
    "value",
    ["height: 1", "weight: 2", "age: $i", "visits: 3", "tags: [\"a\"]", "scores: [1, 2.5]", "tags: $l", "vec: $v",
     "vec: [1, 2, 3]", "photo: $b", "age: null", "status: \"open\"", "status: $s", "joined: now()", "active: age > 3",
     "bio: name + \" \" + slug", "born: born + days(1)"],
)  # fmt: skip
def test_values_that_fit(value: str) -> None:
    parameters = "$i: I64, $l: [String], $v: Vector(3)?, $b: Blob, $s: String"
    assert one(f"update Person set {{ {value} }} where true", parameters)


def test_edges_are_given_by_from_and_to_or_src_and_dst() -> None:
    for ends in ("from: $a, to: $b", "src: $a, dst: $b"):
        found = one(f"insert Knows {{ {ends}, weight: 1 }}", "$a: String, $b: String")
        assert isinstance(found, m.Insert)
        assert settings(found.values) == ["src", "dst", "weight"]


def test_what_has_a_default_or_is_made_from_a_text_may_be_left_out() -> None:
    assert one('insert Company { slug: "a", name: "A" }')
    assert one('insert Person { slug: "a", name: "A", bio: "x" }')


def test_a_free_node_may_be_given_its_id() -> None:
    found = one('insert Note { id: "n1", text: "a" }')
    assert isinstance(found, m.Insert)
    assert settings(found.values) == ["id", "text"]


def test_conditions_are_full_expressions_over_the_rows_own_properties() -> None:
    found = one(
        "delete Person where slug in $ids and (age is null or age < 3) "
        'and not (name starts_with "x" or tags contains "y")',
        "$ids: [String]",
    )
    assert isinstance(found, m.Delete)
    assert isinstance(found.where, terms.And)
    assert set(terms.variables_of(found.where)) == {found.row}


@pytest.mark.parametrize("name", ["from", "src", "@src"])
def test_the_ends_of_an_edge_have_three_names(name: str) -> None:
    found = one(f'delete Knows where {name} = "a" and id != "x" and @type = "Knows"')
    assert isinstance(found, m.Delete)
    assert isinstance(found.where, terms.And)
    first = found.where.operands[0]
    assert isinstance(first, terms.Compare)
    assert isinstance(first.left, terms.Property)
    assert first.left.name == "src"


def test_a_delete_of_a_node_lists_every_incident_edge_under_reads_and_writes() -> None:
    found = checked('query q() { delete Company where slug = "a" }')
    assert isinstance(found.body, tuple)
    (delete,) = found.body
    assert isinstance(delete, m.Delete)
    assert {e.name for e in delete.cascades} == {"WorksAt", "LocatedIn", "Contains"}
    told = operation(found)
    edges = [{"kind": "edge", "type_name": n} for n in ("Contains", "LocatedIn", "WorksAt")]
    assert told["writes"] == [*edges, {"kind": "node", "type_name": "Company"}]
    assert told["reads"] == told["writes"]


def test_an_insert_of_an_edge_reads_its_ends() -> None:
    told = operation(checked('query q() { insert LocatedIn { from: "a", to: "b" } }'))
    assert [r["type_name"] for r in told["reads"]] == ["LocatedIn", "City", "Company"]
    assert [w["type_name"] for w in told["writes"]] == ["LocatedIn"]
    assert told["result"] == []


def test_inserts_updates_and_deletes_may_be_mixed_and_keep_their_order() -> None:
    found = write(
        'delete Note where true insert Note { text: "a" } update Note set { text: text + "!" } where true '
        'delete Note where text = "b"'
    )
    assert [type(s).__name__ for s in found] == ["Delete", "Insert", "Update", "Delete"]


def test_merge_finds_a_node_by_its_key_and_an_edge_by_its_ends() -> None:
    node = one('merge Person { slug: "a" } set { name: coalesce(name, "new"), age: age + 1 } returning { slug, age }')
    assert isinstance(node, m.Merge)
    assert (settings(node.keys), settings(node.values)) == (["slug"], ["name", "age"])
    (in_values,) = terms.variables_of(tuple(v.value for v in node.values))
    assert (in_values.slot, in_values.nullable, node.row.nullable) == (node.row.slot, True, False)
    edge = one('merge Knows { from: "a", to: "b" } set { weight: 2.0 }')
    assert isinstance(edge, m.Merge)
    assert settings(edge.keys) == ["src", "dst"]
    assert one('merge City { name: "Rome" }')
    # Whether name and role are needed is seen when it is known whether there is a row.
    assert one('merge Person { slug: "a" } set { age: 1 }')
    assert one('merge WorksAt { from: "a", to: "b" }')


def test_insert_from_match_writes_a_row_per_row_of_the_pattern() -> None:
    found = one(
        "insert Knows { from: $a, to: $b.id, label: $a.name + $why } "
        "from match { $a: Person $a worksAt $c $b worksAt $c $a != $b }",
        "$why: String",
    )
    assert isinstance(found, m.Insert)
    assert found.pattern is not None
    assert [v.name for v in found.pattern.binds] == ["a", "c", "b"]
    src, dst, label = found.values
    assert [v.value.name for v in (src, dst) if isinstance(v.value, terms.Property)] == ["id", "id"]
    assert isinstance(label.value, terms.Function)


def test_returning_gives_columns() -> None:
    found = checked('query q() { update Knows set { weight: 1.0 } where from = "a" returning { * } }')
    assert [c.name for c in found.columns] == ["id", "from", "to", "since", "weight", "label"]
    found = checked("query q() { delete Person where true returning { id, lower(name) as low, age + 1 } }")
    assert [(c.name, str(c.type)) for c in found.columns] == [("id", "String"), ("low", "String"), ("age + 1", "I64?")]


def test_the_last_statement_that_returns_gives_the_result() -> None:
    found = checked("query q() { delete Note where true returning { id } delete City where true }")
    assert [c.name for c in found.columns] == ["id"]
