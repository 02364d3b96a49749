"""Folding on a branch: only fragments that were born there are rewritten, what the fork point has is shared."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import omnigraph as og
from omnigraph.storage.lance.rewrites.fold import FOLD_AT

TEXT = "".join(chr(97 + i * 7 % 26) for i in range(20_000))


@pytest.fixture
def graph(tmp_path: Path) -> og.Graph:
    """A table that is due for folding, with 20 KB in each of its fragments."""
    graph = og.init(tmp_path / "graph", "node Doc { name: String @key  text: String? }")
    for i in range(FOLD_AT):
        graph.insert({"Doc": [{"name": f"d{i}", "text": f"{i} {TEXT}"}]})
    assert fragments(graph, "main") == FOLD_AT
    return graph


def fragments(graph: og.Graph, branch: str) -> Any:
    return graph.snapshot(branch).tables()[0].fragments


def size(graph: og.Graph) -> int:
    return sum(p.stat().st_size for p in Path(graph.uri).rglob("*.lance"))


@pytest.mark.parametrize("from_", ["main", "parent"])
def test_a_small_write_on_a_branch_copies_nothing_that_it_inherits(graph: og.Graph, from_: str) -> None:
    if from_ == "parent":
        graph.create_branch("parent")
        graph.insert({"Doc": [{"name": "parent", "text": TEXT}]}, branch="parent")
    for name in ("one", "two"):
        graph.create_branch(name, from_branch=from_)
        before = size(graph)
        graph.insert({"Doc": [{"name": "new"}]}, branch=name)
        graph.upsert({"Doc": [{"name": "d3", "text": "short"}]}, branch=name)
        assert size(graph) - before < 10_000
    graph.insert({"Doc": [{"name": "new"}]})
    assert fragments(graph, "main") < FOLD_AT, "main folds what is its own"


def test_a_branch_folds_what_was_born_there(graph: og.Graph) -> None:
    graph.create_branch("work")
    for i in range(FOLD_AT + 1):
        graph.upsert({"Doc": [{"name": f"w{i}", "text": "short"}, {"name": "d0", "text": str(i)}]}, branch="work")
    assert fragments(graph, "work") < 2 * FOLD_AT
    texts = {r["id"]: r["text"] for r in og.open(graph.uri).snapshot("work").read("Doc").to_pylist()}
    assert len(texts) == 2 * FOLD_AT + 1
    assert (texts["d0"], texts["w0"], texts["d1"][:2]) == (str(FOLD_AT), "short", "1 ")
    assert og.open(graph.uri).verify(branch="work", full=True).ok
