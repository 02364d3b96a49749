"""One handle shared by threads: they take turns, nothing is lost, readers see whole commits."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

import omnigraph as og


def test_threads_that_share_a_handle_lose_nothing(graph: og.Graph) -> None:
    done = threading.Event()
    torn: list[str] = []

    def write(thread: int) -> None:
        for i in range(12):
            name = f"{thread}-{i}"
            graph.insert({"Person": [{"name": name}], "Knows": [{"from": name, "to": name}]})

    def read() -> None:
        while not done.is_set():
            snapshot = graph.snapshot()
            people = set(snapshot.read("Person")["id"].to_pylist())
            edges = set(snapshot.read("Knows")["src"].to_pylist())
            assert snapshot.schema.node
            if people != edges:
                torn.append(snapshot.commit)

    with ThreadPoolExecutor(6) as pool:
        readers = [pool.submit(read) for _ in range(2)]
        for writer in [pool.submit(write, n) for n in range(4)]:
            writer.result()
        done.set()
        for reader in readers:
            reader.result()
    assert torn == []
    assert graph.snapshot().count("Person") == 48
    assert len(graph.commits()) == 49


def test_readers_do_not_wait_for_a_writer_of_the_same_handle(graph: og.Graph) -> None:
    inside, go_on = threading.Event(), threading.Event()

    def hold(phase: str) -> None:
        if phase == "effect":
            inside.set()
            assert go_on.wait(30)

    shared = og.open(graph.uri, observer=hold)
    with ThreadPoolExecutor(1) as pool:
        writer = pool.submit(shared.insert, {"Person": [{"name": "Ada"}]})
        assert inside.wait(30)
        assert shared.snapshot().count("Person") == 0
        assert len(shared.commits()) == 1
        assert shared.schema().node.keys() == {"Person", "Doc"}
        go_on.set()
        writer.result()
    assert shared.snapshot().count("Person") == 1
