"""A cleanup, or a writer, that stands still while another cleanup removes what it has just read about."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import omnigraph as og
from omnigraph.commit.attempt import Attempt
from omnigraph.maintenance.cleanup import plan as planning
from omnigraph.maintenance.cleanup import run as driver
from tests.commit.stepper import open_without_heart


def _first_call(monkeypatch: pytest.MonkeyPatch, owner: Any, name: str, meanwhile: Callable[[], object]) -> list[int]:
    """Run `meanwhile` before the first call of `owner.name`; the list counts the calls."""
    original, calls = getattr(owner, name), list[int]()

    def call(*args: object, **options: object) -> object:
        calls.append(1)
        if len(calls) == 1:
            meanwhile()
        return original(*args, **options)

    monkeypatch.setattr(owner, name, call)
    return calls


def _move_on(uri: str) -> None:
    other = og.open(uri)
    for age in range(100, 103):
        other.upsert({"Person": [{"name": "p0", "age": age}]})
    other.cleanup(keep=1, confirm=True)


def test_a_cleanup_whose_branch_moved_on_reads_again(history: og.Graph, monkeypatch: pytest.MonkeyPatch) -> None:
    calls = _first_call(monkeypatch, driver, "require_pins", lambda: _move_on(history.uri))
    result = history.cleanup(keep=1, confirm=True)
    assert len(calls) == 3  # the stale one, that of the other cleanup, and the one on the newer state
    assert result.to_json()["refused"] == []
    assert history.verify(full=True).ok


def test_a_fork_that_another_cleanup_removes_meanwhile_is_planned_without(
    history: og.Graph, monkeypatch: pytest.MonkeyPatch
) -> None:
    history.create_branch("work")
    for age in (1, 2):
        history.upsert({"Person": [{"name": "own", "age": age}]}, branch="work")
    history.create_tag("kept", branch="work")
    history.delete_branch("work")
    original, removed = planning._references, list[str]()

    def references(*args: Any) -> Any:
        """After the listing, and before its versions are read, the tag goes and another cleanup takes the fork."""
        if not removed and any(line.fork for line in args[1].lines.values()):
            removed.append("work")
            other = og.open(history.uri)
            other.delete_tag("kept")
            assert other.cleanup(keep=1, confirm=True).reclaimed_forks
        return original(*args)

    monkeypatch.setattr(planning, "_references", references)
    result = history.cleanup(keep=1, confirm=True)
    assert [t.error for t in result.tables if t.error] == []
    assert removed
    assert history.verify(full=True).ok


def test_a_writer_that_holds_the_lock_and_is_overtaken_prepares_again(
    history: og.Graph, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its lease is over: another process aborts its epoch, goes on, and cleans up what it was about to read."""
    slow = open_without_heart(history.uri)
    original, stopped = Attempt._prepare_under_lock, list[int]()

    def prepare_again(self: Attempt, view: Any) -> Any:
        if not stopped:
            stopped.append(1)
            _move_on(history.uri)
        return original(self, view)

    monkeypatch.setattr(Attempt, "_prepare_under_lock", prepare_again)
    slow._committer.contended = True  # so that it prepares under the lock
    slow.upsert({"Person": [{"name": "p1", "age": 77}]})
    assert stopped
    rows = og.open(history.uri).nodes("Person")
    ages = dict(zip(rows["name"].to_pylist(), rows["age"].to_pylist(), strict=True))
    assert (ages["p0"], ages["p1"]) == (102, 77)
