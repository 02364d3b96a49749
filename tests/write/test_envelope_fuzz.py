"""Any bytes at all: each line is stored, refused for a known rule, or blank; and the fast way agrees with the judge.

The fuzz prints its seed. To replay one: OMNIGRAPH_FUZZ_SEED=<seed> pytest tests/write/test_envelope_fuzz.py
"""

from __future__ import annotations

import json
import os
import random

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from omnigraph.rules import RULES
from omnigraph.write.envelope import parse, reading
from tests.write.lines import SCHEMA, expected, good_lines, verdicts

SPLICES = [
    *(b"null", b"NaN", b"-Infinity", b"1e999", b"-0", b"0.0", b"9" * 30, b"true", b'"', b"\\", b"\\u0000", b"\\ud800"),
    *(
        b"{",
        b"}",
        b"[",
        b"]",
        b",",
        b":",
        b" ",
        b"\t",
        b"\r",
        b"\n",
        b"\r\n",
        b"\x00",
        b"\x0b",
        b"\xff",
        b"\xc3\xa9",
        b"\xef\xbb\xbf",
    ),
    *(
        b'"id":null,',
        b'"id":"x",',
        b'"data":null,',
        b'"data":{},',
        b'"type":"Thing",',
        b'"c":null,',
        b'"_rowid":1,',
        b'{"a":1,"a":2}',
    ),
    *(
        b'"2024-01-01"',
        b'"0000-12-31T23:59:59-01:00"',
        b'"2024-02-30"',
        b"[1,2]",
        b"[null]",
        b"{}{}",
        b"}null{",
        b"/**/",
    ),
]


def mutated(r: random.Random, text: bytes) -> bytes:
    """The text with a few places changed: bytes flipped, cut out, doubled, or something telling put in."""
    data = bytearray(text)
    for _ in range(r.randrange(1, 12)):
        at = r.randrange(len(data) + 1)
        how = r.randrange(5)
        if how == 0 and at < len(data):
            data[at] = r.randrange(256)
        elif how == 1:
            del data[at : at + r.randrange(1, 30)]
        elif how == 2:
            data[at:at] = data[max(0, at - r.randrange(60)) : at]
        else:
            data[at:at] = r.choice(SPLICES)
    return bytes(data)


def agree(text: bytes) -> None:
    lines = text.split(b"\n")
    parsed = parse(SCHEMA, [text], threads=1)
    said = verdicts(parsed)
    assert said == expected(SCHEMA, lines)
    orjson.dumps([[line.to_json(), line.violation().to_json()] for line in parsed.rejected])
    assert all(verdict[1] in RULES for verdict in said.values() if verdict[0] == "refused")


def runs() -> list[int]:
    given_seed = os.environ.get("OMNIGRAPH_FUZZ_SEED")
    if given_seed is not None:
        return [int(given_seed)]
    start = random.SystemRandom().randrange(2**32)
    return list(range(start, start + int(os.environ.get("OMNIGRAPH_FUZZ_RUNS", "40"))))


@pytest.mark.parametrize("judged_max", [pytest.param(0, marks=pytest.mark.long), 16])
def test_mangled_input_only_ever_gives_typed_rejections_and_both_ways_agree(
    judged_max: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reading, "JUDGED_MAX", judged_max)
    monkeypatch.setattr(reading, "HALVED_MIN", judged_max + 1)
    monkeypatch.setattr(reading, "FAILURES_MAX", 10**9 if judged_max == 0 else 32)
    for seed in runs():
        print(f"seed {seed}")
        r = random.Random(seed)
        lines = good_lines(seed, r.randrange(1, 120))
        if r.random() < 0.5:
            # Many lines of one kind, so that the fast way has groups to read.
            lines = [r.choice(lines)] * r.randrange(1, 60) + lines
        agree(mutated(r, b"\n".join(lines)))


def test_random_bytes_are_refused_line_by_line() -> None:
    for seed in runs()[:50]:
        print(f"seed {seed}")
        agree(random.Random(seed).randbytes(2000))


NUMBERS = st.one_of(
    st.integers(-(2**65), 2**65).map(str),
    st.floats(allow_nan=False, allow_infinity=False).map(repr),
    st.floats(width=32, allow_nan=False, allow_infinity=False).map(repr),
    st.tuples(st.integers(-(10**20), 10**20), st.integers(-60, 60)).map(lambda p: f"{p[0]}e{p[1]}"),
    st.decimals(allow_nan=False, allow_infinity=False, places=30, min_value=-1000, max_value=1000).map(
        lambda d: f"{d:f}"
    ),
    st.sampled_from(["0", "-0", "0.0", "1E5", "1e-400", "1e400", "NaN", "01", "1.", ".5", "null", "true", '"1"', "[]"]),
)
TEXTS = st.one_of(st.text(max_size=6), st.sampled_from(["2024-02-29", "2024-01-01T00:00:00Z", "AAEC", "x"])).map(
    json.dumps
)
VALUES = st.one_of(
    NUMBERS,
    TEXTS,
    st.lists(st.one_of(NUMBERS, TEXTS), max_size=3).map(lambda items: "[" + ",".join(items) + "]"),
)
NAMES = st.sampled_from(["id", "nope", *(p.name for p in SCHEMA.node["Thing"].properties)])
MEMBERS = st.lists(st.tuples(NAMES, VALUES), max_size=4)
SPACES = st.sampled_from(["", "", " ", "\t", "\r", " \r\t"])


@st.composite
def things(draw: st.DrawFn) -> bytes:
    space = draw(SPACES)
    members = ("," + space).join(f'"{name}"{space}:{value}' for name, value in draw(MEMBERS))
    return f'{{{space}"type":"Thing",{space}"data":{space}{{{members}}}}}'.encode("utf-8", "surrogatepass")


@settings(max_examples=150, deadline=None)
@given(st.lists(things(), min_size=1, max_size=12))
def test_any_value_in_any_property_gets_the_judges_verdict(lines: list[bytes]) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(reading, "JUDGED_MAX", 0)
        patch.setattr(reading, "HALVED_MIN", 1)
        agree(b"\n".join(lines))
