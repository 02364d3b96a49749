"""Every code of an error: what is refused, where, and what is suggested."""

from __future__ import annotations

import pytest

from omnigraph.errors import QueryCheckError
from omnigraph.language.query import CODES
from tests.language.query.texts import checked, pointed, read, read_text, refused, unread, unwritten, write

RETURN = "return { $p.name }"
RRF = 'rrf(bm25($p.bio, "a"), bm25($p.name, "a")'
# (code, match, rest, parameters, what the caret points at)
READS = [
    ("T1", "$p: Persn", RETURN, "", "Persn"),
    ("T1", "$p: Knows", RETURN, "", "Knows"),
    ("T2", "$p: Person { nmae: 1 }", RETURN, "", "nmae:"),
    ("T3", '$p: Person { age: "x" }', RETURN, "", '"x"'),
    ("T3", "$p: Person { name: 1 }", RETURN, "", "1"),
    ("T3", "$p: Person { age: null }", RETURN, "", "null"),
    ("T3", '$p: Person { status: "opne" }', RETURN, "", '"opne"'),
    ("T3", '$p: Person { tags: ["a"] }', RETURN, "", "tags:"),
    ("T3", "$p: Person { vec: [1, 2, 3] }", RETURN, "", "vec:"),
    ("T3", "$p: Person { photo: $x }", RETURN, "$x: Blob", "photo:"),
    ("T3", "$p: Person $p.born = date('2024-02-30')".replace("'", '"'), RETURN, "", '"2024-02-30")'),
    ("T4", "$p: Person $p knwos $f", RETURN, "", "knwos"),
    ("T4", "$p: Person $p knows|knows $f", RETURN, "", "knows"),
    ("T5", "$p: Person $p locatedIn $f", RETURN, "", "locatedIn"),
    ("T5", "$p: Person $c: City $p worksAt $c", RETURN, "", "worksAt"),
    ("T5", "$p: Person $p: Company", RETURN, "", "Company"),
    ("T5", "$p worksAt $p", RETURN, "", "worksAt"),
    ("T6", "$p: Person $q.age > 1", RETURN, "", "$q.age"),
    ("T6", "$p: Person $p.nmae = 1", RETURN, "", "nmae"),
    ("T6", "$p: Person", "return { $p.nmae }", "", "nmae"),
    ("T6", "$p: Person not { $p knows $f }", "return { $f.name }", "", "$f.name"),
    ("T6", "$p: Person $p knows $_", "return { $_.name }", "", "$_.name"),
    ("T6", "$p: Person", RETURN, "$p: String", "$p:"),
    ("T6", "$p: Person", "return { $p.name } order { nobody }", "", "nobody"),
    ("T6", "$p: Person $x.name = 1", RETURN, "$x: String", "name"),
    ("T6", "$p: Named", "return { $p.city }", "", "city"),
    ("T7", '$p: Person $p.age = "x"', RETURN, "", '"x"'),
    ("T7", "$p: Person $p.tags = $p.tags", RETURN, "", "tags"),
    ("T7", "$p: Person $p.vec = $p.vec", RETURN, "", "vec"),
    ("T7", "$p: Person $p.photo = $x", RETURN, "$x: Blob", "photo"),
    ("T7", "$p: Person $p.age contains 1", RETURN, "", "age"),
    ("T7", "$p: Person $p.name contains 1", RETURN, "", "1"),
    ("T7", "$p: Person $p.tags contains 1", RETURN, "", "tags"),
    ("T7", '$p: Person $p.tags starts_with "a"', RETURN, "", "tags"),
    ("T7", "$p: Person $p.age = null", RETURN, "", "null"),
    ("T3", '$p: Person $p.born > "soon"', RETURN, "", '"soon"'),
    ("T3", '$p: Person { born: "2020-13-01" }', RETURN, "", '"2020-13-01"'),
    ("T3", '$p: Person $p.born in ["2020-12-01", "2020-13-01"]', RETURN, "", '"2020-13-01"]'),
    ("T3", '$p: Person "2020-13-01" in $l', RETURN, "$l: [Date]", '"2020-13-01"'),
    ("T7", '$p: Person $p.born in ["2020-12-01", $p.name]', RETURN, "", '["2020-12-01",'),
    ("T7", "$p: Person $p.born > $p.joined", RETURN, "", "joined"),
    ("T7", "$p: Person $p.age in 3", RETURN, "", "3"),
    ("T7", '$p: Person $p.age in ["a"]', RETURN, "", '["a"]'),
    ("T7", '$p: Person $p.name matches "("', RETURN, "", '"("'),
    ("T7", '$p: Person $p.name matches "(?=a)"', RETURN, "", '"(?=a)"'),
    ("T7", "$p: Person $p knows $f $p < $f", RETURN, "", "$p"),
    ("T7", '$p: Person $p = "a"', RETURN, "", "$p"),
    ("T7", "$p: Person", "return { $p.name } order { $p.tags }", "", "tags"),
    ("T8", "$p: Person", "return { sum($p.name) as n }", "", "name)"),
    ("T8", "$p: Person", "return { avg($p.born) as n }", "", "born)"),
    ("T8", "$p: Person", "return { max($p.tags) as n }", "", "tags)"),
    ("T8", "$p: Person", "return { min($p.active) as n }", "", "active)"),
    ("T8", "$p: Person", "return { sum($p) as n }", "", "$p)"),
    ("T8", "$p: Person", "return { collect($p) as n }", "", "$p)"),
    ("T8", "$p: Person", "return { count($p, $p) as n }", "", "count($p,"),
    ("T8", "$p: Person", "return { sum(*) as n }", "", "sum(*)"),
    ("T9", "$p: Person count($p) > 1", RETURN, "", "count($p)"),
    ("T9", "$p: Person", "return { max(count($p)) as n }", "", "count($p))"),
    ("T9", "$p: Person", "return { count($p) as n, max(n) as x }", "", "n)"),
    ("T8", "$p: Person", 'return { bm25($p.bio, "a") as s, max(s) as x }', "", "s)"),
    ("T29", "$p: Person", "return distinct { count($p) as n } order { max($p.age) }", "", "max($p.age)"),
    ("T9", "$p: Person", "return { $p.age + count($p) as n }", "", "+"),
    ("T9", "$p: Person", "return { count($p) as n } order { $p.age }", "", "age"),
    ("T9", "$p: Person", "return { count($p) as n } having { $p.age > 1 }", "", "age"),
    ("T9", "$p: Person not { $a: Person $a knows $b }", RETURN, "", "not"),
    ("T14", "$p: Person { name: $who }", RETURN, "", "$who"),
    ("T15", "$p: Person $p knows{0,2} $f", RETURN, "", "0,2}"),
    ("T15", "$p: Person $p knows{3,2} $f", RETURN, "", "3,2}"),
    ("T15", "$p: Person", "return { $p.name } order { nearest($p.name, $v) } limit 1", "$v: Vector(3)", "name,"),
    ("T15", "$p: Person", "return { $p.name } order { nearest($p.vec, $v) } limit 1", "$v: Vector(4)", "$v)"),
    ("T15", "$p: Person", "return { $p.name } order { nearest($p.vec, [1, 2]) } limit 1", "", "[1,"),
    ("T15", "$p: Person", "return { $p.name } order { nearest($p.vec, 3) } limit 1", "", "3)"),
    ("T15", "$p: Person", 'return { $p.name } order { nearest($p.raw, "a") } limit 1', "", '"a")'),
    ("T15", "$p: Person", "return { $p.name } order { nearest($p.raw, $t) } limit 1", "$t: String?", "$t)"),
    ("T15", "$p: Person", "return { $p.name } order { nearest($p.raw, $p.raw) } limit 1", "", "raw)"),
    ("T15", "$p: Person nearest($p.vec, $v) < 0.5", RETURN, "$v: Vector(3)", "nearest($p.vec,"),
    ("T17", "$p: Person", 'return { $p.name } order { nearest($p.vec, "a") }', "", "nearest($p.vec,"),
    ("T18", "$p: Person", 'return { $p.age as a } order { nearest($p.vec, "a"), a } limit 1', "", "nearest($p.vec,"),
    ("T19", '$p: Person search($p.age, "a")', RETURN, "", "age,"),
    ("T19", "$p: Person search($p.bio, 1)", RETURN, "", "1)"),
    ("T19", '$p: Person fuzzy($p.bio, "a", 3)', RETURN, "", "3)"),
    ("T19", '$p: Person fuzzy($p.bio, "a", "b")', RETURN, "", '"b")'),
    ("T19", "$p: Person search($p.bio)", RETURN, "", "search($p.bio)"),
    ("T19", "$p: Person search($p.bio, $p.name)", RETURN, "", "name)"),
    ("T20", '$p: Person match_text($p.age, "a")', RETURN, "", "age,"),
    ("T20", "$p: Person", "return { bm25($p.bio, 1) as s }", "", "1)"),
    ("T20", "$p: Person bm25($p.bio, $q) > 1", RETURN, "$q: String", "bm25($p.bio,"),
    ("T21", "$p: Person", 'return { $p.name } order { rrf(bm25($p.bio, "a"), $p.age) } limit 1', "", "age)"),
    ("T21", "$p: Person", f"return {{ $p.name }} order {{ {RRF}, 0) }} limit 1", "", "0)"),
    ("T21", "$p: Person", f"return {{ $p.name }} order {{ {RRF}) }}", "", "rrf(bm25($p.bio,"),
    ("T21", "$p: Person", 'return { rrf(bm25($p.bio, "a"), bm25($p.name, "a")) as s }', "", "rrf(bm25($p.bio,"),
    ("T22", "$p: Person $p <worksAt> $c", RETURN, "", "worksAt>"),
    ("T23", "$p: Person $p $w:knows{1,2} $f", RETURN, "", "$w:knows{1,2}"),
    ("T23", "$p: Person $p $p:knows $f", RETURN, "", "$p:knows"),
    ("T23", "$p: Person $p $w:knows $f $f $w:knows $g", RETURN, "", "$w:knows"),
    ("T23", "$p: Person $p $w:knows $f", RETURN, "$w: String", "$w:knows"),
    ("T23", "$p: Person $p $w:knows $f", "return { $w }", "", "$w"),
    ("T23", "$p: Person $p $w:knows $f $w = $f", RETURN, "", "$w"),
    ("T23", "$p: Person $p $w:knows $f $w knows $g", RETURN, "", "$w"),
    ("T23", '$p: Person $p $w:knows $f search($w.label, "a")', RETURN, "", "label,"),
    ("T24", "$p: Person", "return { $p.photo }", "", "photo"),
    ("T24", "$p: Person", "return { $p.name } order { $p.photo }", "", "photo"),
    ("T24", "$p: Person", "return { count($p.photo) as n }", "", "photo)"),
    ("T24", "$p: Person", "return { $b as b }", "$b: Blob", "$b"),
    ("T24", "$p: Person $p $w:knows $f", "return { $w.scan }", "", "scan"),
    ("T25", "$p: Person $p.age", RETURN, "", "age"),
    ("T25", "$p: Person not ($p.name)", RETURN, "", "name)"),
    ("T25", "$p: Person $p.active or $p.age", RETURN, "", "age"),
    ("T25", "$p: Person null", RETURN, "", "null"),
    ("T26", '$p: Person $p.age + "a" = 1', RETURN, "", "+"),
    ("T26", "$p: Person lower($p.age) = 1", RETURN, "", "age)"),
    ("T26", "$p: Person lwoer($p.name) = 1", RETURN, "", "lwoer($p.name)"),
    ("T26", "$p: Person coalesce($p.age, $p.name) = 1", RETURN, "", "name)"),
    ("T26", "$p: Person coalesce($p.age) = 1", RETURN, "", "coalesce($p.age)"),
    ("T26", "$p: Person $p.born + 7 > $p.born", RETURN, "", "+"),
    ("T26", '$p: Person $p.age in [1, "a"]', RETURN, "", '"a"]'),
    ("T26", "$p: Person", "return { now() - $p.joined as d }", "", "-"),
    ("T26", "$p: Person", "return { null as d }", "", "null"),
    ("T26", "$p: Person length($p.age) = 1", RETURN, "", "age)"),
    ("T26", "$p: Person lower(distinct $p.name) = 1", RETURN, "", "lower(distinct"),
    ("T27", "$p: Person path $x = $p knows{1,} $f", RETURN, "", "1,}"),
    ("T27", "$p: Person path $p = $p knows $f", RETURN, "", "$p"),
    ("T27", "$p: Person path $x = $p knows $f", "return { $x }", "", "$x"),
    ("T27", "$p: Person path $x = $p knows $f $x.name = 1", RETURN, "", "name"),
    ("T27", "$p: Person path $x = $p knows $f $x = $p", RETURN, "", "$x"),
    ("T27", "$p: Person path $x = $p knows $f", "return { count($x) as n }", "", "$x)"),
    ("T27", "$p: Person", "return { nodes($p) as n }", "", "$p)"),
    ("T28", "$p: Person optional { $a: Person $a knows $b }", RETURN, "", "optional"),
    ("T29", "$p: Person", "return { $p.name, $p.name }", "", "name"),
    ("T29", "$p: Person", "return { $p.name, $p.age as n, $p.age as n }", "", "age"),
    ("T29", "$p: Person", "return distinct { $p.name } order { $p.age }", "", "age"),
    ("T29", "$p: Person", "return { $p.name } having { $p.age > 1 }", "", "age"),
    ("T29", "$p: Person", "return { $p.name } limit $n", "$n: String", "$n"),
    ("T14", "$p: Person", "return { $p.name } limit $n", "", "$n"),
]  # fmt: skip
WRITES = [
    ("T10", "insert Persn { name: 1 }", "", "Persn"),
    ("T10", "delete Named where name = 1", "", "Named"),
    ("T10", "insert Note { }", "", "Note"),
    ("T10", "update Person set { } where age = 1", "", "Person"),
    ("T11", "delete Person where nmae = 1", "", "nmae"),
    ("T11", "update Person set { nmae: 1 } where age = 1", "", "nmae:"),
    ("T11", "delete Person where photo = $b", "$b: Blob", "photo"),
    ("T12", 'insert Person { slug: "a" }', "", "Person"),
    ("T12", 'insert Knows { from: "a" }', "", "Knows"),
    ("T12", 'insert WorksAt { from: "a", to: "b" }', "", "WorksAt"),
    ("T13", 'insert Note { text: "a", text: "b" }', "", "text:"),
    ("T13", 'insert Knows { from: "a", to: "b", src: "c" }', "", "src:"),
    ("T14", "insert Note { text: $t }", "", "$t"),
    ("T14", "delete Person where age = $t", "", "$t"),
    ("T3", "insert Note { text: 1 }", "", "1"),
    ("T3", "insert Note { text: null }", "", "null"),
    ("T3", "update Person set { vec: [1, 2] } where age = 1", "", "[1,"),
    ("T3", 'update Person set { status: "opne" } where age = 1', "", '"opne"'),
    ("T3", "update Person set { age: 1.5 } where age = 1", "", "1.5"),
    ("T3", 'update Person set { born: "2020-13-01" } where age = 1', "", '"2020-13-01"'),
    ("T3", 'update Person set { days: ["2020-12-01", "2020-13-01"] } where age = 1', "", '"2020-13-01"]'),
    ("T3", 'insert Knows { from: 1, to: "b" }', "", "1,"),
    ("T3", 'insert Note { id: 1, text: "a" }', "", "1,"),
    ("T5", "insert Knows { from: $p, to: $c } from match { $p: Person $p worksAt $c }", "", "$c"),
    ("T19", 'delete Person where search(bio, "a")', "", "search(bio,"),
    ("T9", "delete Person where count(age) > 1", "", "count(age)"),
    ("T25", "delete Person where age", "", "age"),
    ("T30", 'update Person set { slug: "b" } where age = 1', "", "slug:"),
    ("T30", 'update Person set { id: "b" } where age = 1', "", "id:"),
    ("T30", 'insert Person { id: "b", slug: "b", name: "b" }', "", "id:"),
    ("T30", 'merge Note { text: "a" }', "", "Note"),
    ("T30", 'merge Person { name: "a" } set { age: 1 }', "", "Person"),
    ("T30", 'merge Knows { from: "a" }', "", "Knows"),
    ("T24", "delete Person where age = 1 returning { photo }", "", "photo"),
    ("T31", "delete Person where age = 1 returning { age, age }", "", "age"),
    ("T31", "delete Person where age = 1 returning { joined - joined as d }", "", "-"),
    ("T6", "delete Person where age = 1 returning { nmae }", "", "nmae"),
]  # fmt: skip


