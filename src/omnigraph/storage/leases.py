"""Leases of readers: versions that cleanup leaves alone while somebody reads them.

    __leases/<id>.json      which versions, for how many seconds since the object was last written
    __cleanup/<id>.json     which versions a cleanup is about to remove (see `announce`)

A reader writes its lease first and then looks whether a cleanup has announced one of its versions; a cleanup announces
first and then looks for leases. So at least one of the two sees the other: either the version stays, or the reader is
told at once, with VersionReclaimed, and never in the middle of its work.

A lease counts from the store's time of its last write. A reader renews it three times as often as needed; one that died
blocks cleanup until its lease has run out, or for no time where its process is known to be gone. Nothing waits for
anything.

Long work that writes files before it has a ticket holds a lease that says so (`prepares`): cleanup then leaves the
unreferenced files of these tables alone. A holder that was stopped, or could not reach the store, for longer than its
lease lasts can't know what happened meanwhile: `Held.is_unbroken` tells, by the holder's own CLOCK_BOOTTIME, which goes
on while the machine sleeps.
"""

from __future__ import annotations

import re
import secrets
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any

from omnigraph.errors import StorageError, UsageError, VersionReclaimed
from omnigraph.language import identifiers as form
from omnigraph.storage import durable
from omnigraph.storage.absence import absence
from omnigraph.storage.control import Control, store_time_s
from omnigraph.storage.layout import CLEANUP, LEASES, Location
from omnigraph.storage.objects import all_exist
from omnigraph.storage.records import Pin

LEASE_S = 600.0
"""How long a lease holds unless it is renewed."""
LEASE_LEAST_S, LEASE_MOST_S = 1.0, 7 * 24 * 3600.0
FORGOTTEN_AFTER_S = 24 * 3600.0
"""Leases that ran out so long ago are deleted by whoever makes a new one."""
_RENEWALS = 3
_REFUSED = re.compile(r"permission|denied|forbidden|read-only|unauthori|\b40[13]\b", re.IGNORECASE)

IsGone = Callable[[Mapping[str, Any] | None], bool]
Versions = Mapping[str, frozenset[int]]
"""Versions by the path of their line, relative to the graph."""


@dataclass(frozen=True)
class Lease:
    """A reader's claim, as cleanup finds it."""

    id: str
    pins: Versions
    expires_s: float
    owner: Mapping[str, Any] | None = None
    branch: str = ""
    commit: str = ""
    prepares: bool = False
    """Whether files are being written for these tables that no version refers to yet."""


@dataclass
class Held:
    """A lease in the hands of its reader."""

    location: Location
    id: str
    body: dict[str, Any]
    _renewed_s: float | None = None
    """When the last renewal that succeeded was begun."""
    _has_lapsed: bool = False

    @property
    def name(self) -> str:
        return f"{self.id}.json"

    @property
    def is_unbroken(self) -> bool:
        """Whether the lease has held from its beginning until now, without a gap."""
        if self._has_lapsed or self._renewed_s is None:
            return False
        return _boottime_s() - self._renewed_s <= float(self.body["seconds"])

    def renew(self) -> None:
        begun_s = _boottime_s()
        Control(self.location, LEASES).put(self.name, self.body)
        self._has_lapsed |= self._renewed_s is not None and _boottime_s() - self._renewed_s > self.body["seconds"]
        self._renewed_s = begun_s

    def release(self) -> None:
        with suppress(StorageError):  # it runs out by itself
            Control(self.location, LEASES).delete([self.name])


def _boottime_s() -> float:
    return time.clock_gettime(time.CLOCK_BOOTTIME)


def take(
    location: Location,
    pins: Iterable[Pin],
    *,
    seconds: float = LEASE_S,
    owner: Mapping[str, Any] | None = None,
    branch: str = "",
    commit: str = "",
    prepares: bool = False,
    is_gone: IsGone = lambda _: False,
) -> Held:
    """Write a lease on these pins. VersionReclaimed if one of them is being removed, or has been, VersionMissing if it
    was lost.

    `prepares`: files are going to be written for these tables. `is_gone` knows of processes that do not run any more:
    what a cleanup that died has announced, it does not remove.
    """
    if not LEASE_LEAST_S <= seconds <= LEASE_MOST_S:
        detail = f"a lease lasts between {LEASE_LEAST_S:.0f} s and {LEASE_MOST_S:.0f} s, not {seconds:g} s."
        raise UsageError(detail=detail)
    held = tuple(pins)
    versions: dict[str, set[int]] = {}
    for pin in held:
        versions.setdefault(pin.path, set()).add(pin.version)
    body = {
        "seconds": seconds,
        "owner": None if owner is None else dict(owner),
        "branch": branch,
        "commit": commit,
        "prepares": prepares,
        "pins": {path: sorted(found) for path, found in versions.items()},
    }
    lease = Held(location, secrets.token_hex(8), body)
    lease.renew()
    try:
        _require_staying(location, held, is_gone)
    except BaseException:
        lease.release()
        raise
    return lease


def _require_staying(location: Location, pins: tuple[Pin, ...], is_gone: IsGone) -> None:
    # The last requests of a process that died may still be on their way to an object store.
    going = announced(location, is_gone if location.is_local else lambda _: False)
    files = {pin: durable.manifest_path(pin.path, pin.version) for pin in pins}
    for pin in pins:
        if pin.version in going.get(pin.path, ()):
            raise VersionReclaimed(table_key=pin.table, version=pin.version)
    if not all_exist(location, files.values()):
        for pin in pins:
            if not all_exist(location, [files[pin]]):
                raise absence(location, pin.path, pin.version)


def may_not_write(error: StorageError) -> bool:
    """Whether the store refused a lease because this reader may only read."""
    return bool(_REFUSED.search(str(error)))


