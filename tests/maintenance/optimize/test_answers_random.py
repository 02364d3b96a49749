"""Random lives of a graph beside a running optimize: after every step each index answers what a full scan answers."""

from __future__ import annotations

import os
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import omnigraph as og
from omnigraph.index import segments
from omnigraph.maintenance.optimize import indices
from tests.maintenance.optimize.answers import disagreements

pytestmark = pytest.mark.slow

SCHEMA = """
node Doc {
  key: String @key
  rank: I32? @index
  kind: enum(a, b, c)? @index
  tags: [String]? @index
  text: String? @index
  vec: Vector(4)? @index
}
edge Cites: Doc -> Doc { weight: I32? @index }
"""
SEEDS = [int(s) for s in os.environ.get("OMNIGRAPH_SEEDS", "1").split(",")]
STEPS = int(os.environ.get("OMNIGRAPH_STEPS", "5"))


class Writer:
    """Small random writes, and what must be there after them."""

    def __init__(self, graph: og.Graph, rng: random.Random) -> None:
        self.graph = graph
        self.rng = rng
        self.docs: dict[str, dict[str, Any]] = {}
        self.edges: dict[str, tuple[str, str]] = {}
        self.count = 0

    def doc(self, key: str) -> dict[str, Any]:
        rng = self.rng
        words = " ".join(rng.choice(("alpha", "beta", "gamma", "delta", "omega")) for _ in range(3))
        return {
            "key": key,
            "rank": rng.choice([None, rng.randrange(6)]),
            "kind": rng.choice([None, "a", "b", "c"]),
            "tags": rng.choice([None, [], [rng.choice("xyz"), rng.choice("xyz")]]),
            "text": rng.choice([None, words]),
            "vec": rng.choice([None, [rng.uniform(0.1, 1) for _ in range(4)]]),
        }

    def insert(self, many: int) -> None:
        rows = [self.doc(f"d{self.count + i}") for i in range(many)]
        self.count += many
        self.graph.insert({"Doc": rows})
        self.docs.update({r["key"]: r for r in rows})

    def upsert(self) -> None:
        keys = self.rng.sample(sorted(self.docs), min(len(self.docs), self.rng.randint(1, 8)))
        rows = [self.doc(key) for key in keys]
        self.graph.upsert({"Doc": rows})
        self.docs.update({r["key"]: r for r in rows})

    def delete(self) -> None:
        keys = self.rng.sample(sorted(self.docs), min(len(self.docs), self.rng.randint(1, 12)))
        self.graph.delete({"Doc": keys})
        for key in keys:
            del self.docs[key]
        self.edges = {k: e for k, e in self.edges.items() if e[0] in self.docs and e[1] in self.docs}

    def connect(self) -> None:
        if self.docs:
            pairs = [(self.rng.choice(sorted(self.docs)), self.rng.choice(sorted(self.docs))) for _ in range(5)]
            made = self.graph.insert(
                {"Cites": [{"from": a, "to": b, "weight": self.rng.randrange(4)} for a, b in pairs]}
            )
            self.edges.update(dict(zip(made.ids["Cites"], pairs, strict=True)))

    def anything(self, *, only_more: bool = False) -> None:
        if only_more:
            self.insert(self.rng.randint(1, 25))
            return
        acts: list[Callable[[], None]] = [lambda: self.insert(self.rng.randint(1, 25)), self.upsert, self.connect]
        acts += [self.upsert, self.delete] if self.docs else []
        self.rng.choice(acts)()


class Between:
    """A watcher that lets others write while optimize is between its stages."""

    def __init__(self, act: Callable[[], None]) -> None:
        self.act = act

    def engine(self, name: str, reason: str) -> None:
        return

    def stage(self, name: str, *, tasks: int) -> None:
        self.act()

    def advance(self, *, tasks: int, rows: int, size_bytes: int) -> None:
        return


def check(graph: og.Graph, writer: Writer, told: str) -> None:
    view = graph.snapshot().view
    for name in ("Doc", "Cites"):
        found = disagreements(view.open(view.type(name)))
        assert not found, f"{told}: {found[:3]}"
    rows = {r["key"]: r for r in graph.nodes("Doc").drop_columns(["id"]).to_pylist()}
    assert rows.keys() == writer.docs.keys(), told
    for key, row in rows.items():
        want = writer.docs[key]
        assert {k: v for k, v in row.items() if k != "vec"} == {k: v for k, v in want.items() if k != "vec"}, told
        assert (row["vec"] is None) == (want["vec"] is None), told
    assert set(graph.edges("Cites")["id"].to_pylist()) == set(writer.edges), told


@pytest.mark.parametrize("row_ids", ["stable", "address", pytest.param("deferred", marks=pytest.mark.long)])
@pytest.mark.parametrize("seed", SEEDS)
def test_every_index_answers_what_a_scan_answers_after_any_life_beside_optimize(
    tmp_path: Path, seed: int, row_ids: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    print(f"replay with OMNIGRAPH_SEEDS={seed} OMNIGRAPH_STEPS={STEPS}")
    monkeypatch.setattr(segments, "SEGMENT_ROWS", 60)
    monkeypatch.setattr(segments, "ABSORB_ROWS", 6)
    monkeypatch.setattr(indices, "VECTORS_MIN", 8)
    rng = random.Random(seed)
    og.init(tmp_path / "g", SCHEMA, row_ids="stable" if row_ids == "stable" else "address")
    writer = Writer(og.open(tmp_path / "g"), rng)
    busy = og.open(
        tmp_path / "g", engine="local", watcher=Between(lambda: writer.anything() if rng.random() < 0.7 else None)
    )
    quiet = og.open(tmp_path / "g", engine="local")
    writer.insert(60)
    for step in range(STEPS):
        growing = rng.random() < 0.4
        for _ in range(rng.randint(0, 3)):
            writer.anything(only_more=growing)
        graph = rng.choice((busy, quiet))
        told = f"seed {seed}, step {step}, {row_ids}, {'busy' if graph is busy else 'quiet'}"
        how = rng.choice(({"defer_index_remap": True}, {"defer_index_remap": True}, {"drain": True}, {}))
        result = graph.optimize(
            target_rows_per_fragment=rng.choice((20, 60, 200)), **(how if row_ids == "deferred" else {})
        )
        assert result.ok, (told, result)
        check(graph, writer, told)
