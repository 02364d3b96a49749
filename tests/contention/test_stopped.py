"""A process that is stopped for longer than its lease is overtaken, and finds out when it goes on.

It may be stopped anywhere: at every phase of the door here, at any instruction in the soak. Whoever waits for it waits
a lease; what it does when it wakes, with a ticket that is long decided, changes nothing that it should not.
"""

from __future__ import annotations

import signal
import time
from collections.abc import Callable

import pytest

from tests.contention.audit import violations
from tests.contention.conftest import NOISE_S
from tests.contention.crowd import Crowd, Member
from tests.contention.processes import is_stopped

pytestmark = pytest.mark.slow

LEASE_S = 0.5
MakeCrowd = Callable[[float], Crowd]
WAY = ["prepare", "lock", "check", "plan", "effect", "effect", "publish", "acknowledge", "release"]


def until_stopped(member: Member) -> None:
    until = time.monotonic() + 30
    while not is_stopped(member.pid):
        assert time.monotonic() < until, "never came to that phase"
        time.sleep(0.005)


@pytest.mark.parametrize(
    ("phase", "occurrence"), [(p, WAY[: i + 1].count(p)) for i, p in enumerate(WAY)], ids=lambda v: str(v)
)
def test_a_writer_stopped_past_its_lease_loses_nothing_and_breaks_nothing(
    crowd_of: MakeCrowd, phase: str, occurrence: int
) -> None:
    crowd = crowd_of(LEASE_S)
    stop = {"phase": phase, "occurrence": occurrence, "number": signal.SIGSTOP}
    stopped = crowd.start("write_one", key="slow", counted=True, **stop)
    until_stopped(stopped)
    for n in range(2):
        other = crowd.start("write_one", key=f"quick-{n}", counted=True, n=n)
        assert other.job.wait(30).value < LEASE_S + NOISE_S
    stopped.signal(signal.SIGCONT)
    for ended in crowd.finish():
        assert ended.acknowledged, ended
    assert not violations(crowd.path, crowd.log, wait_max_s=NOISE_S)


@pytest.mark.parametrize("phase", ["claim", "recover", "restore", "decide"])
def test_a_recoverer_stopped_past_its_lease_is_itself_recovered_from(crowd_of: MakeCrowd, phase: str) -> None:
    crowd = crowd_of(LEASE_S)
    dead = crowd.start("write_one", key="dead", phase="effect", occurrence=2)
    assert dead.job.wait(30).status == -signal.SIGKILL
    crowd.members.remove(dead)
    stopped = crowd.start("write_one", key="recoverer", phase=phase, number=signal.SIGSTOP)
    until_stopped(stopped)
    for n in range(2):
        other = crowd.start("write_one", key=f"quick-{n}", n=n)
        assert other.job.wait(30).value < LEASE_S + NOISE_S
    stopped.signal(signal.SIGCONT)
    for ended in crowd.finish():
        assert ended.acknowledged, ended
    assert not violations(crowd.path, crowd.log, wait_max_s=NOISE_S)


def test_a_crowd_of_which_any_may_be_stopped_or_killed_at_any_time(crowd_of: MakeCrowd) -> None:
    crowd = crowd_of(LEASE_S)

    def start(crowd: Crowd, _: str = "") -> None:
        chaos = {"seed": crowd.rng.randrange(2**32), "per_phase": 0.01, "kinds": ["stop", "kill"]}
        kinds = ["own", "shared", "counted"]
        crowd.start("write_keys", replaceable=True, seconds=4.0, kinds=kinds, chaos=chaos, seed=chaos["seed"])

    crowd.start("watch")
    for _ in range(3):
        start(crowd)
    for ended in crowd.attack(4.0, replace=start, signals_per_s=2.0):
        assert ended.status in (0, -signal.SIGKILL), ended
        assert not ended.hung
        assert not (ended.result or {}).get("error"), ended
    assert crowd.tally.kills + crowd.tally.stops > 0
    assert not violations(crowd.path, crowd.log, wait_max_s=LEASE_S + NOISE_S)
