"""Queries as text: the canonical form, and that it says the same."""

from __future__ import annotations

import pytest

from omnigraph.language.query import parse_queries, render
from tests.support.canonical_queries import CANONICAL


def test_the_canonical_form_is_a_fixed_point() -> None:
    assert render(parse_queries(CANONICAL)) == CANONICAL


@pytest.mark.parametrize(
    ("written", "shown"),
    [
        ("$p.a=1", "$p.a = 1"),
        ("($p.a or $p.b) or $p.c", "($p.a or $p.b) or $p.c"),
        ("not not $p.a", "not not $p.a"),
        ("not ($p.a = 1)", "not $p.a = 1"),
        ("(not $p.a) = true", "(not $p.a) = true"),
        ("1 - (2 - 3) - 4 = 0", "1 - (2 - 3) - 4 = 0"),
        ("2 * (3 + 4) / (5 * 6) > 0", "2 * (3 + 4) / (5 * 6) > 0"),
        ("- -1 < - $p.a", "(--1 < -$p.a)"),
        ("1.50 = 1e-10", "1.5 = 1e-10"),
        ("(-a > 1.5) (b)", "(-a > 1.5)\n    (b)"),
        ("not (1 = c) (2 = 3)", "(not 1 = c)\n    2 = 3"),
        ("$p.a = 1000000000000000000000.0", "$p.a = 1e+21"),
        ('$p.a = "\\u0007\\t\\u00e9"', '$p.a = "\\u0007\\té"'),
        ("($p.a is null) = ($p.b is null)", "($p.a is null) = ($p.b is null)"),
    ],
)
def test_expressions(written: str, shown: str) -> None:
    def query(text: str) -> str:
        return f"query q() {{\n  match {{\n    {text}\n  }}\n  return {{ $p }}\n}}\n"

    file = parse_queries(query(written))
    assert render(file) == query(shown)
    assert parse_queries(render(file)) == file


def test_long_lists_are_broken_into_lines() -> None:
    columns = ", ".join(f"$p.some_longer_name_{i}" for i in range(12))
    text = render(parse_queries(f"query q() {{ match {{ $p: Person }} return {{ {columns} }} }}"))
    assert max(map(len, text.splitlines())) <= 102
    assert parse_queries(text) == parse_queries(render(parse_queries(text)))


def test_a_variable_alone_does_not_run_on_into_the_next_clause() -> None:
    text = "query q() { match { $x: Person ($y) ($x.a = 1) } return { $x } }"
    file = parse_queries(text)
    assert parse_queries(render(file)) == file
