"""Patterns of @check: what RE2 finds is what Python finds, for every pattern that is accepted.

OMNIGRAPH_FUZZ_SEED=… replays.
"""

from __future__ import annotations

import os
import random
import re
import unicodedata

import pyarrow as pa
import pytest

from omnigraph.language.regex import PATTERN_CHARS_MAX, CheckPattern, pattern_problem

SEED = int(os.environ.get("OMNIGRAPH_FUZZ_SEED", "3"))
CHARACTERS = "ab_zA09 -]^[\t\x0b\x1f\néßЖ日٣²\u2028\xa0\U0001d7d8\u0301{}$.,"
ATOMS = [
    *"ab_é日.",
    *(r"\d", r"\w", r"\s", r"\D", r"\W", r"\S", r"\.", r"\\", r"\[", r"\u00e9", r"\x41", r"\t", r"\$"),
    *("[ab]", "[^ab]", r"[\w-]", r"[^\w]", r"[\d\s]", r"[^\S]", "[]a]", "[^]a]", r"[a\]]", "[a-z-]", "[[a]", r"[\W_]"),
]


def pattern(rng: random.Random, depth: int = 0) -> str:
    text = ""
    for _ in range(rng.randint(1, 3)):
        atom = rng.choice(ATOMS)
        if depth < 2 and rng.random() < 0.3:
            inner = "|".join(pattern(rng, depth + 1) for _ in range(rng.randint(1, 2)))
            atom = f"{rng.choice(['(', '(?:', '(?i:'])}{inner})"
        text += atom + rng.choice(["", "", "", "*", "+", "?", "+?", "{2}", "{1,3}", "{,2}", "{1,}"])
    if depth == 0:
        text = rng.choice(["", "^", r"\A"]) + text + rng.choice(["", "$", r"\Z"])
    return text


@pytest.mark.filterwarnings("ignore:Possible nested set")
def test_what_is_found_is_what_python_finds() -> None:
    print(f"OMNIGRAPH_FUZZ_SEED={SEED}")
    rng = random.Random(SEED)
    for _ in range(600):
        text = pattern(rng)
        compiled = CheckPattern.of(text)
        assert compiled.problem() is None, text
        texts = ["".join(rng.choice(CHARACTERS) for _ in range(rng.randint(0, 5))) for _ in range(20)]
        # A line break at the end is where $ differs.
        texts = [t.rstrip("\n") for t in texts]
        expected = {t for t in texts if re.search(text, t) is None}
        assert set(compiled.unmatched(pa.array(texts)).to_pylist()) == expected, text


@pytest.mark.parametrize(
    "text", [r"\d", r"\w", r"\s", r"\D", r"\W", r"\S", r"[\d]", r"[\w]", r"[\s]", r"[\D]", r"[\S]"]
)
def test_classes_hold_the_characters_of_unicode(text: str) -> None:
    characters = [chr(i) for i in range(0x30000) if not 0xD800 <= i <= 0xDFFF]
    # The two know different versions of Unicode: what is unassigned for one may be a letter for the other.
    known = [c for c in characters if unicodedata.category(c) != "Cn"]
    search = re.compile(text).search
    assert set(CheckPattern.of(text).unmatched(pa.array(known)).to_pylist()) == {c for c in known if not search(c)}


def test_time_grows_with_the_text_and_not_with_its_power() -> None:
    texts = pa.array(["a" * 100_000 + "!", "é" * 100_000 + "!"])
    assert len(CheckPattern.of(r"^(\w+)+$").unmatched(texts)) == 2
    assert len(CheckPattern.of(r"^(a|a)*$|^(a*)*b$").unmatched(texts)) == 2


def test_the_end_is_the_end() -> None:
    texts = pa.array(["tt1", "tt1\n"])
    assert CheckPattern.of("^tt[0-9]+$").unmatched(texts).to_pylist() == ["tt1\n"]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("(?=a)b", "Lookaround, backreferences"),
        ("(?<!a)b", "Lookaround, backreferences"),
        (r"(a)\1", "Lookaround, backreferences"),
        ("(?>a)", "Lookaround, backreferences"),
        ("a++", r"bad repetition operator"),
        ("(", "missing [)]"),
        ("[", "missing \\]"),
        ("(a{1,1000}){1,1000}", "repetition size"),
        ("a" * (PATTERN_CHARS_MAX + 1), "at most 10000 characters"),
        (r"\w{1,900}", "too large"),
    ],
)
def test_what_re2_can_not_run_is_said_in_a_sentence(text: str, words: str) -> None:
    problem = CheckPattern.of(text).problem()
    assert problem is not None
    assert re.search(words, problem), problem
    assert len(problem) < 400
    if "too large" not in words:
        assert pattern_problem(text) is not None


def test_deep_nesting_runs() -> None:
    nested = CheckPattern.of("(" * 4000 + "a" + ")" * 4000)
    assert nested.problem() is None
    assert nested.unmatched(pa.array(["a", "b"])).to_pylist() == ["b"]
