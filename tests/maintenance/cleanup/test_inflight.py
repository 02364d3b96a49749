"""Files that no version refers to and that somebody may be about to publish are left alone, whatever their age."""

from __future__ import annotations

import shutil
import threading
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest

import omnigraph as og
from omnigraph.commit import owner
from omnigraph.maintenance.cleanup import execute
from omnigraph.maintenance.cleanup import run as module
from omnigraph.storage import durability
from omnigraph.storage.objects import leases
from tests.maintenance.cleanup.conftest import DAY_S, make_old, pin_of, root_of, rows
from tests.support.stops import Stop

Hook = Callable[[], None]
WAIT_S = 60.0


class Writer:
    """A process's write, in a thread, that waits at phases of the door until it is let go on."""

    def __init__(self, graph: og.Graph, *phases: str) -> None:
        self._phases = list(phases)
        self._reached, self._go_on = threading.Event(), threading.Event()
        self.error: BaseException | None = None
        self._graph = og.open(graph.uri, observer=self._observe)
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()
        self.wait()

    def _run(self) -> None:
        try:
            self._graph.insert({"Person": [{"name": "new", "age": 7}]})
        except BaseException as error:  # noqa: BLE001 judged by the test
            self.error = error

    def _observe(self, phase: str) -> None:
        if self._phases and phase == self._phases[0]:
            self._phases.pop(0)
            self._reached.set()
            assert self._go_on.wait(WAIT_S)
            self._go_on.clear()

    def wait(self) -> None:
        assert self._reached.wait(WAIT_S)
        self._reached.clear()

    def go_on(self) -> None:
        """To the next phase that it waits at, or to its end."""
        ends = not self._phases
        self._go_on.set()
        if ends:
            self._thread.join(WAIT_S)
            assert not self._thread.is_alive()
            assert self.error is None, self.error
        else:
            self.wait()


@pytest.fixture
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMNIGRAPH_LEASE_S", "60")


def before_the_look(monkeypatch: pytest.MonkeyPatch, hook: Hook) -> None:
    exclude = execute.exclude
    monkeypatch.setattr(execute, "exclude", lambda manifest: (hook(), exclude(manifest))[1])


def after_the_look(monkeypatch: pytest.MonkeyPatch, hook: Hook) -> None:
    look = module.read_in_flight
    calls: list[int] = []

    def looked(*args: Any) -> Any:
        found = look(*args)
        calls.append(1)
        if len(calls) == 2:
            hook()
        return found

    monkeypatch.setattr(module, "read_in_flight", looked)


@pytest.mark.usefixtures("patient")
@pytest.mark.parametrize("place", [before_the_look, after_the_look])
@pytest.mark.parametrize("stops", [("lock",), ("lock", "check"), ("lock", "effect"), ("lock", "publish")], ids=str)
def test_a_writer_and_a_cleanup_meet_in_any_order(
    history: og.Graph,
    monkeypatch: pytest.MonkeyPatch,
    place: Callable[[pytest.MonkeyPatch, Hook], None],
    stops: tuple[str, ...],
) -> None:
    """The files are prepared before cleanup plans; the writer goes on, to its end or to a phase, while it looks."""
    expected = set(rows(history)) | {"new"}
    writer = Writer(history, *stops)
    make_old(root_of(history))
    place(monkeypatch, writer.go_on)
    result = history.cleanup(keep=1, confirm=True)
    assert not [t.error for t in result.tables if t.error]
    if len(stops) == 2:
        writer.go_on()
    assert set(rows(history)) == expected
    assert og.open(history.uri).verify(full=True).ok
    assert not list((Path(history.uri) / "__cleanup").glob("*.json"))


@pytest.mark.usefixtures("patient")
def test_unreferenced_files_of_a_table_that_a_ticket_names_stay_and_those_of_others_go(history: og.Graph) -> None:
    writer = Writer(history, "check")
    strays = [root_of(history, name) / "data" / "0123.lance" for name in ("Person", "Place")]
    manifest = Path(history.uri) / "__manifest" / "data" / "0123.lance"
    for stray in (*strays, manifest):
        stray.write_bytes(b"x")
        make_old(stray, 40)
    history.cleanup(keep=1, confirm=True)
    assert [stray.exists() for stray in (*strays, manifest)] == [True, False, True]
    lock = next((Path(history.uri) / "__recovery").rglob("*.0.json"))
    lock.write_bytes(b"{")
    strays[1].write_bytes(b"x")
    make_old(strays[1], 40)
    history.cleanup(keep=1, confirm=True)
    assert strays[1].exists(), "a ticket that can't be read may name any table"
    writer.go_on()
    history.cleanup(keep=1, confirm=True)
    assert not [stray for stray in (*strays, manifest) if stray.exists()]


