"""From .pg text to a Schema.

1. text      refuse what is not plain text, and parse the rest by `grammar.lark` (see `language.lalr`)
2. syntax    the tree becomes declarations with places
3. rules     the declarations are checked against each other and become the model

Whatever the text, the result is a Schema, SchemaSyntaxError or SchemaRuleError. Opening a graph reads its schema as
JSON and never needs the parser.
"""

from __future__ import annotations

from functools import cache

from omnigraph.errors import SchemaSyntaxError
from omnigraph.language.lalr import END, Unexpected, grammar_of
from omnigraph.language.reading import check_text, open_string, open_text
from omnigraph.language.schema.model import Schema
from omnigraph.language.schema.source import Source, did_you_mean, quoted_list
from omnigraph.language.schema.syntax.declarations import place_of, read_declarations
from omnigraph.language.schema.syntax.lexer import SchemaLexer
from omnigraph.language.schema.syntax.rules import build_schema

DECLARATIONS = ("interface", "node", "edge")
# Terminals in plain words, in the order in which a message lists them. `NEXT` stands for whatever may follow a whole
# declaration.
EXPECTED = {
    "TYPE_NAME": "a type name",
    "PROPERTY_NAME": "a property name",
    "ANNOTATION_NAME": "the name of an annotation",
    "BASE_TYPE": "a type (String, I64, [String], enum(…), Vector(n), …)",
    "ENUM_VALUE": "an enum value",
    "STRING": "a string",
    "NUMBER": "a number",
    "WORD": "a word",
    "DOTS": "`..`",
    "IMPLEMENTS": "`implements`",
    "AT": "an annotation",
    "NULLABLE": "`?`",
    "COLON": "`:`",
    "EQUAL": "`=`",
    "COMMA": "`,`",
    "LPAR": "`(`",
    "RPAR": "`)`",
    "LSQB": "`[`",
    "RSQB": "`]`",
    "LBRACE": "`{`",
    "RBRACE": "`}`",
    "_ARROW": "`->`",
    "NEXT": "the next declaration",
}
_AFTER_DECLARATION = {"INTERFACE", "NODE", "EDGE", "$END"}
_IN_TYPE = {"BASE_TYPE", "ENUM", "VECTOR", "LSQB"}


def parse_schema(text: str, *, file: str = "<schema>") -> Schema:
    source = Source(text, file)
    check_text(source, "a schema", source.syntax_error)
    try:
        tree = grammar_of(__package__).parse(text, _lexer())
    except Unexpected as error:
        raise _refusal(error, source) from None
    return build_schema(read_declarations(tree, source), source)


@cache
def _lexer() -> SchemaLexer:
    return SchemaLexer(grammar_of(__package__))


# ---- syntax errors in plain words ------------------------------------------------------------------------------------


def _refusal(error: Unexpected, source: Source) -> SchemaSyntaxError:
    token, expected, hint = error.token, error.expected, open_string(error)
    if token.type == END:
        return source.syntax_error(place_of(token), f"The file ends where {_words(expected)} was expected.{hint}")
    detail = _detail(source, token.start, str(token), expected)
    return source.syntax_error(place_of(token), detail + (hint if token.type else ""))


def _detail(source: Source, offset: int, token: str, expected: set[str]) -> str:
    if problem := open_text(source, offset, token):
        return problem
    return f"Expected {_words(expected)}, found `{token}`.{_hint(token, expected)}"


def _words(expected: set[str]) -> str:
    names = set(expected)
    if "BASE_TYPE" in names:
        names -= _IN_TYPE - {"BASE_TYPE"}
    if names <= _AFTER_DECLARATION:
        return "a declaration (interface, node or edge)"
    if names & _AFTER_DECLARATION:
        names = (names - _AFTER_DECLARATION) | {"NEXT"}
    return quoted_list(words for name, words in EXPECTED.items() if name in names)


def _hint(token: str, expected: set[str]) -> str:
    if "NODE" in expected and token[:1].isalpha():
        return did_you_mean(token, DECLARATIONS)
    if token[:1] in (",", ";") and "PROPERTY_NAME" in expected:
        return " Properties need nothing between them."
    if token == "?" and "PROPERTY_NAME" in expected:
        return " The ? of a nullable property stands right behind its type."
    if token[:1] == "[" and "BASE_TYPE" in expected:
        return " Lists can't be nested."
    if token[:1] == "@" and "COMMA" in expected and "LBRACE" in expected:
        return " Annotations of a node stand before `implements`."
    return ""
