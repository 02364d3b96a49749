"""From .pg text to a Schema.

1. text      refuse what is no plain text, and parse the rest by `grammar.lark` (see `language.reading`)
2. syntax    the tree becomes declarations with places
3. rules     the declarations are checked against each other and become the model

Whatever the text, the outcome is a Schema, SchemaSyntaxError or SchemaRuleError. Importing this module does not import
lark: opening a graph reads its schema as JSON and never needs the parser.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from omnigraph.errors import SchemaSyntaxError
from omnigraph.language.reading import check_text, grammar_of, open_string
from omnigraph.language.schema.model import Schema
from omnigraph.language.schema.rules import build_schema
from omnigraph.language.schema.source import Place, Source, did_you_mean, quoted_list
from omnigraph.language.schema.syntax import place_of, read_declarations

if TYPE_CHECKING:
    from lark import Token, UnexpectedCharacters, UnexpectedToken

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
    from lark import UnexpectedCharacters, UnexpectedToken

    source = Source(text, file)
    check_text(source, "a schema", source.syntax_error)
    try:
        tree = grammar_of(__package__).parse(text)
    except UnexpectedToken as error:
        raise _unexpected_token(error, source) from None
    except UnexpectedCharacters as error:
        raise _unexpected_character(error, source) from None
    return build_schema(read_declarations(tree, source), source)


# ---- syntax errors in plain words ------------------------------------------------------------------------------------


def _unexpected_token(error: UnexpectedToken, source: Source) -> SchemaSyntaxError:
    token: Token = error.token
    expected = set(error.accepts or error.expected)
    if token.type == "$END":
        place = Place(token.end_line or 1, token.end_column or 1)
        return source.syntax_error(place, f"The file ends where {_words(expected)} was expected.{open_string(error)}")
    offset = token.start_pos or 0
    return source.syntax_error(place_of(token), _detail(source, offset, str(token), expected) + open_string(error))


def _unexpected_character(error: UnexpectedCharacters, source: Source) -> SchemaSyntaxError:
    offset = error.pos_in_stream or 0
    place = Place(error.line, error.column)
    return source.syntax_error(place, _detail(source, offset, error.char, set(error.allowed or ())))


def _detail(source: Source, offset: int, found: str, expected: set[str]) -> str:
    rest = source.text[offset : offset + 2]
    if rest[:1] == '"' and '"' not in found[1:]:
        return "This string is never closed."
    if rest == "/*":
        return "This comment is never closed."
    if not found.isascii():
        return f"Unexpected {found!r}: names are made of the letters A to Z, digits and _."
    return f"Expected {_words(expected)}, found `{found}`.{_hint(found, expected)}"


def _words(expected: set[str]) -> str:
    names = set(expected)
    if "BASE_TYPE" in names:
        names -= _IN_TYPE - {"BASE_TYPE"}
    if names <= _AFTER_DECLARATION:
        return "a declaration (interface, node or edge)"
    if names & _AFTER_DECLARATION:
        names = (names - _AFTER_DECLARATION) | {"NEXT"}
    return quoted_list(words for name, words in EXPECTED.items() if name in names)


def _hint(found: str, expected: set[str]) -> str:
    if "NODE" in expected and found[:1].isalpha():
        return did_you_mean(found, DECLARATIONS)
    if found[:1] in (",", ";") and "PROPERTY_NAME" in expected:
        return " Properties need nothing between them."
    if found == "?" and "PROPERTY_NAME" in expected:
        return " The ? of a nullable property stands right behind its type."
    if found[:1] == "[" and "BASE_TYPE" in expected:
        return " Lists can't be nested."
    if found[:1] == "@" and "COMMA" in expected and "LBRACE" in expected:
        return " Annotations of a node stand before `implements`."
    return ""
