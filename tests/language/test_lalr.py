"""The automaton is the one that lark builds of the grammar, and gives the trees that lark gives.

OMNIGRAPH_TABLES=write pytest tests/language/test_lalr.py     after a change of a grammar
"""

from __future__ import annotations

import functools
import json
import os
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import lark
import pytest

from omnigraph.language import lalr
from omnigraph.language.lalr import END, Grammar, Token, Tree, Unexpected, grammar_of
from omnigraph.language.query import syntax as query
from omnigraph.language.query.syntax.lexer import QueryLexer
from omnigraph.language.schema import syntax as schema
from omnigraph.language.schema.syntax.lexer import SchemaLexer
from tests.language import tables
from tests.language.query import test_fuzz as query_texts
from tests.language.query.random_queries import random_query
from tests.language.schema import test_fuzz as schema_texts
from tests.language.schema.texts import EVERYTHING

PACKAGES = (query, schema)
TEXTS = 200
EXAMPLES = Path(__file__).parents[2] / "examples" / "query"


def grammar_file(package: Any) -> Path:
    return Path(package.__file__).parent / "grammar.lark"


@pytest.mark.parametrize("package", PACKAGES)
def test_the_automaton_is_the_one_of_the_grammar(package: Any) -> None:
    path = grammar_file(package)
    if os.environ.get("OMNIGRAPH_TABLES") == "write":
        tables.write(path)
    kept = json.loads(path.with_suffix(".json").read_text())
    assert kept == tables.tables_of(path.read_text()), "run this with OMNIGRAPH_TABLES=write"


def plain(tree: Any) -> Any:
    """A tree of lark or of ours: names of rules, and tokens with their terminal and place."""
    if isinstance(tree, str):
        token: Any = tree
        return (str(token), token.type, token.line, token.column, token.end_line, token.end_column)
    return (str(tree.data), [plain(child) for child in tree.children])


@pytest.mark.parametrize(
    ("package", "lexer", "makers"),
    [
        (query, QueryLexer, (lambda rng: changed(rng, random_query(rng), query_texts.TOKENS), query_texts.tokens)),
        (schema, SchemaLexer, (lambda rng: changed(rng, EVERYTHING, schema_texts.TOKENS), schema_texts.tokens)),
    ],
)
def test_a_text_becomes_the_tree_that_lark_makes_of_it(package: Any, lexer: Any, makers: Any) -> None:
    seed = int(os.environ.get("OMNIGRAPH_FUZZ_SEED") or random.SystemRandom().randrange(2**32))
    print(f"OMNIGRAPH_FUZZ_SEED={seed}")
    rng = random.Random(seed)
    oracle, grammar = tables.by_lark(grammar_file(package).read_text()), grammar_of(package.__name__)
    parse = functools.partial(grammar.parse, lex=lexer(grammar))
    texts = [path.read_text() for path in sorted(EXAMPLES.glob("*.gq" if package is query else "*.pg"))]
    texts += [make(rng) for _ in range(TEXTS) for make in makers]
    whole = 0
    for text in texts:
        expected, actual = outcome(oracle.parse, text), outcome(parse, text)
        assert actual == expected or reads_only_a_part(parse, text, expected), text
        whole += expected[0] == "start"
    assert TEXTS / 10 < whole < len(texts) - TEXTS / 2


def changed(rng: random.Random, text: str, others: list[str]) -> str:
    """The text with some words exchanged, left out or added. They stay apart: lark reads `edgeKnows` as two words."""
    words = text.split(" ")
    for _ in range(rng.randint(0, 3)):
        at = rng.randrange(len(words))
        words[at : at + rng.randint(0, 2)] = rng.choice([[], [rng.choice(others)], [rng.choice(words)]])
        words = words or ["node"]
    return " ".join(words)


def outcome(parse: Callable[[str], Any], text: str) -> Any:
    """The tree, or where the text is wrong."""
    try:
        return plain(parse(text))
    except Unexpected as error:
        return error.token.line, error.token.column
    except lark.UnexpectedToken as error:
        is_end = error.token.type == END
        return (error.token.end_line, error.token.end_column) if is_end else (error.line, error.column)
    except lark.UnexpectedCharacters as error:
        return error.line, error.column


def reads_only_a_part(parse: Callable[[str], Any], text: str, lark_place: Any) -> bool:
    """Whether lark complains of the rest of our unexpected token: where only `return` can follow, it reads this much of
    `returning`, and `<` of `<=`.
    """
    try:
        parse(text)
    except Unexpected as error:
        token = error.token
        return lark_place[0] == token.line and 0 < lark_place[1] - token.column < len(str(token))
    return False


@pytest.mark.parametrize(
    ("text", "column"),
    [
        ("query q() { match { $a: T } return { $a } returning $a }", 43),
        ("query q() { match { $a: T shortest $a <= b } return { $a } }", 39),
    ],
)
def test_a_word_that_begins_with_another_one_is_one_word(text: str, column: int) -> None:
    grammar = grammar_of(query.__name__)
    assert outcome(functools.partial(grammar.parse, lex=QueryLexer(grammar)), text) == (1, column)


# ---- a grammar of three rules ----------------------------------------------------------------------------------------

SUMS = r"""
start: _list
_list: (sum ","?)*
?sum: A (PLUS A)*
A: "a"
PLUS: "+"
COMMENT: "//" /[^\n]*/
%ignore COMMENT
%ignore " "
"""


def sums(text: str) -> Tree:
    grammar = Grammar(tables.tables_of(SUMS))

    def lex(text: str, position: int, accepted: Any) -> tuple[str, int]:
        return grammar.words.get(text[position], ""), position + 1

    return grammar.parse(text, lex)


def test_trees_keep_what_has_a_name() -> None:
    tree = sums("a, a + a // b\n a")
    assert tree.data == "start"
    first, second, third = tree.children
    assert isinstance(first, Token)
    assert (second.data, [str(c) for c in second.children]) == ("sum", ["a", "+", "a"])
    assert (third.type, third.start, third.line, third.column, third.end_column) == ("A", 15, 2, 2, 3)


@pytest.mark.parametrize(
    ("text", "found", "type_", "place", "expected"),
    [
        ("a + , a", ",", "COMMA", (1, 5), {"A"}),
        ("a\n ?", "?", "", (2, 2), {"A", "PLUS", "COMMA", END}),
        ("a a +  ", "", END, (1, 6), {"A"}),
        (", a", ",", "COMMA", (1, 1), {"A", END}),
    ],
)
def test_what_may_not_stand_there_is_told_with_what_may(
    text: str, found: str, type_: str, place: tuple[int, int], expected: set[str]
) -> None:
    with pytest.raises(Unexpected) as refused:
        sums(text)
    error = refused.value
    assert (str(error.token), error.token.type, (error.token.line, error.token.column)) == (found, type_, place)
    assert error.expected == expected


def test_a_long_text_is_read_in_time_that_grows_with_it(monkeypatch: pytest.MonkeyPatch) -> None:
    copied = 0
    build = lalr.Rule.build

    def counted(self: lalr.Rule, children: list[Any]) -> Any:
        nonlocal copied
        before = {id(child) for child in children}
        made = build(self, children)
        copied += len(made) if isinstance(made, list) and id(made) not in before else 0
        return made

    monkeypatch.setattr(lalr.Rule, "build", counted)
    assert len(sums("a " * 5000).children) == 5000
    assert copied < 20_000
