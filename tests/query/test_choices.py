"""Ways of doing the same thing, chosen by what they cost: whichever is taken, the rows are the same."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import omnigraph as og
from omnigraph.query.tables import tables
from omnigraph.query.traversal import adjacency, hops
from omnigraph.query.traversal.adjacency import _half

SCHEMA = "node P { slug: String @key  n: I64  t: String? }\nedge K: P -> P"


@pytest.fixture
def graph(tmp_path: Path) -> og.Graph:
    made = og.init(tmp_path / "graph", SCHEMA)
    made.insert(
        {
            "P": [{"slug": f"p{i:03d}", "n": i % 7, "t": None if i % 5 == 0 else f"t{i % 3}"} for i in range(120)],
            "K": [{"from": f"p{i:03d}", "to": f"p{i * j % 120:03d}"} for i in range(120) for j in (3, 7, 11)],
        }
    )
    return made


@pytest.mark.parametrize("part_slots", [1, 20, 1000])
@pytest.mark.parametrize("seed", range(4))
def test_nodes_reached_by_every_part_are_those_of_each_by_itself(
    monkeypatch: pytest.MonkeyPatch, part_slots: int, seed: int
) -> None:
    monkeypatch.setattr(adjacency, "PART_SLOTS", part_slots)
    rng = np.random.default_rng(seed)
    size, edges = 40, 300
    near, far = rng.integers(0, size, edges), rng.integers(0, size, edges)
    half = _half(near, far, np.arange(edges), size)
    parts = [rng.choice(size, rng.integers(0, 9), replace=False) for _ in range(12)]
    bounds = np.append(0, np.cumsum([len(p) for p in parts]))
    found = half.neighbours_of_parts(np.concatenate(parts), bounds, size, lambda _: None)
    expected = [sorted({int(f) for n, f in zip(near, far, strict=True) if n in set(p.tolist())}) for p in parts]
    assert [f.tolist() for f in found] == expected


def test_conditions_are_answered_from_memory_once_scans_have_cost_more(
    graph: og.Graph, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = 'query q($n: I64) { match { $p: P  $p.n < $n and $p.t = "t1" } return { $p.slug } }'
    first = graph.query(text, n=4)
    assert "scan" in first.explained()
    assert "column cache" not in first.explained()
    monkeypatch.setattr(tables, "FILTER_S_PER_VALUE", 0.0)
    monkeypatch.setattr(tables, "READ_S_PER_VALUE", 0.0)
    again = graph.query(text, n=4)
    assert "column cache" in again.explained()
    assert again.to_pylist() == first.to_pylist() != []


def test_a_filter_that_an_index_answers_quickly_stays_with_it(graph: og.Graph, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tables, "FILTER_S_PER_VALUE", 10.0)
    monkeypatch.setattr(tables, "READ_S_PER_VALUE", 0.0)
    text = "query q() { match { $p: P  $p.n = 3 } return { $p.slug } }"
    for _ in range(4):
        graph.query(text)
    assert "column cache" not in graph.query(text).explained().split("columns")[0]


def test_arrays_are_made_when_look_ups_have_taken_as_long(graph: og.Graph, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hops, "SMALL_EDGES", 0)
    text = "query q($s: String) { match { $p: P { slug: $s }  $p k $q } return { $q.slug } }"
    monkeypatch.setattr(hops, "MAKING_S_PER_EDGE", 10.0)
    by_index = [graph.query(text, s=f"p{i:03d}") for i in range(1, 6)]
    assert all("src_btree" in r.explained() for r in by_index)
    monkeypatch.setattr(hops, "MAKING_S_PER_EDGE", 0.0)
    by_arrays = [graph.query(text, s=f"p{i:03d}") for i in range(1, 6)]
    assert all("adjacency of K" in r.explained() for r in by_arrays)
    assert [r.to_pylist() for r in by_index] == [r.to_pylist() for r in by_arrays]


def test_arrays_that_do_not_fit_into_the_cache_are_not_made_for_a_few_nodes(
    graph: og.Graph, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hops, "SMALL_EDGES", 0)
    monkeypatch.setattr(hops, "MAKING_S_PER_EDGE", 0.0)
    monkeypatch.setattr(hops, "BYTES_PER_EDGE", 1 << 40)
    text = "query q($s: String) { match { $p: P { slug: $s }  $p k $q } return { $q.slug } }"
    for _ in range(3):
        assert "adjacency" not in graph.query(text, s="p001").explained()


def test_distinct_counts_by_group_are_those_of_the_rows(graph: og.Graph) -> None:
    pattern = "match { $a: P  $a k $b  $b k $c }"
    rows = graph.query(f"query q() {{ {pattern} return {{ $a.slug as a, $c.slug as c }} }}").to_pylist()
    expected: dict[str, set[str]] = {}
    for row in rows:
        expected.setdefault(row["a"], set()).add(row["c"])
    found = graph.query(f"query q() {{ {pattern} return {{ $a.slug as a, count(distinct $c) as n }} }}").to_pylist()
    assert {r["a"]: r["n"] for r in found} == {a: len(c) for a, c in expected.items()}
    by_group: dict[int, set[str]] = {}
    named = graph.query(f"query q() {{ {pattern} return {{ $a.n as n, $c.slug as c }} }}").to_pylist()
    for row in named:
        by_group.setdefault(row["n"], set()).add(row["c"])
    grouped = graph.query(f"query q() {{ {pattern} return {{ $a.n as n, count(distinct $c) as m }} }}").to_pylist()
    assert {r["n"]: r["m"] for r in grouped} == {n: len(c) for n, c in by_group.items()}


def test_explain_names_the_indices_that_lance_takes_for_a_scan(tmp_path: Path) -> None:
    graph = og.init(tmp_path / "g", "node P { slug: String @key  n: I64? @index  m: I64? }\n")
    graph.insert({"P": [{"slug": f"s{i}", "n": i % 100, "m": i} for i in range(3000)]})
    text = "query q() { match { $p: P $p.n = 7 $p.m > 10 } return { $p.slug } order { $p.m desc } }"

    def scan() -> list[str]:
        (used,) = [s["used"] for s in graph.query(text).explain()["steps"] if s["step"] == "scan"]
        return list(used)

    assert len(scan()) == 1
    graph.optimize()
    assert scan()[1:] == ["n_btree"]
    assert "$p.m desc" in graph.query(text).explained()
