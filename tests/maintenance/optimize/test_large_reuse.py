"""A fragment-reuse index that is too large for the version's own file: Lance keeps it in a folder among the indices."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import omnigraph as og
from omnigraph.storage import durability
from omnigraph.storage.lance.indices import fragment_reuse
from tests.maintenance.optimize.tables import opened

ROWS = 2_200_000
"""A map of scattered rows takes 8 KiB for 65,536 of them; more than 200 KiB go into a file."""


@pytest.mark.long
def test_it_is_synced_kept_by_cleanup_answers_and_is_drained(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seed = 5
    print(f"seed {seed}")
    chosen = np.random.default_rng(seed).random(ROWS) < 0.3
    graph = og.init(tmp_path / "g", "node Doc { name: String @key  gone: Bool }", row_ids="address")
    names = pa.array(np.arange(ROWS)).cast(pa.string())
    graph.load(nodes={"Doc": pa.table({"name": names, "gone": chosen})}, mode="append", engine="local")
    graph.optimize(engine="local")
    graph.mutate("query q() { delete Doc where gone = true }")

    synced: list[str] = []
    sync: Any = durability._sync
    monkeypatch.setenv("OMNIGRAPH_FSYNC", "on")
    monkeypatch.setattr(durability, "_sync", lambda path: (synced.append(path), sync(path)))
    assert graph.optimize(engine="local", defer_index_remap=True).table("node:Doc").committed
    table = opened(graph, "Doc")
    folder = f"{table.uri}/_indices/{fragment_reuse(table)}"
    files = [f"{folder}/{name}" for name in os.listdir(folder)]
    assert files
    assert {folder, *files} <= set(synced)

    long_ago = time.time() - 30 * 86_400
    for path in (tmp_path / "g").rglob("*"):
        os.utime(path, (long_ago, long_ago))
    graph.cleanup(keep=1, orphans_older_than="4d", confirm=True)
    assert [finding for finding in graph.verify(engine="local").findings if finding.severity == "error"] == []
    left = np.flatnonzero(~chosen)
    query = "query q($n: String) { match { $d: Doc { name: $n } } return { $d.gone } }"
    for number in (left[0], left[len(left) // 2], left[-1]):
        assert graph.query(query, params={"n": str(number)}).to_pylist() == [{"d.gone": False}]
    assert graph.query(query, params={"n": str(np.flatnonzero(chosen)[7])}).to_pylist() == []

    graph.optimize(engine="local", drain=True)
    assert fragment_reuse(opened(graph, "Doc")) is None
    assert len(graph.nodes("Doc", columns=["name"])) == len(left)
