"""What patterns of the language mean, line by line, on both ways of crossing edges."""

from __future__ import annotations

import pytest

import omnigraph as og
from tests.query.conftest import rows

pytestmark = pytest.mark.usefixtures("traverse")


def hops(graph: og.Graph, start: str, edge: str) -> list[object]:
    return [r[0] for r in rows(graph, f'$a: Person {{ slug: "{start}" }} $a {edge} $b', "$b.slug")]


def test_a_traversal_gives_each_pair_once_whatever_the_number_of_edges(graph: og.Graph) -> None:
    assert hops(graph, "ada", "knows") == ["bob"]


def test_visited_nodes_do_not_come_again_and_cycles_end(graph: og.Graph) -> None:
    assert hops(graph, "ada", "knows{1,}") == ["bob", "cy", "dan"]
    assert hops(graph, "ada", "knows{1,100}") == ["bob", "cy", "dan"]


def test_a_loop_is_one_edge_and_emits_its_node_inside_of_the_bounds(graph: og.Graph) -> None:
    assert hops(graph, "dan", "knows") == ["dan"]
    assert hops(graph, "dan", "knows{2,3}") == []
    assert hops(graph, "cy", "knows{2,2}") == ["bob", "dan"]
    assert hops(graph, "ada", "knows{4,4}") == ["dan"]


@pytest.mark.parametrize(("bounds", "found"), [("{2,3}", ["cy", "dan"]), ("{2,2}", ["cy"]), ("{3}", ["dan"])])
def test_bounds_are_exact_distances(graph: og.Graph, bounds: str, found: list[str]) -> None:
    assert hops(graph, "ada", f"knows{bounds}") == found


def test_the_same_pairs_are_found_from_the_other_end(graph: og.Graph) -> None:
    for bounds in ("", "{1,}", "{2,2}", "{2,3}", "{4,4}"):
        forth = rows(graph, f"$a: Person $a knows{bounds} $b", "$a.slug, $b.slug")
        for target in ("ada", "bob", "cy", "dan", "eve"):
            back = rows(graph, f'$b: Person {{ slug: "{target}" }} $a knows{bounds} $b', "$a.slug")
            assert [(a, target) for (a,) in back] == [p for p in forth if p[1] == target], (bounds, target)


@pytest.mark.parametrize("form", ["$a {} $b", "$a $e: {} $b", "path $p = $a {} $b", "path $p = shortest $a {} $b"])
@pytest.mark.parametrize("declared", ["$a: Person $b: Person", "$b: Person $a: Person"])
@pytest.mark.parametrize("returned", ["count(*)", "$a.slug", "$b.slug"])
def test_an_end_that_is_declared_and_used_no_more_is_bound_once(
    graph: og.Graph, form: str, declared: str, returned: str
) -> None:
    clause = form.format("knows")
    map_threads = rows(graph, f"{declared} {clause}", f"{returned} as x, count(*) as n")
    alone = rows(graph, f"$a: Person {clause}", f"{returned} as x, count(*) as n")
    assert map_threads == alone
    assert sum(int(str(row[1])) for row in map_threads) < 36


def test_undirected_is_the_union_of_both_directions(graph: og.Graph) -> None:
    assert hops(graph, "ada", "<knows>") == ["bob", "cy"]
    assert hops(graph, "dan", "<knows>") == ["cy", "dan"]
    assert hops(graph, "dan", "<knows>{2,2}") == ["ada", "bob"]
    absent = rows(graph, "$p: Person not { $p <knows> $_ }", "$p.slug")
    assert absent == [("eve",), ("flo",)]


def test_an_edge_binding_has_one_row_per_edge(graph: og.Graph) -> None:
    found = rows(graph, '$a: Person { slug: "ada" } $a $k:knows $b', "$b.slug, $k.weight", "order { $k.weight desc }")
    assert found == [("bob", 1.5), ("bob", 0.5)]
    assert rows(graph, "$a: Person $a $k:knows $b $k.weight > 1.0", "$a.slug, sum($k.weight) as w") == [("ada", 1.5)]
    assert rows(graph, '$d: Person { slug: "dan" } $d $k:<knows> $x', "$x.slug") == [("cy",), ("dan",)]


def test_negation_correlates_with_outer_variables(graph: og.Graph) -> None:
    assert rows(graph, "$p: Person not { $p worksAt $_ }", "$p.slug") == [("cy",), ("dan",), ("flo",)]
    far = rows(graph, '$p: Person not { $p knows{1,3} $q $q.slug = "dan" }', "$p.slug")
    assert far == [("eve",), ("flo",)]
    nested = rows(graph, "$p: Person not { $p knows $q not { $q worksAt $_ } }", "$p.slug")
    assert nested == [("ada",), ("eve",), ("flo",)]
    fan = rows(graph, "$a: Person $a worksAt $c $b worksAt $c $a != $b not { $a knows $b }", "$a.slug, $b.slug")
    assert fan == [("bob", "ada")]


