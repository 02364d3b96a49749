"""Rows as a caller gives them: strict typing, defaults, ids, all problems at once."""

from __future__ import annotations

import math
from datetime import UTC, date, datetime, timedelta, timezone
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from omnigraph.errors import ConstraintViolation, UnknownProperty, UsageError
from omnigraph.language.schema.syntax.parse import parse_schema
from omnigraph.storage.lance.columns import arrow_schema
from omnigraph.storage.ulids import Ulids
from omnigraph.write.rows import rows_to_table, set_to_table, value_array

SCHEMA = parse_schema(
    """
    node All {
      s: String?  b: Bool?  i: I32?  l: I64?  u: U32?  w: U64?  f: F32?  d: F64?
      day: Date?  at: DateTime?  e: enum(x, y)?  blob: Blob?  v: Vector(2)?
      tags: [String]?  days: [Date]?  nums: [I32]?
    }
    node Person { name: String @key  age: I32  city: String @default("Bern")  nick: String? @default("none") }
    node Visit { who: String  day: Date  @key(who, day) }
    edge Knows: Person -> Person { since: Date? }
    edge Spans: Person -> Person { from: Date?  to: Date? }
    """
)
ALL, PERSON, VISIT = (SCHEMA.node[n] for n in ("All", "Person", "Visit"))
KNOWS, SPANS = (SCHEMA.edge[n] for n in ("Knows", "Spans"))

GOOD: list[tuple[str, object, object]] = [
    ("s", "é", "é"),
    ("b", True, True),
    ("b", np.bool_(False), False),
    ("i", -(2**31), -(2**31)),
    ("i", np.int64(5), 5),
    ("l", 2**53 + 1, 2**53 + 1),
    ("w", 2**64 - 1, 2**64 - 1),
    ("f", 0.1, float(np.float32(0.1))),
    ("f", 3, 3.0),
    ("d", 2**60 + 1, float(2**60)),
    ("d", np.float32(0.5), 0.5),
    ("day", date(2024, 2, 29), date(2024, 2, 29)),
    ("day", "2024-02-29", date(2024, 2, 29)),
    ("at", datetime(2024, 1, 1, 12), datetime(2024, 1, 1, 12, tzinfo=UTC)),
    ("at", datetime(2024, 1, 1, 12, tzinfo=timezone(timedelta(hours=2))), datetime(2024, 1, 1, 10, tzinfo=UTC)),
    ("at", datetime(1969, 12, 31, 23, 59, 59, 999_999), datetime(1969, 12, 31, 23, 59, 59, 999_000, UTC)),
    ("at", "2024-01-01T12:00:00+02:00", datetime(2024, 1, 1, 10, tzinfo=UTC)),
    ("e", "x", "x"),
    ("e", "not a value", "not a value"),
    ("blob", b"\x00\xff", b"\x00\xff"),
    ("blob", bytearray(b"a"), b"a"),
    ("v", [1, 2.5], [1.0, 2.5]),
    ("v", (0.5, 1.5), [0.5, 1.5]),
    ("v", np.array([1.0, 2.0]), [1.0, 2.0]),
    ("v", np.array([1, 2], dtype=np.int8), [1.0, 2.0]),
    ("tags", ["a", "b"], ["a", "b"]),
    ("tags", [], []),
    ("days", ["2024-01-01", date(2024, 1, 2)], [date(2024, 1, 1), date(2024, 1, 2)]),
    ("nums", np.array([1, 2]), [1, 2]),
    ("s", None, None),
    ("v", None, None),
]

BAD: list[tuple[str, object, str]] = [
    ("s", 1, "type"),
    ("s", b"x", "type"),
    ("s", "\ud800", "type"),
    ("b", 1, "type"),
    ("b", "true", "type"),
    ("i", 1.5, "type"),
    ("i", 1.0, "type"),
    ("i", True, "type"),
    ("i", "1", "type"),
    ("i", 2**31, "type"),
    ("u", -1, "type"),
    ("w", 2**64, "type"),
    ("l", 10**400, "type"),
    ("f", True, "type"),
    ("f", 1e39, "type"),
    ("f", "1.5", "type"),
    ("d", math.nan, "type"),
    ("d", math.inf, "type"),
    ("d", 10**400, "type"),
    ("day", datetime(2024, 1, 1), "type"),
    ("day", 19000, "type"),
    ("day", "2023-02-29", "type"),
    ("at", date(2024, 1, 1), "type"),
    ("at", "yesterday", "type"),
    ("at", datetime(1, 1, 1, tzinfo=timezone(timedelta(hours=2))), "type"),
    ("blob", "AAAA", "type"),
    ("e", 3, "type"),
    ("v", [1.0], "vector"),
    ("v", [1.0, 2.0, 3.0], "vector"),
    ("v", [1.0, None], "vector"),
    ("v", [1.0, math.nan], "vector"),
    ("v", [1.0, 1e39], "vector"),
    ("v", [1.0, True], "vector"),
    ("v", [1.0, "2"], "vector"),
    ("v", "12", "vector"),
    ("v", np.array([[1.0, 2.0]]), "vector"),
    ("tags", ["a", None], "list"),
    ("tags", ["a", 1], "list"),
    ("tags", "ab", "type"),
    ("nums", [1, 1.5], "list"),
    ("nums", [[1]], "list"),
]


