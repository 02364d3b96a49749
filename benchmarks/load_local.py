"""`load` in process of 200,000 mixed lines, against parsing the same file with orjson and doing nothing with it."""

from __future__ import annotations

import random
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import orjson

import omnigraph as og
from benchmarks.report import Result

SCHEMA = """
node Person { name: String @key  age: I32?  born: Date? }
node City { name: String @key  population: I64 }
edge Knows: Person -> Person { since: Date?  weight: F64? }
"""
LINES = 200_000
SEED = 7


def run() -> Iterator[Result]:
    with tempfile.TemporaryDirectory(prefix="omnigraph-bench-") as folder:
        path = Path(folder, "mixed.jsonl")
        path.write_bytes(b"\n".join(_lines()) + b"\n")
        parsing = min(_parse(path) for _ in range(3))
        loading = min(_load(path, f"{folder}/graph-{i}") for i in range(3))
        yield Result(
            f"load --engine local of {LINES:,} mixed lines, lines/s against orjson alone (seed {SEED})",
            parsing / loading,
            0.5,
            False,
            f"load {LINES / loading:,.0f} lines/s, orjson {LINES / parsing:,.0f} lines/s",
        )


def _lines() -> Iterator[bytes]:
    rng = random.Random(SEED)
    people, cities = LINES // 4, LINES // 10
    for i in range(people):
        data = {"name": f"person-{i:07d}", "age": rng.randrange(100), "born": "1990-01-02"}
        yield orjson.dumps({"type": "Person", "data": data})
    for i in range(cities):
        yield orjson.dumps({"type": "City", "data": {"name": f"city-{i:07d}", "population": rng.randrange(10**6)}})
    for _ in range(LINES - people - cities):
        ends = {k: f"person-{rng.randrange(people):07d}" for k in ("from", "to")}
        yield orjson.dumps({"edge": "Knows", **ends, "data": {"since": "2020-05-05", "weight": rng.random()}})


def _parse(path: Path) -> float:
    started = time.perf_counter()
    with path.open("rb") as file:
        for line in file:
            orjson.loads(line)
    return time.perf_counter() - started


def _load(path: Path, uri: str) -> float:
    graph = og.init(uri, SCHEMA)
    started = time.perf_counter()
    result = graph.load(path, mode="append", engine="local")
    taken = time.perf_counter() - started
    assert sum(result.inserted.values()) == LINES
    return taken
