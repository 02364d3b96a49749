"""Whatever the text, parsing ends in a schema or in a typed error of the language. OMNIGRAPH_FUZZ_SEED=… replays."""

from __future__ import annotations

import os
import random
import time
from collections.abc import Callable

import pytest

from omnigraph.errors import SchemaRuleError, SchemaSyntaxError
from omnigraph.language.schema import (
    accept,
    fresh_ids,
    parse_schema,
    plan_changes,
    render,
    schema_from_json,
    schema_to_json,
)
from tests.language.schema.texts import EVERYTHING

SECONDS_PER_TEST = 2.0
WORDS = r"""
    interface node edge implements enum Vector ( ) [ ] { } : -> ? , .. . = @ @key @unique @index @range @check @card
    @embed @rename_from @description @instruction @default @x String Blob Bool I32 I64 U32 U64 F32 F64 DateTime Date
    Person Named Knows name age _rowid id src dst a true false 0 1 -1 +2 99999999999 0.5 -1.5 "" "a" "\d" "(" // /* */
"""
TOKENS = [*WORDS.split(), "\n"]
NASTY = [
    "\0",
    "\ud800",
    "\udfff",
    "\ufeff",
    "é",
    "漢",
    "\u202e",
    "\u2028",
    "\x85",
    "\r",
    "\t",
    '"',
    "\\",
    "/*",
    "*/",
    "//",
]
NASTY += [
    "9" * 5000,
    "(" * 3000,
    "[" * 3000,
    "a" * 5000,
    "Vector(99999999999)",
    "@card(0..18446744073709551616)",
    "\\u0000",
]


def mutated(rng: random.Random) -> str:
    text = EVERYTHING
    for _ in range(rng.randint(1, 6)):
        at = rng.randrange(len(text) + 1)
        end = min(len(text), at + rng.choice([0, 1, 1, 3, 20]))
        other = rng.randrange(len(text) + 1)
        piece = rng.choice(
            [
                "",
                rng.choice(TOKENS),
                rng.choice(NASTY),
                chr(rng.randrange(0x110000)),
                text[other : other + rng.randint(1, 40)],
            ]
        )
        text = text[:at] + piece + text[end:]
    return text


def tokens(rng: random.Random) -> str:
    return " ".join(rng.choice(TOKENS) for _ in range(rng.randint(1, 60)))


def noise(rng: random.Random) -> str:
    pool = [*NASTY, *TOKENS, *(chr(rng.randrange(0x250)) for _ in range(10)), chr(rng.randrange(0x110000))]
    return "".join(rng.choice(pool) for _ in range(rng.randint(0, 80)))


@pytest.mark.parametrize("make", [mutated, tokens, noise])
def test_only_typed_errors_leave_the_parser(make: Callable[[random.Random], str]) -> None:
    first = int(os.environ.get("OMNIGRAPH_FUZZ_SEED") or random.SystemRandom().randrange(2**32))
    print(f"{make.__name__}: first seed {first}")
    parsed = refused = 0
    until = time.monotonic() + SECONDS_PER_TEST
    while time.monotonic() < until:
        seed = first + parsed + refused
        text = make(random.Random(seed))
        try:
            schema = parse_schema(text)
        except (SchemaSyntaxError, SchemaRuleError) as error:
            refused += 1
            _check_error(error, text)
            continue
        except BaseException:
            print(f"OMNIGRAPH_FUZZ_SEED={seed} replays this: {text!r}")
            raise
        parsed += 1
        accepted = accept(schema, new_id=fresh_ids())
        assert not plan_changes(accepted, parse_schema(render(schema)), new_id=fresh_ids()).changed, f"seed {seed}"
        assert schema_from_json(schema_to_json(accepted)) == accepted, f"seed {seed}"
    print(f"{parsed} texts parsed, {refused} refused")
    assert parsed + refused > 50


def _check_error(error: SchemaSyntaxError | SchemaRuleError, text: str) -> None:
    fields = error.fields
    lines = text.split("\n")
    assert 1 <= fields["line"] <= len(lines)
    assert 1 <= fields["column"] <= len(lines[fields["line"] - 1]) + 1
    _, caret = fields["excerpt"].split("\n")
    assert caret.rstrip("^").strip() == ""
    str(error).encode("utf-8")
    assert len(str(error)) < 2000