@contextmanager
def hold(location: Location, pins: Iterable[Pin], *, seconds: float = LEASE_S, **about: Any) -> Iterator[Held]:
    """A lease that is renewed by a thread of its own until the block ends."""
    lease = take(location, pins, seconds=seconds, **about)
    with suppress(StorageError):  # the next one does it
        _forget_old(location)
    done = threading.Event()

    def renewing() -> None:
        while not done.wait(seconds / _RENEWALS):
            with suppress(StorageError):  # the next renewal comes before the lease has run out
                lease.renew()

    thread = threading.Thread(target=renewing, name="omnigraph-lease", daemon=True)
    thread.start()
    try:
        yield lease
    finally:
        done.set()
        thread.join()
        lease.release()


def renew(location: Location, lease_id: str) -> None:
    """Renew another process's lease: a task of a job does that for the driver that took it."""
    control = Control(location, LEASES)
    body = control.read(f"{lease_id}.json")
    if body:
        control.put(f"{lease_id}.json", body)


def leases(location: Location) -> list[Lease]:
    """Every lease that is there, run out or not. One that can't be read is told as StorageError, never ignored."""
    control = Control(location, LEASES)
    found = []
    for note in control.notes():
        if not note.name.endswith(".json"):
            continue  # half-written by a store that died
        body = control.read(note.name)
        if body is not None:
            found.append(_lease(note.name, note.modified_s, body))
    return found


def _lease(name: str, modified_s: float, body: Mapping[str, Any]) -> Lease:
    try:
        return Lease(
            id=name.removesuffix(".json"),
            pins=_versions(body["pins"]),
            expires_s=modified_s + _seconds(body["seconds"]),
            owner=body.get("owner"),
            branch=str(body.get("branch") or ""),
            commit=str(body.get("commit") or ""),
            prepares=bool(body.get("prepares")),
        )
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise StorageError(doing=f"reading {LEASES}/{name}", detail="it can't be understood") from error


def _versions(body: Any) -> dict[str, frozenset[int]]:
    return {path: frozenset(map(form.version, form.sequence(found))) for path, found in form.mapping(body).items()}


def _seconds(value: Any) -> float:
    if isinstance(value, int | float) and LEASE_LEAST_S <= value <= LEASE_MOST_S:
        return float(value)
    raise form.Malformed(f"{form.shown(value)} is not how long a lease lasts")


def drop(location: Location, ids: Iterable[str]) -> None:
    Control(location, LEASES).delete(f"{i}.json" for i in ids)


def _forget_old(location: Location) -> None:
    control = Control(location, LEASES)
    notes = control.notes()
    if not notes:
        return
    now_s = store_time_s(location)
    control.delete(n.name for n in notes if now_s - n.modified_s > LEASE_MOST_S + FORGOTTEN_AFTER_S)


# ---- cleanup's side --------------------------------------------------------------------------------------------------


def announce(
    location: Location,
    versions: Versions,
    files: Mapping[str, list[str]],
    *,
    unreferenced: Mapping[str, list[str]] | None = None,
    owner: Mapping[str, Any],
    now_s: float,
) -> str:
    """Say which versions are about to be removed, and which files with them; the announcement's id.

    `files` are by table folder, relative to it. Should this cleanup die, the next one finds here which files had only
    been needed by versions that are gone by then. `unreferenced` are files that no published version ever needed: a
    writer that has prepared one of these does not use it (`announced_files`).
    """
    name = secrets.token_hex(8)
    body = {
        "owner": dict(owner),
        "at_s": now_s,
        "versions": {path: sorted(found) for path, found in versions.items()},
        "files": dict(files),
        "unreferenced": dict(unreferenced or {}),
    }
    Control(location, CLEANUP).put(f"{name}.json", body)
    return name


def announced(location: Location, is_gone: IsGone = lambda _: False) -> dict[str, set[int]]:
    """The versions that cleanups are about to remove, but for those that are known to have died."""
    found: dict[str, set[int]] = {}
    for _, body in announcements(location):
        if is_gone(body.get("owner")):
            continue
        for path, versions in body["versions"].items():
            found.setdefault(path, set()).update(versions)
    return found


def announced_files(location: Location) -> set[str]:
    """Every file that a cleanup, running or dead, has named for removal, relative to the graph.

    Those of dead ones too: their last requests may still be on their way to an object store.
    """
    return {
        f"{folder}/{path}"
        for _, body in announcements(location)
        for part in ("files", "unreferenced")
        for folder, paths in (body.get(part) or {}).items()
        for path in paths
    }


def announcements(location: Location) -> list[tuple[str, dict[str, Any]]]:
    """(id, body) of every announcement that can be read. HostileOrDamagedManifest for one that no cleanup made: what it
    announces is not known.
    """
    control = Control(location, CLEANUP)
    found = []
    for note in control.notes():
        if note.name.endswith(".json"):
            body = control.read(note.name)
            if body:
                found.append((note.name.removesuffix(".json"), _announcement(note.name, body)))
    return found


def _announcement(name: str, body: Mapping[str, Any]) -> dict[str, Any]:
    with form.reading(f"{CLEANUP}/{form.shown(name)}"):
        files = form.mapping(body.get("files") or {})
        return {
            "owner": body.get("owner"),
            "at_s": float(body.get("at_s") or 0.0),
            "versions": _versions(body.get("versions") or {}),
            "files": {folder: [form.text(path) for path in form.sequence(paths)] for folder, paths in files.items()},
        }


def withdraw(location: Location, ids: Iterable[str]) -> None:
    """Take announcements back: what they name is done, or stays."""
    Control(location, CLEANUP).delete(f"{i}.json" for i in ids)
