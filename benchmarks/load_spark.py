"""Loads on a warm Spark session (`local[2]`), each against a peer or a limit in the same run."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import lance
import orjson
import pyarrow as pa
import pyarrow.dataset as pads

import omnigraph as og
from benchmarks.load_data import GRAPH, MIXED, SEED, mixed_lines, people, write_csv, write_parquet
from benchmarks.report import Result
from omnigraph.tasks.session import SparkSettings, spark_session

NDJSON_LINES = 2_000_000
PARQUET = {"nodes": 500_000, "edges": 5_000_000}
CSV = {"nodes": 262_144, "edges": 4_000_000}
MERGE_ROWS = 5_000_000
WARM_LINES = 40_000


def run() -> Iterator[Result]:
    spark = spark_session(SparkSettings(master="local[2,4]", conf={"spark.driver.memory": "2g"}))
    with tempfile.TemporaryDirectory(prefix="omnigraph-bench-") as name:
        folder = Path(name)
        _warm_up(folder, spark)
        yield _ndjson(folder, spark)
        yield _parquet(folder, spark)
        yield from _csv(folder, spark)
        yield _merge(folder, spark)
        yield from _many_types(folder, spark)
    spark.stop()


def _timed(work: Callable[[], Any]) -> float:
    started = time.perf_counter()
    work()
    return time.perf_counter() - started


def _warm_up(folder: Path, spark: Any) -> None:
    path = mixed_lines(folder / "warm.jsonl", WARM_LINES)
    for i in range(3):
        og.init(folder / f"warm-{i}", MIXED)
        og.open(folder / f"warm-{i}", spark=spark).load(path, mode="append", engine="spark")


def _best(folder: Path, spark: Any, schema: str, turns: int, **load: Any) -> float:
    """The best of some loads into new graphs."""
    taken = []
    for i in range(turns):
        uri = folder / f"graph-{i}"
        og.init(uri, schema)
        graph = og.open(uri, spark=spark)
        taken.append(_timed(lambda graph=graph: graph.load(mode="append", engine="spark", **load)))
        shutil.rmtree(uri)
    return min(taken)


def _ndjson(folder: Path, spark: Any) -> Result:
    path = mixed_lines(folder / "mixed.jsonl", NDJSON_LINES)

    def parse() -> None:
        with path.open("rb") as file:
            for line in file:
                orjson.loads(line)

    parsing = min(_timed(parse) for _ in range(2))
    loading = _best(folder, spark, MIXED, 3, source=path)
    path.unlink()
    return Result(
        f"NDJSON, {NDJSON_LINES:,} lines of 4 types, validated, lines/s against orjson alone (seed {SEED})",
        parsing / loading,
        1.0,
        False,
        f"load {NDJSON_LINES / loading:,.0f} lines/s, orjson {NDJSON_LINES / parsing:,.0f} lines/s",
    )


def _parquet(folder: Path, spark: Any) -> Result:
    paths = write_parquet(folder, **PARQUET)
    rows = PARQUET["nodes"] + PARQUET["edges"]

    def bare() -> None:
        for kind, path in paths.items():
            lance.write_dataset(
                pads.dataset(path).scanner().to_reader(), folder / f"bare-{kind}.lance", mode="overwrite"
            )

    writing = min(_timed(bare) for _ in range(2))
    given = {"nodes": {"Person": paths["nodes"]}, "edges": {"Follows": paths["edges"]}}
    loading = _best(folder, spark, GRAPH, 3, **given)
    return Result(
        f"Parquet, {PARQUET['edges']:,} edges and {PARQUET['nodes']:,} nodes, validated, rows/s against a bare copy",
        writing / loading,
        0.5,
        False,
        f"load {rows / loading:,.0f} rows/s, bare {rows / writing:,.0f} rows/s",
    )


KUZU = """
import kuzu, sys, time
folder, nodes, edges = sys.argv[1:]
db = kuzu.Connection(kuzu.Database(folder))
db.execute("CREATE NODE TABLE Person(name STRING, age INT32, score DOUBLE, PRIMARY KEY(name))")
db.execute("CREATE REL TABLE Follows(FROM Person TO Person, since INT32, weight DOUBLE)")
started = time.perf_counter()
db.execute(f"COPY Person FROM '{nodes}' (HEADER=true)")
db.execute(f"COPY Follows FROM '{edges}' (HEADER=true)")
print(time.perf_counter() - started)
"""


def _csv(folder: Path, spark: Any) -> Iterator[Result]:
    paths = write_csv(folder, **CSV)
    given = {"nodes": {"Person": paths["nodes"]}, "edges": {"Follows": paths["edges"]}}
    loading = _best(folder, spark, GRAPH, 3, **given)
    peer = []
    for i in range(2):
        command = [sys.executable, "-c", KUZU, str(folder / f"kuzu-{i}"), str(paths["nodes"]), str(paths["edges"])]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            print(f"Kuzu could not be measured: {done.stderr.strip().splitlines()[-1]}")
            return
        peer.append(float(done.stdout))
    yield Result(
        f"CSV of {CSV['edges']:,} edges, time against Kuzu's COPY with its checks",
        loading / min(peer),
        1.0,
        True,
        f"load {loading:.1f} s, Kuzu {min(peer):.1f} s",
    )


def _merge(folder: Path, spark: Any) -> Result:
    whole, part = people(MERGE_ROWS), people(MERGE_ROWS, changed_every=1).take(pa.array(range(0, MERGE_ROWS, 100)))
    import pyarrow.parquet as pq

    pq.write_table(whole, folder / "whole.parquet", row_group_size=250_000)
    pq.write_table(part, folder / "part.parquet")
    uri = folder / "merge"
    og.init(uri, GRAPH)
    graph = og.open(uri, spark=spark)
    graph.load(nodes={"Person": folder / "whole.parquet"}, mode="append", engine="spark")
    again = {"nodes": {"Person": folder / "whole.parquet"}, "mode": "overwrite", "engine": "spark"}
    overwriting = min(_timed(lambda: graph.load(**again)) for _ in range(2))
    taken = []
    for turn in range(3):
        step = part.set_column(1, "age", pa.array([turn] * len(part), pa.int32()))
        pq.write_table(step, folder / "part.parquet")
        given = {"nodes": {"Person": folder / "part.parquet"}, "mode": "merge", "engine": "spark"}
        taken.append(_timed(lambda given=given: graph.load(**given)))
    shutil.rmtree(uri)
    return Result(
        f"merge of 1% changed rows into {MERGE_ROWS:,}, time against an overwrite of them",
        min(taken) / overwriting,
        0.35,
        True,
        f"merge {min(taken):.2f} s, overwrite {overwriting:.2f} s",
    )


def _many_types(folder: Path, spark: Any) -> Iterator[Result]:
    """30 node and 54 edge types of 8 rows against one of each with 336 rows."""
    many = "".join(f"node N{i} {{ name: String @key }}\n" for i in range(30))
    many += "".join(f"edge E{i}: N{i % 30} -> N{(i + 1) % 30}\n" for i in range(54))
    few = "node N0 { name: String @key }\nedge E0: N0 -> N0\n"
    lines: dict[str, list[str]] = {"many": [], "few": []}
    for i in range(30):
        lines["many"] += [f'{{"type":"N{i}","data":{{"name":"{i}-{r}"}}}}' for r in range(8)]
    for i in range(54):
        ends = [(f"{i % 30}-{r}", f"{(i + 1) % 30}-{r}") for r in range(8)]
        lines["many"] += [f'{{"edge":"E{i}","from":"{a}","to":"{b}","data":{{}}}}' for a, b in ends]
    lines["few"] += [f'{{"type":"N0","data":{{"name":"{r}"}}}}' for r in range(336)]
    lines["few"] += [f'{{"edge":"E0","from":"{r}","to":"{(r + 1) % 336}","data":{{}}}}' for r in range(336)]
    bare_s = _bare_appends_s(folder)
    beside = f"; bare Lance appends to 84 tables by 8 threads, nothing synced: {bare_s:.2f} s"
    for engine in ("local", "spark"):
        taken = {}
        for kind, schema in (("many", many), ("few", few)):
            path = folder / f"{kind}.jsonl"
            path.write_text("\n".join(lines[kind]) + "\n")
            found = []
            for i in range(3):
                uri = folder / f"types-{engine}-{kind}-{i}"
                og.init(uri, schema)
                graph = og.open(uri, spark=spark)
                load = partial(graph.load, path, mode="append", engine=engine)
                found.append(_timed(load))
            taken[kind] = min(found)
        yield Result(
            f"84 types of 8 rows, time against 2 types of 336 rows, {engine}",
            taken["many"] / taken["few"],
            3.0,
            True,
            f"84 types {taken['many']:.2f} s, 2 types {taken['few']:.2f} s{beside}",
        )
        beside = ""


def _bare_appends_s(folder: Path) -> float:
    empty = pa.table({"id": pa.array([], pa.string()), "name": pa.array([], pa.string())})
    tables = [lance.write_dataset(empty, folder / "bare" / str(number)) for number in range(84)]
    rows = pa.table({"id": [str(n) for n in range(8)], "name": [str(n) for n in range(8)]})

    def append() -> None:
        with ThreadPoolExecutor(8) as pool:
            list(pool.map(lambda table: lance.write_dataset(rows, table, mode="append"), tables))

    return min(_timed(append) for _ in range(3))
