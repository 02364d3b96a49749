"""A wrong clock changes no decision: no lease, no takeover and no order of commits rests on the time of day."""

from __future__ import annotations

import signal
from collections.abc import Callable

import pytest

import omnigraph
from tests.contention.audit import violations
from tests.contention.conftest import NOISE_S
from tests.contention.crowd import Crowd

pytestmark = pytest.mark.slow

MakeCrowd = Callable[[float], Crowd]


@pytest.mark.parametrize("off_s", [pytest.param(-3600.0, marks=pytest.mark.long), 3600.0])
def test_a_process_with_a_wrong_clock_takes_its_turn_like_any_other(crowd_of: MakeCrowd, off_s: float) -> None:
    crowd = crowd_of(20.0)
    crowd.start("write_keys", count=15, kinds=["own", "counted"], seed=1, clock_off_s=off_s)
    crowd.start("write_keys", count=15, kinds=["own", "counted"], seed=2)
    for ended in crowd.finish():
        assert ended.acknowledged, ended
        assert ended.value["done"] == 15
        assert ended.value["longest_s"] < NOISE_S
    assert not violations(crowd.path, crowd.log, wait_max_s=NOISE_S)
    kinds = [commit.kind for commit in omnigraph.open(crowd.path).commits()]
    assert "recovery" not in kinds, "a live writer was taken for a dead one"


@pytest.mark.parametrize("off_s", [-30.0, 30.0])
def test_a_dead_writer_is_recovered_from_at_once_whatever_the_clock_says(crowd_of: MakeCrowd, off_s: float) -> None:
    crowd = crowd_of(20.0)
    dead = crowd.start("write_one", key="dead", phase="effect", occurrence=2)
    assert dead.job.wait(30).status == -signal.SIGKILL
    crowd.members.remove(dead)
    crowd.start("write_keys", count=1, kinds=["own"], clock_off_s=off_s)
    (ended,) = crowd.finish()
    assert ended.value["done"] == 1
    assert ended.value["longest_s"] < NOISE_S
    assert not violations(crowd.path, crowd.log, wait_max_s=NOISE_S)
