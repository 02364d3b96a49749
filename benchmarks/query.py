"""Queries through a warm handle: look-ups and hops against Kuzu and Ladybug, blocks, search, and a fresh process.

Every figure is end to end: the branch's head is looked up, the plan comes from the handle's cache, the answer is an
Arrow table. The peers answer the same questions on the same data in processes of their own, and must agree.
"""

from __future__ import annotations

import itertools
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

import omnigraph as og
from benchmarks.query_data import SEED, Data, make
from benchmarks.report import Result
from omnigraph.storage.lance import lance_api

PEERS = ("kuzu", "ladybug")
ROUNDS = 5
HOPS = (
    "$p0: Person { slug: $s }  $p0 knows $p1",
    "$p0: Person { slug: $s }  $p0 knows $p1  $p1 knows $p2",
    "$p0: Person { slug: $s }  $p0 knows $p1  $p1 knows $p2  $p2 knows $p3",
)
BARS = (0.5, 0.5, 0.2)


def run() -> Iterator[Result]:
    os.environ["OMNIGRAPH_FSYNC"] = "off"
    with tempfile.TemporaryDirectory(prefix="omnigraph-bench-") as folder:
        data = make(Path(folder))
        graph = og.open(data.uri)
        peers = {peer: _peer(peer, folder, data) for peer in PEERS}
        yield from _hops(graph, data, peers)
        yield _grouped(graph, data, peers)
        yield _look_up(graph, data)
        yield _negation(graph)
        yield from _search(graph)
        yield _planning(graph)
        yield _fresh(data)


# ---- against the peers -----------------------------------------------------------------------------------------------


def _forms(hops: int, what: str) -> list[str]:
    """The ways to ask for the distinct ends of so many hops, as Cypher. Which is fastest depends on the peer."""
    names = [f"p{i}" for i in range(hops + 1)]
    ends = f"RETURN {what}"
    start = "MATCH (p0:Person {slug: $s})"
    whole = start + "".join(f"-[:Knows]->({n}:Person)" for n in names[1:])
    stepwise = start + f"-[:Knows]->({names[1]}:Person)"
    for near, far in itertools.pairwise(names[1:]):
        stepwise += f" WITH DISTINCT {near} MATCH ({near})-[:Knows]->({far}:Person)"
    last = names[-1]
    return [form.replace("LAST", last) for form in (f"{whole} {ends}", f"{stepwise} {ends}")]


def _questions() -> dict[str, Any]:
    found: dict[str, Any] = {}
    for hops in (1, 2, 3):
        found[f"count{hops}"] = (_forms(hops, "count(DISTINCT LAST.slug)"), "one")
        found[f"count{hops}"][0].extend(_forms(hops, "count(DISTINCT LAST)"))
        found[f"rows{hops}"] = (_forms(hops, "DISTINCT LAST.slug, LAST.name"), "one")
    pairs = "MATCH (a:Person)-[:Knows]->(b:Person)-[:Knows]->(c:Person) WHERE a.slug IN $s"
    steps = (
        "MATCH (a:Person) WHERE a.slug IN $s MATCH (a)-[:Knows]->(b:Person) MATCH (b)-[:Knows]->(c:Person)"
        " WITH DISTINCT a, c RETURN a.slug, count(c)"
    )
    unwound = "UNWIND $s AS s MATCH (a:Person {slug: s})-[:Knows]->(b:Person)-[:Knows]->(c:Person)"
    found["grouped"] = (
        [f"{form} RETURN a.slug, count(DISTINCT c.slug)" for form in (pairs, unwound)] + [steps],
        "many",
    )
    return found


def _peer(peer: str, folder: str, data: Data) -> dict[str, Any]:
    task = {
        "folder": f"{folder}/{peer}",
        "nodes": str(data.nodes),
        "edges": str(data.edges),
        "questions": _questions(),
        "one": [{"s": s} for s in data.sources],
        "many": [{"s": list(data.many)}],
    }
    command = [sys.executable, "-m", "benchmarks.query_peers", peer]
    done = subprocess.run(command, input=json.dumps(task), capture_output=True, text=True, check=True)
    return dict(json.loads(done.stdout))


def _against(name: str, ours_ms: float, answers: list[int], bar: float, peers: dict[str, Any], key: str) -> Result:
    for peer, found in peers.items():
        assert found[key]["answers"] == answers, f"{peer} finds {found[key]['answers']}, we {answers}"
    best = min(peers, key=lambda p: peers[p][key]["ms"])
    times = ", ".join(f"{p} {found[key]['ms']:.2f} ms" for p, found in peers.items())
    return Result(f"{name} against {best}", ours_ms / peers[best][key]["ms"], bar, True, f"{ours_ms:.2f} ms; {times}")