def test_a_block_narrows_the_types_of_outer_variables(graph: og.Graph) -> None:
    people = [(slug,) for slug in ("ada", "bob", "cy", "dan", "eve", "flo")]
    assert rows(graph, '$x: Named not { $x: Company { city: "Rome" } }', "$x.id") == sorted([*people, ("bee",)])
    assert rows(graph, "$x: Named not { $x: Company $x.city is null }", "$x.id") == sorted([*people, ("acme",)])
    assert rows(graph, "$x: Named not { $x knows $y $x.score < 3 }", "$x.id") == [
        *(("acme",), ("bee",), ("dan",), ("eve",), ("flo",))
    ]
    # The edge is crossed as the type inside wants it: from a company, backwards.
    assert rows(graph, "$x: Named not { $x: Company $x worksAt $p $p.score = 4 }", "$x.id") == sorted(
        [*people, ("acme",)]
    )
    found = rows(graph, '$x: Named optional { $x: Person search($x.bio, "fox") $x worksAt $c }', "$x.id, $c.id")
    assert [r for r in found if r[1] is not None] == [("bob", "acme"), ("eve", "bee")]
    assert len(found) == 8
    assert rows(graph, "$x worksAt $y not { $y: Company }", "$x.id") == []
    lone = rows(graph, "$x: Person optional { $x worksAt $y } not { $y: Company }", "$x.id")
    assert lone == [("cy",), ("dan",), ("flo",)]


@pytest.mark.parametrize(
    ("match", "columns", "expected"),
    [
        ("$x: Person optional { $x worksWith $y } $y knows $z", "$x.id, $y.id, $z.id", []),
        (
            "$x: Person optional { $x knows $y } $y worksAt $z",
            "$x.id, $y.id, $z.id",
            [("ada", "bob", "acme"), ("cy", "ada", "acme")],
        ),
        ("$x: Person optional { $x knows $y } $z knows $y $z != $x", "$x.id, $y.id, $z.id", [
            ("cy", "dan", "dan"), ("dan", "dan", "cy")]),
        ("$x: Person optional { $x worksAt $y } $y: Company", "$x.id", [("ada",), ("bob",), ("eve",)]),
        ("$x: Person optional { $x worksAt $y } $y: Company { city: \"Rome\" }", "$x.id", [("ada",), ("bob",)]),
        ("$x: Person optional { $x worksAt $y } path $p = $x worksAt $y", "nodes($p) as p", [
            (["ada", "acme"],), (["bob", "acme"],), (["eve", "bee"],)]),
        ("$x: Person optional { $x worksWith $y } $y $e:<worksWith> $z", "$x.id, $z.id", [("eve", "eve")]),
        ("$x: Person optional { $x worksWith $y } $y <worksWith>{1,2} $z optional { $z worksAt $c } $c worksAt $v",
            "$z.id, $v.id", [("eve", "eve")]),
        # A block that stands before what it continues from is read behind it.
        ("optional { $x worksAt $y } $x: Person { slug: \"cy\" }", "$x.id, $y.id", [("cy", None)]),
        ("optional { $x worksWith $y } $x: Person $y knows $z", "$x.id", []),
        # What is bound before the block only ties the block to it.
        ("$x: Person { slug: \"ada\" } $y: Company optional { $x worksAt $y }", "$y.id", [("acme",), ("bee",)]),
        ("$x: Person { slug: \"ada\" } $y worksAt $z optional { $x worksWith $y }", "$y.id", [
            ("ada",), ("bob",), ("eve",)]),
        ("$x: Person optional { $x worksWith $y } not { $y knows $_ } $x.score > 3", "$x.id, $y.id", [("eve", "flo")]),
        ("$x: Person not { $x knows $y optional { $y worksWith $z } $z worksAt $_ }", "count(*) as n", [(6,)]),
        ("$x: Person optional { $x worksWith $y optional { $y knows $z } $z knows $w }",
            "count(*) as n, count($y) as m", [(6, 0)]),
    ],
)  # fmt: skip
def test_a_traversal_continues_from_what_an_optional_block_has_bound(
    graph: og.Graph, match: str, columns: str, expected: list[tuple[object, ...]]
) -> None:
    assert rows(graph, match, columns) == expected


def test_a_type_that_a_traversal_leaves_to_an_optional_variable_holds_outside(graph: og.Graph) -> None:
    match = "$x: Person optional { $x knows|worksAt $y } $y worksAt $c $y.score >= 0"
    assert rows(graph, match, "$x.id, $y.score, $c.id") == [("ada", 1, "acme"), ("cy", 0, "acme")]


