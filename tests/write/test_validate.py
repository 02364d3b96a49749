"""Every rule of the schema, on the delta only, against what the graph holds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from omnigraph.errors import ConstraintViolation, Violation
from omnigraph.language.schema.syntax.parse import parse_schema
from omnigraph.write.delta import TypeDelta, delta
from omnigraph.write.rows import rows_to_table
from omnigraph.write.validate import cascade, check, reject, settle, validate
from tests.write.memory import MemoryReader

SCHEMA = parse_schema(
    """
    node Person {
      name: String @key  email: String? @unique  age: I32?  level: F32?  big: U64?  mood: enum(good, bad)?
      first: String?  born: Date?
      @range(age, 0..150)  @range(level, 0.1..0.9)  @range(big, 1..)
      @check(email, "^[^@]+@[^@]+$")  @unique(first, born)
    }
    node City { name: String @key }
    edge Knows: Person -> Person @card(0..2) { note: String? @unique  @unique(src, dst) }
    edge Lives: Person -> City @card(1..1)
    """
)
FREE = parse_schema(
    """
    node Person { name: String @key  email: String? @unique  first: String?  born: Date?  @unique(first, born) }
    node City { name: String @key }
    edge Knows: Person -> Person @card(0..2) { @unique(src, dst) }
    edge Lives: Person -> City
    """
)

Rows = Sequence[Mapping[str, object]]


def change(
    schema: Any, name: str, rows: Rows = (), deleted: Sequence[str] = (), *, replaces_all: bool = False
) -> dict[str, TypeDelta]:
    t = schema.node.get(name) or schema.edge[name]
    ids = pa.array(list(deleted), pa.string())
    return {name: delta(t, rows=rows_to_table(t, rows).checked(), deleted=ids, replaces_all=replaces_all)}


def rules(violations: Sequence[Violation]) -> list[tuple[str, str | None, int | None]]:
    return [(v.rule, v.property, v.row) for v in violations]


# ---- rows ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("row", "rule", "message"),
    [
        ({"mood": "sad"}, "enum", "mood: 'sad' is not one of bad, good"),
        ({"age": 151}, "range", "age: 151 is not between 0 and 150"),
        ({"age": -1}, "range", "age: -1 is not between 0 and 150"),
        ({"big": 0}, "range", "big: 0 is below 1"),
        ({"level": 0.95}, "range", "level: 0.949999988079071 is not between 0.1 and 0.9"),
        ({"email": "x"}, "check", "email: 'x' does not match the pattern ^[^@]+@[^@]+$"),
    ],
)
def test_a_row_that_breaks_a_rule_of_its_own_is_told(row: dict[str, object], rule: str, message: str) -> None:
    found = check(FREE_OF_CARD, change(FREE_OF_CARD, "Person", [{"name": "a"}, {"name": "b", **row}]), EMPTY)
    assert [(v.rule, v.row, v.entity_id, v.message) for v in found] == [(rule, 1, "b", message)]


FREE_OF_CARD = parse_schema(SCHEMA.source.replace("@card(1..1)", "").replace("@card(0..2)", ""))
EMPTY = MemoryReader(FREE_OF_CARD)


def test_bounds_are_inclusive_and_compared_at_the_stored_width() -> None:
    rows = [{"name": "a", "age": 0, "level": 0.1, "big": 2**64 - 1}, {"name": "b", "age": 150, "level": 0.9, "big": 1}]
    assert check(FREE_OF_CARD, change(FREE_OF_CARD, "Person", rows), EMPTY) == []


def test_null_keeps_every_rule_of_values() -> None:
    assert check(FREE_OF_CARD, change(FREE_OF_CARD, "Person", [{"name": "a"}]), EMPTY) == []


def test_a_check_is_searched_for_as_python_does() -> None:
    schema = parse_schema(r'node A { s: String  @check(s, "z$|^\\w+ \\d") }')
    rows = [{"s": "abz"}, {"s": "b"}, {"s": "z "}, {"s": "é ٣"}, {"s": "éz!"}, {"s": "Ж é"}]
    found = check(schema, change(schema, "A", rows), MemoryReader(schema))
    assert rules(found) == [("check", "s", 1), ("check", "s", 2), ("check", "s", 4), ("check", "s", 5)]


def test_a_check_takes_time_in_proportion_to_the_text() -> None:
    schema = parse_schema('node A { s: String  @check(s, "^(a+)+$") }')
    found = check(schema, change(schema, "A", [{"s": "a" * 50_000 + "!"}]), MemoryReader(schema))
    assert rules(found) == [("check", "s", 0)]


def test_a_pattern_of_an_earlier_release_that_can_not_be_run_lets_no_value_through() -> None:
    schema = parse_schema('node A { n: I32  s: String?  @check(s, "b") }')
    (node,) = schema.nodes
    old = replace(schema, nodes=(replace(node, constraints=(replace(node.constraints[0], pattern="(?=.*z)b"),)),))
    found = check(old, change(old, "A", [{"n": 1, "s": "bz"}, {"n": 2}]), MemoryReader(old))
    assert rules(found) == [("check", "s", 0)]
    assert "remove it from the schema. Lookaround" in found[0].message


@pytest.mark.parametrize(
    ("bounds", "value", "is_good"),
    [
        ("1.5..", 1, False),
        ("1.5..", 2, True),
        ("..9007199254740993", 9007199254740993, True),
        ("..9007199254740992", 9007199254740993, False),
        ("-5..5", -5, True),
        ("..-1", 3, False),
    ],
)
def test_a_range_on_integers_is_exact(bounds: str, value: int, is_good: bool) -> None:
    schema = parse_schema(f"node A {{ n: I64  @range(n, {bounds}) }}")
    found = check(schema, change(schema, "A", [{"n": value}]), MemoryReader(schema))
    assert (found == []) is is_good


def test_a_range_that_no_value_of_the_type_can_keep_refuses_all() -> None:
    schema = parse_schema("node A { n: U32?  @range(n, ..-1) }")
    found = check(schema, change(schema, "A", [{"n": 0}, {"n": None}]), MemoryReader(schema))
    assert rules(found) == [("range", "n", 0)]


def test_validate_names_entities_and_not_indices_of_the_delta() -> None:
    deltas = change(FREE_OF_CARD, "Person", [{"name": "a"}, {"name": "b", "age": -1}])
    assert [(v.entity_id, v.row) for v in validate(FREE_OF_CARD, deltas, EMPTY)] == [("b", None)]


# ---- unique ----------------------------------------------------------------------------------------------------------


def free(rows: Mapping[str, Rows]) -> MemoryReader:
    return MemoryReader(FREE, rows)


def test_a_unique_value_twice_in_one_write_is_told_of_the_later_row() -> None:
    rows = [{"name": n, "email": e} for n, e in [("a", "x@y"), ("b", "x@y"), ("c", None), ("d", None)]]
    found = check(FREE, change(FREE, "Person", rows), free({}))
    assert rules(found) == [("unique", "email", 1)]
    assert found[0].message == "email: 'x@y' is also held by 'a' in the same write"


def test_a_unique_value_that_another_entity_holds_is_told_with_its_id() -> None:
    reader = free({"Person": [{"name": "a", "email": "x@y"}]})
    found = check(FREE, change(FREE, "Person", [{"name": "b", "email": "x@y"}]), reader)
    assert [(v.rule, v.message) for v in found] == [("unique", "email: 'x@y' is held by 'a'")]


def test_rewriting_an_entity_with_its_own_unique_value_is_no_violation() -> None:
    reader = free({"Person": [{"name": "a", "email": "x@y"}]})
    assert check(FREE, change(FREE, "Person", [{"name": "a", "email": "x@y"}]), reader) == []


def test_a_value_freed_in_the_same_write_can_be_taken() -> None:
    reader = free({"Person": [{"name": "a", "email": "x@y"}, {"name": "b", "email": "b@y"}]})
    swapped = [{"name": "a", "email": "b@y"}, {"name": "b", "email": "x@y"}]
    assert check(FREE, change(FREE, "Person", swapped), reader) == []
    taken = change(FREE, "Person", [{"name": "c", "email": "x@y"}], ["a"])
    assert check(FREE, taken, reader) == []
    assert check(FREE, change(FREE, "Person", [{"name": "c", "email": "x@y"}], replaces_all=True), reader) == []


def test_a_unique_tuple_collides_only_as_a_whole_also_on_dates() -> None:
    reader = free({"Person": [{"name": "a", "first": "x", "born": "2000-01-01"}]})
    rows = [
        {"name": "b", "first": "x", "born": "2000-01-02"},
        {"name": "c", "first": "y", "born": "2000-01-01"},
        {"name": "d", "first": "x", "born": None},
        {"name": "e", "first": "x", "born": "2000-01-01"},
    ]
    found = check(FREE, change(FREE, "Person", rows), reader)
    assert rules(found) == [("unique", "first, born", 3)]


def test_unique_endpoints_of_edges_are_checked() -> None:
    reader = free({"Person": [{"name": "a"}, {"name": "b"}], "Knows": [{"from": "a", "to": "b"}]})
    found = check(FREE, change(FREE, "Knows", [{"from": "a", "to": "b"}, {"from": "b", "to": "a"}]), reader)
    assert rules(found) == [("unique", "src, dst", 0)]


def test_zero_and_negative_zero_are_one_unique_value() -> None:
    schema = parse_schema("node A { x: F64? @unique }")
    reader = MemoryReader(schema, {"A": [{"x": -0.0}]})
    assert rules(check(schema, change(schema, "A", [{"x": 0.0}]), reader)) == [("unique", "x", 0)]


# ---- endpoints -------------------------------------------------------------------------------------------------------


def test_an_edge_needs_nodes_that_are_there_or_come_with_it() -> None:
    reader = free({"Person": [{"name": "a"}]})
    deltas = change(FREE, "Person", [{"name": "b"}]) | change(
        FREE, "Knows", [{"from": "a", "to": "b"}, {"from": "a", "to": "nobody"}, {"from": "Bern", "to": "a"}]
    )
    found = check(FREE, deltas | change(FREE, "City", [{"name": "Bern"}]), reader)
    assert sorted(rules(found)) == [("endpoint", "from", 2), ("endpoint", "to", 1)]
    assert "to: there is no Person 'nobody'" in {v.message for v in found}


def test_an_edge_to_a_node_that_goes_away_in_the_same_write_is_refused() -> None:
    reader = free({"Person": [{"name": "a"}, {"name": "b"}]})
    deltas = change(FREE, "Person", deleted=["b"]) | change(FREE, "Knows", [{"from": "a", "to": "b"}])
    assert rules(check(FREE, deltas, reader)) == [("endpoint", "to", 0)]


def test_removing_a_node_under_a_kept_edge_names_the_edge() -> None:
    people = [{"name": "a"}, {"name": "b"}]
    reader = free({"Person": people, "Knows": [{"from": "a", "to": "b", "id": "e1"}]})
    for deltas in (
        change(FREE, "Person", deleted=["b"]),
        change(FREE, "Person", [{"name": "a"}], replaces_all=True),
    ):
        found = check(FREE, deltas, reader)
        assert [(v.rule, v.table_key, v.entity_id, v.row) for v in found] == [("endpoint", "edge:Knows", "e1", None)]
    assert check(FREE, change(FREE, "Person", people, replaces_all=True), reader) == []
    both = change(FREE, "Person", [{"name": "a"}], replaces_all=True) | change(FREE, "Knows", replaces_all=True)
    assert check(FREE, both, reader) == []


def test_deleting_a_node_takes_its_edges_along() -> None:
    reader = free(
        {
            "Person": [{"name": n} for n in "abc"],
            "City": [{"name": "Bern"}],
            "Knows": [
                {"from": "a", "to": "b", "id": "out"},
                {"from": "b", "to": "a", "id": "in"},
                {"from": "a", "to": "a", "id": "loop"},
                {"from": "b", "to": "c", "id": "kept"},
            ],
            "Lives": [{"from": "a", "to": "Bern", "id": "home"}],
        }
    )
    deltas = cascade(FREE, change(FREE, "Person", deleted=["a"]), reader)
    assert sorted(deltas["Knows"].deleted.to_pylist()) == ["in", "loop", "out"]
    assert deltas["Lives"].deleted.to_pylist() == ["home"]
    assert check(FREE, deltas, reader) == []


# ---- cardinality -----------------------------------------------------------------------------------------------------


def housed(*names: str, knows: Rows = ()) -> MemoryReader:
    return MemoryReader(
        SCHEMA,
        {
            "City": [{"name": "Bern"}, {"name": "Rome"}],
            "Person": [{"name": n} for n in names],
            "Lives": [{"from": n, "to": "Bern", "id": f"home-{n}"} for n in names],
            "Knows": knows,
        },
    )


def test_too_many_edges_are_told_of_the_edges_beyond_the_limit() -> None:
    reader = housed("a", "b", "c", "d", knows=[{"from": "a", "to": "b", "id": "k1"}])
    edges = [{"from": "a", "to": "c"}, {"from": "b", "to": "c"}, {"from": "a", "to": "d"}, {"from": "a", "to": "a"}]
    found = check(SCHEMA, change(SCHEMA, "Knows", edges), reader)
    assert rules(found) == [("cardinality", "from", 2), ("cardinality", "from", 3)]
    assert found[0].message == "Person 'a' has 4 Knows edges, at most 2 allowed"


def test_rewriting_or_deleting_edges_makes_room() -> None:
    two = [{"from": "a", "to": "b", "id": "k1"}, {"from": "a", "to": "c", "id": "k2"}]
    reader = housed("a", "b", "c", "d", knows=two)
    assert check(SCHEMA, change(SCHEMA, "Knows", [{"from": "a", "to": "d", "id": "k2"}]), reader) == []
    assert check(SCHEMA, change(SCHEMA, "Knows", [{"from": "a", "to": "d"}], ["k1"]), reader) == []
    assert rules(check(SCHEMA, change(SCHEMA, "Knows", [{"from": "a", "to": "d"}]), reader)) == [
        ("cardinality", "from", 0)
    ]


def test_a_new_node_needs_its_edges_in_the_same_write() -> None:
    reader = housed("a")
    person = change(SCHEMA, "Person", [{"name": "a", "age": 1}, {"name": "b"}])
    found = check(SCHEMA, person, reader)
    assert [(v.rule, v.table_key, v.row, v.entity_id) for v in found] == [("cardinality", "node:Person", 1, "b")]
    assert found[0].message == "Person 'b' has 0 Lives edges, at least 1 needed"
    assert check(SCHEMA, person | change(SCHEMA, "Lives", [{"from": "b", "to": "Bern"}]), reader) == []


def test_deleting_below_the_minimum_is_refused_unless_the_source_goes_too() -> None:
    reader = housed("a", "b")
    found = check(SCHEMA, change(SCHEMA, "Lives", deleted=["home-a"]), reader)
    assert [(v.rule, v.row, v.message) for v in found] == [
        ("cardinality", None, "Person 'a' has 0 Lives edges, at least 1 needed")
    ]
    assert check(SCHEMA, cascade(SCHEMA, change(SCHEMA, "Person", deleted=["a"]), reader), reader) == []
    swapped = change(SCHEMA, "Lives", [{"from": "a", "to": "Rome"}], ["home-a"])
    assert check(SCHEMA, swapped, reader) == []


def test_a_moved_edge_is_counted_anew_at_the_source_it_left() -> None:
    reader = housed("a", "b")
    moved = change(SCHEMA, "Lives", [{"from": "b", "to": "Rome", "id": "home-a"}])
    found = check(SCHEMA, moved, reader)
    assert sorted((v.rule, v.row, v.message) for v in found) == [
        ("cardinality", 0, "Person 'a' has 0 Lives edges, at least 1 needed"),
        ("cardinality", 0, "Person 'b' has 2 Lives edges, at most 1 allowed"),
    ]


def test_overwriting_edges_counts_all_sources_that_had_some() -> None:
    reader = housed("a", "b")
    found = check(SCHEMA, change(SCHEMA, "Lives", [{"from": "a", "to": "Rome"}], replaces_all=True), reader)
    assert [v.message for v in found] == ["Person 'b' has 0 Lives edges, at least 1 needed"]


# ---- settle ----------------------------------------------------------------------------------------------------------


def test_settling_takes_out_bad_rows_and_what_they_orphan() -> None:
    reader = housed("a")
    deltas = (
        change(SCHEMA, "Person", [{"name": "b"}, {"name": "c", "age": 999}])
        | change(SCHEMA, "Lives", [{"from": "b", "to": "Bern"}, {"from": "c", "to": "Bern"}])
        | change(SCHEMA, "Knows", [{"from": "b", "to": "c"}, {"from": "a", "to": "b"}])
    )
    kept, rejected = settle(SCHEMA, deltas, reader)
    assert [(v.table_key, v.row, v.rule, v.message) for v in rejected] == [
        ("node:Person", 1, "range", "age: 999 is not between 0 and 150"),
        ("edge:Lives", 1, "endpoint", "from: Person 'c' was rejected"),
        ("edge:Knows", 0, "endpoint", "to: Person 'c' was rejected"),
    ]
    assert kept["Person"].ids.to_pylist() == ["b"]
    assert kept["Knows"].rows.num_rows == 1
    assert check(SCHEMA, kept, reader) == []


def test_settling_goes_on_until_nothing_is_orphaned() -> None:
    """A city that is refused leaves its inhabitant without a home, who goes, too, and then whoever knows them."""
    schema = parse_schema(
        SCHEMA.source.replace(
            "node City { name: String @key }", "node City { name: String @key  n: I32?  @range(n, 0..) }"
        )
    )
    reader = MemoryReader(schema, {"City": [{"name": "Bern"}]})
    deltas = (
        change(schema, "City", [{"name": "Oz", "n": -1}])
        | change(schema, "Person", [{"name": "a"}, {"name": "b"}])
        | change(schema, "Lives", [{"from": "a", "to": "Oz"}, {"from": "b", "to": "Bern"}])
        | change(schema, "Knows", [{"from": "b", "to": "a"}])
    )
    kept, rejected = settle(schema, deltas, reader)
    assert [(v.table_key, v.rule) for v in rejected] == [
        ("node:City", "range"),
        ("edge:Lives", "endpoint"),
        ("node:Person", "cardinality"),
        ("edge:Knows", "endpoint"),
    ]
    assert {name: d.rows.num_rows for name, d in kept.items()} == {"City": 0, "Person": 1, "Lives": 1, "Knows": 0}


def test_what_no_row_is_to_blame_for_can_not_be_settled() -> None:
    reader = free({"Person": [{"name": "a"}], "Knows": [{"from": "a", "to": "a"}]})
    with pytest.raises(ConstraintViolation):
        settle(FREE, change(FREE, "Person", [{"name": "b"}], replaces_all=True), reader)


def test_rejecting_keeps_the_first_reason_of_each_row() -> None:
    deltas = change(FREE, "Person", [{"name": "a"}, {"name": "b"}])
    told = [Violation("range", "node:Person", "one", row=1), Violation("check", "node:Person", "two", row=1)]
    kept, rejected = reject(deltas, told)
    assert kept["Person"].ids.to_pylist() == ["a"]
    assert rejected == told[:1]


# ---- against a plain model -------------------------------------------------------------------------------------------

NAMES = st.sampled_from(["a", "b", "c"])
IDS = st.sampled_from(["e1", "e2", "e3", "e4"])
PEOPLE = st.lists(
    st.fixed_dictionaries(
        {"name": NAMES},
        optional={"email": st.sampled_from(["x@y", "z@y", None]), "first": NAMES, "born": st.just("2000-01-01")},
    ),
    max_size=3,
    unique_by=lambda row: str(row["name"]),
)
HOMES = st.lists(
    st.fixed_dictionaries({"from": NAMES, "to": st.sampled_from(["Bern", "Rome"]), "id": IDS}),
    max_size=4,
    unique_by=lambda row: str(row["id"]),
)
FRIENDS = st.lists(
    st.fixed_dictionaries({"from": NAMES, "to": NAMES, "id": IDS}), max_size=4, unique_by=lambda row: str(row["id"])
)
MODEL = parse_schema(FREE.source.replace("edge Lives: Person -> City", "edge Lives: Person -> City @card(1..2)"))


def is_valid(state: MemoryReader) -> bool:
    """All rules, the slow and plain way, on a whole graph."""
    people, homes, friends = (state.tables[n].to_pylist() for n in ("Person", "Lives", "Knows"))
    names = {p["id"] for p in people}
    cities = {c["id"] for c in state.tables["City"].to_pylist()}
    emails = [p["email"] for p in people if p["email"] is not None]
    births = [(p["first"], p["born"]) for p in people if p["first"] is not None and p["born"] is not None]
    pairs = [(k["src"], k["dst"]) for k in friends]
    return (
        all(len(values) == len(set(values)) for values in (emails, births, pairs))
        and all(h["src"] in names and h["dst"] in cities for h in homes)
        and all(k["src"] in names and k["dst"] in names for k in friends)
        and all(1 <= sum(h["src"] == n for h in homes) <= 2 for n in names)
        and all(sum(k["src"] == n for k in friends) <= 2 for n in names)
    )


@settings(max_examples=200, deadline=None)
@given(data=st.data(), people=PEOPLE, homes=HOMES, friends=FRIENDS)
def test_a_write_to_a_valid_graph_is_refused_exactly_when_the_result_would_be_invalid(
    data: st.DataObject, people: Rows, homes: Rows, friends: Rows
) -> None:
    cities = {"City": [{"name": "Bern"}, {"name": "Rome"}]}
    committed = MemoryReader(MODEL, cities | {"Person": people, "Lives": homes, "Knows": friends})
    if not is_valid(committed):
        # Half of the random graphs are not valid: start from an empty one then.
        committed = MemoryReader(MODEL, cities)
    deltas: dict[str, TypeDelta] = {}
    for name, rows, ids in (("Person", PEOPLE, NAMES), ("Lives", HOMES, IDS), ("Knows", FRIENDS, IDS)):
        given_rows = data.draw(rows, label=name)
        taken = {row["id"] if "id" in row else row["name"] for row in given_rows}
        gone = [i for i in data.draw(st.lists(ids, unique=True), label=f"delete {name}") if i not in taken]
        whole = data.draw(st.booleans(), label=f"overwrite {name}") and data.draw(st.booleans())
        deltas |= change(MODEL, name, given_rows, () if whole else gone, replaces_all=whole)
    found = check(MODEL, deltas, committed)
    assert (found == []) == is_valid(committed.applied(deltas)), found
    try:
        kept, _ = settle(MODEL, deltas, committed)
    except ConstraintViolation:
        return
    assert check(MODEL, kept, committed) == []
    assert is_valid(committed.applied(kept))
