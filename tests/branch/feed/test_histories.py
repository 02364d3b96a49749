"""Random histories: the feed is the concatenation of the differences of full scans, from every cursor on, and a replica
that applies it is the graph, also beside cleanup.
"""

from __future__ import annotations

import random
from pathlib import Path

import pytest

import omnigraph as og
from omnigraph.errors import FeedCollected
from tests.branch.feed.support import (
    SCHEMA,
    State,
    changes_of,
    expected_feed,
    flattened,
    make_history,
    random_step,
    state_of,
)


@pytest.mark.parametrize("seed", [2, *(pytest.param(seed, marks=pytest.mark.slow) for seed in (1, 3))])
def test_the_feed_is_what_full_scans_differ_in(tmp_path: Path, seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("omnigraph.commit.operation.FOLD_AT", 4)
    graph = make_history(tmp_path / "graph", seed, steps=18)
    expected = expected_feed(graph)
    pages = list(graph.changes(page_rows=2))
    assert flattened(pages) == expected
    assert [p.commit.id for p in pages if p.completes_commit] == [c.id for c in reversed(graph.commits())]
    for i, page in enumerate(pages):
        consumer = og.open(graph.uri) if i % 8 == 0 else graph
        assert flattened(consumer.changes(page.cursor)) == flattened(pages[i + 1 :]), f"resumed after page {i}"


class Replica:
    """A consumer that keeps its rows and its cursor, and reads some pages at a time with a new handle."""

    def __init__(self, graph: og.Graph) -> None:
        self.graph = graph
        self.rows: State = {}
        self.cursor: str | None = None
        self.baselines = 0

    def read(self, *, pages_max: int | None, page_rows: int) -> None:
        graph = og.open(self.graph.uri)
        try:
            for i, page in enumerate(graph.changes(self.cursor, page_rows=page_rows)):
                if i == pages_max:
                    return
                for operation, table_key, entity_id, _, after in changes_of(page):
                    if operation == "delete":
                        del self.rows[table_key, entity_id]
                    else:
                        assert ((table_key, entity_id) in self.rows) == (operation == "update")
                        self.rows[table_key, entity_id] = after
                self.cursor = page.cursor
        except FeedCollected:
            self.start_anew(graph)

    def start_anew(self, graph: og.Graph) -> None:
        self.baselines += 1
        with graph.changes_baseline() as baseline:
            rows = [row for batch in baseline.batches() for row in batch.to_pylist()]
        self.rows = {(row["table_key"], row["id"]): row["after"] for row in rows}
        self.cursor = baseline.cursor


@pytest.mark.parametrize("seed", [11, pytest.param(12, marks=pytest.mark.slow)])
def test_a_replica_beside_cleanup_is_the_graph(tmp_path: Path, seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("omnigraph.commit.operation.FOLD_AT", 4)
    rng = random.Random(seed)
    graph = og.init(tmp_path / "graph", SCHEMA)
    replica = Replica(graph)
    people = [f"p{i}" for i in range(8)]
    graph.insert({"Person": [{"name": name} for name in people]})
    for step in range(14):
        random_step(graph, rng, people, f"b{step}")
        if rng.random() < 0.3:
            graph.cleanup(keep=rng.choice([1, 2]), confirm=True)
        if rng.random() < 0.5:
            replica.read(pages_max=rng.choice([1, 3, None]), page_rows=rng.choice([1, 3, 100]))
    replica.read(pages_max=None, page_rows=100)
    assert replica.rows == state_of(graph, graph.commits()[0].id)