def test_an_insert_from_match_writes_nothing_where_an_optional_variable_is_null(graph: og.Graph) -> None:
    pattern = "$x: Person optional { $x worksWith $y } $y <worksWith> $z"
    done = graph.mutate(f"query q() {{ insert Knows {{ from: $x, to: $z }} from match {{ {pattern} }} }}", "q", {})
    assert done.inserted == {"edge:Knows": 1}
    pattern = "$x: Person optional { $x worksWith $y } $y worksWith $z"
    done = graph.mutate(f"query q() {{ insert Knows {{ from: $x, to: $z }} from match {{ {pattern} }} }}", "q", {})
    assert done.inserted == {}


def test_a_source_without_a_match_has_no_group(graph: og.Graph) -> None:
    found = rows(graph, "$p: Person $p worksAt $c", "$c.slug, count($p) as n")
    assert found == [("acme", 2), ("bee", 1)]


def test_aggregates_over_nothing_give_one_row(graph: og.Graph) -> None:
    columns = (
        "count($p) as n, count(*) as m, sum($p.score) as s, avg($p.score) as a, min($p.name) as l, collect($p.id) as c"
    )
    assert rows(graph, '$p: Person { slug: "nobody" }', columns) == [(0, 0, None, None, None, [])]
    assert rows(graph, '$p: Person { slug: "nobody" }', "$p.slug, count(*) as n") == []


def test_nulls_are_first_ascending_and_last_descending(graph: og.Graph) -> None:
    up = rows(graph, "$p: Person", "$p.slug", "order { $p.score }")
    down = rows(graph, "$p: Person", "$p.slug", "order { $p.score desc }")
    assert up[0] == ("flo",)
    assert down[-1] == ("flo",)
    assert up == down[::-1]


def test_ties_are_broken_by_ids_and_limits_cut_after_that(graph: og.Graph) -> None:
    assert rows(graph, "$p: Person", "$p.slug", "order { $p.status }") == [
        (s,) for s in ("cy", "flo", "bob", "eve", "ada", "dan")
    ]
    assert rows(graph, "$p: Person", "$p.slug", "order { $p.status } limit 3 offset 1") == [
        ("flo",),
        ("bob",),
        ("eve",),
    ]
    edges = rows(graph, "$a: Person $a $k:knows $b", "$k.id")
    assert len(edges) == 6


def test_string_predicates_are_exact(graph: og.Graph) -> None:
    graph.insert(
        {
            "Person": [
                {"slug": "p%", "name": "50%_off", "active": True},
                {"slug": "p_", "name": "50X_off", "active": True},
            ]
        }
    )
    assert rows(graph, '$p: Person $p.name contains "%_"', "$p.slug") == [("p%",)]
    assert rows(graph, '$p: Person $p.name starts_with "50%"', "$p.slug") == [("p%",)]
    assert rows(graph, '$p: Person $p.name ends_with "_off"', "$p.slug") == [("p%",), ("p_",)]
    assert rows(graph, '$p: Person $p.name contains "ADA"', "$p.slug") == []
    assert rows(graph, '$p: Person $p.tags contains "all"', "$p.slug") == [("bob",), ("dan",), ("flo",)]
    assert rows(graph, '$p: Person not ($p.tags contains "all")', "$p.slug") == []
    assert rows(graph, '$p: Person not ($p.bio contains "ada")', "$p.slug") == [
        (s,) for s in ("bob", "cy", "dan", "eve", "flo")
    ]


def test_numbers_compare_by_value(graph: og.Graph) -> None:
    assert rows(graph, "$p: Person $p.score = 1.5", "$p.slug") == []
    assert rows(graph, "$p: Person $p.score > 3.5", "$p.slug") == [("eve",)]
    assert rows(graph, "$p: Person $p.score < 1e30", "count(*) as n") == [(5,)]
    assert rows(graph, "$p: Person not ($p.score = 1.5)", "count(*) as n") == [(5,)]
    assert rows(graph, "$a: Person $a $k:knows $b $k.weight >= 1", "$k.weight") == [(1.5,)]


def test_columns_are_named_and_ordered_as_written(graph: og.Graph) -> None:
    result = graph.query("query q() { match { $p: Person } return { $p.name, $p.score as points, $p.id } limit 1 }")
    assert result.columns == ["p.name", "points", "p.id"]


def test_one_query_reads_one_state_and_an_old_one_stays(graph: og.Graph) -> None:
    before = graph.commits(limit=1)[0].id
    other = og.open(graph.uri)
    other.insert({"Person": [{"slug": "gus", "name": "Gus", "active": True}], "Knows": [{"src": "gus", "dst": "ada"}]})
    count = "query q() { match { $p: Person } return { count(*) as n } }"
    assert graph.query(count).to_pylist() == [{"n": 7}]
    assert graph.query(count, commit=before).to_pylist() == [{"n": 6}]
    assert rows(graph, '$a: Person $a knows $b $b.slug = "ada"', "$a.slug") == [("cy",), ("gus",)]
    assert rows(graph, '$a: Person $a knows $b $b.slug = "ada"', "$a.slug", commit=before) == [("cy",)]
