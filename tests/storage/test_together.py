"""Many tables at once: order, errors, and that nothing is under way when it has returned."""

from __future__ import annotations

import threading
import time
from pathlib import Path

import lance
import pytest

import omnigraph as og
from omnigraph.storage.concurrency import AT_ONCE, MANY, map_threads

TYPES = 12
SCHEMA = "".join(f"node N{number} {{ name: String @key }}\n" for number in range(TYPES))


@pytest.mark.parametrize("count", [0, 1, MANY - 1, MANY, 5 * AT_ONCE])
def test_results_come_in_the_order_of_the_items(count: int) -> None:
    def call(number: int) -> int:
        time.sleep((number * 7 % 5) / 1000)
        return -number

    assert map_threads(call, range(count)) == [-number for number in range(count)]


def test_a_few_stay_in_the_thread_of_the_caller_and_many_do_not() -> None:
    assert set(map_threads(lambda _: threading.get_ident(), range(MANY - 1))) == {threading.get_ident()}
    assert threading.get_ident() not in map_threads(lambda _: threading.get_ident(), range(MANY))
    assert threading.get_ident() not in map_threads(lambda _: threading.get_ident(), range(2), many=2)


def test_an_error_is_raised_when_nothing_is_under_way_any_more() -> None:
    started, ended = [], []

    def call(number: int) -> None:
        started.append(number)
        if number == 0:
            raise ValueError("first")
        time.sleep(0.05)
        ended.append(number)

    with pytest.raises(ValueError, match="first"):
        map_threads(call, range(10 * AT_ONCE))
    seen = list(ended)
    assert sorted(seen) == sorted(set(started) - {0})
    assert len(started) < 10 * AT_ONCE
    time.sleep(0.1)
    assert ended == seen


def test_a_table_that_moved_stops_a_write_of_many_and_leaves_the_others_as_they_were(tmp_path: Path) -> None:
    with og.init(tmp_path / "g", SCHEMA) as graph:
        rows = {f"N{number}": [{"name": "a"}] for number in range(TYPES)}
        graph.insert(rows)
        view = graph.snapshot().view
        table = view.open(next(t for t in view.schema.nodes if t.name == "N7"))
        lance.dataset(table.uri).delete("id = 'a'")  # behind the graph's back
        with pytest.raises(og.errors.UncoveredDrift):
            graph.upsert({f"N{number}": [{"name": "b"}] for number in range(TYPES)})
        assert _rows(graph) == [1] * TYPES
        others = [f"N{number}" for number in range(TYPES) if number != 7]
        graph.upsert({name: [{"name": "b"}] for name in others})
        assert _rows(graph) == [1 if number == 7 else 2 for number in range(TYPES)]


def _rows(graph: og.Graph) -> list[int]:
    snapshot = graph.snapshot()
    return [snapshot.read(f"N{number}").num_rows for number in range(TYPES)]
