"""Parsing and checking stay out of the way. The best of several runs, since other processes share the machine."""

from __future__ import annotations

import time

from omnigraph.language.query import check_query, parse_queries
from tests.language.query.texts import SCHEMA

TWENTY_LINES = """\
query busy($slug: String, $names: [String], $least: I64)
  @description("twenty lines of everything")
{
  match {
    $p: Person { slug: $slug }
    $p knows{1,3} $f
    $f.age > 25 and not ($f.age in [1, 2] or $f.status is not null)
    $p $e:(knows | worksAt) $o
    $e.@type = "Knows"
    optional { $f worksAt $c  $c.city = "Rome" }
    not { $f worksWith $g  $g.name starts_with "x" }
    $slug in $names
    lower($p.name) contains "x"
  }
  return { $p.name, count(distinct $f) as n, $c.city, sum($f.age) / count(*) as mean, collect($o.name) as os }
  having { n > $least }
  order { n desc, $p.name }
  limit 10
  offset 2
}
"""
LIMIT_S = 0.005


def test_a_query_of_twenty_lines_is_parsed_and_checked_within_five_milliseconds() -> None:
    assert TWENTY_LINES.count("\n") == 20
    best = 1.0
    for _ in range(100):
        start = time.thread_time()
        (query,) = parse_queries(TWENTY_LINES).queries
        check_query(query, SCHEMA)
        best = min(best, time.thread_time() - start)
    print(f"parse and check: {best * 1000:.2f} ms")
    assert best < LIMIT_S


def test_the_grammar_is_built_once() -> None:
    from omnigraph.language.reading import grammar_of

    parse_queries("")
    built = grammar_of.cache_info().misses
    parse_queries("")
    assert grammar_of.cache_info().misses == built
