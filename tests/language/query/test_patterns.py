"""Patterns: which variable is bound to what, in which direction, and what correlates with what."""

from __future__ import annotations

from datetime import UTC, date, datetime

import pytest

from omnigraph.errors import QueryCheckError
from omnigraph.language.query import check_query, parse_queries, terms
from omnigraph.language.query import model as m
from omnigraph.language.query.types import Type
from omnigraph.language.schema import accept, parse_schema
from tests.language.query.texts import IDS, read, unread


def names(types: tuple[terms.Entity, ...]) -> list[str]:
    return [e.name for e in types]


def bound(body: m.Read) -> dict[str, list[str]]:
    return {v.name: names(v.types) for v in body.pattern.binds}


def expansions(body: m.Read) -> list[m.Expand]:
    return [c for c in body.pattern.clauses if isinstance(c, m.Expand)]


def conditions(body: m.Read) -> list[terms.Expression]:
    return [c.condition for c in body.pattern.clauses if isinstance(c, m.Where)]


def only(match: str, parameters: str = "") -> terms.Expression:
    (found,) = conditions(read(match, parameters=parameters))
    return found


# ---- bindings --------------------------------------------------------------------------------------------------------


def test_names_are_resolved_to_ids_that_survive_renames() -> None:
    body = read("$p: Person { age: 3 }")
    (p,) = body.pattern.binds
    assert p.types == (terms.Entity("node", "Person", IDS["Person"]),)
    (compare,) = conditions(body)
    assert isinstance(compare, terms.Compare)
    assert isinstance(compare.left, terms.Property)
    ((type_id, property_id),) = compare.left.ids
    assert type_id == IDS["Person"]
    assert property_id.startswith("p")


def test_an_interface_stands_for_all_that_implement_it() -> None:
    body = read("$p: Named")
    assert bound(body) == {"p": ["Person", "Company"]}
    column = body.columns[0].value
    assert isinstance(column, terms.Property)
    assert [type_id for type_id, _ in column.ids] == [IDS["Person"], IDS["Company"]]


def test_a_second_binding_narrows_the_first() -> None:
    assert bound(read("$p: Named $p: Person")) == {"p": ["Person"]}


def test_a_binding_of_an_outer_variable_tests_its_type() -> None:
    body = read("$p: Named not { $p: Company }")
    (absent,) = [c for c in body.pattern.clauses if isinstance(c, m.Absent)]
    (where,) = absent.pattern.clauses
    assert isinstance(where, m.Where)
    assert isinstance(where.condition, terms.In)
    assert absent.pattern.binds == ()
    assert names(absent.pattern.outer[0].types) == ["Person", "Company"]


@pytest.mark.parametrize(
    "inside",
    [
        '$p: Company { city: "x" }',
        '$p: Company $p.city = "x"',
        "$p worksAt $_ $p.age = 1",
        'not { $p: Company { city: "x" } }',
        "$p: Company not { $p.city is null }",
        "$p: Company $p worksAt $q $q.age = 1",
    ],
)
@pytest.mark.parametrize("word", ["not", "optional"])
def test_inside_of_a_block_a_variable_has_the_types_that_the_block_leaves(word: str, inside: str) -> None:
    block = read(f"$p: Named {word} {{ {inside} }}").pattern.clauses[-1]
    assert isinstance(block, m.Absent | m.Maybe)
    (outer,) = block.pattern.outer
    assert names(outer.types) == ["Person", "Company"]
    unread(f"$p: Named {word} {{ {inside} }} $p.city = 1", "T6")


def test_a_block_that_only_repeats_the_type_of_an_outer_variable_speaks_of_it() -> None:
    (absent,) = [c for c in read("$p worksAt $c not { $c: Company }").pattern.clauses if isinstance(c, m.Absent)]
    assert ([v.name for v in absent.pattern.outer], absent.pattern.clauses) == (["c"], ())
    maybe = read("$p: Person optional { $p worksAt $c } not { $c: Company }").pattern.clauses[-1]
    assert isinstance(maybe, m.Absent)
    assert len(maybe.pattern.clauses) == 1, "it is not one where it is null"


