"""The graph of the query benchmarks: an R-MAT graph by seed, and documents with texts and vectors.

R-MAT draws every edge by choosing a quadrant of the matrix once per bit, with fixed odds: a few nodes get thousands of
edges, most get a handful, as in a social network.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import omnigraph as og

SCHEMA = """
node Person { slug: String @key  name: String  rank: I64 @index }
edge Knows: Person -> Person
node Doc { slug: String @key  bucket: I64 @index  text: String @index  vec: Vector(128) @index }
"""
ODDS = (0.57, 0.19, 0.19, 0.05)
SCALE = 18
DRAWN = 4_200_000
DOCS = 100_000
SEED = 20_261_116


@dataclass(frozen=True)
class Data:
    """One graph, loaded and optimized, and the same nodes and edges as Parquet for the peers."""

    uri: str
    nodes: Path
    edges: Path
    sources: tuple[str, ...]
    many: tuple[str, ...]
    count: int


def make(folder: Path, *, scale: int = SCALE, drawn: int = DRAWN, docs: int = DOCS) -> Data:
    rng = np.random.default_rng(SEED)
    source, target = rmat(rng, scale, drawn)
    slugs = np.array([f"p{i:07d}" for i in range(1 << scale)])
    people = pa.table(
        {"slug": slugs, "name": np.char.add("name of ", slugs), "rank": rng.permutation(1 << scale).astype(np.int64)}
    )
    edges = pa.table({"from": slugs[source], "to": slugs[target]})
    nodes_file, edges_file = folder / "nodes.parquet", folder / "edges.parquet"
    pq.write_table(people, nodes_file)
    pq.write_table(edges, edges_file)
    uri = str(folder / "graph")
    graph = og.init(uri, SCHEMA)
    graph.load(nodes={"Person": people, "Doc": documents(rng, docs)}, edges={"Knows": edges}, mode="append")
    graph.optimize()
    having = np.unique(source)
    sources = tuple(slugs[np.sort(rng.choice(having, 12, replace=False))].tolist())
    many = tuple(slugs[np.sort(rng.choice(having, 1000, replace=False))].tolist())
    return Data(uri, nodes_file, edges_file, sources, many, len(source))


def rmat(rng: np.random.Generator, scale: int, drawn: int) -> tuple[np.ndarray, np.ndarray]:
    """Edges, each there once."""
    source, target = np.zeros(drawn, dtype=np.int64), np.zeros(drawn, dtype=np.int64)
    a, b, c, _ = ODDS
    for _ in range(scale):
        at = rng.random(drawn)
        source = source << 1 | (at >= a + b)
        target = target << 1 | ((at >= a) & (at < a + b)) | (at >= a + b + c)
    packed = np.unique(source << scale | target)
    return packed >> scale, packed & (1 << scale) - 1


def documents(rng: np.random.Generator, count: int) -> Any:
    words = np.array([f"word{i}" for i in range(5000)])
    # Words by rank, as in a natural text: the first ones are everywhere.
    drawn = np.minimum(rng.zipf(1.3, size=(count, 20)) - 1, len(words) - 1)
    texts = [" ".join(row) for row in words[drawn]]
    vectors = rng.standard_normal((count, 128)).astype(np.float32)
    return pa.table(
        {
            "slug": [f"d{i:07d}" for i in range(count)],
            "bucket": rng.integers(0, 20, count),
            "text": texts,
            "vec": pa.FixedSizeListArray.from_arrays(pa.array(vectors.ravel()), 128),
        }
    )