@pytest.mark.parametrize(("name", "value", "stored"), GOOD)
def test_a_value_of_the_right_type_is_stored_as_it_is(name: str, value: object, stored: object) -> None:
    table = rows_to_table(ALL, [{name: value}, {}]).checked()
    assert table.schema == arrow_schema(ALL)
    assert table.column(name).to_pylist() == [stored, None]


@pytest.mark.parametrize(("name", "value", "rule"), BAD)
def test_a_value_of_another_type_is_refused_and_told(name: str, value: object, rule: str) -> None:
    typed = rows_to_table(ALL, [{}, {name: value}])
    assert typed.table.num_rows == 1
    assert typed.positions.tolist() == [0]
    [violation] = typed.violations
    assert (violation.rule, violation.row, violation.property) == (rule, 1, name)
    assert violation.message.startswith(f"{name}: ")


def test_an_integer_too_long_to_print_is_refused_like_any_other() -> None:
    assert [v.rule for v in rows_to_table(ALL, [{"l": 10**5000}, {"d": 10**5000}]).violations] == ["type", "type"]


def test_an_unknown_property_is_an_error_that_suggests_the_right_one() -> None:
    with pytest.raises(UnknownProperty) as caught:
        rows_to_table(PERSON, [{"name": "a", "agee": 1}])
    assert caught.value.fields == {"table_key": "node:Person", "property": "agee", "suggestion": "age"}
    assert "Did you mean 'age'?" in caught.value.remedy


def test_a_field_name_that_is_no_text_is_an_unknown_property() -> None:
    rows: Any = [{"name": "a", "age": 1, 5: 1}]
    with pytest.raises(UnknownProperty):
        rows_to_table(PERSON, rows)
    with pytest.raises(UnknownProperty):
        rows_to_table(PERSON, [{"name": "a", "\ud800": 1}])


def test_an_absent_property_takes_its_default_and_null_stays_null() -> None:
    table = rows_to_table(PERSON, [{"name": "a", "age": 1}, {"name": "b", "age": 1, "nick": None}]).checked()
    assert table.column("city").to_pylist() == ["Bern", "Bern"]
    assert table.column("nick").to_pylist() == ["none", None]


def test_all_problems_of_all_rows_are_told_at_once_with_the_ids_that_are_known() -> None:
    typed = rows_to_table(PERSON, [{"name": "a"}, {"name": 3, "age": "x"}, {"name": "c", "age": 1, "city": None}])
    told = [(v.row, v.rule, v.property, v.entity_id) for v in typed.violations]
    assert told == [
        (0, "null", "age", "a"),
        (1, "type", "name", None),
        (1, "type", "age", None),
        (2, "null", "city", "c"),
    ]
    with pytest.raises(ConstraintViolation) as caught:
        typed.checked()
    assert caught.value.fields["count"] == 4


def test_no_more_than_twenty_violations_are_shown_but_all_are_counted() -> None:
    with pytest.raises(ConstraintViolation) as caught:
        rows_to_table(PERSON, [{"name": f"n{i}"} for i in range(30)]).checked()
    assert caught.value.fields["count"] == 30
    assert len(caught.value.fields["violations"]) == 20
    assert "… and 10 more" in caught.value.message


def test_a_keyed_node_gets_its_canonical_id_and_may_only_bring_that_one() -> None:
    rows = [{"who": "a", "day": "1970-01-02"}, {"who": "a", "day": "1970-01-02", "id": '["a","1"]'}]
    assert rows_to_table(VISIT, rows).checked().column("id").to_pylist() == ['["a","1"]'] * 2
    [violation] = rows_to_table(VISIT, [{"who": "a", "day": "1970-01-02", "id": "a"}]).violations
    assert (violation.rule, violation.entity_id) == ("id", '["a","1"]')


