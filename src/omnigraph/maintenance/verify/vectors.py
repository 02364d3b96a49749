"""Vectors: sampled rows are searched for by their own vectors, through every partition of the index.

The results must be existing rows, with the distance of their stored vectors to the query; there must be as many as
requested, or as exist; and the row itself must be among them, or as many rows that are as near. From kinds that store
an approximation more candidates are requested, which Lance refines by the stored vectors.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import pyarrow as pa

from omnigraph.maintenance.verify.findings import Finding
from omnigraph.maintenance.verify.scope import Line
from omnigraph.maintenance.verify.tables import line_finding

SAMPLE_VECTORS = 8
FULL_VECTORS_BATCH = 1024
NEIGHBOURS = 10
CANDIDATES = 200
"""How many times the neighbours an approximate index offers for refinement."""
TOLERANCE = 1e-3


def check_vectors(line: Line, table: Any, task: Mapping[str, Any], *, named: str) -> Iterator[Finding | int]:
    column, name = task["index"]["column"], task["index"]["name"]
    stats = table.stats.index_stats(name)
    parts = stats.get("indices") or [{}]
    metric = str(parts[0].get("metric_type", "l2")).lower()
    probes = max([1, *(int(p.get("num_partitions", 1)) for p in parts)])
    some = table.scanner(columns=[], filter=f"`{column}` IS NOT NULL", with_row_id=True, limit=NEIGHBOURS).to_table()
    exact = str(task["index"]["kind"]) == "IVF_FLAT"
    for rows in _questions(table, column, task):
        for row_id, vector in zip(rows.column("_rowid").to_pylist(), _matrix(rows, column), strict=True):
            yield 1
            yield from _compare_neighbours(
                line, table, column, named, row_id, vector, metric, probes, some.num_rows, exact
            )


def _questions(table: Any, column: str, task: Mapping[str, Any]) -> Iterator[pa.Table]:
    where = f"`{column}` IS NOT NULL"
    if task["full"]:
        for batch in table.scanner(
            columns=[column], filter=where, with_row_id=True, batch_size=FULL_VECTORS_BATCH
        ).to_batches():
            yield pa.table(batch)
        return
    chance = random.Random(task["seed"])
    fragments = table.get_fragments()
    for fragment in chance.sample(fragments, min(len(fragments), SAMPLE_VECTORS)):
        yield table.scanner(
            columns=[column], filter=where, fragments=[fragment], with_row_id=True, limit=SAMPLE_VECTORS
        ).to_table()


def _matrix(rows: pa.Table, column: str) -> np.ndarray:
    values = rows.column(column).combine_chunks()
    return np.asarray(values.flatten()).reshape(len(values), values.type.list_size)


def _compare_neighbours(
    line: Line,
    table: Any,
    column: str,
    named: str,
    row_id: int,
    vector: np.ndarray,
    metric: str,
    probes: int,
    neighbours: int,
    exact: bool,
) -> Iterator[Finding]:
    if metric == "cosine" and not np.any(vector):
        return  # no direction, no distance
    question: dict[str, Any] = {"column": column, "q": vector, "k": neighbours, "nprobes": probes}
    if not exact:
        question |= {"refine_factor": CANDIDATES, "ef": CANDIDATES * neighbours}
    answer = table.scanner(columns=[column, "_distance"], nearest=question, with_row_id=True).to_table()
    if answer.num_rows < neighbours:
        text = f"{named} returns fewer neighbours than there are rows"
        yield line_finding("index_wrong_answer", line, text, examples=[f"{answer.num_rows} of {neighbours}"])
        return
    distances = answer.column("_distance").to_numpy()
    real = _distances(_matrix(answer, column), vector, metric)
    wrong = np.abs(distances - real) > TOLERANCE * (1 + np.abs(real))
    if wrong.any():
        first = [f"row {i}" for i in answer.column("_rowid").filter(pa.array(wrong)).to_pylist()]
        text = f"{named} answers with distances that the stored vectors do not have"
        yield line_finding("index_stale", line, text, count=int(wrong.sum()), examples=first)
    elif row_id not in answer.column("_rowid").to_pylist() and metric != "dot":
        own = _distances(vector[None, :], vector, metric)[0]
        # More rows than requested may be as near: then any of them is right.
        if real.max(initial=0.0) > own + TOLERANCE:
            text = f"{named} does not find rows by their own vectors"
            yield line_finding("index_wrong_answer", line, text, examples=[f"row {row_id}"])


def _distances(rows: np.ndarray, vector: np.ndarray, metric: str) -> np.ndarray:
    rows, vector = rows.astype(np.float64), vector.astype(np.float64)
    if metric == "dot":
        return np.asarray(1.0 - rows @ vector)
    if metric == "cosine":
        sizes = np.linalg.norm(rows, axis=1) * np.linalg.norm(vector)
        return np.asarray(1.0 - (rows @ vector) / np.where(sizes == 0, 1.0, sizes))
    return np.asarray(((rows - vector) ** 2).sum(axis=1))
