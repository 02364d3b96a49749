"""Eight histories that break the obvious version of this protocol: each of them lost, doubled or blocked something.

Writers are stopped and continued at exact phases; whoever stands still counts as dead, as after a lease, and nobody can
be recognised by its process id. Afterwards another writer goes on, within a lease, and everything that was acknowledged
is there once, on both tables.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from omnigraph.commit.stamp import Stamp
from omnigraph.storage.lance import lance_api
from omnigraph.storage.manifest.table import SwapLost
from tests.commit.stepper import Stepper, open_without_heart, waiting_is_over_at_once
from tests.contention import world
from tests.contention.audit import objects_left, wrong_epochs

pytestmark = pytest.mark.slow

NOISE_S = 6.0


class Trace:
    """One graph and the writers of one history, each of them writing the key of its name."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.promised: list[str] = []
        world.create(path)

    def writer(self, name: str, *, counted: bool = False) -> Stepper:
        def act(graph: Any) -> Any:
            if counted:
                return world.count_up(graph, name)
            return world.write(graph, name, operation_id=name)

        return Stepper(name, self.path, act)

    def upto(self, stepper: Stepper, phase: str, occurrence: int = 1) -> Stepper:
        """Let it run until it stands before a phase: there it is stopped, or has died."""
        while occurrence:
            stepper.advance()
            assert stepper.at is not None, (phase, stepper.passed, stepper.error)
            occurrence -= stepper.at == phase
        return stepper

    def finish(self, stepper: Stepper) -> None:
        stepper.run_free()
        assert stepper.acknowledged, (stepper.name, stepper.passed, stepper.error)
        self.promised.append(stepper.name)

    def close(self, *, unacknowledged: set[str] = frozenset()) -> None:  # type: ignore[assignment]
        """Somebody else goes on, at once; then everything is as it was promised."""
        began = time.monotonic()
        self.finish(self.writer("next"))
        assert time.monotonic() - began < NOISE_S
        graph = open_without_heart(self.path)
        snapshot = graph.snapshot()
        assert not world.broken_rules(snapshot)
        keys = {key.removeprefix(world.COUNTED) for key in world.rows(snapshot, "Left")}
        assert keys - unacknowledged == set(self.promised)
        operations = [c.operation_id for c in graph.commits() if c.kind == "write" and c.operation_id]
        assert len(operations) == len(set(operations)), "a write is there twice"
        assert not wrong_epochs(graph)
        assert not objects_left(self.path)


@pytest.fixture
def trace(tmp_path: Path) -> Iterator[Trace]:
    with waiting_is_over_at_once():
        yield Trace(tmp_path / "graph")


def once(function: Callable[..., Any], error: BaseException) -> Callable[..., Any]:
    """The first call does its work and then fails: its answer was lost."""
    calls = iter([True])

    def called(*arguments: Any, **options: Any) -> Any:
        result = function(*arguments, **options)
        if next(calls, False):
            raise error
        return result

    return called


def test_1_a_writer_that_releases_late_does_not_delete_anothers_ticket(trace: Trace) -> None:
    a = trace.upto(trace.writer("a"), "release")
    trace.finish(trace.writer("b"))
    c = trace.upto(trace.writer("c"), "effect", 2)
    held = objects_left(trace.path)
    trace.finish(a)
    assert set(held) - set(objects_left(trace.path)) <= {name for name in held if "000000000002" in name}
    trace.finish(c)
    trace.close()


def test_2_a_heartbeat_that_comes_late_does_not_keep_anothers_ticket_alive(trace: Trace) -> None:
    a = trace.upto(trace.writer("a"), "release")
    trace.finish(trace.writer("b"))
    trace.upto(trace.writer("c"), "effect", 2)
    incarnation = a.graph._manifest.head("main").incarnation
    (trace.path / "__recovery" / incarnation / "000000000002.0.hb").write_text('{"count": 7}')
    trace.finish(a)
    trace.close()


def test_3_an_epoch_that_was_aborted_stays_aborted_when_its_owner_wakes_up_and_dies_half_way(trace: Trace) -> None:
    a = trace.upto(trace.writer("a"), "effect")
    trace.finish(trace.writer("b"))
    a.advance()
    while a.at not in (None, "effect"):
        a.advance()
    trace.close(unacknowledged={"a"})


def test_4_a_writer_that_was_rolled_forward_while_it_slept_is_acknowledged_and_not_doubled(trace: Trace) -> None:
    a = trace.upto(trace.writer("a", counted=True), "publish")
    trace.finish(trace.writer("b"))
    trace.finish(a)
    trace.close()


def test_5_a_publish_whose_answer_was_lost_is_looked_up_and_not_repeated(trace: Trace) -> None:
    a = trace.writer("a", counted=True)
    a.graph._manifest.update = once(a.graph._manifest.update, SwapLost("the answer was lost"))
    trace.finish(a)
    trace.close()


@pytest.mark.parametrize("table", ["Left", "Right"])
def test_6_an_effect_of_a_dead_writer_between_check_and_effect_of_another_is_healed(trace: Trace, table: str) -> None:
    c = trace.upto(trace.writer("c"), "effect", 1 if table == "Left" else 2)
    view = c.graph._committer.view("main")
    pin = view.pins[view.type(table).id]
    stamp = Stamp(view.head.incarnation, view.head.epoch, 0, pin.table, "0", "dead")
    smuggle(view, table, str(stamp))
    trace.finish(c)
    trace.close()


def smuggle(view: Any, table: str, stamp: str) -> None:
    """A stamped append of a row that nobody may ever see."""
    import pyarrow as pa
    from lance.fragment import write_fragments

    t = view.type(table)
    newest = view.tables.newest(view.pins[t.id])
    row = {"id": ["smuggled"], "name": ["smuggled"], "n": [1], "by": [""]}
    rows = pa.table(row, schema=newest.schema)
    append = lance_api.operations().Append(write_fragments(rows, newest, mode="append"))
    tx = lance_api.transaction(append, read_version=newest.version, properties={lance_api.STAMP: stamp})
    lance_api.commit(view.tables.location, newest, tx)


def test_7_a_ticket_whose_answer_was_lost_is_recognised_as_ones_own(
    trace: Trace, monkeypatch: pytest.MonkeyPatch
) -> None:
    import obstore
    from obstore.exceptions import GenericError

    a = trace.upto(trace.writer("a"), "lock")
    monkeypatch.setattr(obstore, "put", once(obstore.put, GenericError("the answer was lost")))
    a.advance()
    assert a.at == "check", "it did not know its own ticket"
    trace.finish(a)
    trace.close()


def test_8_a_restore_that_comes_late_lands_on_nothing_that_anybody_reads(trace: Trace) -> None:
    trace.upto(trace.writer("a"), "effect", 2)
    b = trace.upto(trace.writer("b"), "restore")
    trace.finish(trace.writer("c"))
    trace.finish(trace.writer("c2"))
    trace.finish(b)
    trace.close()


def test_a_restore_that_comes_late_between_two_effects_of_another_is_healed(trace: Trace) -> None:
    trace.upto(trace.writer("a"), "effect", 2)
    b = trace.upto(trace.writer("b"), "restore", 2)
    trace.finish(trace.writer("c"))
    d = trace.upto(trace.writer("d"), "effect", 2)
    b.advance()
    trace.finish(d)
    trace.finish(b)
    trace.close()
