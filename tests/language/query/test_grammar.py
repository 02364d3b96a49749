"""Every form of the language parses to what it means."""

from __future__ import annotations

import subprocess
import sys

import pytest

from omnigraph.errors import SchemaSyntaxError
from omnigraph.language.query import parse_queries
from omnigraph.language.query.syntax import tree as t
from omnigraph.language.schema import parse_schema
from tests.language.query.texts import pointed, read_text, unparsed


def body(match: str, rest: str = "return { $p.name }", parameters: str = "") -> t.Read:
    found = parse_queries(read_text(match, rest, parameters)).queries[0].body
    assert isinstance(found, t.Read)
    return found


def clause(text: str, parameters: str = "") -> t.Clause:
    (found,) = body(text, parameters=parameters).match
    return found


def condition(text: str, parameters: str = "") -> t.Expression:
    found = clause(text, parameters)
    assert isinstance(found, t.Filter)
    return found.condition


def v(name: str) -> t.Variable:
    return t.Variable(name)


def test_a_file_holds_many_queries_with_parameters_and_annotations() -> None:
    text = """
    // a comment
    query friends($name: String, $ids: [String]?, $v: Vector(3)) @description("who") @instruction("ask \\"first\\"") {
      match { $p: Person { name: $name } } return { $p.name }
    }
    /* another */
    query none() { match { $p: Person } return { $p } }
    query bare { match { $p: Person } return { $p } }
    """
    file = parse_queries(text, file="people.gq")
    assert [q.name for q in file.queries] == ["friends", "none", "bare"]
    first = file.queries[0]
    assert [(p.name, str(p.type), p.nullable) for p in first.parameters] == [
        ("name", "String", False),
        ("ids", "[String]", True),
        ("v", "Vector(3)", False),
    ]
    assert (first.description, first.instruction) == ("who", 'ask "first"')
    assert file.query("none") == file.queries[1]
    assert file.query("missing") is None


def test_an_empty_file_has_no_queries() -> None:
    assert parse_queries(" // nothing\n").queries == ()


def test_words_are_keywords_only_where_they_are_expected() -> None:
    text = """
    query match($from: String, $limit: I64) {
      match { $in: Person { name: $from, order: 1, match: 2 } $in.return = $limit }
      return { $in.limit as order, $in.where as distinct }
      order { order desc }
    }
    query search() { insert Person { insert: 1, set: 2 } delete Person where from = 1 and to = 2 }
    """
    assert [q.name for q in parse_queries(text).queries] == ["match", "search"]


def test_a_binding_names_a_variable_a_type_and_values() -> None:
    assert clause('$x: Person { name: "a", age: $n, at: now() }', "$n: I32") == t.Binding(
        v("x"),
        "Person",
        (
            t.Assignment("name", t.Constant("a")),
            t.Assignment("age", v("n")),
            t.Assignment("at", t.Call("now")),
        ),
    )


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("$a knows $b", t.Traversal(v("a"), (t.EdgeWord("knows"),), v("b"))),
        ("$a knows{2,3} $b", t.Traversal(v("a"), (t.EdgeWord("knows"),), v("b"), t.Bounds(2, 3))),
        ("$a knows { 2 , 3 } $b", t.Traversal(v("a"), (t.EdgeWord("knows"),), v("b"), t.Bounds(2, 3))),
        ("$a knows{2} $b", t.Traversal(v("a"), (t.EdgeWord("knows"),), v("b"), t.Bounds(2, 2))),
        ("$a knows{1,} $b", t.Traversal(v("a"), (t.EdgeWord("knows"),), v("b"), t.Bounds(1, None))),
        ("$a <knows> $b", t.Traversal(v("a"), (t.EdgeWord("knows"),), v("b"), None, True)),
        ("$a <knows>{1,3} $b", t.Traversal(v("a"), (t.EdgeWord("knows"),), v("b"), t.Bounds(1, 3), True)),
        (
            "$a knows|likes{1,} $_",
            t.Traversal(v("a"), (t.EdgeWord("knows"), t.EdgeWord("likes")), v("_"), t.Bounds(1, None)),
        ),
        ("$a $w:knows $b", t.Traversal(v("a"), (t.EdgeWord("knows"),), v("b"), edge=v("w"))),
        ("$a $w:<knows> $b", t.Traversal(v("a"), (t.EdgeWord("knows"),), v("b"), None, True, v("w"))),
        (
            "$a $w:(knows | likes) $b",
            t.Traversal(v("a"), (t.EdgeWord("knows"), t.EdgeWord("likes")), v("b"), edge=v("w")),
        ),
        (
            "path $p = $a knows{1,5} $b",
            t.Traversal(v("a"), (t.EdgeWord("knows"),), v("b"), t.Bounds(1, 5), path=v("p")),
        ),
        (
            "shortest $a knows{1,10} $b",
            t.Traversal(v("a"), (t.EdgeWord("knows"),), v("b"), t.Bounds(1, 10), shortest=True),
        ),
        (
            "path $p = shortest $a <knows>{1,} $b",
            t.Traversal(v("a"), (t.EdgeWord("knows"),), v("b"), t.Bounds(1, None), True, path=v("p"), shortest=True),
        ),
    ],
)
def test_traversals(text: str, expected: t.Traversal) -> None:
    assert clause(text) == expected


