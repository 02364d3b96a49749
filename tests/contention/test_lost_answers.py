"""The store does what it was asked and its answer is lost, again and again: no write is lost with it, none doubled."""

from __future__ import annotations

from collections.abc import Callable

from tests.contention.audit import violations
from tests.contention.clients import read_log
from tests.contention.conftest import NOISE_S
from tests.contention.crowd import Crowd

LEASE_S = 1.0


def test_writers_whose_answers_are_lost(crowd_of: Callable[[float], Crowd]) -> None:
    crowd = crowd_of(LEASE_S)
    crowd.start("watch")
    for seed in range(3):
        crowd.start("write_keys", count=10, kinds=["own", "shared", "counted"], lost_answers=0.1, seed=seed)
    for ended in crowd.finish():
        assert ended.acknowledged, ended
        assert not ended.value.get("broken"), ended
    lines = read_log(crowd.log)
    refused = [f"{line['condition']}: {line['message']}" for line in lines if line["did"] == "refused"]
    # A write may be given up after several losses in a row; the audit sees to it that it is not there then.
    assert all(text.startswith("storage_failed") for text in refused), refused
    assert sum(line["did"] == "ack" for line in lines) > 24
    assert not violations(crowd.path, crowd.log, wait_max_s=LEASE_S + NOISE_S)