def test_entities_without_a_key_get_ulids_unless_they_bring_an_id() -> None:
    ids = rows_to_table(ALL, [{}, {"id": "mine"}, {}]).checked().column("id").to_pylist()
    assert ids[1] == "mine"
    assert len(ids[0]) == 26
    assert ids[0] < ids[2]
    [violation] = rows_to_table(ALL, [{"id": 7}]).violations
    assert violation.rule == "id"


def test_an_edge_needs_both_endpoints() -> None:
    table = rows_to_table(KNOWS, [{"from": "a", "to": "b"}, {"src": "c", "dst": "d", "id": "e1"}]).checked()
    assert table.select(["src", "dst"]).to_pylist() == [{"src": "a", "dst": "b"}, {"src": "c", "dst": "d"}]
    typed = rows_to_table(KNOWS, [{"from": "a"}, {"from": 1, "to": "b"}, {"from": "a", "src": "z", "to": "b"}])
    assert [(v.row, v.rule, v.property) for v in typed.violations] == [
        (0, "endpoint", "to"),
        (1, "endpoint", "from"),
        (2, "endpoint", None),
    ]


def test_an_edge_type_with_a_property_named_from_takes_src_and_dst() -> None:
    table = rows_to_table(SPANS, [{"src": "a", "dst": "b", "from": "2024-01-01", "to": None}]).checked()
    assert table.column("from").to_pylist() == [date(2024, 1, 1)]
    assert {v.rule for v in rows_to_table(SPANS, [{"from": "2024-01-01"}]).violations} == {"endpoint"}


def test_a_row_that_is_no_mapping_is_told() -> None:
    rows: Any = [["name", "a"]]
    assert rows_to_table(PERSON, rows).violations[0].rule == "record"


ARROW_GOOD: list[tuple[str, pa.Array, list[object]]] = [
    ("s", pa.array(["a", None], pa.large_string()), ["a", None]),
    ("s", pa.array(["a", "a"]).dictionary_encode(), ["a", "a"]),
    ("i", pa.array([1, None], pa.int64()), [1, None]),
    ("w", pa.array([1, 2], pa.int8()), [1, 2]),
    ("f", pa.array([0.1, 3.0], pa.float64()), [float(np.float32(0.1)), 3.0]),
    ("d", pa.array([1, 2], pa.int32()), [1.0, 2.0]),
    ("day", pa.array(["2024-01-01", None]), [date(2024, 1, 1), None]),
    (
        "at",
        pa.array([1, -1], pa.timestamp("us")),
        [datetime(1970, 1, 1, tzinfo=UTC), datetime(1969, 12, 31, 23, 59, 59, 999_000, UTC)],
    ),
    ("at", pa.array([1, None], pa.timestamp("s", "Europe/Bern")), [datetime(1970, 1, 1, 0, 0, 1, tzinfo=UTC), None]),
    ("blob", pa.array([b"a", None], pa.binary()), [b"a", None]),
    ("v", pa.array([[1.0, 2.0], None], pa.list_(pa.float64())), [[1.0, 2.0], None]),
    ("v", pa.array([None, [1.0, 2.0]], pa.list_(pa.float32(), 2)), [None, [1.0, 2.0]]),
    ("tags", pa.array([["a"], None], pa.large_list(pa.string())), [["a"], None]),
    ("nums", pa.array([[1], [2, 3]], pa.list_(pa.int64())), [[1], [2, 3]]),
    ("s", pa.nulls(2), [None, None]),
]


@pytest.mark.parametrize(("name", "column", "stored"), ARROW_GOOD)
def test_an_arrow_column_that_fits_is_taken(name: str, column: pa.Array, stored: list[object]) -> None:
    table = rows_to_table(ALL, pa.table({name: column})).checked()
    assert table.schema == arrow_schema(ALL)
    assert table.column(name).to_pylist() == stored
    table.validate(full=True)


