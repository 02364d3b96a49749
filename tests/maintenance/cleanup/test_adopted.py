"""Cleanup beside operations that adopt files of another line, as merges do: what is adopted stays.

The source is a version that nobody else needs: an earlier one of a live branch (a cherry-pick), or that of a deleted
branch. An adoption that comes too late is refused with VersionReclaimed; whatever is published can be read.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest

import omnigraph as og
from omnigraph.commit.committer import Committer
from omnigraph.errors import VersionReclaimed
from omnigraph.maintenance.cleanup import execute, sightings
from omnigraph.maintenance.cleanup import run as module
from omnigraph.storage.manifest.records import Pin
from tests.branch.operations import Adopt, run
from tests.maintenance.cleanup.conftest import pin_of, rows

WAIT_S = 60.0
Hook = Callable[[], None]


def of_a_live_branch(graph: og.Graph) -> Pin:
    """A version of the branch whose only file no later version of it needs."""
    graph.create_branch("side")
    graph.upsert({"Person": [{"name": "theirs", "age": 1}]}, branch="side")
    pin = pin_of(graph, branch="side")
    graph.delete({"Person": ["theirs"]}, branch="side")
    return pin


def of_a_deleted_branch(graph: og.Graph) -> Pin:
    graph.create_branch("side")
    graph.upsert({"Person": [{"name": "theirs", "age": 1}]}, branch="side")
    pin = pin_of(graph, branch="side")
    graph.delete_branch("side")
    return pin


SOURCES = pytest.mark.parametrize("source", [of_a_live_branch, of_a_deleted_branch], ids=lambda f: f.__name__)


def at(monkeypatch: pytest.MonkeyPatch, place: str, hook: Hook) -> None:
    """Call `hook` once, at a place in the middle of a cleanup."""
    before, name = place.split(" ")
    owner, attribute = {
        "announce": (execute, "announce"),
        "exclude": (execute, "exclude"),
        "look": (module, "read_in_flight"),
        "remove": (execute.Remover, "run"),
    }[name]
    call, calls = getattr(owner, attribute), []

    def hooked(*args: Any, **options: Any) -> Any:
        calls.append(1)
        is_due = len(calls) == (2 if name == "look" else 1)  # cleanup looks for tickets twice: now comes the second
        if is_due and before == "before":
            hook()
        found = call(*args, **options)
        if is_due and before == "after":
            hook()
        return found

    monkeypatch.setattr(owner, attribute, hooked)


PLACES = ["before announce", "after announce", "after exclude", "before look", "after look", "before remove"]


def clean(graph: og.Graph) -> None:
    result = og.open(graph.uri).cleanup(keep=1, confirm=True)
    assert not [t.error for t in result.tables if t.error]


def judge(graph: og.Graph, *, was_adopted: bool) -> None:
    assert ("theirs" in rows(graph)) == was_adopted
    clean(graph)
    assert ("theirs" in rows(graph)) == was_adopted
    assert og.open(graph.uri).verify(full=True).ok


@SOURCES
@pytest.mark.parametrize("place", PLACES)
def test_an_adoption_in_the_middle_of_a_cleanup(
    history: og.Graph, monkeypatch: pytest.MonkeyPatch, source: Callable[[og.Graph], Pin], place: str
) -> None:
    """The whole adoption happens there: it is seen by the cleanup, or refused because of its announcement."""
    pin = source(history)
    graph, outcome = og.open(history.uri), []
    graph._committer.tables.open(pin)

    def adopt() -> None:
        try:
            outcome.append(run(graph, Adopt(pin)).record is not None)
        except VersionReclaimed:
            outcome.append(False)

    at(monkeypatch, place, adopt)
    clean(history)
    assert outcome == [place == "before announce"]
    judge(history, was_adopted=outcome[0])


PHASES = ["prepare", "lock", "effect", "publish", "release"]


@SOURCES
@pytest.mark.parametrize("phase", PHASES)
def test_a_cleanup_in_the_middle_of_an_adoption(
    history: og.Graph, source: Callable[[og.Graph], Pin], phase: str
) -> None:
    pin = source(history)
    seen: list[str] = []

    def observe(name: str) -> None:
        if name == phase and not seen:
            seen.append(name)
            with suppress(og.errors.WriterActive):
                clean(history)

    committer = Committer(history._manifest, observer=observe)
    if phase == "prepare":
        with pytest.raises(VersionReclaimed):
            run(history, Adopt(pin), committer=committer)
    else:
        assert run(history, Adopt(pin), committer=committer).record is not None
    judge(history, was_adopted=phase != "prepare")


def test_a_cached_handle_of_a_removed_version_does_not_hide_its_absence(history: og.Graph) -> None:
    pin = of_a_deleted_branch(history)
    assert history._committer.tables.open(pin).count_rows()
    clean(history)
    assert history._committer.tables.open(pin).count_rows(), "the handle is still in the cache, and knows its metadata"
    with pytest.raises(VersionReclaimed) as refused:
        run(history, Adopt(pin))
    assert refused.value.fields["table_key"] == "node:Person"
    judge(history, was_adopted=False)


class Adoption:
    """An adoption in a thread that waits at a phase until it is told to go on to its end."""

    def __init__(self, graph: og.Graph, pin: Pin, phase: str) -> None:
        self._phase, self._reached, self._go_on = phase, threading.Event(), threading.Event()
        self._committer = Committer(og.open(graph.uri)._manifest, observer=self._observe)
        self._thread = threading.Thread(
            target=run, args=(graph, Adopt(pin)), kwargs={"committer": self._committer}, daemon=True
        )
        self._thread.start()
        assert self._reached.wait(WAIT_S)

    def _observe(self, phase: str) -> None:
        if phase == self._phase and not self._reached.is_set():
            self._reached.set()
            assert self._go_on.wait(WAIT_S)

    def finish(self) -> None:
        self._go_on.set()
        self._thread.join(WAIT_S)
        assert not self._thread.is_alive()


@SOURCES
@pytest.mark.parametrize("place", PLACES)
def test_an_adoption_that_began_before_the_plan_ends_in_the_middle_of_the_cleanup(
    history: og.Graph, monkeypatch: pytest.MonkeyPatch, source: Callable[[og.Graph], Pin], place: str
) -> None:
    adoption = Adoption(history, source(history), "lock" if place == "before remove" else "publish")
    at(monkeypatch, place, adoption.finish)
    clean(history)
    judge(history, was_adopted=True)


@SOURCES
@pytest.mark.parametrize("place", PLACES[1:])
def test_an_adoption_that_began_after_the_plan_ends_in_the_middle_of_the_cleanup(
    history: og.Graph, monkeypatch: pytest.MonkeyPatch, source: Callable[[og.Graph], Pin], place: str
) -> None:
    """The plan names the source; the lease is there before the announcement and gone before leases are read."""
    pin, adoption = source(history), []
    at(monkeypatch, "before announce", lambda: adoption.append(Adoption(history, pin, "publish")))
    at(monkeypatch, place, lambda: adoption[0].finish())
    clean(history)
    judge(history, was_adopted=True)


@pytest.mark.parametrize("phase", ["plan", "effect", "publish"])
@SOURCES
def test_an_adoption_that_was_stopped_past_its_lease_and_holds_its_ticket(
    history: og.Graph, monkeypatch: pytest.MonkeyPatch, source: Callable[[og.Graph], Pin], phase: str
) -> None:
    """On another machine nobody knows whether it is alive: its files are checked, and it may publish."""
    monkeypatch.setattr(sightings.Judge, "is_over", lambda *_: True)
    adoption = Adoption(history, source(history), phase)
    clean(history)
    adoption.finish()
    judge(history, was_adopted=True)
