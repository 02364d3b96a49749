"""Inputs of the load benchmarks, made by seed, a column at a time."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv as arrow_csv
import pyarrow.parquet as pq

SEED = 7
MIXED = """
node Person { name: String @key  age: I32?  born: Date? }
node City { name: String @key  population: I64 }
edge Knows: Person -> Person { since: Date?  weight: F64? }
edge LivesIn: Person -> City
"""
GRAPH = """
node Person { name: String @key  age: I32?  score: F64? }
edge Follows: Person -> Person { since: I32?  weight: F64? }
"""


def names(prefix: str, numbers: np.ndarray) -> pa.Array:
    """`prefix` and seven digits, without a loop."""
    digits = np.char.zfill(numbers.astype("U7"), 7)
    return pa.array(np.char.add(prefix, digits))


def mixed_lines(path: Path, lines: int) -> Path:
    """NDJSON records of four types."""
    rng = np.random.default_rng(SEED)
    people, cities, knows = lines // 10, lines // 20, lines * 6 // 10
    lives = lines - people - cities - knows
    with path.open("wb") as file:
        for start in range(0, people, 100_000):
            part = range(start, min(start + 100_000, people))
            ages = rng.integers(0, 100, len(part)).tolist()
            file.writelines(
                b'{"type":"Person","data":{"name":"person-%07d","age":%d,"born":"1990-01-02"}}\n' % (i, age)
                for i, age in zip(part, ages, strict=True)
            )
        file.writelines(
            b'{"type":"City","data":{"name":"city-%07d","population":%d}}\n' % (i, 1000 + i) for i in range(cities)
        )
        ends = rng.integers(0, people, (knows, 2)).tolist()
        file.writelines(
            b'{"edge":"Knows","from":"person-%07d","to":"person-%07d","data":{"since":"2020-05-05","weight":0.5}}\n'
            % (a, b)
            for a, b in ends
        )
        homes = np.column_stack([rng.integers(0, people, lives), rng.integers(0, cities, lives)]).tolist()
        file.writelines(b'{"edge":"LivesIn","from":"person-%07d","to":"city-%07d"}\n' % (a, b) for a, b in homes)
    return path


def people(count: int, *, changed_every: int = 0) -> pa.Table:
    numbers = np.arange(count)
    age = (numbers % 100).astype(np.int32)
    if changed_every:
        age[::changed_every] += 1
    return pa.table({"name": names("person-", numbers), "age": age, "score": numbers / 7})


def follows(count: int, nodes: int) -> pa.Table:
    rng = np.random.default_rng(SEED)
    ends = rng.integers(0, nodes, (count, 2))
    return pa.table(
        {
            "from": names("person-", ends[:, 0]),
            "to": names("person-", ends[:, 1]),
            "since": rng.integers(2000, 2025, count).astype(np.int32),
            "weight": rng.random(count),
        }
    )


def write_parquet(folder: Path, *, nodes: int, edges: int) -> dict[str, Path]:
    paths = {"nodes": folder / "people.parquet", "edges": folder / "follows.parquet"}
    pq.write_table(people(nodes), paths["nodes"], row_group_size=250_000)
    pq.write_table(follows(edges, nodes), paths["edges"], row_group_size=250_000)
    return paths


def write_csv(folder: Path, *, nodes: int, edges: int) -> dict[str, Path]:
    paths = {"nodes": folder / "people.csv", "edges": folder / "follows.csv"}
    options: Any = arrow_csv.WriteOptions(quoting_style="none")
    arrow_csv.write_csv(people(nodes), str(paths["nodes"]), options)
    arrow_csv.write_csv(follows(edges, nodes), str(paths["edges"]), options)
    return paths