@pytest.mark.parametrize(("code", "match", "rest", "parameters", "at"), READS, ids=lambda v: str(v)[:60])
def test_a_read_is_refused(code: str, match: str, rest: str, parameters: str, at: str) -> None:
    assert pointed(refused(read_text(match, rest, parameters), code)) == at


@pytest.mark.parametrize(("code", "statement", "parameters", "at"), WRITES, ids=lambda v: str(v)[:60])
def test_a_statement_is_refused(code: str, statement: str, parameters: str, at: str) -> None:
    assert pointed(unwritten(statement, code, parameters)) == at


def test_every_code_is_refused_somewhere() -> None:
    shown = {code for code, *_ in [*READS, *WRITES]}
    assert shown == {c for c in CODES if c.startswith("T")} - {"T16"}


def test_t16_is_no_longer_raised_edges_can_be_updated() -> None:
    (update,) = write('update Knows set { weight: 2.0 } where from = "a"')
    assert update.target.name == "Knows"


@pytest.mark.parametrize(
    ("text", "code", "suggestion"),
    [
        (read_text("$p: Persn"), "T1", "Person"),
        (read_text("$p: Person { nmae: 1 }"), "T2", "name"),
        (read_text("$p: Person $p workAt $c"), "T4", "worksAt"),
        (read_text("$p: Person", "return { $p.nmae }"), "T6", "name"),
        (read_text("$person: Person", "return { $peson.name }"), "T6", "$person"),
        (read_text('$p: Person { status: "opne" }'), "T3", "open"),
        (read_text("$p: Person", "return { cuont($p) as n }"), "T26", "count"),
        ("query q($name: String) { insert Note { text: $nmae } }", "T14", "$name"),
        ("query q() { insert Nota { text: 1 } }", "T10", "Note"),
        ("query q() { delete Person where agee = 1 }", "T11", "age"),
    ],
)
def test_a_near_miss_is_suggested(text: str, code: str, suggestion: str) -> None:
    error = refused(text, code)
    assert error.fields["suggestion"] == suggestion
    assert f"Did you mean {suggestion}?" in error.fields["detail"]