ARROW_BAD: list[tuple[str, pa.Array, str, list[int | None]]] = [
    ("i", pa.array([1, 2**40, -(2**40)]), "type", [1, 2]),
    ("u", pa.array([-1, 2, None], pa.int32()), "type", [0]),
    ("l", pa.array([2**63, 1, 1], pa.uint64()), "type", [0]),
    ("i", pa.array([1.0, 2.0, 3.0]), "type", [None]),
    ("f", pa.array([1.0, math.nan, 1e39]), "type", [1, 2]),
    ("s", pa.array([1, 2, 3]), "type", [None]),
    ("b", pa.array([1, 0, 1]), "type", [None]),
    ("day", pa.array(["x", "2024-01-01", None]), "type", [0]),
    ("day", pa.array([10**7, 1, 1], pa.int32()).cast(pa.date32()), "type", [0]),
    ("at", pa.array([2**60, 0, 0], pa.timestamp("ms")), "type", [0]),
    ("at", pa.array([2**60, 0, 0], pa.timestamp("s")), "type", [0]),
    ("v", pa.array([[1.0], [1.0, 2.0], [1.0, None]], pa.list_(pa.float32())), "vector", [0, 2]),
    ("v", pa.array([[1.0, math.inf], None, [1.0, 2.0]], pa.list_(pa.float32(), 2)), "vector", [0]),
    ("tags", pa.array([["a", None], None, []], pa.list_(pa.string())), "list", [0]),
    ("blob", pa.array(["a", "b", "c"]), "type", [None]),
    ("days", pa.array([[1], [], [2, 10**7]], pa.list_(pa.int32())).cast(pa.list_(pa.date32())), "list", [2]),
]


@pytest.mark.parametrize(("name", "column", "rule", "rows"), ARROW_BAD)
def test_an_arrow_value_that_does_not_fit_is_told(
    name: str, column: pa.Array, rule: str, rows: list[int | None]
) -> None:
    typed = rows_to_table(ALL, pa.table({name: column}))
    assert [(v.rule, v.row) for v in typed.violations] == [(rule, row) for row in rows]
    kept = [] if rows == [None] else [i for i in range(3) if i not in rows]
    assert typed.positions.tolist() == kept
    typed.table.validate(full=True)


def test_an_arrow_table_takes_defaults_and_makes_ids() -> None:
    table = rows_to_table(PERSON, pa.table({"name": ["a", "b"], "age": pa.array([1, 2])})).checked()
    assert table.column("id").to_pylist() == ["a", "b"]
    assert table.column("city").to_pylist() == ["Bern", "Bern"]
    edges = rows_to_table(KNOWS, pa.table({"from": ["a"], "to": ["b"]})).checked()
    assert edges.select(["src", "dst"]).to_pylist() == [{"src": "a", "dst": "b"}]


def test_what_a_read_returns_can_be_written_again() -> None:
    table = rows_to_table(ALL, [{"v": [1.0, 2.0], "tags": ["a"], "at": "2024-01-01", "id": "x"}]).checked()
    assert rows_to_table(ALL, table).checked().equals(table)
    assert rows_to_table(ALL, table.to_pylist()).checked().equals(table)


def test_an_arrow_table_that_is_not_valid_or_names_a_column_twice_is_wrong_usage() -> None:
    broken = pa.StringArray.from_buffers(1, pa.py_buffer(np.array([0, 1], np.int32)), pa.py_buffer(b"\xff"))
    with pytest.raises(UsageError):
        rows_to_table(ALL, pa.table({"s": broken}))
    with pytest.raises(UsageError):
        rows_to_table(ALL, pa.table([pa.array(["a"]), pa.array(["b"])], names=["s", "s"]))


def test_an_update_sets_values_and_refuses_key_id_null_and_wrong_type() -> None:
    old = rows_to_table(PERSON, [{"name": "a", "age": 1}, {"name": "b", "age": 2}]).checked()
    new = set_to_table(PERSON, {"age": 5, "nick": None}, old).checked()
    assert new.column("age").to_pylist() == [5, 5]
    assert new.column("nick").to_pylist() == [None, None]
    assert new.column("id").equals(old.column("id"))
    for changes, rule in [
        ({"name": "c"}, "key"),
        ({"id": "c"}, "key"),
        ({"age": None}, "null"),
        ({"age": "x"}, "type"),
    ]:
        assert [v.rule for v in set_to_table(PERSON, changes, old).violations] == [rule]
    with pytest.raises(UnknownProperty):
        set_to_table(PERSON, {"agee": 1}, old)


def test_an_edge_can_be_moved_by_an_update() -> None:
    old = rows_to_table(KNOWS, [{"from": "a", "to": "b"}]).checked()
    assert set_to_table(KNOWS, {"to": "c"}, old).checked().column("dst").to_pylist() == ["c"]


def test_values_to_look_up_are_typed_like_the_column() -> None:
    assert value_array(PERSON, "age", [1]).type == pa.int32()
    assert value_array(KNOWS, "from", ["a"]).to_pylist() == ["a"]
    with pytest.raises(ConstraintViolation):
        value_array(PERSON, "age", ["1"])
    with pytest.raises(UnknownProperty):
        value_array(PERSON, "src", ["1"])


def test_two_hundred_thousand_ids_take_little_time() -> None:
    assert len(Ulids.fresh().ids(np.arange(200_000))) == 200_000
