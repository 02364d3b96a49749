"""Threads that share one handle take turns: nobody sees a torn state, nobody trips over another's open tables."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

import omnigraph
from omnigraph.errors import ReadSetConflict
from omnigraph.storage.lance import tables
from tests.contention import world
from tests.contention.audit import objects_left, wrong_epochs

THREADS = 6
TURNS = 12


def test_threads_write_and_read_through_one_handle(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tables, "_HANDLES_MAX", 2)  # tables are opened and let go all the time
    world.create(tmp_path / "graph")
    graph = omnigraph.open(tmp_path / "graph")

    def work(number: int) -> int:
        counted = 0
        for turn in range(TURNS):
            key = f"t{number}-{turn}"
            if turn % 3 == 0:
                world.write(graph, key)
            elif turn % 3 == 1:
                try:
                    world.count_up(graph, key)
                    counted += 1
                except ReadSetConflict:
                    continue
            else:
                assert not world.broken_rules(graph.snapshot())
                graph.snapshot().tables()
        return counted

    with ThreadPoolExecutor(THREADS) as pool:
        counted = sum(pool.map(work, range(THREADS)))
    snapshot = graph.snapshot()
    assert not world.broken_rules(snapshot)
    assert world.rows(snapshot, "Counter")[world.HOT] == (counted,)
    assert snapshot.count("Left") == counted + THREADS * TURNS // 3
    assert not wrong_epochs(graph)
    assert not objects_left(tmp_path / "graph")


def test_a_reader_does_not_wait_for_a_writer_of_the_same_handle(tmp_path: Path) -> None:
    world.create(tmp_path / "graph")
    stands, may_go = threading.Event(), threading.Event()

    def observe(phase: str) -> None:
        if phase == "effect" and not stands.is_set():
            stands.set()
            assert may_go.wait(60)

    graph = omnigraph.open(tmp_path / "graph", observer=observe)
    with ThreadPoolExecutor(2) as pool:
        writing = pool.submit(world.write, graph, "slow")
        assert stands.wait(30)
        reading = pool.submit(
            lambda: (graph.snapshot().count("Left"), graph.schema(), graph.branches(), graph.commits())
        )
        try:
            assert reading.result(20)[0] == 0
        finally:
            may_go.set()
        writing.result(30)
    assert graph.snapshot().count("Left") == 1
