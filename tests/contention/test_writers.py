"""Eight processes on one graph: every write is there once, whole, in order, and readers only see whole commits.

`make torture` has each of them write more (OMNIGRAPH_WRITES).
"""

from __future__ import annotations

import os
from collections.abc import Callable

import pytest

import omnigraph
from tests.contention import world
from tests.contention.audit import violations
from tests.contention.conftest import NOISE_S
from tests.contention.crowd import Crowd

pytestmark = pytest.mark.slow

WRITERS = 8
WRITES = int(os.environ.get("OMNIGRAPH_WRITES", "12"))
COUNTS = WRITES // 3
LEASE_S = 20.0
MakeCrowd = Callable[[float], Crowd]


def finish(crowd: Crowd, *, writes: int = WRITES, branches: tuple[str, ...] = ("main",)) -> None:
    """Everybody acknowledged everything, nobody waited for longer than a lease, and nothing is wrong."""
    for ended in crowd.finish():
        assert ended.acknowledged, ended
        if "longest_s" in ended.value:
            assert ended.value["done"] == writes
            assert ended.value["longest_s"] < LEASE_S, "; ".join(ended.value["longest"])
        if "broken" in ended.value:
            assert ended.value["snapshots"] > 5
            assert not ended.value["broken"]
    assert not violations(crowd.path, crowd.log, branches=branches, wait_max_s=NOISE_S)


@pytest.mark.parametrize("kind", [pytest.param("own", marks=pytest.mark.long), "shared"])
def test_eight_processes_on_one_branch(crowd_of: MakeCrowd, kind: str) -> None:
    crowd = crowd_of(LEASE_S)
    crowd.start("watch")
    for seed in range(WRITERS):
        crowd.start("write_keys", count=WRITES, kinds=[kind], seed=seed)
    finish(crowd)
    written = world.rows(omnigraph.open(crowd.path).snapshot(), "Left")
    assert len(written) == (WRITERS * WRITES if kind == "own" else 4) + 1


def test_eight_processes_lose_no_update_of_one_counter(crowd_of: MakeCrowd) -> None:
    crowd = crowd_of(LEASE_S)
    crowd.start("watch")
    for seed in range(WRITERS):
        crowd.start("write_keys", count=COUNTS, kinds=["counted"], seed=seed)
    finish(crowd, writes=COUNTS)


def test_eight_processes_on_eight_branches(crowd_of: MakeCrowd) -> None:
    crowd = crowd_of(LEASE_S)
    names = tuple(f"team/{i}" for i in range(WRITERS))
    with omnigraph.open(crowd.path) as graph:
        for name in names:
            graph.create_branch(name)
    for seed, name in enumerate(names):
        crowd.start("write_keys", count=WRITES, kinds=["own", "counted"], branch=name, seed=seed)
    crowd.start("watch", branch=names[0])
    finish(crowd, branches=names)
    assert not world.rows(omnigraph.open(crowd.path).snapshot(), "Left")
