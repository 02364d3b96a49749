"""Reading a type as Arrow: the logical columns, filters that mean what they say, states of the past."""

from __future__ import annotations

from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import omnigraph as og
from omnigraph.errors import ConstraintViolation, InvalidFilter, UnknownProperty, UnknownType, UsageError

SCHEMA = """
node Thing {
  name: String @key
  firstName: String?
  select: I32?
  date: Date?
  in: String?
  i64: I64?
  u32: U32?
  u64: U64?
  f32: F32?
  f64: F64?
  flag: Bool?
  at: DateTime?
  mood: enum(good, bad)?
  body: Blob?
  tags: [String]?
  v: Vector(2)?
}
edge Likes: Thing -> Thing { since: Date? }
"""
EDGES_OF_TYPES: dict[str, list[Any]] = {
    "name": ["plain", "it's", 'say "hi"', "back\\slash", "Zoë 😀", "a%_b", "nul\x00byte", "`tick`", "; drop"],
    "firstName": ["A", "b", None, "", "A", "b", "c", "d", "e"],
    "select": [1, -(2**31), 2**31 - 1, None, 0, 5, 6, 7, 8],
    "date": [date(1, 1, 1), date(9999, 12, 31), None, date(1970, 1, 1), date(1969, 12, 31), *[date(2024, 2, 29)] * 4],
    "in": ["x", None, "y", "", "z", "x", "x", "x", "x"],
    "i64": [-(2**63), 2**63 - 1, None, 0, -1, 1, 2, 3, 4],
    "u32": [2**32 - 1, 2**31, None, 0, 1, 2, 3, 4, 5],
    "u64": [2**64 - 1, 2**63, None, 0, 1, 2, 3, 4, 5],
    "f32": [0.1, -0.0, None, 0.0, 1e-30, 3.4e38, -1.5, 1.5, 2.5],
    "f64": [0.1, -0.0, None, 0.0, 5e-324, 1.7e308, -1.5, 1.5, 2.5],
    "flag": [True, False, None, True, False, True, False, True, False],
    "at": [
        datetime(1, 1, 1, tzinfo=UTC),
        datetime(9999, 12, 31, 23, 59, 59, 999_000, tzinfo=UTC),
        None,
        datetime(1969, 12, 31, 23, 59, 59, 999_000, tzinfo=UTC),
        *[datetime(2024, 2, 29, 1, 2, 3, 4000, tzinfo=UTC)] * 5,
    ],
    "mood": ["good", "bad", None, "good", "bad", "good", "bad", "good", "bad"],
}
COUNT = len(EDGES_OF_TYPES["name"])


@pytest.fixture(scope="module")
def things(tmp_path_factory: pytest.TempPathFactory) -> og.Graph:
    graph = og.init(tmp_path_factory.mktemp("things") / "graph", SCHEMA)
    rows = [{name: values[i] for name, values in EDGES_OF_TYPES.items()} for i in range(COUNT)]
    rows[0] |= {"body": b"\x00\xff" * 3, "tags": ["a", "b"], "v": [1.0, 2.0]}
    graph.insert({"Thing": rows, "Likes": [{"from": "plain", "to": "it's", "since": date(2020, 1, 1)}]})
    return graph


def names(found: pa.Table) -> set[str]:
    return set(found["name"].to_pylist())


def test_columns_are_the_logical_ones_in_the_order_of_the_schema(things: og.Graph) -> None:
    found = things.nodes("Thing")
    assert found.column_names == ["id", *EDGES_OF_TYPES, "body", "tags", "v"]
    assert found.num_rows == COUNT
    assert found.schema.field("v").type == pa.list_(pa.float32(), 2)
    assert found.schema.field("at").type == pa.timestamp("ms", tz="UTC")
    first = found.slice(0, 1).to_pylist()[0]
    assert (first["body"], first["tags"], first["v"]) == (b"\x00\xff" * 3, ["a", "b"], [1.0, 2.0])
    assert found["body"].null_count == COUNT - 1
    edges = things.edges("Likes")
    assert edges.column_names == ["id", "src", "dst", "since"]
    assert edges.select(["src", "dst"]).to_pylist() == [{"src": "plain", "dst": "it's"}]
    assert things.nodes("Thing", columns=["v", "id"], limit=2).column_names == ["v", "id"]


@pytest.mark.parametrize("column", EDGES_OF_TYPES)
def test_a_value_finds_exactly_the_rows_that_hold_it(things: og.Graph, column: str) -> None:
    keys, values = EDGES_OF_TYPES["name"], EDGES_OF_TYPES[column]
    for value in values:
        expected = {key for key, other in zip(keys, values, strict=True) if other == value}
        assert names(things.nodes("Thing", where={column: value})) == expected, value


def test_values_of_several_properties_hold_together(things: og.Graph) -> None:
    assert names(things.nodes("Thing", where={"flag": True, "mood": "good", "i64": None})) == set()
    assert names(things.nodes("Thing", where={"flag": True, "i64": 0})) == {"back\\slash"}
    assert things.nodes("Thing", where={}).num_rows == COUNT
    assert things.edges("Likes", where={"src": "plain", "since": "2020-01-01"}).num_rows == 1


