"""What does not parse is refused with the place, the line, a caret and a sentence that says what was expected."""

from __future__ import annotations

import pytest

from omnigraph.errors import SchemaSyntaxError
from omnigraph.language.schema import parse_schema
from omnigraph.language.schema.source import EXCERPT_CHARS_MAX, excerpt

# text, line, column, the whole detail
REFUSED = [
    ("nod X {}", 1, 1, "Expected a declaration (interface, node or edge), found `nod`. Did you mean node?"),
    ("$", 1, 1, "Expected a declaration (interface, node or edge), found `$`."),
    ("node X {}\n}", 2, 1, "Expected a declaration (interface, node or edge), found `}`."),
    ("node", 1, 5, "The file ends where a type name was expected."),
    ("node X", 1, 7, "The file ends where `implements`, an annotation or `{` was expected."),
    ("node X {", 1, 9, "The file ends where a property name, an annotation or `}` was expected."),
    ("node x {}", 1, 6, "A type name starts with an upper-case letter: X, not x."),
    ("node _1 {}", 1, 6, "A type name starts with an upper-case letter."),
    ("edge E: a -> B", 1, 9, "A type name starts with an upper-case letter: A, not a."),
    ("node X implements y {}", 1, 19, "A type name starts with an upper-case letter: Y, not y."),
    ("node X { Age: I32 }", 1, 10, "A property name starts with a lower-case letter or _: age, not Age."),
    ("node Xé {}", 1, 7, "Unexpected 'é': names are made of the letters A to Z, digits and _."),
    (
        "node X { a: I32, b: I32 }",
        1,
        16,
        "Expected a property name, an annotation, `?` or `}`, found `,`. Properties need nothing between them.",
    ),
    (
        "node X { a: I32 @x? }",
        1,
        19,
        "Expected a property name, an annotation, `(` or `}`, found `?`. "
        "The ? of a nullable property stands right behind its type.",
    ),
    ("node X { a I32 }", 1, 12, "Expected `:`, found `I32`."),
    ("node X { a: }", 1, 13, "Expected a type (String, I64, [String], enum(…), Vector(n), …), found `}`."),
    (
        "node X { a: [[I32]] }",
        1,
        14,
        "Expected a type (String, I64, [String], enum(…), Vector(n), …), found `[`. Lists can't be nested.",
    ),
    ("node X { a: [I32?] }", 1, 17, "Expected `]`, found `?`."),
    ("node X { a: enum(a,) }", 1, 20, "Expected an enum value, found `)`."),
    ("node X { a: enum(a b) }", 1, 20, "Expected `,` or `)`, found `b`."),
    ("node X { a: Vector }", 1, 20, "Expected `(`, found `}`."),
    ("node X { a: I32 @ }", 1, 19, "Expected the name of an annotation, found `}`."),
    ("node X { a: I32 @x( }", 1, 21, "Expected a string, a number, a word, `..` or `)`, found `}`."),
    ("node X { a: I32 @x(k=) }", 1, 22, "Expected a string, a number or a word, found `)`."),
    ("node X { a: F64 @x(1e5) }", 1, 21, "Expected `..`, `,` or `)`, found `e5`."),
    ("node X { a: F64 @x(.5) }", 1, 20, "Expected a string, a number, a word, `..` or `)`, found `.`."),
    (
        "node X implements A @x {}",
        1,
        21,
        "Expected `,` or `{`, found `@`. Annotations of a node stand before `implements`.",
    ),
    ("nodeX {}", 1, 1, "Expected a declaration (interface, node or edge), found `nodeX`. Did you mean node?"),
    ("edge E: A > B", 1, 11, "Expected `->`, found `>`."),
    ("edge E: A -> B C", 1, 16, "Expected an annotation, `{` or the next declaration, found `C`."),
    ('node X @x("abc {}', 1, 11, "This string is never closed."),
    ('node X {}\n  /* "', 2, 3, "This comment is never closed."),
    (
        'node X @a("one) {}\nnode Y @b("two") {}',
        2,
        12,
        "Expected `,` or `)`, found `two`. Is the string that opens on line 1 missing its closing quote?",
    ),
    ("node X\0 {}", 1, 7, "There is a NUL character here; a schema is plain text."),
    (
        "// \ud800",
        1,
        4,
        "There is half of a surrogate pair here; a schema is plain text in UTF-8.",
    ),
    # shapes of annotations
    ("node X @x() {}", 1, 8, "The parentheses of @x are empty; leave them out or write an argument."),
    ("node X @x(k=1) {}", 1, 11, "The first argument of @x is a plain value."),
    ("node X @x(1, 2) {}", 1, 14, "Further arguments of @x are written name=value."),
    ("node X @x(1, k=1, k=2) {}", 1, 19, "@x is given k twice."),
    ("node X @x(1, k=word) {}", 1, 16, "The value of k is a literal; put it in quotes."),
    ("node X @x(1..2) {}", 1, 11, "@x takes no range; ranges belong to @range and @card."),
    ("node X @x(-1) {}", 1, 11, "Only the bounds of @range and the value of @default take a sign."),
    ("node X @x(1, k=-1) {}", 1, 14, "Only the bounds of @range and the value of @default take a sign."),
    ("node X @x(18446744073709551616) {}", 1, 11, "18446744073709551616 does not fit into 64 bits."),
    (f"node X @x({'9' * 5000}) {{}}", 1, 11, f"{'9' * 40}… does not fit into 64 bits."),
    (f"node X @x({'9' * 400}.0) {{}}", 1, 11, f"{'9' * 40}….0 is too large for a number."),
    (
        'node X @x("a\\d") {}',
        1,
        13,
        r"There is no escape \d; strings know \" \\ \n \r \t and \uXXXX. A backslash itself is \\.",
    ),
    ('node X @x("\\ud83d") {}', 1, 12, r"\ud83d is not a character that text may hold."),
    ('node X @x("\\u0000") {}', 1, 12, r"\u0000 is not a character that text may hold."),
    # bodies
    (
        "node X { @x a: I32 }",
        1,
        10,
        "@x follows no property. Annotations of a property stand right behind it, "
        "those of the node stand before the {.",
    ),
    (
        "node X { a: I32 @index(a) @x }",
        1,
        27,
        "@x follows no property. Annotations of a property stand right behind it, "
        "those of the node stand before the {.",
    ),
    ("node X { @key a: I32 }", 1, 10, "@key needs its properties here, as in @key(name), or has to follow a property."),
    (
        "node X @key(a) { a: I32 }",
        1,
        8,
        "@key stands in the body: as a constraint, @key(property…), or behind a property.",
    ),
    (
        "node X @index { a: I32 }",
        1,
        8,
        "@index stands in the body: as a constraint, @index(property…), or behind a property.",
    ),
    ('node X { a: I32 @key("a") }', 1, 22, "@key names properties, without quotes, as in @key(name)."),
    ("node X { a: I32 @unique(k=1) }", 1, 25, "@unique names properties, without quotes, as in @unique(name)."),
    ("node X { a: I32 @range(a) }", 1, 17, "@range is written @range(property, low..high)."),
    ("node X { a: I32 @range(a, 1) }", 1, 17, "@range is written @range(property, low..high)."),
    ("node X { a: I32 @range(1..2) }", 1, 17, "@range is written @range(property, low..high)."),
    ("node X { a: String @check(a, b) }", 1, 20, '@check is written @check(property, "pattern").'),
    ('node X { a: String @check("a", "b") }', 1, 27, "@check names properties, without quotes, as in @check(name)."),
    (
        "interface I { a: I32 @index(a) }",
        1,
        22,
        "An interface holds properties only; write @index(…) in the nodes that implement it.",
    ),
]