def test_a_narrowed_variable_is_no_narrower_in_the_block_behind() -> None:
    unread('$p: Named optional { $p: Company $p.city = "x" } optional { $p.city = "x" }', "T6")
    assert "never a Company" in unread("$p: Person not { $p: Company }", "T5").fields["detail"]


def test_a_narrowed_property_is_of_one_type_in_all_types_of_the_variable() -> None:
    schema = parse_schema("interface N { a: I64 } node P implements N { b: I64? } node Q implements N { b: String? }")
    (query,) = parse_queries("query q() { match { $x: N not { $x: P $x.b = 1 } } return { $x.a } }").queries
    with pytest.raises(QueryCheckError, match=r"Here b is I64, but b is String in Q, another type that \$x can have"):
        check_query(query, accept(schema, new_id=lambda prefix: prefix))


def test_a_value_in_braces_may_be_of_another_variable() -> None:
    compare = only("$p: Person { name: $c.name } $c: Company")
    assert isinstance(compare, terms.Compare)
    assert isinstance(compare.right, terms.Property)


# ---- traversals ------------------------------------------------------------------------------------------------------


def test_an_edge_is_crossed_in_its_direction_if_the_types_allow_it() -> None:
    (expand,) = expansions(read("$p: Person $p worksAt $c"))
    (step,) = expand.steps
    assert (step.edge.name, step.direction, step.starts.name, step.ends.name) == ("WorksAt", "out", "Person", "Company")
    assert (expand.minimum, expand.maximum, expand.mode) == (1, 1, "pairs")


def test_an_edge_is_crossed_backwards_if_only_that_fits() -> None:
    (expand,) = expansions(read("$p: Company $p worksAt $x"))
    assert (expand.steps[0].direction, expand.source.name, names(expand.target.types)) == ("in", "p", ["Person"])


def test_the_unbound_end_gets_its_type_from_the_edge() -> None:
    assert bound(read("$c: Company $p worksAt $c"))["p"] == ["Person"]
    (expand,) = expansions(read("$c: Company $p worksAt $c"))
    assert expand.steps[0].direction == "out"


def test_an_edge_within_one_type_goes_from_left_to_right() -> None:
    (expand,) = expansions(read("$p: Person $f knows $p"))
    assert (expand.source.name, expand.target.name, expand.steps[0].direction) == ("f", "p", "out")


def test_types_flow_along_chains_in_any_order_of_clauses() -> None:
    body = read("$b locatedIn $c $a worksAt $b $a: Person { name: $c.name }", "return { $a.name }")
    assert bound(body) == {"b": ["Company"], "c": ["City"], "a": ["Person"]}


def test_a_pattern_of_traversals_alone_starts_with_a_scan() -> None:
    body = read("$p knows $f $f worksAt $c")
    assert isinstance(body.pattern.clauses[0], m.Scan)
    assert body.pattern.clauses[0].variable.name == "p"


def test_every_clause_finds_its_variables_bound() -> None:
    body = read(
        "$b knows $c $x knows $p $a knows $b optional { $c worksAt $w } $p: Person $w.city = $p.name $c knows $x"
    )
    known: set[terms.Variable] = set()
    for clause in body.pattern.clauses:
        if isinstance(clause, m.Scan):
            known.add(clause.variable)
        elif isinstance(clause, m.Expand):
            assert {clause.source, clause.target} & known
            known |= {clause.source, clause.target}
        elif isinstance(clause, m.Maybe):
            assert set(clause.pattern.outer) <= known
            known |= set(clause.pattern.binds)
        else:
            assert set(terms.variables_of(clause)) <= known
    assert known == set(body.pattern.binds)