def _hops(graph: og.Graph, data: Data, peers: dict[str, Any]) -> Iterator[Result]:
    # A handle is warm when the arrays are there: three hops of one source make them, a few hundred single ones would.
    graph.query(f"query q($s: String) {{ match {{ {HOPS[2]} }} return {{ count($p3) as n }} }}", s=data.sources[0])
    for hops, (pattern, bar) in enumerate(zip(HOPS, BARS, strict=True), 1):
        count = f"query q($s: String) {{ match {{ {pattern} }} return {{ count(distinct $p{hops}) as n }} }}"
        ms, answers = _timed(graph, count, data.sources)
        yield _against(
            f"{hops} hop(s), distinct count", ms, [a["n"][0].as_py() for a in answers], bar, peers, f"count{hops}"
        )
        columns = f"return distinct {{ $p{hops}.slug, $p{hops}.name }}"
        ms, answers = _timed(graph, f"query q($s: String) {{ match {{ {pattern} }} {columns} }}", data.sources)
        yield _against(f"{hops} hop(s), rows with names", ms, [a.num_rows for a in answers], bar, peers, f"rows{hops}")


def _timed(graph: og.Graph, text: str, sources: tuple[str, ...]) -> tuple[float, list[Any]]:
    """The median over the sources of the best of some rounds."""
    graph.query(text, s=sources[0]).to_arrow()
    taken, answers = [], []
    for source in sources:
        times = []
        for _ in range(ROUNDS):
            began = time.perf_counter()
            answer = graph.query(text, s=source).to_arrow()
            times.append((time.perf_counter() - began) * 1000)
        taken.append(min(times))
        answers.append(answer)
    return statistics.median(taken), answers


def _grouped(graph: og.Graph, data: Data, peers: dict[str, Any]) -> Result:
    text = """query q($s: [String]) {
      match { $a: Person  $a.slug in $s  $a knows $b  $b knows $c }
      return { $a.slug, count(distinct $c) as n }
    }"""
    ms = _best_ms(lambda: graph.query(text, s=list(data.many)).to_arrow())
    answer = graph.query(text, s=list(data.many)).to_arrow()
    return _against("two hops grouped over 1,000 sources", ms, [answer.num_rows], 0.2, peers, "grouped")


def _best_ms(call: Callable[[], object]) -> float:
    call()
    taken = []
    for _ in range(ROUNDS):
        began = time.perf_counter()
        call()
        taken.append((time.perf_counter() - began) * 1000)
    return min(taken)


# ---- against bare Lance and itself -----------------------------------------------------------------------------------


def _table(graph: og.Graph, name: str) -> Any:
    view = graph._committer.view("main")
    pin = view.pins[view.type(name).id]
    return lance_api.open_newest(view.tables.location, view.tables.location.join(pin.path))


def _look_up(graph: og.Graph, data: Data) -> Result:
    text = "query q($s: String) { match { $p: Person { slug: $s } } return { $p.slug, $p.name, $p.rank } }"
    ours, _ = _timed(graph, text, data.many[:200])
    table = _table(graph, "Person")
    taken = []
    for slug in data.many[:200]:
        began = time.perf_counter()
        found = table.scanner(columns=["slug", "name", "rank"], filter=f"slug = '{slug}'").to_table()
        taken.append((time.perf_counter() - began) * 1000)
        assert found.num_rows == 1
    bare = statistics.median(taken)
    return Result("look-up by key against Lance's BTREE", ours / bare, 1.0, True, f"{ours:.2f} ms, {bare:.2f} ms")


def _negation(graph: og.Graph) -> Result:
    text = """query q($n: I64) {
      match { $p: Person  $p.rank < $n  not { $p knows $_ } }
      return { count($p) as lonely }
    }"""
    counts = (500, 2_000, 8_000, 80_000)
    times = [_best_ms(lambda n=n: graph.query(text, n=n).to_arrow()) for n in counts]  # type: ignore[misc]
    worst = max((times[i + 1] / times[i]) / (counts[i + 1] / counts[i]) for i in range(len(counts) - 1))
    detail = ", ".join(f"{n:,}: {t:.2f} ms" for n, t in zip(counts, times, strict=True))
    return Result("not { } per source, the worst step in size", worst, 1.3, True, detail)


