"""Many things at once on a bucket, one after the other on a disk."""

from __future__ import annotations

import threading
import time

import pytest

from omnigraph.errors import UsageError
from omnigraph.maintenance.concurrency import default_concurrency, map_threads
from omnigraph.storage.layout import Location

BUCKET, DISK = Location("s3://bucket/graph", False, {}), Location("graph", True, {})


def test_requests_to_a_bucket_wait_together() -> None:
    meeting = threading.Barrier(4, timeout=10)

    def call(item: int) -> int:
        meeting.wait()  # breaks unless four are under way
        time.sleep(0.01 * (4 - item))
        return item * item

    assert list(map_threads(BUCKET, call, range(4), at_once=4)) == [0, 1, 4, 9]


def test_no_more_than_asked_for_are_under_way() -> None:
    under_way, most, mutex = 0, 0, threading.Lock()

    def call(_: int) -> None:
        nonlocal under_way, most
        with mutex:
            under_way += 1
            most = max(most, under_way)
        time.sleep(0.005)
        with mutex:
            under_way -= 1

    list(map_threads(BUCKET, call, range(20), at_once=3))
    assert most == 3


def test_a_disk_is_asked_in_turn() -> None:
    assert set(map_threads(DISK, lambda _: threading.current_thread(), range(20))) == {threading.main_thread()}


def test_the_environment_says_how_many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMNIGRAPH_MAINTENANCE_CONCURRENCY", "3")
    assert default_concurrency() == 3


@pytest.mark.parametrize("text", ["0", "-1", "many", ""])
def test_a_number_that_is_none_is_a_mistake_of_the_user(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    monkeypatch.setenv("OMNIGRAPH_MAINTENANCE_CONCURRENCY", text)
    with pytest.raises(UsageError, match="OMNIGRAPH_MAINTENANCE_CONCURRENCY"):
        list(map_threads(BUCKET, str, range(2)))