def test_a_far_miss_suggests_nothing() -> None:
    assert unread("$p: Zzzzz", "T1").fields["suggestion"] is None
    assert unread("$p1: Person", "T6", "return { $q1.name }").fields["suggestion"] is None


def test_an_unbound_variable_is_told_of_a_not_block_only_if_one_binds_it() -> None:
    told = "$f is not bound here; a variable of a not block is known only in it."
    inner = "$p: Person optional { $p worksAt $c not { $c worksAt $f } }"
    for match in ("$p: Person not { $p knows $f }", inner):
        assert unread(match, "T6", "return { $f.name }").fields["detail"] == told
    for match in ("$p: Person", "$p: Person not { $p knows $g }"):
        assert unread(match, "T6", "return { $f.name }").fields["detail"] == "$f is not bound here."


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("order { nearest($p.raw, $p.raw) } limit 1", "not with the property $p.raw"),
        ('order { nearest($p.raw, "a") } limit 1', 'Person.raw is not declared with @embed("source")'),
        ("order { nearest($p.raw, [1]) } limit 1", "this one has 1 number."),
        ("order { lower(1.5) }", "lower takes text, not an F64."),
        ("order { lower() }", "lower takes 1 argument, not 0."),
        ('order { date("2020-13-01") }', '"2020-13-01" is not a Date.'),
    ],
)
def test_a_message_says_what_is_wrong(text: str, told: str) -> None:
    with pytest.raises(QueryCheckError) as caught:
        checked(read_text("$p: Person", f"return {{ $p.name }} {text}"))
    assert told in caught.value.fields["detail"]


def test_an_error_reads_as_file_place_code_sentence_and_caret() -> None:
    text = "query q() {\n  match { $p: Person }\n  return { $p.nmae }\n}"
    assert str(refused(text, "T6")) == (
        "q.gq:3:15: T6: Person has no property nmae. Did you mean name?\n  return { $p.nmae }\n" + " " * 14 + "^"
    )


def test_names_of_edges_match_in_any_case() -> None:
    assert read("$p: Person $p worksat $c", "return { $c.city }").pattern.clauses
