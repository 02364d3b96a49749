"""Advisory locks, one per epoch. They spare writers useless work and record which writer crashed; no safety depends on
them.

    __recovery/<incarnation>/<epoch>.<n>.json     n = 0 the owner's lock, n > 0 a claim by a recovering process
    __recovery/<incarnation>/<epoch>.<n>.hb       the heartbeat that only claimant n writes
    __recovery/<incarnation>/<epoch>.plan<a>.json the plan of attempt a, written once before its effects

Objects are create-only and never reused: an epoch belongs to one operation for ever. Any process may delete them once
the head's epoch has reached theirs, and not before. A takeover needs only the observer's own clock: the claimant's
heartbeat did not change for a lease, or its process is provably gone.
"""

from __future__ import annotations

import os
import re
import secrets
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from omnigraph.commit import owner
from omnigraph.config import environment
from omnigraph.errors import StorageError
from omnigraph.language import identifiers as form
from omnigraph.storage.objects.control_objects import ControlObjects

_OBJECT = re.compile(r"([0-9]{12})\.")
_CLAIM = re.compile(r"[0-9]{12}\.([0-9]{1,9})\.json")
RENEWAL_MAX_S = 900.0
"""How long one holder renews at most: a process that hangs must not block a branch for ever."""


def lease_s() -> float:
    """How long a heartbeat may stay unchanged before other processes take over."""
    return environment.seconds("OMNIGRAPH_LEASE_S", 20.0, minimum=0.0)


@dataclass(frozen=True)
class AdvisoryLock:
    incarnation: str
    epoch: int
    claimant: int
    nonce: str
    """The nonce of claimant 0: it names the operation in every stamp, also in those of a recovering process."""
    tables: tuple[str, ...]
    kind: str

    @property
    def name(self) -> str:
        return lock_name(self.incarnation, self.epoch, self.claimant)

    @property
    def heartbeat(self) -> str:
        return f"{self.incarnation}/{self.epoch:012d}.{self.claimant}.hb"


def lock_name(incarnation: str, epoch: int, claimant: int) -> str:
    return f"{incarnation}/{epoch:012d}.{claimant}.json"


def plan_name(incarnation: str, epoch: int, attempt: int) -> str:
    return f"{incarnation}/{epoch:012d}.plan{attempt}.json"


def epoch_of(name: str) -> int | None:
    """The epoch of an object below `<incarnation>/`; None if the name has another form."""
    match = _OBJECT.match(name.rsplit("/", 1)[-1])
    return int(match[1]) if match else None