@pytest.mark.parametrize("edge", ["contains", "matches", "in", "path", "shortest", "optional", "search", "count"])
def test_a_word_between_two_bare_variables_is_an_edge(edge: str) -> None:
    assert clause(f"$a {edge} $b") == t.Traversal(v("a"), (t.EdgeWord(edge),), v("b"))


def test_a_bare_parameter_left_of_an_operator_word_makes_a_condition() -> None:
    assert condition("$q contains $m", "$q: String") == t.Operation("contains", (v("q"), v("m")))
    assert condition("$q in $p.tags", "$q: String") == t.Operation("in", (v("q"), t.Access(v("p"), "tags")))


def test_clauses_need_nothing_between_them() -> None:
    match = body(
        '$p: Person $p.age > 25 $p knows $f $f.name = "x" search($p.bio, "a") ($p.a = 1) $p.active not { $p knows $_ }'
    )
    kinds = [type(c).__name__ for c in match.match]
    assert kinds == ["Binding", "Filter", "Traversal", "Filter", "Filter", "Filter", "Filter", "Block"]


@pytest.mark.parametrize(
    "operator", [">=", "<=", "!=", ">", "<", "=", "contains", "starts_with", "ends_with", "matches", "in", "not in"]
)
def test_operators(operator: str) -> None:
    assert condition(f"$p.name {operator} $q.name") == t.Operation(
        operator, (t.Access(v("p"), "name"), t.Access(v("q"), "name"))
    )


def test_not_binds_tighter_than_and_and_that_than_or() -> None:
    a, b, c = (t.Access(v("p"), name) for name in "abc")
    assert condition("$p.a or $p.b and not $p.c") == t.Operation(
        "or", (a, t.Operation("and", (b, t.Operation("not", (c,)))))
    )
    assert condition("($p.a or $p.b) and $p.c") == t.Operation("and", (t.Operation("or", (a, b)), c))


def test_arithmetic_binds_as_in_mathematics() -> None:
    one, two, three = (t.Constant(n) for n in (1, 2, 3))
    assert condition("$p.a = 1 + 2 * 3 - 1") == t.Operation(
        "=",
        (
            t.Access(v("p"), "a"),
            t.Operation("-", (t.Operation("+", (one, t.Operation("*", (two, three)))), one)),
        ),
    )


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ('"a\\n\\u00e9\\""', 'a\né"'),
        ("42", 42),
        ("18446744073709551615", 2**64 - 1),
        ("-9223372036854775808", -(2**63)),
        ("1.5", 1.5),
        ("-0.25", -0.25),
        ("2.5e3", 2500.0),
        ("true", True),
        ("false", False),
        ("null", None),
    ],
)
def test_literals(text: str, value: object) -> None:
    assert condition(f"$p.a = {text}") == t.Operation("=", (t.Access(v("p"), "a"), t.Constant(value)))  # type: ignore[arg-type]