def _search(graph: og.Graph) -> Iterator[Result]:
    rng = np.random.default_rng(SEED)
    vectors = rng.standard_normal((20, 128)).astype(np.float32)
    parts = {
        "nearest": "nearest($d.vec, $v)",
        "bm25": "bm25($d.text, $q)",
        "rrf": "rrf(nearest($d.vec, $v), bm25($d.text, $q))",
    }
    ours: dict[str, float] = {}
    for name, order in parts.items():
        params = (
            "$v: Vector(128)"
            if name == "nearest"
            else "$q: String"
            if name == "bm25"
            else "$v: Vector(128), $q: String"
        )
        text = f"""query q({params}) {{
          match {{ $d: Doc  $d.bucket = 3 }}
          return {{ $d.slug }}
          order {{ {order} }}
          limit 10
        }}"""
        taken = []
        for i, vector in enumerate(vectors):
            given = {"v": vector.tolist(), "q": f"word{30 + i} word{200 + i}"}
            given = {k: v for k, v in given.items() if f"${k}:" in params}
            graph.query(text, params=given).to_arrow()
            began = time.perf_counter()
            assert graph.query(text, params=given).to_arrow().num_rows == 10
            taken.append((time.perf_counter() - began) * 1000)
        ours[name] = statistics.median(taken)
    table = _table(graph, "Doc")
    bare = []
    for vector in vectors:
        nearest = {"column": "vec", "q": vector, "k": 10, "metric": "cosine"}
        for _ in range(2):
            began = time.perf_counter()
            table.scanner(columns=["slug"], nearest=nearest, filter="bucket = 3", prefilter=True).to_table()
            took = (time.perf_counter() - began) * 1000
        bare.append(took)
    peer = statistics.median(bare)
    detail = f"{ours['nearest']:.2f} ms, exact; bare Lance {peer:.2f} ms, by its index"
    yield Result("vector top 10 with a 5% filter, 100k × 128", ours["nearest"] / peer, 1.3, True, detail)
    both = ours["nearest"] + ours["bm25"]
    detail = f"rrf {ours['rrf']:.2f} ms; nearest {ours['nearest']:.2f} ms + bm25 {ours['bm25']:.2f} ms"
    yield Result("rrf against the sum of its parts", ours["rrf"] / both, 1.3, True, detail)


def _planning(graph: og.Graph) -> Result:
    from omnigraph.language.query import check_query, parse_queries

    text = """query ten($s: String, $least: I64) {
      match {
        $a: Person { slug: $s }
        $a knows $b
        $b knows $c
        $c.rank >= $least and $c.name starts_with "name"
        not { $a knows $c }
      }
      return { $c.slug, count($b) as ways, max($b.rank) as top }
      order { ways desc } limit 10
    }"""
    schema = graph.snapshot().schema
    ms = _best_ms(lambda: [check_query(q, schema) for q in parse_queries(text).queries])
    first = _best_ms(lambda: graph.query(text, s="p0000001", least=0))
    detail = f"{ms:.2f} ms when it is first seen, then kept; the query itself takes {first:.2f} ms"
    return Result("parsing and checking ten lines against 2% of 100 ms", ms / 2.0, 1.0, True, detail)


OURS = """
import sys, omnigraph
text = "query q($s: String) { match { $a: Person { slug: $s }  $a knows $b } return { $b.slug } }"
print(len(omnigraph.open(sys.argv[1]).query(text, s=sys.argv[2]).to_arrow()))
"""
BARE = """
import sys, lance
people, edges = (lance.dataset(path) for path in sys.argv[1:3])
assert people.scanner(columns=["id"], filter=f"slug = '{sys.argv[3]}'").to_table().num_rows == 1
print(len(edges.scanner(columns=["dst"], filter=f"src = '{sys.argv[3]}'").to_table()))
"""


def _fresh(data: Data) -> Result:
    graph = og.open(data.uri)
    paths = [_table(graph, name).uri for name in ("Person", "Knows")]
    taken: dict[str, list[float]] = {"ours": [], "bare": []}
    for _ in range(7):
        answers = []
        for name, arguments in (("ours", [OURS, data.uri]), ("bare", [BARE, *paths])):
            began = time.perf_counter()
            command = [sys.executable, "-c", *arguments, data.sources[3]]
            answers.append(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
            taken[name].append((time.perf_counter() - began) * 1000)
        assert answers[0] == answers[1]
    ours, bare = (statistics.median(taken[n]) for n in ("ours", "bare"))
    return Result(
        "one hop in a fresh process against bare Lance", ours / bare, 1.5, True, f"{ours:.0f} ms, {bare:.0f} ms"
    )
