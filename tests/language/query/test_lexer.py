"""The lexer of queries gives what lark's contextual one gives, but for keywords that run into the next word.

OMNIGRAPH_FUZZ_SEED=… replays.
"""

from __future__ import annotations

import os
import random
from pathlib import Path

import pytest
from lark import Lark

from omnigraph.errors import QuerySyntaxError
from omnigraph.language import query as language
from omnigraph.language.query import parse, parse_queries
from omnigraph.language.reading import grammar_of
from tests.language.query.random_queries import random_query
from tests.language.query.test_fuzz import TOKENS, tokens

EXAMPLES = Path(__file__).parents[3] / "examples" / "query"
TEXTS = 300


@pytest.fixture
def by_lark(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Lark:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return grammar_of.__wrapped__(language.__name__)


def read(text: str) -> str:
    try:
        return repr(parse_queries(text))
    except QuerySyntaxError as error:
        # Of `>=` where only `>` could stand, lark shows `>`; of `not in` where neither could, the whole.
        return str(error).partition(", found `")[0]


def changed(rng: random.Random) -> str:
    """A right query with some words exchanged, left out or added; words stay apart."""
    words = random_query(rng).split(" ")
    for _ in range(rng.randint(0, 3)):
        at = rng.randrange(len(words))
        words[at : at + rng.randint(0, 2)] = rng.choice([[], [rng.choice(TOKENS)], [rng.choice(words)]])
        words = words or ["query"]
    return " ".join(words)


def test_texts_are_read_as_by_the_lexer_of_lark(by_lark: Lark, monkeypatch: pytest.MonkeyPatch) -> None:
    seed = int(os.environ.get("OMNIGRAPH_FUZZ_SEED") or random.SystemRandom().randrange(2**32))
    print(f"OMNIGRAPH_FUZZ_SEED={seed}")
    rng = random.Random(seed)
    texts = [path.read_text() for path in sorted(EXAMPLES.glob("*.gq"))]
    texts += [make(rng) for _ in range(TEXTS) for make in (changed, tokens)]
    ours = [read(text) for text in texts]
    monkeypatch.setattr(parse, "grammar_of", lambda *_: by_lark)
    assert ours == [read(text) for text in texts]
    refused = sum(": Q000: " in told for told in ours)
    assert TEXTS / 2 < refused < len(texts) - TEXTS / 10


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("queryq() { match { $p: Person } return { $p } }", "queryq"),
        ("query q() { matchx { $p: Person } return { $p } }", "matchx"),
        ("query q() { match { $p: Person } return { $p } limit5 }", "limit5"),
    ],
)
def test_a_keyword_does_not_run_into_the_next_word(text: str, found: str) -> None:
    with pytest.raises(QuerySyntaxError, match=f"found `{found}`"):
        parse_queries(text)


def test_words_are_keywords_only_where_the_parser_expects_them() -> None:
    text = """query match($limit: String) {
      match { $query: Person { name: $limit }  $query.order = "x" }
      return { $query.limit as order }
      order { order desc }
    }"""
    assert "limit" in read(text)
    assert ": Q000: " not in read(text)


@pytest.mark.parametrize(
    ("text", "same"),
    [
        ("not // what is in\n ($p.age = 1)", "not ($p.age = 1)"),
        ("$p.age not // as (in) the list\n in [1]", "$p.age not in [1]"),
        ("$p knows // a friend (or so)\n $q", "$p knows $q"),
        ("$p knows /* a friend (or so): */ $q", "$p knows $q"),
        ("optional // not { this }\n { $p knows $q }", "optional { $p knows $q }"),
    ],
)
def test_what_a_comment_says_is_no_part_of_the_text(text: str, same: str) -> None:
    around = "query q() {{ match {{ $p: Person {} }} return {{ $p }} }}"
    assert parse_queries(around.format(text)) == parse_queries(around.format(same))
