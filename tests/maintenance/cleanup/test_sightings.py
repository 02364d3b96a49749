"""A lease of a reader elsewhere is over when its object stands still for long enough on this machine's own clock, and
not because of what the store's clock says.
"""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

import pytest

import omnigraph as og
from omnigraph.commit import owner
from omnigraph.maintenance.cleanup import run as cleanups
from omnigraph.maintenance.cleanup import sightings
from omnigraph.storage.objects import leases
from tests.maintenance.cleanup.conftest import DAY_S, root_of, versions

ELSEWHERE = {"boot": "elsewhere", "start": "1", "pid": 1}
SECONDS = 600.0


class Clocks:
    """The clocks of this machine and of the store, which a test moves."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.boottime_s = self.wall_s = self.store_s = 0.0
        boottime, wall, store = sightings.boottime_s, time.time, cleanups.store_time_s
        monkeypatch.setattr(sightings, "boottime_s", lambda: boottime() + self.boottime_s)
        monkeypatch.setattr(sightings.time, "time", lambda: wall() + self.wall_s)
        monkeypatch.setattr(cleanups, "store_time_s", lambda location: store(location) + self.store_s)


@pytest.fixture
def clocks(monkeypatch: pytest.MonkeyPatch) -> Clocks:
    return Clocks(monkeypatch)


def lease_of(graph: og.Graph, **about: Any) -> leases.HeldLease:
    pins = graph.snapshot(commit=graph.commits()[6].id).view.pins.values()
    return leases.take(graph._location, pins, seconds=SECONDS, **{"owner": ELSEWHERE, **about})


def is_held(graph: og.Graph) -> bool:
    """Whether a cleanup leaves the leased version."""
    graph.cleanup(keep=1, confirm=True)
    return len(versions(root_of(graph))) == 2


@pytest.mark.parametrize("jump_s", [DAY_S, -DAY_S, 30 * DAY_S, 3650 * DAY_S])
def test_the_clock_of_the_store_ends_no_lease(history: og.Graph, clocks: Clocks, jump_s: float) -> None:
    lease_of(history)
    clocks.store_s = jump_s
    assert is_held(history)
    assert is_held(history), "the second time as well"


def test_a_lease_that_stands_still_for_its_seconds_is_over(history: og.Graph, clocks: Clocks) -> None:
    lease_of(history)
    assert is_held(history)
    clocks.boottime_s = SECONDS - 1
    assert is_held(history)
    clocks.boottime_s = 1.1 * SECONDS
    assert not is_held(history)
    assert leases.leases(history._location) == []
    assert not (Path(history.uri) / "__leases").exists()
    history.cleanup(keep=1, confirm=True)
    assert not (Path(history.uri) / "__cleanup").exists(), "and nothing is kept of what was seen"


def test_a_lease_that_is_renewed_holds(history: og.Graph, clocks: Clocks) -> None:
    lease = lease_of(history)
    for _ in range(3):
        assert is_held(history)
        clocks.boottime_s += 2 * SECONDS
        lease.renew()
    leases.renew(history._location, lease.id)
    assert is_held(history)


def test_a_lease_that_is_seen_for_the_first_time_holds_whatever_its_age(history: og.Graph, clocks: Clocks) -> None:
    path = Path(history.uri) / "__leases" / lease_of(history).name
    os.utime(path, (0, 0))
    assert is_held(history)


def test_what_another_boot_has_seen_counts_only_beyond_every_reason(
    history: og.Graph, clocks: Clocks, monkeypatch: pytest.MonkeyPatch
) -> None:
    lease_of(history)
    assert is_held(history)
    monkeypatch.setattr(owner, "clock", lambda: "another boot")
    clocks.boottime_s = 100 * DAY_S
    clocks.store_s = 9 * DAY_S
    assert is_held(history), "only the store says that it is old"
    clocks.store_s, clocks.wall_s = 0.0, 9 * DAY_S
    assert is_held(history), "only this machine does"
    monkeypatch.setattr(owner, "clock", lambda: "a third boot")
    clocks.store_s = 9 * DAY_S
    assert not is_held(history)


def test_where_the_boot_is_not_known_nothing_is_concluded_from_its_clock(
    history: og.Graph, clocks: Clocks, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(owner, "clock", lambda: "")
    lease_of(history)
    assert is_held(history)
    clocks.boottime_s = 100 * DAY_S
    assert is_held(history)


def test_a_process_that_lives_and_renews_holds_its_lease_also_after_a_sleep(history: og.Graph, clocks: Clocks) -> None:
    """The machine slept: the reader has not yet renewed when the cleanup runs."""
    lease = lease_of(history, owner=owner.myself(), renewing=True)
    assert is_held(history)
    clocks.boottime_s = clocks.wall_s = clocks.store_s = 30 * DAY_S
    assert is_held(history)
    lease.release()
    assert not is_held(history)


def test_a_lease_that_nobody_renews_is_over_although_its_process_lives(history: og.Graph, clocks: Clocks) -> None:
    lease_of(history, owner=owner.myself())
    assert is_held(history)
    clocks.boottime_s = 2 * SECONDS
    assert not is_held(history)


def test_a_preview_and_a_run_without_leases_keep_nothing(history: og.Graph, monkeypatch: pytest.MonkeyPatch) -> None:
    lease_of(history)
    history.plan_cleanup(keep=1)
    assert not (Path(history.uri) / "__cleanup").exists()
    leases.drop(history._location, leases.leases(history._location))
    monkeypatch.setattr(sightings, "_read", None)
    monkeypatch.setattr(sightings, "record", None)
    history.cleanup(keep=1, confirm=True)
    assert not (Path(history.uri) / "__cleanup").exists()


@pytest.mark.parametrize("text", ["", "[]", '{"seen": 5}', '{"seen": {"lease:x": 1, "lease:y": {"mark": "m"}}}'])
def test_sightings_that_can_not_be_understood_count_as_none(history: og.Graph, text: str) -> None:
    lease = lease_of(history)
    (Path(history.uri) / "__cleanup").mkdir()
    (Path(history.uri) / "__cleanup" / sightings.OBJECT).write_text(text.replace("lease:y", f"lease:{lease.id}"))
    assert is_held(history)


def test_an_announcement_of_another_machine_goes_after_a_day_on_the_own_clock(
    history: og.Graph, clocks: Clocks
) -> None:
    location = history._location
    leases.announce(location, {}, {}, unreferenced={"nodes/a": ["data/x"]}, owner=ELSEWHERE, now_s=0.0)
    assert leases.announced_files(location) == {"nodes/a/data/x"}
    clocks.store_s = 365 * DAY_S
    for _ in range(2):
        history.cleanup(keep=1, confirm=True)
        assert len(leases.announcements(location)) == 1
    clocks.boottime_s = 1.1 * DAY_S
    history.cleanup(keep=1, confirm=True)
    assert leases.announcements(location) == []


def test_a_new_lease_deletes_an_old_one_only_if_its_process_is_gone(history: og.Graph) -> None:
    folder = Path(history.uri) / "__leases"
    kept = lease_of(history)
    gone = lease_of(history, owner={**owner.myself(), "start": "1"})
    for lease in (kept, gone):
        os.utime(folder / lease.name, (0, 0))
    with history.lease():
        assert (folder / kept.name).exists()
        assert not (folder / gone.name).exists()
