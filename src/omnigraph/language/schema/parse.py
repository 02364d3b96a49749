"""From .pg text to a Schema.

1. text      refuse what no file in UTF-8 holds (lone surrogates) and NUL
2. grammar   LALR with a contextual lexer (`grammar.lark`), built on first use and kept for the process
3. syntax    the tree becomes declarations with places
4. rules     the declarations are checked against each other and become the model

Whatever the text, the outcome is a Schema, SchemaSyntaxError or SchemaRuleError. Importing this module does not import
lark: opening a graph reads its schema as JSON and never needs the parser.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

from omnigraph.errors import SchemaSyntaxError
from omnigraph.language.schema.model import Schema
from omnigraph.language.schema.rules import build_schema
from omnigraph.language.schema.source import Place, Source, did_you_mean, quoted_list
from omnigraph.language.schema.syntax import place_of, read_declarations

if TYPE_CHECKING:
    from lark import Lark, Token, UnexpectedCharacters, UnexpectedToken

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
    _check_text(source)
    try:
        tree = _grammar().parse(text)
    except UnexpectedToken as error:
        raise _unexpected_token(error, source) from None
    except UnexpectedCharacters as error:
        raise _unexpected_character(error, source) from None
    return build_schema(read_declarations(tree, source), source)


@cache
def _grammar() -> Lark:
    from importlib.resources import files

    from lark import Lark

    grammar = files(__package__).joinpath("grammar.lark").read_text(encoding="utf-8")
    return Lark(grammar, parser="lalr", lexer="contextual", maybe_placeholders=False)


def _check_text(source: Source) -> None:
    nul = source.text.find("\0")
    if nul >= 0:
        raise source.syntax_error(source.place_of(nul), "There is a NUL character here; a schema is plain text.")
    try:
        source.text.encode("utf-8")
    except UnicodeEncodeError as error:
        detail = "There is half of a surrogate pair here; a schema is plain text in UTF-8."
        raise source.syntax_error(source.place_of(error.start), detail) from None


# ---- syntax errors in plain words ------------------------------------------------------------------------------------


def _unexpected_token(error: UnexpectedToken, source: Source) -> SchemaSyntaxError:
    token: Token = error.token
    expected = set(error.accepts or error.expected)
    if token.type == "$END":
        place = Place(token.end_line or 1, token.end_column or 1)
        return source.syntax_error(place, f"The file ends where {_words(expected)} was expected.{_open_string(error)}")
    offset = token.start_pos or 0
    return source.syntax_error(place_of(token), _detail(source, offset, str(token), expected) + _open_string(error))


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


def _open_string(error: UnexpectedToken) -> str:
    """A string that runs over several lines right before the error is most likely missing its closing quote."""
    for token in error.token_history or ():
        if token is not None and token.type == "STRING" and token.end_line != token.line:
            return f" Is the string that opens on line {token.line} missing its closing quote?"
    return ""
