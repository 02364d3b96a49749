"""Shapes of queries x limits, in a process of their own: each ends in time and within its memory, with a typed error.

A cross product of a small table makes millions of rows, so that what is measured is the sort, the aggregate or the
projection over them. Time beyond a limit is counted while the thread has a core: other processes share the machine.
"""

from __future__ import annotations

import json
import os
import random
import select
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

import omnigraph as og

SCHEMA = """
node P { slug: String @key  name: String?  n: I64?  x: F64?  bio: String? @index }
edge K: P -> P
"""
OVERRUN_S = 1.5
BASE_BYTES = 64_000_000
"""What a query may take beside its budget: parts of 500,000 rows, batches of scans, the allocators' own room."""
PAIRS = "$a: P $b: P"
TEXT = "$b.name + $a.slug"


def read(match: str, columns: str, rest: str = "", *, distinct: bool = False) -> str:
    return f"query q() {{ match {{ {match} }} return {'distinct' if distinct else ''} {{ {columns} }} {rest} }}"


QUICK = {
    "sort": read(PAIRS, "$a.slug, $b.slug", "order { $b.name desc, $a.n }"),
    "sort by text": read(PAIRS, "$a.slug, $b.slug", f"order {{ {TEXT} }}"),
    "group by an expression": read(PAIRS, "$a.n - $b.n as d, count(*) as c"),
    "count distinct": read(PAIRS, f"count(distinct {TEXT}) as c"),
    "collect": read(PAIRS, "$a.slug, collect($b.slug) as c"),
    "search and sort": read(
        'search($a.bio, "red") $a: P $b: P',
        '$a.slug, bm25($a.bio, "red w3") as s, $b.slug',
        "order { s desc, $b.name }",
    ),
}
SHAPES = {
    **QUICK,
    "sort by integers": read(PAIRS, "$a.slug, $b.slug", "order { $a.n + $b.n }"),
    "first by text": read(PAIRS, "$a.slug, $b.slug", f"order {{ {TEXT} }} limit 10"),
    "first by float": read(PAIRS, "$a.slug, $b.slug", "order { $a.x * $b.x desc } limit 10"),
    "group": read(PAIRS, "$a.slug as s, $b.name as n, count(*) as c"),
    "group by text": read(PAIRS, f"{TEXT} as d, count(*) as c, sum($a.x) as s"),
    "distinct": read(PAIRS, "$a.slug, $b.name", distinct=True),
    "distinct text": read(PAIRS, f"{TEXT} as d", distinct=True),
    "count distinct integers": read(PAIRS, "count(distinct $a.n * 3 + $b.n) as c, sum(distinct $a.n + $b.n) as d"),
    "collect all": read(PAIRS, f"collect({TEXT}) as c"),
    "collect distinct": read(PAIRS, f"collect(distinct {TEXT}) as c"),
    "sums": read(PAIRS, f"sum($a.x * $b.x) as s, avg($a.n + $b.n) as m, max({TEXT}) as t, min($a.x - $b.x) as l"),
    "text projection": read(PAIRS, "upper($a.name) + lower($b.slug) as t"),
    "having": read(PAIRS, f"$a.slug as s, {TEXT} as t", 'having { t != "x" } order { t }'),
    "paths": read("$a: P path $p = $a k{1,4} $b", "nodes($p) as n", "order { length($p) }"),
    "shortest": read("$a: P path $p = shortest $a k{1,} $b", "length($p) as l, count(*) as c"),
    "reach": read("$a: P $a k{1,} $b", "$a.slug, count($b) as c"),
    "optional": read("$a: P optional { $b: P $a.n < $b.n }", "$a.slug as s, $b.slug as t", "order { t desc }"),
    "negation": read("$a: P $b: P not { $a k $c $b k $c }", "$a.slug, $b.slug", "order { $b.n }"),
    "fuzzy": read('$a: P $b: P fuzzy($b.bio, "gren", 1)', "$a.slug", "order { $b.name }"),
}
WARM = [
    read("$a: P path $p = shortest $a k{1,1} $b", "$a.slug, $a.name, $a.n, $a.x, length($p) as l", "order { $a.name }"),
    read('$a: P search($a.bio, "red") fuzzy($a.bio, "gren", 1)', 'bm25($a.bio, "red w3") as s'),
]


