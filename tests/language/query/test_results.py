"""Columns, groups, order and limits: what a read returns."""

from __future__ import annotations

import pytest

from omnigraph.language.query import model as m
from omnigraph.language.query import operation, terms
from omnigraph.language.query.types import Type
from tests.language.query.texts import checked, read, read_text

P = "$p: Person $p knows $f"


def columns(rest: str, match: str = P) -> list[tuple[str, str]]:
    return [(c.name, str(c.type)) for c in read(match, rest).columns]


def test_columns_are_named_after_variable_and_property_unless_they_have_an_alias() -> None:
    assert columns("return { $p.name, $f.age as years, $p.age + 1, lower($f.name) }") == [
        ("p.name", "String"),
        ("years", "I32?"),
        ("p.age + 1", "I64?"),
        ("lower(f.name)", "String"),
    ]


def test_the_order_of_columns_is_kept() -> None:
    assert [name for name, _ in columns("return { $p.weight, $p.age, $p.name }")] == ["p.weight", "p.age", "p.name"]


def test_a_whole_node_is_an_object_of_its_properties_without_blobs_and_vectors() -> None:
    body = read(P, "return { $p }")
    value = body.columns[0].value
    assert isinstance(value, terms.Object)
    assert {"slug", "name", "tags"} <= set(value.properties)
    assert not {"photo", "vec"} & set(value.properties)


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("count($f)", "I64"),
        ("count(*)", "I64"),
        ("count(distinct $f.age)", "I64"),
        ("sum($f.age)", "I64?"),
        ("sum($f.visits)", "I64?"),
        ("sum($f.height)", "F64?"),
        ("avg($f.age)", "F64?"),
        ("min($f.born)", "Date?"),
        ("max($f.name)", "String?"),
        ("max($f.joined)", "DateTime?"),
        ("collect($f.name)", "[String]"),
        ("collect(distinct $f.status)", "[String]"),
        ("collect($f.born)", "[Date]"),
        ("sum($f.age) / count(*)", "F64?"),
        ("coalesce(sum($f.age), 0)", "I64"),
    ],
)
def test_types_of_aggregates(expression: str, expected: str) -> None:
    assert columns(f"return {{ $p.name, {expression} as x }}")[1] == ("x", expected)


def test_rows_are_grouped_by_the_columns_without_aggregates() -> None:
    body = read(P, "return { $p.name, count($f) as n, $p.age, max($f.age) + $p.age as m }")
    assert (body.aggregated, body.group, body.ties) == (True, (0, 2), ())


def test_an_aggregate_without_other_columns_has_one_group() -> None:
    body = read(P, "return { count($f) as n }")
    assert (body.aggregated, body.group) == (True, ())


def test_having_and_order_speak_of_columns_by_alias_or_by_repeating_them() -> None:
    rest = "return { $p.name, count($f) as n } having { n > 3 and count(distinct $f) > 1 } order { n desc, $p.name }"
    body = read(P, rest)
    assert isinstance(body.having, terms.And)
    first, second = body.having.operands
    assert isinstance(first, terms.Compare)
    assert first.left == terms.Output(1, Type("I64"))
    assert isinstance(second, terms.Compare)
    assert isinstance(second.left, terms.Aggregate)
    assert body.order == (m.Key(terms.Output(1, Type("I64")), True), m.Key(terms.Output(0, Type("String")), False))


def test_having_without_aggregates_filters_columns() -> None:
    body = read(P, "return { $p.age + 1 as a } having { a > 3 }")
    assert not body.aggregated
    assert isinstance(body.having, terms.Compare)
    assert isinstance(body.having.left, terms.Output)


def test_an_aggregate_in_order_alone_makes_groups() -> None:
    body = read(P, "return { $p.name } order { count($f) desc }")
    assert (body.aggregated, body.group) == (True, (0,))


def test_an_alias_can_be_used_by_a_later_column() -> None:
    assert columns("return { count($f) as n, n * 2 as twice }")[1] == ("twice", "I64")


