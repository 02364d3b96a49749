"""A poll of a change feed that has read everything, against reading the head of the branch."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Iterator

import omnigraph as og
from benchmarks.report import Result

ROUNDS, CALLS = 15, 200


def run() -> Iterator[Result]:
    with tempfile.TemporaryDirectory(prefix="omnigraph-bench-") as folder:
        graph = og.init(f"{folder}/graph", "node Person { name: String @key }\nedge Knows: Person -> Person")
        for i in range(50):
            graph.insert({"Person": [{"name": f"p{i}"}]})
        cursor = graph.changes_cursor()
        head, poll = [], []
        for _ in range(ROUNDS):
            head.append(_seconds(lambda: graph._manifest.head("main")))
            poll.append(_seconds(lambda: list(graph.changes(cursor))))
        yield Result(
            "a caught-up poll of the change feed, wall time against reading the head",
            min(poll) / min(head),
            1.5,
            True,
            f"poll {min(poll) * 1e6:.0f} µs, head {min(head) * 1e6:.0f} µs",
        )


def _seconds(call: Callable[[], object]) -> float:
    started = time.perf_counter()
    for _ in range(CALLS):
        call()
    return (time.perf_counter() - started) / CALLS