def test_one_and_one_point_zero_and_true_are_three_literals() -> None:
    assert len({t.Constant(1), t.Constant(1.0), t.Constant(True)}) == 3


def test_lists_null_tests_and_system_fields() -> None:
    assert condition("$p.a in []") == t.Operation("in", (t.Access(v("p"), "a"), t.Items(())))
    assert condition("$p.a is null") == t.Operation("is null", (t.Access(v("p"), "a"),))
    assert condition("$p.a is not null") == t.Operation("is not null", (t.Access(v("p"), "a"),))
    assert condition("$e.@type = $e.@src") == t.Operation("=", (t.Access(v("e"), "@type"), t.Access(v("e"), "@src")))


def test_return_takes_aliases_and_optional_commas() -> None:
    found = body("$p: Person", "return distinct { $p.name $p.age as a, count(distinct $p) as n count(*) }")
    assert found.distinct
    assert [p.alias for p in found.projections] == [None, "a", "n", None]
    assert found.projections[2].value == t.Call("count", (v("p"),), distinct=True)
    assert found.projections[3].value == t.Call("count", star=True)


def test_sections_follow_return() -> None:
    found = body(
        "$p: Person", "return { $p.a as a } having { a > 1 } order { a desc, $p.b } offset 2 limit $n", "$n: I64"
    )
    assert [o.direction for o in found.order] == ["desc", None]
    assert (found.limit, found.offset, len(found.having)) == (v("n"), t.Constant(2), 1)


def test_statements_stand_in_any_mixture() -> None:
    text = """query q($a: String) {
      insert Person { name: $a stage: "won" }
      update Person set { age: age + 1 } where name = $a and (age is null or age < 3) returning { id, age as years }
      delete Knows where @src = $a or from = $a
      merge Person { name: $a } set { age: 3 } returning { * }
      merge Person { name: $a }
      insert Knows { from: $x, to: $y } from match { $x: Person $y: Person $x worksWith $y }
    }"""
    statements = parse_queries(text).queries[0].body
    assert isinstance(statements, tuple)
    assert [type(s).__name__ for s in statements] == ["Insert", "Update", "Delete", "Merge", "Merge", "Insert"]
    assert statements[1].returning == t.Returning((t.Projection(t.Name("id")), t.Projection(t.Name("age"), "years")))
    assert statements[3].returning == t.Returning(())


def test_a_clause_in_parentheses_may_follow_a_word() -> None:
    assert len(body("$p.a = true ($p.b) $p.c is null ($p.d) $p.e = $p.f ($p.g) optional { 0 < $p.a }").match) == 7
    found = body("$p: Person", "return { count(distinct ($p.a)) as n }").projections[0].value
    assert found == t.Call("count", (t.Access(v("p"), "a"),), distinct=True)


def test_comments_stand_everywhere() -> None:
    match = 'match { $p: Person { name /* a */ : "x" } $p.a not /* b */ in [1] // c\n }'
    text = f"query q() {{ {match} return {{ lower // d\n ($p.name) }} }}"
    assert len(parse_queries(text).queries) == 1


def test_a_query_is_parsed_without_what_builds_the_parser() -> None:
    code = (
        "import sys; from omnigraph.language.query import check_query, parse_queries, lint_text, bind_params;"
        "parse_queries(''); print('lark' in sys.modules, 'pyarrow' in sys.modules)"
    )
    shown = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout
    assert shown.strip() == "False False"