@pytest.mark.parametrize(
    ("where", "expected"),
    [
        ("firstName = 'A' AND select < 10", {"plain", "Zoë 😀"}),
        ("select IN (1, 5) or `select` = 6", {"plain", "a%_b", "nul\x00byte"}),
        ("date = date '0001-01-01'", {"plain"}),
        ("date > date '1970-01-01' and date < cast('2024-03-01' as date)", {"a%_b", "nul\x00byte", "`tick`", "; drop"}),
        ("`in` = 'y'", {'say "hi"'}),
        ("name = 'it''s'", {"it's"}),
        ("name = 'select date'", set()),
        ("firstName is null", {'say "hi"'}),
        ("at = timestamp '2024-02-29T01:02:03.004Z' AND flag", {"a%_b", "`tick`"}),
        ("array_has(tags, 'b')", {"plain"}),
        ("name LIKE 'Zo%' -- a remark", {"Zoë 😀"}),
    ],
)
def test_a_filter_text_may_name_any_property(things: og.Graph, where: str, expected: set[str]) -> None:
    assert names(things.nodes("Thing", where=where)) == expected


@pytest.mark.parametrize(
    ("where", "told"),
    [
        ("nope = 1", "nope"),
        ("name = ", "expression"),
        ("name", "boolean"),
        ("", "expression"),
        ("name = 1", "literal"),
        ("name = 'plain'; drop", ";"),
        ("select / 0 = 1", "Divide by zero"),
        ("frobnicate(name)", "frobnicate"),
        ("name = 'open", ""),
    ],
)
def test_a_filter_that_is_wrong_is_named(things: og.Graph, where: str, told: str) -> None:
    with pytest.raises(InvalidFilter) as caught:
        things.nodes("Thing", where=where)
    assert repr(where) in str(caught.value)
    assert told in caught.value.fields["detail"]
    assert ".rs:" not in str(caught.value)


def test_a_wrong_filter_is_told_before_the_first_batch(things: og.Graph) -> None:
    with pytest.raises(InvalidFilter):
        things.scan("Thing", where="nope = 1")


def test_names_that_do_not_exist_come_with_a_suggestion(things: og.Graph) -> None:
    with pytest.raises(UnknownType, match="no node type named 'Thign'") as type_error:
        things.nodes("Thign")
    assert "Did you mean 'Thing'?" in type_error.value.remedy
    with pytest.raises(UnknownType) as kind_error:
        things.nodes("Likes")
    assert "graph.edges('Likes')" in kind_error.value.remedy
    with pytest.raises(UnknownProperty) as column_error:
        things.nodes("Thing", columns=["id", "moood"])
    assert column_error.value.fields["suggestion"] == "mood"
    with pytest.raises(UnknownProperty) as where_error:
        things.edges("Likes", where={"scr": "x"})
    assert where_error.value.fields["suggestion"] == "src"


def test_calls_that_mean_nothing_are_refused(things: og.Graph) -> None:
    for options in ({"columns": []}, {"columns": ["id", "id"]}, {"columns": "name"}, {"limit": -1}, {"where": 3}):
        with pytest.raises(UsageError):
            things.nodes("Thing", **options)  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="tags"):
        things.nodes("Thing", where={"tags": ["a"]})
    with pytest.raises(ConstraintViolation, match="expected I32"):
        things.nodes("Thing", where={"select": "1"})


def test_limit_takes_the_first_rows_and_none_of_them_if_it_is_zero(things: og.Graph) -> None:
    assert things.nodes("Thing", limit=3)["name"].to_pylist() == EDGES_OF_TYPES["name"][:3]
    assert things.nodes("Thing", limit=0).num_rows == 0
    assert things.nodes("Thing", limit=0).column_names[:2] == ["id", "name"]


def test_a_scan_comes_in_batches_and_keeps_its_snapshot(tmp_path: Path) -> None:
    graph = og.init(tmp_path / "graph", "node N { k: I64 @key }")
    graph.insert({"N": pa.table({"k": range(40_000)})})
    reader = graph.scan("N", where="k >= 10")
    graph.delete({"N": [str(k) for k in range(100)]})
    batches = list(reader)
    assert len(batches) > 1
    assert sum(b.num_rows for b in batches) == 39_990


def test_past_states_are_read_by_commit_by_time_and_by_branch(tmp_path: Path) -> None:
    graph = og.init(tmp_path / "graph", "node N { k: I64 @key }")
    first = graph.insert({"N": [{"k": 1}]}).commit
    assert first is not None
    graph.create_branch("side")
    graph.insert({"N": [{"k": 2}]})
    graph.insert({"N": [{"k": 3}]}, branch="side")

    def keys(**options: Any) -> list[int]:
        return sorted(graph.nodes("N", **options)["k"].to_pylist())

    assert keys() == [1, 2]
    assert keys(branch="side") == [1, 3]
    assert keys(commit=first.id) == [1]
    assert keys(as_of=first.created_at) == [1]
    assert keys(as_of=first.created_at.isoformat()) == [1]