@pytest.mark.parametrize(("text", "line", "column", "detail"), REFUSED, ids=range(len(REFUSED)))
def test_the_error_says_where_and_what(text: str, line: int, column: int, detail: str) -> None:
    with pytest.raises(SchemaSyntaxError) as caught:
        parse_schema(text, file="graph.pg")
    fields = caught.value.fields
    assert (fields["file"], fields["line"], fields["column"], fields["detail"]) == ("graph.pg", line, column, detail)
    assert caught.value.condition == "schema_syntax"
    assert str(caught.value).startswith(f"graph.pg:{line}:{column}: {detail}\n")


def test_the_excerpt_is_the_line_with_a_caret_under_the_column() -> None:
    with pytest.raises(SchemaSyntaxError) as caught:
        parse_schema("node X {\r\n\tname: String;\r\n}")
    assert caught.value.fields["excerpt"] == "\tname: String;\n\t            ^"


@pytest.mark.parametrize(
    ("line", "column", "shown"),
    [
        ("abc", 1, "abc\n^"),
        ("abc", 4, "abc\n   ^"),
        ("abc", 99, "abc\n   ^"),
        ("", 1, "\n^"),
        ("a\tb\tc", 5, "a\tb\tc\n \t \t^"),
        ("漢x", 2, "漢x\n  ^"),
        ("e\u0301x", 3, "e\u0301x\n ^"),
        ("a\x1b\x07b", 4, "a\ufffd\ufffdb\n   ^"),
    ],
)
def test_carets_stay_under_their_character(line: str, column: int, shown: str) -> None:
    assert excerpt(line, column) == shown


def test_a_very_long_line_is_cut_around_the_place() -> None:
    shown, caret = excerpt("x" * 5000 + "!" + "y" * 5000, 5001).split("\n")
    assert shown[0] == shown[-1] == "…"
    assert len(shown) == EXCERPT_CHARS_MAX + 2
    assert shown[caret.index("^")] == "!"


def test_errors_carry_plain_json_values_only() -> None:
    with pytest.raises(SchemaSyntaxError) as caught:
        parse_schema("node")
    assert {type(v) for v in caught.value.to_json().values()} == {str, int}
