"""From .gq text to a QueryFile.

1. text      refuse what is not plain text, and parse the rest by `grammar.lark` (see `language.lalr`)
2. syntax    the tree becomes queries with places

Whatever the text, the result is a QueryFile or QuerySyntaxError.
"""

from __future__ import annotations

from functools import cache

from omnigraph.errors import QuerySyntaxError
from omnigraph.language.lalr import END, Unexpected, grammar_of
from omnigraph.language.query.syntax.lexer import QueryLexer
from omnigraph.language.query.syntax.queries import read_file
from omnigraph.language.query.syntax.tree import QueryFile, QueryText
from omnigraph.language.reading import check_text, open_string, open_text
from omnigraph.language.schema.source import did_you_mean, quoted_list
from omnigraph.language.schema.syntax.declarations import place_of

SECTIONS = ("return", "having", "order", "limit", "offset")
STATEMENTS = ("insert", "update", "delete", "merge")
# Terminals in plain words, in the order in which a message lists them. The last four stand for groups of terminals.
EXPECTED = {
    "QUERY": "`query`",
    "NAME": "a name",
    "VARIABLE": "a variable",
    "KEY": "`property: value`",
    "NUMBER": "a number",
    "VECTOR": "`Vector`",
    "SYSTEM": "an annotation",
    "MATCH": "`match`",
    "SET": "`set`",
    "WHERE": "`where`",
    "FROM": "`from match`",
    "RETURNING": "`returning`",
    "AS": "`as`",
    "NULL": "`null`",
    "STRING": "a string",
    "WORD": "the name of an edge",
    "COLON": "`:`",
    "COMMA": "`,`",
    "EQUAL": "`=`",
    "LPAR": "`(`",
    "RPAR": "`)`",
    "LSQB": "`[`",
    "RSQB": "`]`",
    "LBRACE": "`{`",
    "RBRACE": "`}`",
    "VALUE": "a value",
    "CLAUSE": "a clause",
    "AN_OPERATOR": "an operator",
    "SECTION": f"a section ({', '.join(SECTIONS)})",
    "STATEMENT": f"a statement ({', '.join(STATEMENTS)})",
}
_SECTION = {s.upper() for s in SECTIONS}
_STATEMENT = {s.upper() for s in STATEMENTS}
_VALUE = {
    "STRING",
    "NUMBER",
    "TRUE",
    "FALSE",
    "NULL",
    "FUNCTION",
    "LSQB",
    "VARIABLE",
    "WORD",
    "SYSTEM",
    "LPAR",
    "MINUS",
}
_OPERATOR = {
    *("OPERATOR", "LESSTHAN", "MORETHAN", "NOT_IN", "IS", "PLUS", "MINUS", "STAR", "SLASH", "AND", "OR", "WORD", "DOT")
}
_CLAUSE = {"PATH", "SHORTEST", "OPTIONAL", *_VALUE, "NOT"}


def parse_queries(text: str, *, file: str = "<query>") -> QueryFile:
    source = QueryText(text, file)
    check_text(source, "a query", source.refuse)
    try:
        tree = grammar_of(__package__).parse(text, _lexer())
    except Unexpected as error:
        raise _refusal(error, source) from None
    return read_file(tree, source)


@cache
def _lexer() -> QueryLexer:
    return QueryLexer(grammar_of(__package__))


# ---- syntax errors in plain words ------------------------------------------------------------------------------------


def _refusal(error: Unexpected, source: QueryText) -> QuerySyntaxError:
    token, expected, hint = error.token, error.expected, open_string(error)
    if token.type == END:
        return source.refuse(place_of(token), f"The file ends where {_words(expected)} was expected.{hint}")
    if not token.type and expected & {"NAME", "WORD"}:
        # Where a name is accepted, the accepted keywords are not listed.
        expected = expected - {name for text, name in grammar_of(__package__).words.items() if text.isalpha()}
    detail = _detail(source, token.start, str(token), expected)
    return source.refuse(place_of(token), detail + (hint if token.type else ""))


def _detail(source: QueryText, offset: int, token: str, expected: set[str]) -> str:
    if problem := open_text(source, offset, token):
        return problem
    near = source.text[max(offset - 1, 0) : offset + 2]
    return f"Expected {_words(expected)}, found `{token}`.{_hint(token, near, expected)}"


def _words(expected: set[str]) -> str:
    names = set(expected)
    if names <= {"QUERY", "$END"}:
        return "`query`"
    for group, members, needed in (
        ("SECTION", _SECTION, {"RETURN", "LIMIT"}),
        ("STATEMENT", _STATEMENT, _STATEMENT),
        ("CLAUSE", _CLAUSE, {"OPTIONAL", "VARIABLE"}),
        ("AN_OPERATOR", _OPERATOR, {"OPERATOR", "PLUS"}),
        ("VALUE", _VALUE, {"STRING", "VARIABLE", "FUNCTION"}),
    ):
        if needed <= names:
            names = (names - members) | {group}
    return quoted_list(words for name, words in EXPECTED.items() if name in names) if names & set(EXPECTED) else "more"


def _hint(token: str, near: str, expected: set[str]) -> str:
    if "==" in near or "<>" in near:
        return " Equality is written =, inequality !=."
    if "&&" in near or "||" in near:
        return " Write and, or."
    if token == "'":
        return " Strings stand in double quotes."
    if token in (";", ",") and expected >= {"OPTIONAL", "VARIABLE"}:
        return " Clauses need nothing between them."
    if "QUERY" in expected and token[:1].isalpha():
        return did_you_mean(token, ["query"])
    if "RETURN" in expected and token[:1].isalpha():
        return did_you_mean(token, SECTIONS)
    if "MATCH" in expected and token[:1].isalpha():
        return did_you_mean(token, ["match", *STATEMENTS])
    return ""
