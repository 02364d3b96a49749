"""Who lives and who is dead: heartbeats, leases on the observer's own clock, process ids, and the cap on renewing."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest

import omnigraph
from omnigraph.commit import advisory_lock, owner
from tests.commit import plant
from tests.commit.stepper import open_without_heart
from tests.contention.audit import objects_left, wrong_epochs

LEASE_S = 0.4
NOISE_S = 6.0


@pytest.fixture(autouse=True)
def _short_lease(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMNIGRAPH_LEASE_S", str(LEASE_S))


class Slow:
    """A writer that takes its time before its first effect."""

    def __init__(self, path: Path, *, beating: bool = True) -> None:
        self.holds = threading.Event()
        self.may_go = threading.Event()
        self.graph = (omnigraph.open if beating else open_without_heart)(path, observer=self._observe)
        self.thread = threading.Thread(target=self._run, daemon=True)
        self.thread.start()
        assert self.holds.wait(30)

    def _observe(self, phase: str) -> None:
        if phase == "effect" and not self.holds.is_set():
            self.holds.set()
            assert self.may_go.wait(60)

    def _run(self) -> None:
        self.result = self.graph.upsert({"Left": [{"name": "slow"}]})

    def finish(self) -> Any:
        self.may_go.set()
        self.thread.join(30)
        assert not self.thread.is_alive()
        return self.result


def kinds(graph: Any) -> list[str]:
    return [commit.kind for commit in graph.commits()]


def quick(path: Path) -> threading.Thread:
    graph = omnigraph.open(path)
    thread = threading.Thread(target=lambda: graph.upsert({"Left": [{"name": "quick"}]}), daemon=True)
    thread.start()
    return thread


def test_a_slow_writer_that_lives_is_waited_for(path: Path) -> None:
    slow = Slow(path)
    waiting = quick(path)
    waiting.join(4 * LEASE_S)
    assert waiting.is_alive(), "a live writer was overtaken"
    slow.finish()
    waiting.join(30)
    graph = omnigraph.open(path)
    assert kinds(graph)[:2] == ["write", "write"]
    assert {"slow", "quick"} <= set(graph.snapshot().read("Left")["id"].to_pylist())
    assert not objects_left(path)


def test_a_writer_whose_heart_stands_still_is_overtaken_after_a_lease(path: Path) -> None:
    slow = Slow(path, beating=False)
    began = time.monotonic()
    waiting = quick(path)
    waiting.join(30)
    assert LEASE_S < time.monotonic() - began < LEASE_S + NOISE_S
    assert slow.finish().commit is not None
    graph = omnigraph.open(path)
    assert "recovery" in kinds(graph)
    assert {"slow", "quick"} <= set(graph.snapshot().read("Left")["id"].to_pylist())
    assert not wrong_epochs(graph)


def test_nobody_renews_for_ever(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(advisory_lock, "RENEWAL_MAX_S", LEASE_S)
    slow = Slow(path)
    waiting = quick(path)
    waiting.join(30)
    assert not waiting.is_alive()
    slow.finish()
    assert not wrong_epochs(omnigraph.open(path))


def test_a_heart_goes_on_beating_after_the_store_has_failed_once(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from omnigraph.errors import StorageError

    slow = Slow(path)
    objects = slow.graph._committer.locks.objects
    failed = threading.Event()
    real = objects.put

    def put(name: str, body: dict[str, Any]) -> None:
        if not failed.is_set():
            failed.set()
            raise StorageError(doing="writing", detail="a disk that is full for a moment")
        real(name, body)

    monkeypatch.setattr(objects, "put", put)
    assert failed.wait(10)
    waiting = quick(path)
    waiting.join(4 * LEASE_S)
    assert waiting.is_alive(), "it missed one beat and never beat again"
    slow.finish()
    waiting.join(30)


def test_a_dead_process_of_this_machine_is_known_to_be_dead(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMNIGRAPH_LEASE_S", "60")
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
    body = {**owner.myself(), "pid": child.pid, "start": owner._start_time(child.pid)}
    assert not owner.is_gone(body)
    child.kill()
    deadline = time.monotonic() + 10
    while not owner.is_gone(body):  # also while it is a zombie that nobody has reaped
        assert time.monotonic() < deadline
    plant.lock(path, {"nonce": "planted", "owner": body, "tables": [], "kind": "write"})
    began = time.monotonic()
    omnigraph.open(path).upsert({"Left": [{"name": "new"}]})
    assert time.monotonic() - began < NOISE_S
    child.wait()
    assert owner.is_gone(body)


@pytest.mark.parametrize(
    ("changed", "gone"),
    [
        ({}, False),
        ({"start": "1"}, True),  # the id was given to another process
        ({"boot": "other", "start": "1"}, False),
        ({"namespace": "other", "start": "1"}, False),
        ({"boot": ""}, False),
        ({"start": ""}, False),
        ({"pid": "1"}, False),
    ],
    ids=repr,
)
def test_a_process_is_gone_only_if_that_is_certain(changed: dict[str, Any], gone: bool) -> None:
    assert owner.is_gone({**owner.myself(), **changed}) is gone


@pytest.mark.parametrize("nobody", [None, {}, "me", 5, [1]], ids=repr)
def test_an_owner_that_cant_be_understood_is_not_known_to_be_gone(nobody: Any) -> None:
    assert owner.is_gone(nobody) is False


def test_a_ticket_says_who_holds_it_and_which_tables_it_may_touch(path: Path) -> None:
    slow = Slow(path)
    (name,) = [n for n in objects_left(path) if n.endswith(".0.json")]
    body = json.loads(Path(name).read_text())
    assert body["owner"]["pid"] == os.getpid()
    assert body["tables"] == [omnigraph.open(path).schema().node["Left"].id]
    assert body["nonce"]
    slow.finish()