class AdvisoryLocks:
    """The advisory locks of one graph, stored as control objects."""

    def __init__(self, objects: ControlObjects) -> None:
        self.objects = objects
        self._heartbeats = _Heartbeats(objects)
        self._seen: dict[str, tuple[str, float]] = {}
        self._own: set[str] = set()

    def take(self, incarnation: str, epoch: int, *, tables: tuple[str, ...], kind: str) -> AdvisoryLock | None:
        """Create the lock of this epoch; None if another writer holds it."""
        nonce = secrets.token_hex(6)
        lock = AdvisoryLock(incarnation, epoch, 0, nonce, tables, kind)
        body = {"nonce": nonce, "owner": owner.myself(), "tables": list(tables), "kind": kind, "at": time.time()}
        if not self.objects.create(lock.name, body):
            return None
        self._start_renewing(lock)
        return lock

    def _start_renewing(self, lock: AdvisoryLock) -> None:
        self._own.add(lock.name)
        self._heartbeats.watch(lock)

    def is_own(self, lock: AdvisoryLock) -> bool:
        """Whether this handle took the lock and has not released it."""
        return lock.name in self._own

    def claim(self, current: AdvisoryLock) -> AdvisoryLock | None:
        """Create the next claim of an epoch whose holder crashed; None if another process claimed it first."""
        lock = AdvisoryLock(
            current.incarnation, current.epoch, current.claimant + 1, current.nonce, current.tables, current.kind
        )
        own = secrets.token_hex(6)
        if not self.objects.create(lock.name, {"nonce": own, "owner": owner.myself(), "at": time.time()}):
            return None
        self._start_renewing(lock)
        return lock

    def stop_renewing(self, lock: AdvisoryLock) -> None:
        """Stop renewing. The objects stay until the epoch is decided."""
        self._heartbeats.forget(lock)

    def holder(self, incarnation: str, epoch: int) -> tuple[AdvisoryLock, bool] | None:
        """The newest claim of an epoch and whether it may be taken over now; None if the epoch has no lock.

        A lock that can't be read still counts: its tables are unknown (empty), its lease is valid.
        """
        prefix = f"{incarnation}/{epoch:012d}."
        entries = {e.path: e.etag for e in self.objects.entries(incarnation) if e.path.startswith(prefix)}
        matches = (_CLAIM.fullmatch(name.rpartition("/")[2]) for name in entries)
        claims = [int(match[1]) for match in matches if match]
        if not claims:
            return None
        newest = max(claims)
        body = self.objects.read(lock_name(incarnation, epoch, newest))
        first_body = body if newest == 0 else self.objects.read(lock_name(incarnation, epoch, 0))
        if body is None:
            return None
        lock = _lock_of(incarnation, epoch, newest, first_body or {})
        mark = f"{entries[lock.name]}|{entries.get(lock.heartbeat, '')}"
        return lock, owner.is_gone(body.get("owner")) or self._stood_still(lock.name, mark)

    def _stood_still(self, name: str, mark: str) -> bool:
        now = time.monotonic()
        seen = self._seen.get(name)
        if seen is None or seen[0] != mark:
            self._seen = {name: (mark, now)}
            return False
        return now - seen[1] > lease_s()

    def write_plan(self, lock: AdvisoryLock, attempt: int, plan: Mapping[str, Any]) -> bool:
        """False if another operation wrote a plan under this name: then this writer no longer holds the lock."""
        name = plan_name(lock.incarnation, lock.epoch, attempt)
        return self.objects.create(name, {**plan, "nonce": lock.nonce})

    def sync(self, lock: AdvisoryLock, attempt: int) -> None:
        """Sync the lock and the plan of an attempt: only they identify effects without a stamp."""
        self.objects.sync([lock.name, plan_name(lock.incarnation, lock.epoch, attempt)])

    def plans(self, lock: AdvisoryLock) -> list[dict[str, Any]]:
        """Every plan of this epoch that can be read, newest attempt first."""
        prefix = f"{lock.incarnation}/{lock.epoch:012d}.plan"
        listed = (e.path for e in self.objects.entries(lock.incarnation))
        names = sorted((n for n in listed if n.startswith(prefix) and n.endswith(".json")), reverse=True)
        bodies = (self.objects.read(name) for name in names)
        return [b for b in bodies if b and b.get("nonce") == lock.nonce]

    def release(self, lock: AdvisoryLock, *, attempts: int) -> None:
        """Delete the objects of this operation by name: its epoch is decided. A later sweep deletes what remains after
        a failure.
        """
        self.stop_renewing(lock)
        self._own.discard(lock.name)
        names = [lock.name, *(plan_name(lock.incarnation, lock.epoch, a) for a in range(attempts))]
        if self._heartbeats.has_beaten(lock):
            names.append(lock.heartbeat)
        try:
            self.objects.delete(names)
        except StorageError:
            return

    def sweep(self, decided: Callable[[], Mapping[str, int]]) -> list[str]:
        """Delete every object of a decided epoch, and of branch incarnations that no longer exist.

        Returns the names of loose objects, which belong to no branch: no lock is among them.

        The objects are listed before the heads are read, so a listed incarnation without a head was deleted.
        """
        listed = self.objects.entries()
        entries = [e for e in listed if "/" in e.path]
        loose = [e.path for e in listed if "/" not in e.path]
        if not entries:
            return loose
        epochs = decided()
        for entry in entries:
            epoch = epoch_of(entry.path)
            folder = entry.path.partition("/")[0]
            if epoch is not None and (folder not in epochs or epoch <= epochs[folder]):
                with suppress(StorageError):  # the next sweep tries again
                    self.objects.delete([entry.path])
        for folder in {e.path.partition("/")[0] for e in entries}:
            self.objects.forget_folder(folder)
        return loose


def _lock_of(incarnation: str, epoch: int, claimant: int, first_body: Mapping[str, Any]) -> AdvisoryLock:
    """The lock as its body describes it. A malformed body names no tables, which means all tables."""
    try:
        nonce, kind = form.token(first_body["nonce"]), form.token(first_body["kind"])
        tables = tuple(form.type_id(t) for t in form.sequence(first_body["tables"]))
    except (KeyError, ValueError):
        nonce, kind, tables = "", "unknown", ()
    return AdvisoryLock(incarnation, epoch, claimant, nonce, tables, kind)


class _Heartbeats:
    """One thread per graph handle that renews locks held for longer than a quarter of a lease."""

    def __init__(self, objects: ControlObjects) -> None:
        self._objects = objects
        self._lock = threading.Lock()
        self._watched: dict[str, tuple[AdvisoryLock, float]] = {}
        self._beaten: set[str] = set()
        self._thread: threading.Thread | None = None
        self._pid = 0

    def watch(self, lock: AdvisoryLock) -> None:
        with self._lock:
            self._watched[lock.name] = (lock, time.monotonic())
            if self._thread is None or self._pid != os.getpid():
                self._pid = os.getpid()
                self._thread = threading.Thread(target=self._run, name="omnigraph-heartbeat", daemon=True)
                self._thread.start()

    def forget(self, lock: AdvisoryLock) -> None:
        with self._lock:
            self._watched.pop(lock.name, None)

    def has_beaten(self, lock: AdvisoryLock) -> bool:
        return lock.name in self._beaten

    def _run(self) -> None:
        count = 0
        while True:
            time.sleep(lease_s() / 4)
            with self._lock:
                if not self._watched:
                    self._thread = None
                    return
                now = time.monotonic()
                due = [
                    renewable
                    for renewable, since in self._watched.values()
                    if lease_s() / 8 < now - since < RENEWAL_MAX_S
                ]
            for lock in due:
                count += 1
                self._beaten.add(lock.name)
                try:
                    self._objects.put(lock.heartbeat, {"count": count})
                except StorageError:
                    continue  # a missed heartbeat causes at worst a takeover; the head's swap makes that harmless
                with self._lock:
                    is_released = lock.name not in self._watched
                if is_released:
                    self._objects.delete([lock.heartbeat])