def test_a_traversal_narrows_an_interface() -> None:
    assert bound(read("$p: Named $p worksAt $c")) == {"p": ["Person"], "c": ["Company"]}
    assert bound(read("$p: Named $p locatedIn $c")) == {"p": ["Company"], "c": ["City"]}


def test_several_edges_in_one_step_reach_several_types() -> None:
    body = read("$p: Person $p knows|worksAt $x", "return { $x.name }")
    assert bound(body)["x"] == ["Person", "Company"]
    (expand,) = expansions(body)
    assert [s.edge.name for s in expand.steps] == ["Knows", "WorksAt"]


def test_several_edges_of_one_hop_choose_their_directions_apart() -> None:
    (expand,) = expansions(read("$p: Company $p worksAt|locatedIn $x"))
    assert [(s.edge.name, s.direction) for s in expand.steps] == [("WorksAt", "in"), ("LocatedIn", "out")]


def test_types_are_followed_hop_by_hop() -> None:
    assert bound(read("$p: Person $p worksAt|locatedIn{2,2} $x"))["x"] == ["City"]
    assert bound(read("$p: Person $p worksAt|locatedIn{1,} $x"))["x"] == ["Company", "City"]
    assert bound(read("$p: Person $p knows|worksAt{1,1000000000} $x"))["x"] == ["Person", "Company"]
    assert bound(read("$p: Person $c: City $p knows|worksAt|locatedIn{1,} $c"))["c"] == ["City"]
    assert bound(read("$c: City $p worksAt|locatedIn{2,2} $c"))["p"] == ["Person"]


def test_more_hops_than_the_types_allow_are_legal_and_match_nothing() -> None:
    (expand,) = expansions(read("$p: Person $p worksAt{2,3} $c"))
    assert (expand.minimum, expand.maximum) == (2, 3)


@pytest.mark.parametrize(
    ("text", "low", "high"), [("", 1, 1), ("{2,3}", 2, 3), ("{2,2}", 2, 2), ("{3}", 3, 3), ("{1,}", 1, None)]
)
def test_bounds(text: str, low: int, high: int | None) -> None:
    (expand,) = expansions(read(f"$p: Person $p knows{text} $f"))
    assert (expand.minimum, expand.maximum) == (low, high)


def test_an_undirected_edge_is_crossed_both_ways() -> None:
    (expand,) = expansions(read("$p: Person $p <knows|worksWith>{1,3} $f"))
    assert {s.direction for s in expand.steps} == {"both"}


def test_each_anonymous_variable_is_another_one() -> None:
    body = read("$p: Person $p knows $_ $p knows $_ $_: Company")
    assert [v.name for v in body.pattern.binds] == ["p", "_", "_", "_"]
    assert len({v.slot for v in body.pattern.binds}) == 4


def test_an_edge_variable_is_bound_to_one_edge_and_has_its_properties() -> None:
    body = read('$p: Person $p $w:knows $f $w.since > date("2020-01-01")', "return { $w.weight, $w.@type, $w.from }")
    (expand,) = expansions(body)
    assert (expand.mode, expand.edge and expand.edge.kind) == ("edges", "edge")
    assert [c.name for c in body.columns] == ["w.weight", "w.@type", "w.from"]
    assert [c.value.name for c in body.columns if isinstance(c.value, terms.Property)] == ["weight", "@type", "src"]
    assert [v.name for v in body.ties] == ["p", "w", "f"]


def test_an_edge_variable_over_several_edges_has_what_they_share() -> None:
    assert read("$p: Person $p $w:(knows | worksAt) $x", "return { $w.@type, $w.id }").columns
    error = unread("$p: Person $p $w:(knows | worksAt) $x", "T6", "return { $w.since }")
    assert error.fields["detail"].startswith("WorksAt, one of the types of $w, has no property since.")


def test_a_bound_edge_can_be_counted_and_one_hop_may_be_written_out() -> None:
    assert read("$p: Person $p $w:knows{1,1} $f", "return { count($w) as n }").aggregated


