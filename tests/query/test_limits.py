"""Limits hold in the middle of a step: time, memory, and what the machine has. So do they for patterns of `matches`."""

from __future__ import annotations

import random
import resource
import subprocess
import sys
import time
import tracemalloc

import pytest

import omnigraph as og
from omnigraph.errors import QueryCheckError, QueryTimeout, QueryValueError, ResourceLimit
from omnigraph.query.execution import frame

SCHEMA = "node P { slug: String @key  name: String?  pattern: String? }\nedge K: P -> P\n"
NODES, EDGES = 1000, 15_000


@pytest.fixture(scope="module")
def dense(tmp_path_factory: pytest.TempPathFactory) -> og.Graph:
    rng = random.Random(7)
    graph = og.init(tmp_path_factory.mktemp("dense") / "g", SCHEMA)
    ends = [(f"p{rng.randrange(NODES)}", f"p{rng.randrange(NODES)}") for _ in range(EDGES)]
    graph.insert({"P": [{"slug": f"p{i}"} for i in range(NODES)], "K": [{"from": a, "to": b} for a, b in ends]})
    return graph


@pytest.mark.parametrize(
    "pattern",
    [
        '$a: P { slug: "p0" } path $p = $a k{1,12} $b',
        "$a: P path $p = shortest $a k{1,} $b",
        "$a: P $a k{1,} $b",
    ],
)
def test_a_traversal_that_explodes_is_stopped_in_its_middle(dense: og.Graph, pattern: str) -> None:
    began = time.thread_time()  # not of the clock on the wall: other processes share the machine
    with pytest.raises(QueryTimeout):
        dense.query(f"query q() {{ match {{ {pattern} }} return {{ count(*) as n }} }}", timeout_s=0.3)
    assert time.thread_time() - began < 2


def test_memory_is_counted_over_the_hops_of_a_path(dense: og.Graph) -> None:
    text = 'query q() { match { $a: P { slug: "p0" } path $p = $a k{1,12} $b } return { count(*) as n } }'
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(ResourceLimit) as told:
        dense.query(text, max_memory_bytes=100_000_000)
    grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * 1024
    assert told.value.to_json()["resource"] == "memory_bytes"
    assert grown < 300_000_000


HUBS = '$a: P $a.slug in ["p0", "p1", "p2", "p3", "p4"]'
EXPLODING = [
    "$a: P $b: P $c: P",
    "$a: P $b: P",
    "$a k $x $b k $x $c k $x",
    "$a: P $a k{1,} $b",
    "$a: P optional { $b: P $a.slug != $b.slug }",
    "$a: P $b: P optional { $b k $c }",
]


@pytest.mark.parametrize("match", EXPLODING)
def test_rows_beyond_the_limit_are_not_built(dense: og.Graph, match: str) -> None:
    """Up to a thousand million rows. What is built is what numpy allocates."""
    text = f"query q() {{ match {{ {match} }} return {{ $a.slug, $b.slug }} }}"
    dense.query(f"query q() {{ match {{ {HUBS} $a k $b }} return {{ $a.slug, $b.slug }} }}")
    tracemalloc.start()
    try:
        with pytest.raises(ResourceLimit) as told:
            dense.query(text, max_rows=500)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    fields = told.value.to_json()
    assert (fields["resource"], fields["limit"]) == ("rows", 500)
    assert fields["actual"] > 500
    assert peak < 60_000_000


@pytest.mark.parametrize(
    ("match", "rest", "rows"),
    [
        ("$a: P $b: P $a = $b", "", 1000),
        ("$a: P $b: P", "limit 1000", 1000),
        ("$a: P $b: P", "offset 999000", 1000),
        ("$a: P $b: P not { $a: P $a != $b }", "", 1000),
        ("$a: P optional { $a k $b $b != $b }", "", 1000),
    ],
)
def test_rows_that_are_dropped_again_do_not_count(dense: og.Graph, match: str, rest: str, rows: int) -> None:
    text = f"query q() {{ match {{ {match} }} return {{ $a.slug, $b.slug }} {rest} }}"
    assert len(dense.query(text, max_rows=1000)) == rows
    with pytest.raises(ResourceLimit):
        dense.query(text, max_rows=999)


def test_the_memory_of_a_join_stays_within_its_budget(dense: og.Graph) -> None:
    columns = "min($a.slug) as a, min($b.slug) as b, min($c.slug) as c"
    text = f"query q() {{ match {{ {HUBS} $b: P $c: P }} return {{ {columns} }} }}"
    dense.query(f"query q() {{ match {{ {HUBS} }} return {{ count(*) as n }} }}")
    budget = 60_000_000
    tracemalloc.start()
    try:
        with pytest.raises(ResourceLimit) as told:
            dense.query(text, max_memory_bytes=budget)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert told.value.to_json()["resource"] == "memory_bytes"
    assert peak < 1.2 * budget


@pytest.mark.parametrize(
    "match",
    [
        '$a: P $a.slug < "p15" $b: P $c: P',
        f"{HUBS} $b: P $c: P $a.slug + $b.slug < $c.slug",
        "$a k $x $b k $x $c k $x $d k $x",
    ],
)
def test_a_join_is_stopped_in_its_middle(dense: og.Graph, match: str) -> None:
    began = time.thread_time()
    with pytest.raises(QueryTimeout):
        dense.query(f"query q() {{ match {{ {match} }} return {{ count(*) as n, max($c.slug) as c }} }}", timeout_s=0.3)
    assert time.thread_time() - began < 1.8


