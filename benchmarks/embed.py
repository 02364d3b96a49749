"""`embed` with the local model, against the bare model that embeds the same texts and does nothing with the vectors.

Per core: the bare model and `embed` in process run on one core each; on Spark, with a warm session, the texts per
second of all cores are divided by their number. `embed` finds the rows, asks, writes and commits; graphs are made
before.
"""

from __future__ import annotations

import os
import random
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pyarrow as pa

import omnigraph as og
from benchmarks.report import Result
from omnigraph.pipeline.embed.local import LocalProvider
from omnigraph.pipeline.embed.provider import Choice

SCHEMA = 'node Post { key: String @key  text: String  vector: Vector(256)? @embed("text") }'
TEXTS = 40_000
BAR = 0.7
SEED = 11
CHOICE = Choice("local", "wordllama-l2-supercat", 256, 1024)


def run() -> Iterator[Result]:
    from omnigraph.tasks.session import SparkSettings, spark_session

    texts = list(_texts())
    with tempfile.TemporaryDirectory(prefix="omnigraph-bench-") as folder:
        with _one_core():
            _bare(texts[:2000])
            bare, ours = float("inf"), float("inf")
            for i in range(3):
                bare = min(bare, _bare(texts))
                ours = min(ours, _embed(f"{folder}/local-{i}", texts, engine="local"))
        yield _result("in process, one core", bare, ours, cores=1)
        cores = os.cpu_count() or 1
        spark = spark_session(SparkSettings(master=f"local[{cores},4]"))
        _embed(f"{folder}/warm", texts[: TEXTS // 8], engine="spark", spark=spark)
        ours = min(_embed(f"{folder}/spark-{i}", texts, engine="spark", spark=spark) for i in range(3))
        yield _result(f"on Spark, warm, {cores} cores", bare, ours, cores=cores)
        spark.stop()


def _result(where: str, bare_s: float, ours_s: float, *, cores: int) -> Result:
    return Result(
        f"embed of {TEXTS:,} texts {where}, texts/s per core against the bare model (seed {SEED})",
        bare_s / (ours_s * cores),
        BAR,
        False,
        f"embed {TEXTS / ours_s / cores:,.0f}, bare model {TEXTS / bare_s:,.0f} texts/s per core",
    )


def _texts() -> Iterator[str]:
    rng = random.Random(SEED)
    words = ["".join(rng.choices("abcdefghijklmnopqrstuvwxyz", k=rng.randrange(2, 9))) for _ in range(5000)]
    for i in range(TEXTS):
        yield f"{i} " + " ".join(rng.choices(words, k=rng.randrange(15, 45)))


@contextmanager
def _one_core() -> Iterator[None]:
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(before)})
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


def _bare(texts: list[str]) -> float:
    provider = LocalProvider(CHOICE)
    started = time.perf_counter()
    for start in range(0, len(texts), 1024):
        provider._loaded.embed(texts[start : start + 1024], norm=True)
    return time.perf_counter() - started


def _embed(uri: str, texts: list[str], *, engine: str, spark: Any = None) -> float:
    og.init(uri, SCHEMA).insert({"Post": pa.table({"key": [str(i) for i in range(len(texts))], "text": texts})})
    graph = og.open(uri, engine=engine, spark=spark)
    started = time.perf_counter()
    result = graph.embed()
    taken = time.perf_counter() - started
    assert result.embedded == {"node:Post": len(texts)}
    return taken