def test_unreferenced_files_of_long_work_stay_while_its_lease_holds(history: og.Graph) -> None:
    stray, fork = root_of(history) / "data" / "0123.lance", root_of(history).parent / "n00000000000-feedfeedfeed"
    stray.write_bytes(b"x")
    shutil.copytree(root_of(history, "Place"), fork)
    make_old(stray, 40)
    make_old(fork, 40)
    pins = [pin_of(history)]
    for prepares in (True, False):
        with leases.hold(history._location, pins, owner=owner.myself(), is_gone=owner.is_gone, prepares=prepares):
            history.cleanup(keep=1, confirm=True)
        assert stray.exists() == fork.exists() == prepares


def test_files_of_versions_that_were_rolled_back_go_when_they_are_old(history: og.Graph) -> None:
    before = set(root_of(history).rglob("data/*.lance"))
    undone: set[Path] = set()

    def others() -> None:
        undone.update(set(root_of(history).rglob("data/*.lance")) - before)
        og.open(history.uri).insert({"Place": [{"name": "between"}]})

    stop = Stop("effect", 2, others)
    stop.graph = og.open(history.uri, observer=stop)
    stop.graph.insert({"Person": [{"name": "new"}], "Place": [{"name": "new"}]})
    assert len(undone) == 1
    history.insert({"Person": [{"name": "newer"}]})
    history.cleanup(keep=1, confirm=True)
    assert undone < set(root_of(history).rglob("data/*.lance"))
    make_old(root_of(history))
    found = history.cleanup(keep=1, confirm=True).table("node:Person").files
    gone = {root_of(history) / f.path: f.reason for f in found}
    assert {gone[file] for file in undone} == {"unreferenced"}
    assert {"new", "newer"} <= set(rows(history))


@pytest.mark.parametrize("ahead", ["store", "machine"])
def test_one_clock_that_is_ahead_makes_nothing_old(
    history: og.Graph, monkeypatch: pytest.MonkeyPatch, ahead: str
) -> None:
    stray = root_of(history) / "data" / "0123.lance"
    stray.write_bytes(b"x")
    if ahead == "store":
        store_time_s = module.store_time_s
        monkeypatch.setattr(module, "store_time_s", lambda location: store_time_s(location) + 8 * DAY_S)
    else:
        now_s = time.time
        monkeypatch.setattr(time, "time", lambda: now_s() + 8 * DAY_S)
    result = history.cleanup(keep=1, confirm=True)
    assert stray.exists()
    assert any("apart" in warning for warning in result.plan.warnings)


def test_a_cleanup_that_was_stopped_for_half_a_day_removes_nothing_more(
    history: og.Graph, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(execute, "REMOVING_MAX_S", -1.0)
    before = set(Path(history.uri).rglob("*.manifest"))
    result = history.cleanup(keep=1, confirm=True)
    assert all("stopped for so long" in (t.error or "") for t in result.tables if t.table_key == "node:Person")
    assert before <= set(Path(history.uri).rglob("*.manifest"))


def test_a_fork_that_was_removed_while_it_was_being_made_is_made_again(
    history: og.Graph, monkeypatch: pytest.MonkeyPatch
) -> None:
    history.create_branch("side")
    sync_files, removed = durability.sync_files, list[str]()

    def stopped(paths: Iterable[str]) -> None:
        files = list(paths)
        sync_files(files)
        if not removed and "/_refs/branches/" in files[0]:
            removed.append(files[0])
            shutil.rmtree(root_of(history) / "tree")

    monkeypatch.setattr(durability, "sync_files", stopped)
    history.upsert({"Person": [{"name": "own"}]}, branch="side")
    assert removed
    assert "own" in rows(history, "side")