@pytest.mark.parametrize("rows", [1, 7, 1000])
def test_hops_in_small_blocks_find_the_same(dense: og.Graph, monkeypatch: pytest.MonkeyPatch, rows: int) -> None:
    texts = [
        'query q() { match { $a: P $a.slug in ["p0", "p1", "p2"] path $p = $a k{1,2} $b } return { nodes($p) } }',
        'query q() { match { $a: P $a.slug in ["p0", "p1", "p2"] path $p = shortest $a k{1,3} $b }'
        " return { nodes($p) } limit 2000 }",
        'query q() { match { $a: P $a.slug in ["p0", "p1", "p2"] $a k{2,} $b } return { $a.slug, count($b) as n } }',
        'query q() { match { $a: P {slug: "p0"} $b: P {slug: "p1"} path $p = $a k{1,3} $b } return { nodes($p) } }',
        f'query q() {{ match {{ {HUBS} $b: P $b.slug < "p10" $a $e:k $c }} return {{ $a.slug, $b.slug, $e.id }} }}',
        f"query q() {{ match {{ {HUBS} optional {{ $a k $b }} $b k $c $c k $d }} return {{ $a.slug, $d.slug }} }}",
        f"query q() {{ match {{ {HUBS} optional {{ path $p = $a k{{1,2}} $b }} }} return {{ nodes($p) as n }} }}",
    ]
    wanted = [dense.query(text).to_pylist() for text in texts]
    monkeypatch.setattr(frame, "BLOCK_ROWS", rows)
    assert [dense.query(text).to_pylist() for text in texts] == wanted
    assert all(wanted)


def test_memory_that_the_machine_has_not_got_is_a_typed_error(dense: og.Graph) -> None:
    code = f"""if True:
        import resource
        import omnigraph as og
        graph = og.open({dense.uri!r})
        graph.query("query q() {{ match {{ $a: P }} return {{ count(*) as n }} }}")
        resource.setrlimit(resource.RLIMIT_AS, (6 << 30, 6 << 30))
        try:
            graph.query("query q() {{ match {{ $a: P $b: P $c: P }}"
                        " return {{ count($a) as n, max($b.slug) as b, max($c.slug) as c }} }}")
        except og.errors.OmnigraphError as error:
            print(error.condition)
    """
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=100, check=False)
    assert done.stdout == "out_of_memory\n", done.stderr[-500:]


# ---- matches ---------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def names(tmp_path_factory: pytest.TempPathFactory) -> og.Graph:
    graph = og.init(tmp_path_factory.mktemp("names") / "g", SCHEMA)
    given = {"u": "Ünïcode", "a": "a" * 30, "d": "x٣", "n": None}
    patterns = {"u": r"^\w+$", "a": "^a+$", "d": r"^\w+$", "n": "x"}
    graph.insert({"P": [{"slug": k, "name": v, "pattern": patterns[k]} for k, v in given.items()]})
    return graph


def matching(graph: og.Graph, condition: str, **given: str) -> list[str]:
    head = "query q($p: String)" if given else "query q()"
    found = graph.query(f"{head} {{ match {{ $x: P {condition} }} return {{ $x.slug as slug }} }}", **given)
    return [row["slug"] for row in found.to_pylist()]


@pytest.mark.parametrize(
    ("pattern", "found"),
    [
        (r"^\w+$", ["a"]),
        (r"^\pL+$", ["a", "u"]),
        (r"\d", []),
        (r"\p{Nd}", ["d"]),
        ("^a{30}$", ["a"]),
        ("(?i)üNÏ", ["u"]),
    ],
)
def test_a_pattern_means_the_same_however_it_is_given(names: og.Graph, pattern: str, found: list[str]) -> None:
    escaped = pattern.replace("\\", "\\\\")
    assert matching(names, f'$x.name matches "{escaped}"') == found
    assert matching(names, "$x.name matches $p", p=pattern) == found
    names.upsert({"P": [{"slug": "pattern", "pattern": pattern}]})
    assert matching(names, '$q: P { slug: "pattern" } $x.name matches $q.pattern') == found
    names.delete({"P": ["pattern"]})


def test_each_row_by_the_pattern_of_its_own(names: og.Graph) -> None:
    assert matching(names, "$x.name matches $x.pattern") == ["a"]


@pytest.mark.parametrize(
    "pattern", [r"^(a+)+b\\Z", "a++", r"\\u0041", "(?=a)", r"(a)\\1", "a{2000}", "[[:nope:]]", "("]
)
def test_what_is_no_pattern_is_refused_before_the_query_runs(names: og.Graph, pattern: str) -> None:
    with pytest.raises(QueryCheckError) as told:
        matching(names, f'$x.name matches "{pattern}"')
    assert told.value.to_json()["code"] == "T7"


def test_a_pattern_of_a_row_that_is_none_is_a_typed_error(names: og.Graph) -> None:
    names.upsert({"P": [{"slug": "bad", "name": "x", "pattern": "("}]})
    with pytest.raises(QueryValueError, match="can't be used by matches"):
        matching(names, "$x.name matches $x.pattern")
    names.delete({"P": ["bad"]})


def test_a_pattern_takes_time_in_proportion_to_the_text(names: og.Graph) -> None:
    began = time.monotonic()
    assert matching(names, '$x.name matches "^(a+)+b$"') == []
    assert time.monotonic() - began < 5