def test_paths_and_shortest_paths() -> None:
    body = read("$p: Person path $x = $p knows{1,5} $f", "return { length($x) as n, nodes($x) as ids }")
    (expand,) = expansions(body)
    assert (expand.mode, expand.path and expand.path.kind) == ("paths", "path")
    assert [str(c.type) for c in body.columns] == ["I64", "[String]"]
    (expand,) = expansions(read("$p: Person shortest $p knows{1,} $f"))
    assert (expand.mode, expand.path, expand.maximum) == ("shortest", None, None)
    (expand,) = expansions(read("$p: Person path $x = shortest $p knows{1,10} $f"))
    assert (expand.mode, expand.path is not None) == ("shortest", True)


# ---- blocks ----------------------------------------------------------------------------------------------------------


def test_a_not_block_names_what_it_uses_from_outside_and_keeps_what_it_binds() -> None:
    body = read("$p: Person not { $p knows{1,3} $f $f.age > $p.age not { $f worksAt $c } }")
    (absent,) = [c for c in body.pattern.clauses if isinstance(c, m.Absent)]
    assert [v.name for v in absent.pattern.outer] == ["p"]
    assert [v.name for v in absent.pattern.binds] == ["f"]
    (inner,) = [c for c in absent.pattern.clauses if isinstance(c, m.Absent)]
    assert ([v.name for v in inner.pattern.outer], [v.name for v in inner.pattern.binds]) == (["f"], ["c"])
    assert [v.name for v in body.pattern.binds] == ["p"]


def test_a_block_within_a_block_may_use_what_is_two_levels_out() -> None:
    body = read("$p: Person not { $p knows $f not { $f knows $g $g.age = $p.age } }")
    (absent,) = [c for c in body.pattern.clauses if isinstance(c, m.Absent)]
    (inner,) = [c for c in absent.pattern.clauses if isinstance(c, m.Absent)]
    assert {v.name for v in inner.pattern.outer} == {"f", "p"}
    assert [v.name for v in absent.pattern.outer] == ["p"]


def test_two_not_blocks_may_use_one_name_for_different_things() -> None:
    body = read('$p: Person not { $p knows $x } not { $p worksAt $x $x.city = "Rome" }')
    first, second = (c.pattern.binds[0] for c in body.pattern.clauses if isinstance(c, m.Absent))
    assert (names(first.types), names(second.types)) == (["Person"], ["Company"])
    assert first.slot != second.slot


def test_what_an_optional_block_binds_is_known_after_it_and_may_be_null() -> None:
    body = read(
        "$p: Person optional { $p worksAt $c } optional { $c locatedIn $t }", "return { $c.slug, $t.name, $p.name }"
    )
    assert [c.type.nullable for c in body.columns] == [True, True, False]
    assert [v.nullable for v in body.pattern.binds] == [False, True, True]
    assert [v.name for v in body.ties] == ["p", "c", "t"]


def test_a_condition_on_an_optional_variable_comes_after_the_block() -> None:
    body = read('$p: Person $c.city = "Rome" $p.age > 1 optional { $p worksAt $c }')
    assert [type(c).__name__ for c in body.pattern.clauses] == ["Scan", "Where", "Maybe", "Where"]


# ---- conditions ------------------------------------------------------------------------------------------------------


def test_conditions_joined_by_and_are_conditions_of_their_own() -> None:
    assert len(conditions(read("$p: Person $p.age > 1 and $p.age < 9 and $p.active"))) == 3


