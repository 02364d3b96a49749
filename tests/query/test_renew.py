"""Arrays of a new version made from those of an older one: the same traversals as from arrays built anew."""

from __future__ import annotations

import random
from pathlib import Path

import numpy as np
import pytest

import omnigraph as og
from omnigraph.query import Options, Result, run_query
from omnigraph.query.tables.cache import Cache

SCHEMA = "node Person { slug: String @key  n: I64? }\nedge Knows: Person -> Person { w: F64? }"
PAIRS = "query q() { match { $a: Person $a $k:knows $b } return { $k.id, $a.slug, $b.slug, $k.w } }"
BACK = "query q() { match { $b: Person $a knows{1,} $b } return { $a.slug, $b.slug } }"


def answers(graph: og.Graph, cache: Cache, branch: str = "main") -> list[list[dict[str, object]]]:
    return [result.to_pylist() for result in results(graph, cache, branch)]


def results(graph: og.Graph, cache: Cache, branch: str = "main") -> list[Result]:
    snapshot = graph.snapshot(branch)
    found = []
    for text in (PAIRS, BACK):
        checked = graph.queries.checked(text, None, snapshot.schema, snapshot.view.head.schema, file="q")
        found.append(run_query(snapshot, checked, {}, options=Options(traverse="csr"), cache=cache))
    return found


def was_used(found: list[Result], what: str) -> bool:
    return any(what in s["used"] for r in found for s in r.explain()["steps"])


@pytest.mark.parametrize("seed", range(4))
def test_arrays_follow_every_kind_of_change(tmp_path: Path, seed: int) -> None:
    rng = random.Random(seed)
    graph = og.init(tmp_path / "g", SCHEMA)
    people = [f"p{i}" for i in range(12)]
    graph.insert({"Person": [{"slug": p} for p in people]})
    edges = {f"e{i}": (rng.choice(people), rng.choice(people)) for i in range(40)}
    graph.insert({"Knows": [{"id": i, "src": a, "dst": b} for i, (a, b) in edges.items()]})
    cache = Cache()
    answers(graph, cache)
    renewals = 0
    for step in range(12):
        kind = rng.choice(["insert", "change", "delete", "node", "drop", "optimize", "again"])
        if kind == "insert":
            graph.insert({"Knows": [{"id": f"s{step}", "src": rng.choice(people), "dst": rng.choice(people)}]})
        elif kind == "change":
            row = {"id": f"e{rng.randrange(40)}", "src": rng.choice(people), "dst": rng.choice(people), "w": 1.0}
            graph.upsert({"Knows": [row]})
        elif kind == "delete":
            graph.delete({"Knows": [f"e{rng.randrange(40)}"]})
        elif kind == "node":
            people.append(f"q{step}")
            graph.insert({"Person": [{"slug": f"q{step}"}], "Knows": [{"src": f"q{step}", "dst": people[0]}]})
        elif kind == "drop":
            graph.delete({"Person": [people.pop(rng.randrange(len(people)))]})
        elif kind == "optimize":
            graph.optimize()
        else:
            gone = people[rng.randrange(len(people))]
            graph.delete({"Person": [gone]})
            graph.insert({"Person": [{"slug": gone}], "Knows": [{"src": gone, "dst": gone}]})
        found = results(graph, cache)
        renewals += was_used(found, "arrays renewed")
        assert [r.to_pylist() for r in found] == answers(graph, Cache()), (seed, step, kind)
    assert renewals > 2


def test_a_small_change_renews_arrays_and_a_new_image_builds_them(tmp_path: Path) -> None:
    graph = og.init(tmp_path / "g", SCHEMA)
    graph.insert({"Person": [{"slug": "a"}, {"slug": "b"}], "Knows": [{"src": "a", "dst": "b"}]})
    cache = Cache()
    answers(graph, cache)
    graph.insert({"Knows": [{"id": "back", "src": "b", "dst": "a"}]})
    small = results(graph, cache)
    assert was_used(small, "arrays renewed")
    assert [tuple(r.values()) for r in small[1].to_pylist()] == [("b", "a"), ("a", "b")]
    graph.load(nodes={"Person": _people("a", "b", "c")}, mode="overwrite", engine="local")
    new = results(graph, cache)
    assert was_used(new, "arrays built")
    assert [tuple(r.values()) for r in new[1].to_pylist()] == [("b", "a"), ("a", "b")]


def _people(*slugs: str) -> object:
    import pyarrow as pa

    return pa.table({"slug": list(slugs)})


def test_a_fork_never_takes_the_arrays_of_the_table_it_came_from(tmp_path: Path) -> None:
    graph = og.init(tmp_path / "g", SCHEMA)
    graph.insert({"Person": [{"slug": "a"}, {"slug": "b"}, {"slug": "c"}], "Knows": [{"src": "a", "dst": "b"}]})
    graph.create_branch("trial")
    cache = Cache()
    graph.insert({"Knows": [{"id": "same", "src": "a", "dst": "c"}]})
    graph.insert({"Knows": [{"id": "same", "src": "b", "dst": "c"}]}, branch="trial")
    on_main, on_trial = answers(graph, cache)[1], answers(graph, cache, "trial")[1]
    assert [tuple(r.values()) for r in on_main] == [("a", "b"), ("a", "c")]
    assert [tuple(r.values()) for r in on_trial] == [("a", "b"), ("a", "c"), ("b", "c")]


def test_the_budget_of_the_cache_holds_and_changes_no_answer(tmp_path: Path) -> None:
    graph = og.init(tmp_path / "g", SCHEMA)
    people = [f"p{i}" for i in range(50)]
    rng = np.random.default_rng(1)
    graph.insert({"Person": [{"slug": p} for p in people]})
    ends = rng.integers(0, 50, (200, 2)).tolist()
    graph.insert({"Knows": [{"src": people[a], "dst": people[b]} for a, b in ends]})
    small = Cache(2000)
    assert answers(graph, small) == answers(graph, Cache())
    assert small.bytes <= 2000