def test_ties_are_broken_by_every_bound_entity_in_order() -> None:
    body = read("$p: Person $p $w:knows $f optional { $f worksAt $c } not { $f knows $x }", "return { $p.name }")
    assert [v.name for v in body.ties] == ["p", "w", "f", "c"]


def test_distinct_rows_are_ordered_by_their_columns() -> None:
    body = read(P, "return distinct { $p.name, $p.age as a } order { a desc, $p.name }")
    assert (body.distinct, body.ties) == (True, ())
    assert [k.value for k in body.order] == [terms.Output(1, Type("I32", True)), terms.Output(0, Type("String"))]


def test_order_is_ascending_unless_told_and_scores_are_best_first() -> None:
    rest = (
        'return { $p.name } order { nearest($p.vec, "a"), bm25($p.bio, "a"), '
        'rrf(nearest($p.vec, "a"), bm25($p.bio, "a")), bm25($p.name, "a") asc, $p.age } limit 3'
    )
    assert [k.descending for k in read(P, rest).order] == [False, True, True, False, False]


def test_nearest_takes_a_vector_a_list_or_text() -> None:
    for query, parameters in (("$v", "$v: Vector(3)"), ("[1, 2.5, -3]", ""), ('"text"', ""), ("$s", "$s: String")):
        body = read(P, f"return {{ $p.name }} order {{ nearest($p.vec, {query}) }} limit 1", parameters)
        assert isinstance(body.order[0].value, terms.Nearest)
    body = read(P, "return { $p.name } order { nearest($p.vec, [1, 2.5, -3]) } limit 1")
    assert body.order[0].value.query == terms.Constant((1.0, 2.5, -3.0), Type("Vector", dimension=3))  # type: ignore[union-attr]


def test_scores_can_be_returned() -> None:
    rest = (
        'return { bm25($p.bio, "a") as b, nearest($p.vec, "a") as d, '
        'rrf(bm25($p.bio, "a"), bm25($p.name, "a"), 10) as r } limit 1'
    )
    assert columns(rest) == [("b", "F64?"), ("d", "F64?"), ("r", "F64")]


def test_rrf_has_k_60_unless_told() -> None:
    body = read(P, 'return { $p.name } order { rrf(bm25($p.bio, "a"), bm25($p.name, "a")) } limit 1')
    value = body.order[0].value
    assert isinstance(value, terms.Fused)
    assert value.k == terms.Constant(60, Type("I64"))


def test_limit_and_offset_are_numbers_or_parameters() -> None:
    body = read(P, "return { $p.name } limit $n offset 5", "$n: I64")
    assert body.limit == terms.Parameter("n", Type("I64"))
    assert body.offset == terms.Constant(5, Type("I64"))


def test_the_operation_tells_kinds_reads_and_writes() -> None:
    text = read_text(
        "$p: Person $p worksAt $c not { $c locatedIn $t }",
        "return { $p, $p.name, $p.age, $p.visits, $p.height, $p.active, $p.born, $p.joined, $p.vec, $p.tags, "
        "$p.status }",
    )
    found = operation(checked(text))
    kinds = ["object", "string", "int", "bigint", "float", "bool", "date", "datetime", "vector", "list", "string"]
    assert [c["kind"] for c in found["result"]] == kinds
    assert found["result"][8] == {"name": "p.vec", "kind": "vector", "nullable": True, "vector_dim": 3}
    assert found["result"][9] == {"name": "p.tags", "kind": "list", "nullable": True, "item_kind": "string"}
    assert found["reads"] == [
        {"kind": "edge", "type_name": "LocatedIn"},
        {"kind": "edge", "type_name": "WorksAt"},
        {"kind": "node", "type_name": "City"},
        {"kind": "node", "type_name": "Company"},
        {"kind": "node", "type_name": "Person"},
    ]
    assert found["writes"] == []
