"""Lint: errors and warnings of a whole file, with places, and the JSON that tools read."""

from __future__ import annotations

from omnigraph.language.query import CODES, Finding, lint_queries, lint_text, parse_queries
from tests.language.query.texts import SCHEMA, read_text


def codes(text: str) -> list[str | None]:
    return [f.code for f in lint_queries(parse_queries(text), SCHEMA)]


def pointed(finding: Finding) -> str:
    assert finding.excerpt is not None
    line, caret = finding.excerpt.split("\n")
    return line[len(caret) - 1 :].split(" ")[0]


def test_a_clean_file_has_no_findings() -> None:
    report = lint_text(read_text("$p: Person $p knows $f $f.age > $n", parameters="$n: I32"), SCHEMA, file="a.gq")
    assert (report.status, report.findings) == ("ok", ())
    assert report.to_json()["queries"][0]["status"] == "ok"


def test_q000_a_text_that_does_not_parse_is_one_error_with_its_place() -> None:
    report = lint_text("query q() {", SCHEMA, file="a.gq")
    (finding,) = report.findings
    assert (report.status, finding.code, finding.severity, finding.line, finding.column) == (
        "error",
        "Q000",
        "error",
        1,
        12,
    )


def test_every_query_is_checked_whatever_becomes_of_the_others() -> None:
    text = """
    query a() { match { $p: Persn } return { $p.name } }
    query b() { match { $p: Person } return { $p.name } }
    query c() { match { $p: Person } return { $p.nmae } }
    """
    report = lint_text(text, SCHEMA, file="a.gq")
    assert [(f.query, f.code, f.line, f.suggestion) for f in report.findings] == [
        ("a", "T1", 2, "Person"),
        ("c", "T6", 4, "name"),
    ]
    body = report.to_json()
    assert (body["status"], body["file"]) == ("error", "a.gq")
    assert [(q["name"], q["kind"], q["status"], "operation" in q) for q in body["queries"]] == [
        ("a", "read", "error", False),
        ("b", "read", "ok", True),
        ("c", "read", "error", False),
    ]
    assert body["queries"][0]["error"] == "There is no node type Persn. Did you mean Person?"


def test_l201_a_nullable_property_of_a_written_type_that_no_update_sets() -> None:
    text = """
    query add($t: String) { insert Note { text: $t, made: now() } }
    query call($n: String, $w: F64?) { update Knows set { weight: $w, label: $n } where from = $n }
    """
    found = [f for f in lint_queries(parse_queries(text), SCHEMA) if f.code == "L201"]
    assert [(f.type_name, f.property) for f in found] == [("Note", "made"), ("Knows", "since"), ("Knows", "scan")]
    assert found[0].message == "Note.made exists in the schema, but no update query sets it."
    assert found[0].severity == "warning"
    assert [(f.query, f.line, f.column) for f in found] == [(None, 2, 36), (None, 3, 47), (None, 3, 47)]
    assert found[0].excerpt is not None
    assert found[0].excerpt.split("\n")[1] == " " * 35 + "^"


def test_a_mutation_without_parameters_is_warned_of_without_a_code() -> None:
    found = lint_queries(parse_queries("query q() { delete City where true }"), SCHEMA)
    assert [(f.code, f.severity, f.query) for f in found] == [(None, "warning", "q")]


def test_l202_a_parameter_that_nothing_uses() -> None:
    found = lint_queries(parse_queries(read_text("$p: Person", parameters="$a: I32, $b: I32")), SCHEMA)
    assert [(f.code, f.column) for f in found] == [("L202", 9), ("L202", 18)]
    used = read_text("$p: Person { age: $a } not { $p.age = $b }", "return { $p.age + $c as x } limit $d",
                     "$a: I32, $b: I32, $c: I32, $d: I32")  # fmt: skip
    assert codes(used) == []


def test_l203_parts_that_nothing_connects() -> None:
    (found,) = lint_queries(parse_queries(read_text("$p: Person $c: Company")), SCHEMA)
    assert (found.code, pointed(found)) == ("L203", "$c:")
    assert codes(read_text("$p: Person $c: Company { name: $p.name }")) == []
    assert codes(read_text("$p: Person $c: Company optional { $p worksAt $c }")) == []


def test_l204_what_never_holds() -> None:
    assert codes(read_text("$p: Person $p.age = 1.5")) == ["L204"]
    assert codes(read_text("$p: Person $p.visits < 0")) == ["L204"]
    (found,) = lint_queries(parse_queries(read_text('$p: Person $p.active $p.status = "opne"')), SCHEMA)
    assert (found.code, found.suggestion, pointed(found)) == ("L204", "open", "$p.status")
    assert found.message == 'status = "opne" never holds; it is enum(closed, on-hold, open). Did you mean open?'
    assert codes(read_text("$p: Person $p worksAt{2,3} $c")) == ["L204"]
    assert codes(read_text('$p: Person $p.age > 1.5 $p.status = "open"')) == []


def test_warnings_alone_do_not_make_an_error() -> None:
    report = lint_text(read_text("$p: Person", parameters="$a: I32"), SCHEMA)
    assert report.status == "warning"
    body = report.to_json()
    assert body["queries"][0]["warnings"] == ["Nothing uses the parameter $a."]
    assert list(body["findings"][0]) == [
        *("severity", "code", "message", "query", "type_name", "property", "line", "column", "excerpt", "suggestion")
    ]


def test_every_code_has_a_meaning() -> None:
    assert list(CODES) == ["Q000", *(f"T{i}" for i in range(1, 32)), "L201", "L202", "L203", "L204"]
    assert all(CODES.values())
