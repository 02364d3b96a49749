"""What a word is depends on what the parser expects; words do not run into each other."""

from __future__ import annotations

import pytest

from omnigraph.errors import QuerySyntaxError
from omnigraph.language.query import parse_queries


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
    assert "limit" in repr(parse_queries(text))


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
