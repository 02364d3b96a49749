"""Random graphs for random queries."""

from __future__ import annotations

import random
from pathlib import Path

import omnigraph as og
from tests.query import random_reads


def build(path: Path, rng: random.Random, coverage: str) -> og.Graph:
    """none: no index. full: all rows are covered. partial: rows were added, changed and removed after that."""
    graph = og.init(path, random_reads.SCHEMA, row_ids=rng.choice(["stable", "stable", "address"]))
    people, firms = [f"p{i}" for i in range(rng.randint(1, 7))], [f"c{i}" for i in range(rng.randint(0, 3))]
    graph.insert(
        {
            "Person": [random_reads.person(rng, s) for s in people],
            "Company": [random_reads.company(rng, s) for s in firms],
            **random_reads.content(rng, people, firms),
        }
    )
    if coverage != "none":
        graph.optimize()
    if coverage != "full":
        more = [f"q{i}" for i in range(rng.randint(1, 3))]
        graph.insert({"Person": [random_reads.person(rng, s) for s in more]})
        graph.insert(random_reads.content(rng, [*people, *more], firms))
        changed = rng.sample(people, min(2, len(people)))
        graph.upsert({"Person": [random_reads.person(rng, s) for s in changed]})
        graph.delete({"Person": rng.sample(people, min(1, len(people) - 1))})
    return graph
