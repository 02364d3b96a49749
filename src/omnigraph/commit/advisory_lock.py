"""Tickets: politeness between writers, and the news of who died. Safety never rests on them.

    __recovery/<incarnation>/<epoch>.<n>.json     n = 0 the owner's ticket, n > 0 a claim by a recoverer
    __recovery/<incarnation>/<epoch>.<n>.hb       the heartbeat that only claimant n writes
    __recovery/<incarnation>/<epoch>.plan<a>.json what attempt a is about to do, written once before its effects

Objects are create-only and never reused: an epoch belongs to one operation for ever. They may be deleted by anybody
once the head's epoch has reached theirs, and never before. A takeover needs no clock but the observer's own: the
claimant's heartbeat stood still for a lease, or its process is provably gone.
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
RENEWALS_MOST_S = 900.0
"""For how long at the most one holder renews: a process that hangs for ever must not hold a branch for ever."""


def lease_s() -> float:
    """How long a heartbeat may stand still before others take over."""
    return environment.seconds("OMNIGRAPH_LEASE_S", 20.0, least=0.0)


@dataclass(frozen=True)
class AdvisoryLock:
    incarnation: str
    epoch: int
    claimant: int
    nonce: str
    """The nonce of claimant 0: it names the operation in every stamp, whoever settles it."""
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
    """The epoch that an object below `<incarnation>/` belongs to; None if it is none of ours."""
    found = _OBJECT.match(name.rsplit("/", 1)[-1])
    return int(found[1]) if found else None


class AdvisoryLocks:
    """The control objects of one graph, as tickets."""

    def __init__(self, objects: ControlObjects) -> None:
        self.objects = objects
        self._heart = _Heart(objects)
        self._seen: dict[str, tuple[str, float]] = {}
        self._own: set[str] = set()

    def take(self, incarnation: str, epoch: int, *, tables: tuple[str, ...], kind: str) -> AdvisoryLock | None:
        """Create the ticket of this epoch; None if somebody else has it."""
        nonce = secrets.token_hex(6)
        lock = AdvisoryLock(incarnation, epoch, 0, nonce, tables, kind)
        body = {"nonce": nonce, "owner": owner.myself(), "tables": list(tables), "kind": kind, "at": time.time()}
        if not self.objects.create(lock.name, body):
            return None
        self._hold(lock)
        return lock

    def _hold(self, lock: AdvisoryLock) -> None:
        self._own.add(lock.name)
        self._heart.watch(lock)

    def is_own(self, lock: AdvisoryLock) -> bool:
        """Whether this very handle took the ticket, and could not finish what it stands for."""
        return lock.name in self._own

    def claim(self, below: AdvisoryLock) -> AdvisoryLock | None:
        """Create the next claim over an epoch whose holder is dead; None if another recoverer was quicker."""
        lock = AdvisoryLock(below.incarnation, below.epoch, below.claimant + 1, below.nonce, below.tables, below.kind)
        own = secrets.token_hex(6)
        if not self.objects.create(lock.name, {"nonce": own, "owner": owner.myself(), "at": time.time()}):
            return None
        self._hold(lock)
        return lock

    def rest(self, lock: AdvisoryLock) -> None:
        """Stop renewing. The objects stay until the epoch is decided."""
        self._heart.forget(lock)

    def holder(self, incarnation: str, epoch: int) -> tuple[AdvisoryLock, bool] | None:
        """The newest claim over an epoch and whether it may be taken over now; None if nobody holds it.

        A ticket that can't be read is somebody's all the same: its tables are unknown (empty), its lease counts.
        """
        prefix = f"{incarnation}/{epoch:012d}."
        entries = {e.name: e.mark for e in self.objects.entries(incarnation) if e.name.startswith(prefix)}
        named = (_CLAIM.fullmatch(name.rpartition("/")[2]) for name in entries)
        claims = [int(claim[1]) for claim in named if claim]
        if not claims:
            return None
        newest = max(claims)
        body = self.objects.read(lock_name(incarnation, epoch, newest))
        first = body if newest == 0 else self.objects.read(lock_name(incarnation, epoch, 0))
        if body is None:
            return None
        lock = _lock_of(incarnation, epoch, newest, first or {})
        mark = f"{entries[lock.name]}|{entries.get(lock.heartbeat, '')}"
        return lock, owner.is_gone(body.get("owner")) or self._stood_still(lock.name, mark)

    def _stood_still(self, name: str, mark: str) -> bool:
        now = time.monotonic()
        known = self._seen.get(name)
        if known is None or known[0] != mark:
            self._seen = {name: (mark, now)}
            return False
        return now - known[1] > lease_s()

    def write_plan(self, lock: AdvisoryLock, attempt: int, plan: Mapping[str, Any]) -> bool:
        """False if another operation has written a plan under this name: then the ticket is not mine any more."""
        name = plan_name(lock.incarnation, lock.epoch, attempt)
        return self.objects.create(name, {**plan, "nonce": lock.nonce})

    def secure(self, lock: AdvisoryLock, attempt: int) -> None:
        """Make the ticket and the plan of an attempt durable: what bears no stamp is known by them alone."""
        self.objects.secure([lock.name, plan_name(lock.incarnation, lock.epoch, attempt)])

    def plans(self, lock: AdvisoryLock) -> list[dict[str, Any]]:
        """Every plan of this epoch that can be read, newest attempt first."""
        prefix = f"{lock.incarnation}/{lock.epoch:012d}.plan"
        listed = (e.name for e in self.objects.entries(lock.incarnation))
        names = sorted((n for n in listed if n.startswith(prefix) and n.endswith(".json")), reverse=True)
        bodies = (self.objects.read(name) for name in names)
        return [b for b in bodies if b and b.get("nonce") == lock.nonce]

    def release(self, lock: AdvisoryLock, *, attempts: int) -> None:
        """Delete what this operation left, by name: its epoch is decided. What fails here is swept by a later
        writer.
        """
        self.rest(lock)
        self._own.discard(lock.name)
        names = [lock.name, *(plan_name(lock.incarnation, lock.epoch, a) for a in range(attempts))]
        if self._heart.has_beaten(lock):
            names.append(lock.heartbeat)
        try:
            self.objects.delete(names)
        except StorageError:
            return

    def sweep(self, decided: Callable[[], Mapping[str, int]]) -> list[str]:
        """Delete every object of a decided epoch, and of branch incarnations that no longer exist.

        Returns the names of loose objects, which belong to no branch: tickets are never among them.

        The objects are listed before the heads are read: an incarnation that is listed and has no head was deleted.
        """
        listed = self.objects.entries()
        entries = [e for e in listed if "/" in e.name]
        loose = [e.name for e in listed if "/" not in e.name]
        if not entries:
            return loose
        epochs = decided()
        for entry in entries:
            epoch = epoch_of(entry.name)
            folder = entry.name.partition("/")[0]
            if epoch is not None and (folder not in epochs or epoch <= epochs[folder]):
                with suppress(StorageError):  # what can't be deleted now is left for the next sweep
                    self.objects.delete([entry.name])
        for folder in {e.name.partition("/")[0] for e in entries}:
            self.objects.forget_folder(folder)
        return loose


def _lock_of(incarnation: str, epoch: int, claimant: int, first: Mapping[str, Any]) -> AdvisoryLock:
    """A body that is not what a writer leaves there tells nothing: then all tables are meant."""
    try:
        nonce, kind = form.token(first["nonce"]), form.token(first["kind"])
        tables = tuple(form.type_id(t) for t in form.sequence(first["tables"]))
    except (KeyError, ValueError):
        nonce, kind, tables = "", "unknown", ()
    return AdvisoryLock(incarnation, epoch, claimant, nonce, tables, kind)


class _Heart:
    """One thread per graph handle that renews the tickets held for longer than a quarter of a lease."""

    def __init__(self, objects: ControlObjects) -> None:
        self._objects = objects
        self._lock = threading.Lock()
        self._held: dict[str, tuple[AdvisoryLock, float]] = {}
        self._beaten: set[str] = set()
        self._thread: threading.Thread | None = None
        self._pid = 0

    def watch(self, lock: AdvisoryLock) -> None:
        with self._lock:
            self._held[lock.name] = (lock, time.monotonic())
            if self._thread is None or self._pid != os.getpid():
                self._pid = os.getpid()
                self._thread = threading.Thread(target=self._run, name="omnigraph-heartbeat", daemon=True)
                self._thread.start()

    def forget(self, lock: AdvisoryLock) -> None:
        with self._lock:
            self._held.pop(lock.name, None)

    def has_beaten(self, lock: AdvisoryLock) -> bool:
        return lock.name in self._beaten

    def _run(self) -> None:
        count = 0
        while True:
            time.sleep(lease_s() / 4)
            with self._lock:
                if not self._held:
                    self._thread = None
                    return
                now = time.monotonic()
                due = [t for t, since in self._held.values() if lease_s() / 8 < now - since < RENEWALS_MOST_S]
            for lock in due:
                count += 1
                self._beaten.add(lock.name)
                try:
                    self._objects.write(lock.heartbeat, {"count": count})
                except StorageError:
                    continue  # a missed beat costs at worst a takeover, which the head's swap makes harmless
                with self._lock:
                    gone = lock.name not in self._held
                if gone:
                    self._objects.delete([lock.heartbeat])
