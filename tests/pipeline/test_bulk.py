"""The bulk load gives what the in-memory load gives: the same graph, the same refusals, the same rejects."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

import omnigraph as og
from omnigraph.pipeline.bulk import job as jobs
from omnigraph.pipeline.bulk.input import input_splits
from omnigraph.pipeline.load import planner
from tests.pipeline.loads import SCHEMA, RandomSchema, outcome, write_lines

SEED = 7


@pytest.mark.parametrize("turn", range(8))
def test_both_ways_of_a_load_agree_on_graph_refusals_and_rejects(
    turn: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    print(f"seed {SEED}, turn {turn}")
    rng = random.Random(f"{SEED}/{turn}")
    graphs = {way: og.init(tmp_path / f"{way}.omni", SCHEMA) for way in ("memory", "bulk")}
    # Small pieces and buckets, so that what belongs together is far apart.
    monkeypatch.setattr(input_splits, "PIECE_BYTES", (300, 1500))
    monkeypatch.setattr(jobs, "ROWS_PER_BUCKET", 50)
    for step in range(3):
        path = write_lines(tmp_path / f"in{step}.jsonl", rng, rng.choice([6, 20, 60, 150]))
        mode = rng.choice(["append", "merge", "overwrite"] if step else ["append", "merge"])
        on_error = rng.choice(["fail", "quarantine", "quarantine"])
        found = {}
        for way, graph in graphs.items():
            monkeypatch.setattr(planner, "IN_MEMORY_BYTES", 1 << 30 if way == "memory" else -1)
            aside = tmp_path / f"{way}.rejected"
            found[way] = outcome(graph, path, aside, mode=mode, on_error=on_error, engine="local")
        assert found["bulk"] == found["memory"], (step, mode, on_error)
    assert not (tmp_path / "bulk.omni" / "__staging").exists()


@pytest.mark.parametrize("turn", range(10))
def test_both_ways_agree_under_random_schemas(turn: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    print(f"seed {SEED}, turn {turn}")
    rng = random.Random(f"{SEED}/schema/{turn}")
    schema = RandomSchema(rng)
    graphs = {way: og.init(tmp_path / f"{way}.omni", schema.text) for way in ("memory", "bulk")}
    monkeypatch.setattr(input_splits, "PIECE_BYTES", (300, 1500))
    monkeypatch.setattr(jobs, "ROWS_PER_BUCKET", 50)
    for step in range(3):
        path = tmp_path / f"in{step}.jsonl"
        path.write_bytes(b"".join(schema.line() + b"\n" for _ in range(rng.choice([5, 40, 120]))))
        mode = rng.choice(["append", "merge", "overwrite"] if step else ["append", "merge"])
        found = {}
        for way, graph in graphs.items():
            monkeypatch.setattr(planner, "IN_MEMORY_BYTES", 1 << 30 if way == "memory" else -1)
            aside = tmp_path / f"{way}.rejected"
            on_error = "fail" if step == 1 else "quarantine"
            found[way] = outcome(graph, path, aside, mode=mode, on_error=on_error, engine="local")
        assert found["bulk"] == found["memory"], (step, mode, schema.text)