# ---- refusals --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "at", "part"),
    [
        ("query q() { match { } return { $p } }", "{", "empty"),
        ("query q() { match { $p: Person } }", "match", "no return"),
        ("query q() { match { $p: Person } return { } }", "}", "Expected"),
        ("query q() { match { $p: person } return { $p } }", "person", "upper-case"),
        ("query q() { match { $a Knows $b } return { $a } }", "Knows", "lower-case letter: knows"),
        ("query q() { match { $a.x knows $b } return { $a } }", "knows", "no operator knows"),
        ("query q() { match { $a.x contians $b } return { $a } }", "contians", "Did you mean contains?"),
        ("query q() { match { $a.x = 1 and $a knows $b } return { $a } }", "knows", "stands on its own"),
        ("query q() { match { not ($a <knows> $b) } return { $a } }", "knows>", "stands between"),
        ("query q() { match { $p: Person } return { $p } limit -1 }", "-1", "Expected"),
        ("query q() { match { $p: Person } return { $p } limit 1.5 }", "1.5", "whole number"),
        ("query q() { match { $p: Person } return { $p } limit 1 order { $p.x } }", "order", "stands before limit"),
        ("query q() { match { $p: Person } return { $p } limit 1 limit 2 }", "limit", "two sections limit"),
        ("query q($a: Int) { match { $p: Person } return { $p } }", "Int)", "I32 or I64"),
        ("query q($a: enum) { match { $p: Person } return { $p } }", "enum)", "is a String"),
        ("query q($a: [Blob]) { match { $p: Person } return { $p } }", "Blob])", "Blob"),
        ("query q($a: Vector(0)) { match { $p: Person } return { $p } }", "0))", "from 1"),
        ("query q($a: I32, $a: I64) { match { $p: Person } return { $p } }", "$a:", "twice"),
        ("query q($__nanograph_now: I32) { match { $p: Person } return { $p } }", "$__nanograph_now:", "reserved"),
        ("query q() { match { $p: Person } return { $p } } query q() { delete A where b }", "q()", "twice"),
        ("query q() @description { match { $p: Person } return { $p } }", "@description", "needs a text"),
        ("query q() { match { $p.x == 1 } return { $p } }", "=", "Equality is written ="),
        ("query q() { match { $p.x = 'a' } return { $p } }", "'a'", "double quotes"),
        ('query q() { match { $p.x = "a } return { $p } }', '"a', "never closed"),
        ('query q() { match {\nf($p.x, "a)\nf($p.y, "5") } return { $p } }', '5")', "opens on line 2 missing its"),
        ('query q() { match { $p.x = "\\d" } return { $p } }', '\\d"', "no escape"),
        ("query q() { match { $p.x = 99999999999999999999 } return { $p } }", "99999999999999999999", "64 bits"),
        ("query q() { match { $p.@foo = 1 } return { $p } }", "@foo", "no system field"),
        ("query q() { match { $p: Person, $p.x = 1 } return { $p } }", ",", "nothing between"),
        ("query q() { match { $p: Person } retrun { $p } }", "retrun", "Did you mean return?"),
        ("quary q() { match { $p: Person } return { $p } }", "quary", "Did you mean query?"),
        ("query q() { match { $p: Person } return { $p }", "", "file ends"),
        ("query q() { update Person set { a: 1 } }", "}", "`where`"),
    ],
)  # fmt: skip
def test_a_refusal_shows_its_place_and_says_why(text: str, at: str, part: str) -> None:
    error = unparsed(text)
    assert part in error.fields["detail"], str(error)
    assert pointed(error) == at, str(error)


def test_nesting_is_bounded() -> None:
    assert "deep" in str(unparsed(read_text("$p.a = 1" + " + 1" * 3000)))
    assert "deep" in str(unparsed(read_text("not { " * 50 + "$p knows $q" + " }" * 50)))
    for opened, closed in (("(", ")"), ("[", "]"), ("coalesce(", ")"), ("- ", "")):
        assert "deep" in str(unparsed(read_text("$p.a = " + opened * 10_000 + "1" + closed * 10_000)))
    for opened, closed in (("not (", "$p.a)"), ("optional { $p knows $q ", "}")):
        assert "deep" in str(unparsed(read_text(opened * 10_000 + closed[:-1] + closed[-1] * 10_000)))
    many = body("$p.a = 1" + " or $p.a = 1" * 3000)
    assert len(many.match) == 1


def test_very_long_texts_are_refused() -> None:
    assert "1,001 clauses" in str(unparsed(read_text("$p knows $q " * 1001)))
    assert len(body("$p knows $q " * 1000).match) == 1000
    assert "at most 2,000,000" in str(unparsed(read_text(f'$p.a = "{"a" * 2_000_000}"')))
    with pytest.raises(SchemaSyntaxError, match="at most 2,000,000"):
        parse_schema("//" + "a" * 2_000_000)