def test_a_text_literal_beside_a_date_is_a_date() -> None:
    compare = only('$p: Person "2024-02-29" < $p.born')
    assert isinstance(compare, terms.Compare)
    assert compare.left == terms.Constant(date(2024, 2, 29), Type("Date"))
    compare = only('$p: Person { joined: "2024-02-29T10:00:00.1239+02:00" }')
    assert isinstance(compare, terms.Compare)
    assert compare.right == terms.Constant(datetime(2024, 2, 29, 8, 0, 0, 123000, tzinfo=UTC), Type("DateTime"))
    found = only('$p: Person $p.born in ["2024-01-01", date("2024-01-02")]')
    assert isinstance(found, terms.In)
    assert isinstance(found.items, terms.ListOf)
    assert [i.value for i in found.items.items if isinstance(i, terms.Constant)] == [date(2024, 1, 1), date(2024, 1, 2)]


def test_a_text_literal_beside_a_list_of_dates_is_a_date() -> None:
    day, moment = terms.Constant(date(2024, 1, 1), Type("Date")), datetime(2024, 1, 1, tzinfo=UTC)
    for text in ('$p.days contains "2024-01-01"', '"2024-01-01" in $p.days', '"2024-01-01" in [$x]'):
        found = conditions(read(f"$p: Person {text}", parameters="$x: Date"))[0]
        assert isinstance(found, terms.In)
        assert found.needle == day
    (found,) = conditions(read('$p: Person $p.moments contains "2024-01-01"'))
    assert isinstance(found, terms.In)
    assert found.needle == terms.Constant(moment, Type("DateTime"))
    column = read("$p: Person", 'return { coalesce($p.days, ["2024-01-01"]) as x }').columns[0].value
    assert isinstance(column, terms.Function)
    assert column.arguments[1] == terms.ListOf((day,), Type("List", item="Date"))


def test_contains_of_a_list_is_membership_and_of_text_a_part() -> None:
    assert isinstance(only('$p: Person $p.tags contains "a"'), terms.In)
    assert isinstance(only('$p: Person $p.name contains "a"'), terms.Match)
    assert isinstance(only('$p: Person "a haystack" contains $p.name'), terms.Match)
    assert isinstance(only("$p: Person $x contains $p.name", "$x: [String]"), terms.In)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("$p.age = 1.5", "Bool?"),
        ("$p.height = 1", "Bool?"),
        ("$p.visits > -1", "Bool?"),
        ('$p.name = "a"', "Bool"),
        ('$p.status != "whatever"', "Bool?"),
        ("$p.status = $s", "Bool?"),
        ("$s in [\"a\"]", "Bool"),
        ("$p.age is null", "Bool"),
        ("not ($p.age in [1, 2.5])", "Bool?"),
        ("$p.joined < now() - days(7)", "Bool?"),
        ("$p.born + weeks(1) > date(\"2024-01-01\")", "Bool?"),
        ("(now() - $p.joined) / days(1) > 30", "Bool?"),
        ("now() - $p.joined > hours(2) * 3", "Bool?"),
        ("datetime($p.born) < now()", "Bool?"),
        ("date(now()) = $p.born", "Bool?"),
        ("lower($p.name) + \"!\" = upper($p.bio)", "Bool?"),
        ("coalesce($p.age, 0) + 1 > 2", "Bool"),
        ("coalesce($p.born, \"2000-01-01\") > date(\"1999-01-01\")", "Bool"),
        ("length($p.tags) = length($p.name)", "Bool?"),
        ("length(coalesce($p.tags, [])) > 0", "Bool"),
        ("(-$p.age < 3)", "Bool?"),
        ('$p.name matches "^A.*n$"', "Bool"),
        ("$p != $f", "Bool"),
        ('search($p.bio, $s) or fuzzy($p.name, "ada", 2) or not match_text($p.bio, "a b")', "Bool?"),
    ],
)  # fmt: skip
def test_conditions_have_types(text: str, expected: str) -> None:
    body = read(f"$p: Person $p knows $f {text}", parameters="$s: String")
    (found,) = conditions(body)
    assert str(found.type) == expected


def test_fuzzy_allows_one_edit_unless_told() -> None:
    found = only('$p: Person fuzzy($p.bio, "a")')
    assert isinstance(found, terms.Search)
    assert found.edits == terms.Constant(1, Type("I64"))