def graph_of(path: Path, nodes: int) -> str:
    rng = random.Random(1)
    words = ["red", "green", "blue", *(f"w{i}" for i in range(300))]
    slugs = [f"person-{i:06d}" for i in range(nodes)]
    people = [
        {
            "slug": slug,
            "name": f"name {rng.randrange(nodes // 2)}",
            "n": rng.randrange(1 << 30),
            "x": rng.random(),
            "bio": " ".join([rng.choice(words[:3]), *rng.choices(words, k=7)]),
        }
        for slug in slugs
    ]
    graph = og.init(path, SCHEMA)
    graph.insert({"P": people, "K": [{"from": rng.choice(slugs), "to": rng.choice(slugs)} for _ in range(8 * nodes)]})
    return graph.uri


def outcomes(graph: str, texts: Sequence[str], **limits: Any) -> list[dict[str, Any]]:
    """`overrun_s`: the time that the thread has had a core after the query's time was over."""
    given = {"warm": WARM, "cases": [{"text": text, **limits} for text in texts]}
    command = [sys.executable, "-m", "tests.query.limits_child", graph]
    found = []
    # Unbuffered: a line that was read ahead would not be seen by select.
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0) as child:
        assert child.stdin is not None
        assert child.stdout is not None
        child.stdin.write(json.dumps(given).encode())
        child.stdin.close()
        scheduled = Path(f"/proc/{child.pid}/schedstat")
        for _ in texts:
            over_at = json.loads(child.stdout.readline())["began"] + limits.get("timeout_s", 1e6)
            is_there, _, _ = select.select([child.stdout], [], [], over_at - time.monotonic())
            before_ns = None if is_there else int(scheduled.read_text().split()[0])
            outcome = json.loads(child.stdout.readline())
            outcome["overrun_s"] = 0.0 if before_ns is None else (outcome["thread_ns"] - before_ns) / 1e9
            found.append(outcome)
    return found


def check(graph: str, shapes: dict[str, str], limits: dict[str, Any]) -> None:
    found = outcomes(graph, list(shapes.values()), **limits)
    assert len(found) == len(shapes)
    wrong = {}
    for name, outcome in zip(shapes, found, strict=True):
        if "OMNIGRAPH_FIGURES" in os.environ:
            print(json.dumps({"shape": name, **limits, **outcome}))
        if not is_within(outcome, limits):
            wrong[name] = outcome
    assert not wrong


def is_within(outcome: dict[str, Any], limits: dict[str, Any]) -> bool:
    if limits.keys() == {"timeout_s"}:
        return outcome["condition"] == "query_timeout" and outcome["overrun_s"] <= OVERRUN_S
    if outcome["overrun_s"] > OVERRUN_S:
        return False
    budget = limits.get("max_memory_bytes")
    if budget is not None and outcome["growth_bytes"] > 1.2 * budget + BASE_BYTES:
        return False
    resource = "memory_bytes" if budget is not None else "rows"
    return (outcome["condition"], outcome["resource"]) in [
        (None, None),
        ("query_timeout", None),
        ("resource_limit", resource),
    ]


@pytest.fixture(scope="module")
def million(tmp_path_factory: pytest.TempPathFactory) -> str:
    return graph_of(tmp_path_factory.mktemp("million") / "g", 1200)


@pytest.mark.parametrize(
    "limits", [{"timeout_s": 0.1}, {"max_memory_bytes": 60_000_000}, {"max_rows": 1000, "timeout_s": 0.5}]
)
def test_limits_hold_inside_steps_over_a_million_rows(million: str, limits: dict[str, Any]) -> None:
    check(million, QUICK, limits)


@pytest.fixture(scope="module")
def many_millions(tmp_path_factory: pytest.TempPathFactory) -> str:
    return graph_of(tmp_path_factory.mktemp("many_millions") / "g", 3000)


@pytest.mark.slow
@pytest.mark.parametrize(
    "limits",
    [
        {"timeout_s": 0.3},
        {"timeout_s": 2, "max_memory_bytes": 4_000_000_000},
        {"max_memory_bytes": 150_000_000},
        {"max_memory_bytes": 500_000_000, "timeout_s": 10},
        {"max_rows": 1000, "timeout_s": 2},
    ],
)
def test_limits_hold_inside_every_shape_over_many_millions_of_rows(many_millions: str, limits: dict[str, Any]) -> None:
    check(many_millions, SHAPES, limits)
