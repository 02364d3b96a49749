"""Indices that somebody made with Lance itself are kept covered as they were made: same measure, same words."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import lance
import numpy as np
import pytest

import omnigraph as og
from omnigraph.index import segments
from tests.maintenance.optimize.tables import coverage, opened

SCHEMA = "node Doc { key: String @key  s: String?  v: Vector(16)?  n: I32? }"
BY_HAND: dict[str, tuple[str, str, dict[str, Any]]] = {
    "words, as Lance makes them": ("s", "INVERTED", {}),
    "words, whole": ("s", "INVERTED", {"base_tokenizer": "whitespace", "stem": False, "remove_stop_words": False}),
    "vectors by distance": ("v", "IVF_FLAT", {"metric": "L2", "num_partitions": 2}),
    "vectors by product": ("v", "IVF_PQ", {"metric": "dot", "num_partitions": 2, "num_sub_vectors": 8}),
    "vectors in a graph": ("v", "IVF_HNSW_SQ", {"metric": "L2", "num_partitions": 2, "m": 8, "ef_construction": 50}),
}


def docs(first: int, count: int) -> list[dict[str, Any]]:
    rng = np.random.default_rng(first)
    vectors = rng.random((count, 16), dtype=np.float32) * rng.random((count, 1), dtype=np.float32) * 10
    return [
        {"key": f"d{first + i}", "s": f"the running word{i % 7}", "v": vectors[i].tolist(), "n": i}
        for i in range(count)
    ]


def details(graph: og.Graph) -> dict[str, Any]:
    (made,) = [i for i in opened(graph, "Doc").describe_indices() if i.name == "by_hand"]
    return {name: value for name, value in made.details.items() if name != "runtime_hints"}


def require_answers(table: Any, column: str, kind: str) -> None:
    if kind == "INVERTED":
        words = {"running": 900, "word3": 86 + 43}
        for word, rows in words.items():
            assert table.to_table(columns=["key"], full_text_query=word).num_rows == rows
        return
    metric = next(i for i in table.describe_indices() if i.name == "by_hand").details["metric_type"].lower()
    rows = table.to_table(columns=["key", "v"])
    vectors = np.array(rows["v"].to_pylist(), dtype=np.float32)
    asked = vectors[5] + 0.01
    far = ((vectors - asked) ** 2).sum(1) if metric == "l2" else 1 - vectors @ asked
    nearest = {"column": column, "q": asked, "k": 10, "nprobes": 50, "refine_factor": 20, "metric": metric}
    found = table.to_table(columns=["key", "_distance"], nearest=nearest)
    assert set(found["key"].to_pylist()) == {rows["key"][int(i)].as_py() for i in np.argsort(far)[:10]}


@pytest.mark.parametrize(
    ("row_ids", "absorb"),
    [("stable", True), ("stable", False), pytest.param("address", True, marks=pytest.mark.long), ("address", False)],
    ids=["built again", "extended", "built again by address", "deferred"],
)
@pytest.mark.parametrize("which", BY_HAND)
def test_an_index_made_by_hand_goes_on_as_it_was_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, which: str, row_ids: Any, absorb: bool
) -> None:
    if not absorb:
        monkeypatch.setattr(segments, "ABSORB_ROWS", 10)
    column, kind, options = BY_HAND[which]
    graph = og.init(tmp_path / "graph", SCHEMA, row_ids=row_ids)
    graph.insert({"Doc": docs(0, 600)})
    table = lance.dataset(opened(graph, "Doc").uri)
    if kind == "INVERTED":
        table.create_scalar_index(column, kind, name="by_hand", **options)
    else:
        table.create_index(column, kind, name="by_hand", **options)
    graph.repair(confirm=True)
    before = details(graph)
    graph.insert({"Doc": docs(1000, 300)})
    more = {"defer_index_remap": True} if row_ids == "address" and not absorb else {}
    assert graph.optimize(target_rows_per_fragment=2, **more).table("node:Doc").committed
    now = opened(graph, "Doc")
    assert coverage(now)["by_hand"] == 1.0
    assert details(graph) == before
    require_answers(now, column, kind)
    graph.optimize(rebuild_indexes=True)
    assert details(graph) == before
    require_answers(opened(graph, "Doc"), column, kind)
