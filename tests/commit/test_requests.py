"""What a caller may ask for with a write: once only, only on this commit, only if what was read holds, in time."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

import omnigraph
from omnigraph.errors import PreconditionFailed, ReadSetConflict, WriterBusy
from tests.commit import plant
from tests.commit.stepper import Stepper, waiting_is_a_step
from tests.contention.audit import objects_left, wrong_epochs


def put(graph: Any, name: str, n: int = 1, **options: Any) -> Any:
    return graph.upsert({"Left": [{"name": name, "n": n}]}, **options)


# ---- operation ids ---------------------------------------------------------------------------------------------------


def test_an_operation_id_that_is_repeated_returns_the_first_outcome(path: Path, graph: Any) -> None:
    first = put(graph, "new", operation_id="once")
    for handle in (graph, omnigraph.open(path)):
        again = put(handle, "other", n=9, operation_id="once")
        assert again.repeated
        assert again.commit == first.commit
        assert again.inserted == first.inserted
    assert not first.repeated
    assert "other" not in graph.snapshot().read("Left")["id"].to_pylist()
    assert sum(c.operation_id == "once" for c in graph.commits()) == 1


def test_a_repeated_operation_tells_the_ids_again(graph: Any) -> None:
    edge = {"Joins": [{"from": "older", "to": "old"}]}
    first = graph.insert(edge, operation_id="once")
    assert first.ids["Joins"]
    assert graph.insert(edge, operation_id="once").ids == first.ids


def test_an_operation_id_is_found_when_its_record_has_long_left_the_head(graph: Any) -> None:
    first = put(graph, "new", operation_id="once")
    for n in range(60):
        put(graph, "busy", n=n + 2)
    again = put(graph, "new", n=77, operation_id="once")
    assert again.repeated
    assert again.commit.id == first.commit.id


def test_operation_ids_belong_to_a_branch(graph: Any) -> None:
    put(graph, "new", operation_id="once")
    graph.create_branch("side")
    assert not put(graph, "newer", branch="side", operation_id="once").repeated


def test_one_operation_id_used_by_many_at_once_is_done_once(path: Path) -> None:
    handles = [omnigraph.open(path) for _ in range(6)]
    with ThreadPoolExecutor(6) as pool:
        results = list(pool.map(lambda g: put(g, "new", n=handles.index(g), operation_id="once"), handles))
    assert sum(not result.repeated for result in results) == 1
    assert len({result.commit.id for result in results}) == 1
    assert sum(c.operation_id == "once" for c in handles[0].commits()) == 1


def test_an_operation_that_was_aborted_may_be_repeated_under_its_id(path: Path, graph: Any) -> None:
    with pytest.raises(omnigraph.errors.KeyConflict):
        graph.insert({"Left": [{"name": "old"}]}, operation_id="once")
    assert not put(graph, "new", operation_id="once").repeated


# ---- conditions ------------------------------------------------------------------------------------------------------


def test_a_write_on_a_condition_happens_only_on_that_commit(graph: Any) -> None:
    expected = graph.snapshot().commit
    done = put(graph, "new", if_commit=expected)
    assert done.commit.parent == expected
    with pytest.raises(PreconditionFailed) as refusal:
        put(graph, "newer", if_commit=expected)
    error = refusal.value
    assert error.exit_code == 4
    assert error.fields == {"expected": expected, "actual": done.commit.id, "branch": "main"}
    assert "newer" not in graph.snapshot().read("Left")["id"].to_pylist()


def test_a_condition_that_is_lost_between_look_and_ticket_is_lost(path: Path, graph: Any) -> None:
    expected = graph.snapshot().commit
    with waiting_is_a_step():
        slow = Stepper("slow", path, lambda g: put(g, "slow", if_commit=expected))
        while slow.at != "lock":
            slow.advance()
        put(graph, "quick")
        slow.run_free()
    assert isinstance(slow.error, PreconditionFailed)
    assert "slow" not in graph.snapshot().read("Left")["id"].to_pylist()
    put(graph, "later")
    assert not objects_left(path)
    assert not wrong_epochs(graph)


def test_of_many_writes_on_one_condition_one_happens(path: Path, graph: Any) -> None:
    expected = graph.snapshot().commit

    def attempt(n: int) -> bool:
        try:
            put(omnigraph.open(path), f"n{n}", if_commit=expected)
        except PreconditionFailed:
            return False
        return True

    with ThreadPoolExecutor(6) as pool:
        assert sum(pool.map(attempt, range(6))) == 1


def test_a_condition_on_an_unknown_commit_is_refused(graph: Any) -> None:
    with pytest.raises(PreconditionFailed):
        put(graph, "new", if_commit="01ARZ3NDEKTSV4RRFFQ69G5FAV")


# ---- what was read ---------------------------------------------------------------------------------------------------


def test_a_transaction_is_refused_if_an_entity_that_it_read_has_changed(path: Path, graph: Any) -> None:
    with pytest.raises(ReadSetConflict) as refusal, graph.transaction() as tx:
        value = tx.get("Left", "old")
        put(omnigraph.open(path), "old", n=5)
        tx.upsert({"Right": [{"name": "sum", "n": value["n"] + 1}]})
    assert refusal.value.fields["table_key"] == "node:Left"
    assert refusal.value.fields["entity_id"] == "old"
    assert "'old'" in refusal.value.message
    assert "sum" not in graph.snapshot().read("Right")["id"].to_pylist()


@pytest.mark.parametrize("other", ["a new key", "another key", "another type"])
def test_a_transaction_does_not_mind_what_it_has_not_read(path: Path, graph: Any, other: str) -> None:
    quick = omnigraph.open(path)
    with graph.transaction() as tx:
        value = tx.get("Left", "old")
        if other == "a new key":
            put(quick, "new")
        elif other == "another key":
            put(quick, "older", n=6)
        else:
            quick.upsert({"Right": [{"name": "old", "n": 6}]})
        tx.upsert({"Left": [{"name": "sum", "n": value["n"] + 1}]})
    assert tx.result.commit is not None


def test_that_an_entity_was_absent_is_something_read_too(path: Path, graph: Any) -> None:
    with pytest.raises(ReadSetConflict), graph.transaction() as tx:
        assert tx.get("Left", "new") is None
        put(omnigraph.open(path), "new")
        tx.upsert({"Right": [{"name": "alone"}]})


def test_a_type_that_was_read_as_a_whole_must_not_change_at_all(path: Path, graph: Any) -> None:
    with pytest.raises(ReadSetConflict), graph.transaction() as tx:
        total = sum(row["n"] for row in tx.read("Left"))
        put(omnigraph.open(path), "new")
        tx.upsert({"Right": [{"name": "total", "n": total}]})


def test_a_read_that_is_overtaken_between_prepare_and_ticket_is_refused(path: Path, graph: Any) -> None:
    def count(g: Any) -> None:
        with g.transaction() as tx:
            tx.upsert({"Left": [{"name": "old", "n": tx.get("Left", "old")["n"] + 1}]})

    with waiting_is_a_step():
        slow = Stepper("slow", path, count)
        while slow.at != "lock":
            slow.advance()
        put(graph, "old", n=5)
        slow.run_free()
    assert isinstance(slow.error, ReadSetConflict)
    put(graph, "later")
    assert not objects_left(path)
    assert not wrong_epochs(graph)


# ---- in time ---------------------------------------------------------------------------------------------------------


def test_a_branch_held_for_longer_than_the_caller_waits_is_said_to_be_busy(
    path: Path, graph: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    plant.lock(path)
    monkeypatch.setenv("OMNIGRAPH_WRITE_TIMEOUT", "0.3")
    with pytest.raises(WriterBusy) as refusal:
        put(graph, "new")
    assert refusal.value.fields["branch"] == "main"
    assert "OMNIGRAPH_WRITE_TIMEOUT" in refusal.value.remedy
    assert "new" not in graph.snapshot().read("Left")["id"].to_pylist()


def test_a_write_that_changes_nothing_takes_no_ticket_and_makes_no_commit(path: Path, graph: Any) -> None:
    plant.lock(path)
    seen: list[str] = []
    before = graph.snapshot().commit
    result = omnigraph.open(path, observer=seen.append).upsert({"Left": [{"name": "old", "n": 0}]})
    assert result.commit is None
    assert "lock" not in seen
    assert graph.snapshot().commit == before
