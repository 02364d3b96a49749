"""Whatever the text: a checked query or a typed error, never a crash. OMNIGRAPH_FUZZ_SEED=… replays."""

from __future__ import annotations

import os
import random
import time
from collections import Counter
from collections.abc import Callable

import pytest

from omnigraph.errors import QueryCheckError, QueryError, QuerySyntaxError
from omnigraph.language.query import CODES, check_query, lint_queries, operation, parse_queries, render
from tests.language.query.random_queries import random_query
from tests.language.query.texts import SCHEMA
from tests.support.canonical_queries import CANONICAL

SECONDS_PER_TEST = 2.0
WORDS = r"""
    query match return order limit offset having distinct insert update delete merge set where from returning not
    optional path shortest and or in is null true false as asc desc contains matches { } ( ) [ ] < > = != <= >= + - * /
    , . : | ? @description @type $p $x0 $_ $s Person Knows knows worksAt name age count sum nearest bm25 rrf now date
    Vector String I64 "a" "" "\d" 0 1 -1 1.5 99999999999999999999 1e999 // /* */
"""
TOKENS = [*WORDS.split(), "\n"]
NASTY = [
    "\0",
    "\ud800",
    "\ufeff",
    "é",
    "漢",
    "\u202e",
    "\u2028",
    "\x85",
    "\r",
    '"',
    "\\",
    "/*",
    "*/",
    "//",
    "'",
    "$",
    "@",
]
NASTY += ["9" * 5000, "(" * 3000, "[" * 3000, "{" * 3000, "a" * 5000, "- " * 3000, "not " * 3000, "$p.a + " * 500]
BASE = CANONICAL


def valid(rng: random.Random) -> str:
    return random_query(rng)


def mutated(rng: random.Random) -> str:
    text = BASE if rng.random() < 0.3 else random_query(rng)
    for _ in range(rng.randint(1, 4)):
        at = rng.randrange(len(text) + 1)
        end = min(len(text), at + rng.choice([0, 1, 1, 3, 20]))
        other = rng.randrange(len(text) + 1)
        piece = rng.choice(
            ["", rng.choice(TOKENS), rng.choice(NASTY), chr(rng.randrange(0x110000)), text[other : other + 20]]
        )
        text = text[:at] + piece + text[end:]
    return text


def tokens(rng: random.Random) -> str:
    inner = " ".join(rng.choice(TOKENS) for _ in range(rng.randint(1, 40)))
    return rng.choice([inner, f"query q() {{ match {{ $p: Person {inner} }} return {{ $p.name }} }}"])


@pytest.mark.parametrize("make", [valid, mutated, tokens])
def test_only_typed_errors_leave_the_language(make: Callable[[random.Random], str]) -> None:
    first = int(os.environ.get("OMNIGRAPH_FUZZ_SEED") or random.SystemRandom().randrange(2**32))
    print(f"{make.__name__}: first seed {first}")
    outcomes: Counter[str] = Counter()
    until = time.monotonic() + SECONDS_PER_TEST
    while time.monotonic() < until or sum(outcomes.values()) < 200:
        seed = first + sum(outcomes.values())
        text = make(random.Random(seed))
        try:
            outcomes[outcome(text)] += 1
        except BaseException:
            print(f"OMNIGRAPH_FUZZ_SEED={seed} replays this: {text!r}")
            raise
    print(outcomes.most_common())
    if make is valid:
        assert outcomes["Q000"] == 0
        assert outcomes["checked"] > sum(outcomes.values()) * 0.05
        assert len(outcomes) > 8


def outcome(text: str) -> str:
    """What becomes of a text, after everything that is done with it is done."""
    try:
        file = parse_queries(text)
    except QuerySyntaxError as error:
        check_error(error, text)
        return "Q000"
    assert parse_queries(render(file)) == file
    found = "empty"
    for query in file.queries:
        try:
            checked = check_query(query, SCHEMA)
        except QueryCheckError as error:
            check_error(error, text)
            found = error.fields["code"]
            continue
        found = "checked"
        operation(checked)
        hash(checked.columns)
        assert check_query(query, SCHEMA) == checked
    lint_queries(file, SCHEMA)
    return found


def check_error(error: QueryError, text: str) -> None:
    fields = error.fields
    lines = text.split("\n")
    assert fields["code"] in CODES
    assert 1 <= fields["line"] <= len(lines)
    assert 1 <= fields["column"] <= len(lines[fields["line"] - 1]) + 1
    _, caret = fields["excerpt"].split("\n")
    assert caret.rstrip("^").strip() == ""
    str(error).encode("utf-8")
    assert len(str(error)) < 2000
