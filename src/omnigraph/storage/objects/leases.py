"""Leases of readers: versions that cleanup leaves alone while somebody reads them.

    __leases/<id>.json      which versions, and for how many seconds a lease holds that is not written again
    __cleanup/<id>.json     which versions a cleanup is about to remove (see `announce`)

A reader writes its lease first and then looks whether a cleanup has announced one of its versions; a cleanup announces
first and then looks for leases. So at least one of the two sees the other: either the version stays, or the reader is
told at once, with VersionReclaimed, and never in the middle of its work.

A reader renews its lease three times as often as needed, and every renewal changes the object. A cleanup judges a lease
by whether it changes, on its own clock, and never by the store's (`maintenance/cleanup/sightings.py`). A lease whose
process is known to be gone holds nothing. Nothing waits for anything.

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
from collections.abc import Callable, Iterable, Iterator, Mapping, Set
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any

from omnigraph.errors import StorageError, UsageError, VersionReclaimed
from omnigraph.language import identifiers as form
from omnigraph.storage import durability
from omnigraph.storage.files.missing_versions import absence
from omnigraph.storage.layout import CLEANUP, LEASES, Location
from omnigraph.storage.manifest.records import Pin
from omnigraph.storage.objects.control_objects import all_exist
from omnigraph.storage.objects.json_objects import Control, Note

LEASE_S = 600.0
"""How long a lease holds unless it is renewed."""
LEASE_LEAST_S, LEASE_MOST_S = 1.0, 7 * 24 * 3600.0
FORGOTTEN_AFTER_S = 24 * 3600.0
"""Leases that are so much older than any may be, of processes that are gone, are deleted by whoever makes a new one."""
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
    seconds: float
    mark: str
    """Changes with every renewal."""
    modified_s: float
    """The store's time of the last renewal."""
    owner: Mapping[str, Any] | None = None
    branch: str = ""
    commit: str = ""
    prepares: bool = False
    """Whether files are being written for these tables that no version refers to yet."""
    renewing: bool = False
    """Whether the owner renews it as long as it lives."""


@dataclass(frozen=True)
class Announcement:
    """What a cleanup has said that it is about to remove."""

    id: str
    owner: Mapping[str, Any] | None
    versions: Versions
    files: Mapping[str, list[str]]
    """By table folder: files that only versions needed which are removed with them."""
    unreferenced: Mapping[str, list[str]]
    mark: str
    modified_s: float


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
        Control(self.location, LEASES).put(self.name, _renewed(self.body))
        self._has_lapsed |= self._renewed_s is not None and _boottime_s() - self._renewed_s > self.body["seconds"]
        self._renewed_s = begun_s

    def release(self) -> None:
        with suppress(StorageError):  # it runs out by itself
            Control(self.location, LEASES).delete([self.name])


def _renewed(body: Mapping[str, Any]) -> dict[str, Any]:
    """The body of a lease with a new token: a store whose marks are digests sees a change as well."""
    return {**body, "renewal": secrets.token_hex(6)}


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
    renewing: bool = False,
    is_gone: IsGone = lambda _: False,
    live_pins: Callable[[], Set[Pin]] = frozenset,
    table_keys: Mapping[str, str] | None = None,
) -> Held:
    """Write a lease on these pins, as one object. VersionReclaimed if one of them is being removed, or has been,
    VersionMissing if it was lost.

    `prepares`: files are going to be written for these tables. `renewing`: the owner renews it as long as it lives.
    `is_gone` knows of processes that do not run any more:
    what a cleanup that died has announced, it does not remove.
    `live_pins` reads what the heads of branches pin now, and what they were made from. No cleanup removes that, and no
    branch returns to a version that it has left: on an object store these versions need no request each.
    `table_keys` name tables in errors.
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
        "renewing": renewing,
        "pins": {path: sorted(found) for path, found in versions.items()},
    }
    lease = Held(location, secrets.token_hex(8), body)
    lease.renew()
    try:
        require_staying(location, held, is_gone, live_pins, table_keys)
    except BaseException:
        lease.release()
        raise
    return lease


def require_staying(
    location: Location,
    pins: tuple[Pin, ...],
    is_gone: IsGone,
    live_pins: Callable[[], Set[Pin]] = frozenset,
    table_keys: Mapping[str, str] | None = None,
) -> None:
    """VersionReclaimed if a cleanup has announced or removed one of these versions; VersionMissing if it was lost."""
    names = table_keys or {}
    # The last requests of a process that died may still be on their way to an object store.
    going = announced(location, is_gone if location.is_local else lambda _: False)
    going_pins = [pin for pin in pins if pin.version in going.get(pin.path, ())]
    # A look at a local file costs less than a look at the heads.
    live = frozenset[Pin]() if location.is_local and not going_pins else live_pins()
    for pin in going_pins:
        # A cleanup that announces what is live has read the heads before: it reads them again, and leaves that alone.
        if pin not in live:
            raise VersionReclaimed(table_key=names.get(pin.table, pin.table), version=pin.version)
    files = {pin: durability.manifest_path(pin.path, pin.version) for pin in pins if pin not in live}
    if not all_exist(location, files.values()):
        for pin, file in files.items():
            if not all_exist(location, [file]):
                raise absence(location, pin.path, pin.version, table_key=names.get(pin.table, ""))


def may_not_write(error: StorageError) -> bool:
    """Whether the store refused a lease because this reader may only read."""
    return bool(_REFUSED.search(str(error)))


@contextmanager
def hold(location: Location, pins: Iterable[Pin], *, seconds: float = LEASE_S, **about: Any) -> Iterator[Held]:
    """A lease that is renewed by a thread of its own until the block ends."""
    lease = take(location, pins, seconds=seconds, renewing=True, **about)
    with suppress(StorageError):  # the next one does it
        _forget_old(location, about.get("is_gone", lambda _: False))
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
        control.put(f"{lease_id}.json", _renewed(body))


def leases(location: Location) -> list[Lease]:
    """Every lease that is there, whether it holds or not. One that can't be read is StorageError, never ignored."""
    control = Control(location, LEASES)
    found = []
    for note in control.notes():
        if not note.name.endswith(".json"):
            continue  # half-written by a store that died
        body = control.read(note.name)
        if body is not None:
            found.append(_lease(note, body))
    return found


def _lease(note: Note, body: Mapping[str, Any]) -> Lease:
    try:
        return Lease(
            id=note.name.removesuffix(".json"),
            pins=_versions(body["pins"]),
            seconds=_seconds(body["seconds"]),
            mark=f"{note.mark}|{body.get('renewal', '')}",
            modified_s=note.modified_s,
            owner=body.get("owner"),
            branch=str(body.get("branch") or ""),
            commit=str(body.get("commit") or ""),
            prepares=bool(body.get("prepares")),
            renewing=bool(body.get("renewing")),
        )
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise StorageError(doing=f"reading {LEASES}/{note.name}", detail="it can't be understood") from error


def _versions(body: Any) -> dict[str, frozenset[int]]:
    return {path: frozenset(map(form.version, form.sequence(found))) for path, found in form.mapping(body).items()}


def _seconds(value: Any) -> float:
    if isinstance(value, int | float) and LEASE_LEAST_S <= value <= LEASE_MOST_S:
        return float(value)
    raise form.Malformed(f"{form.shown(value)} is not how long a lease lasts")


def drop(location: Location, over: Iterable[Lease]) -> None:
    """Delete leases that hold nothing any more, unless they have been renewed since they were read."""
    marks = {lease.id: lease.mark for lease in over}
    if marks:
        same = [lease.id for lease in leases(location) if marks.get(lease.id) == lease.mark]
        Control(location, LEASES).delete(f"{i}.json" for i in same)


def _forget_old(location: Location, is_gone: IsGone) -> None:
    """By the clock of the store alone nothing is deleted: it only says which leases are worth a look."""
    control = Control(location, LEASES)
    notes = control.notes()
    newest_s = max((n.modified_s for n in notes), default=0.0)  # that of the lease which was just taken
    old = [n.name for n in notes if newest_s - n.modified_s > LEASE_MOST_S + FORGOTTEN_AFTER_S]
    control.delete(name for name in old if is_gone((control.read(name) or {}).get("owner")))


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
    return _versions_of(a for a in announcements(location) if not is_gone(a.owner))


def _versions_of(listed: Iterable[Announcement]) -> dict[str, set[int]]:
    found: dict[str, set[int]] = {}
    for announcement in listed:
        for path, versions in announcement.versions.items():
            found.setdefault(path, set()).update(versions)
    return found


def announced_files(location: Location) -> set[str]:
    """Every file that a cleanup, running or dead, has named for removal, relative to the graph.

    Those of dead ones too: their last requests may still be on their way to an object store.
    """
    return _files_of(announcements(location))


def _files_of(listed: Iterable[Announcement]) -> set[str]:
    return {
        f"{folder}/{path}"
        for announcement in listed
        for part in (announcement.files, announcement.unreferenced)
        for folder, paths in part.items()
        for path in paths
    }


def announcements(location: Location) -> list[Announcement]:
    """Every announcement that can be read. HostileOrDamagedManifest for one that no cleanup made: what it announces is
    not known.
    """
    control = Control(location, CLEANUP)
    found = []
    for note in control.notes():
        if note.name.endswith(".json"):
            body = control.read(note.name)
            if body:
                found.append(_announcement(note, body))
    return found


def _announcement(note: Note, body: Mapping[str, Any]) -> Announcement:
    with form.reading(f"{CLEANUP}/{form.shown(note.name)}"):
        return Announcement(
            id=note.name.removesuffix(".json"),
            owner=body.get("owner"),
            versions=_versions(body.get("versions") or {}),
            files=_paths(body.get("files") or {}),
            unreferenced=_paths(body.get("unreferenced") or {}),
            mark=note.mark,
            modified_s=note.modified_s,
        )


def _paths(body: Any) -> dict[str, list[str]]:
    return {folder: [form.text(p) for p in form.sequence(paths)] for folder, paths in form.mapping(body).items()}


def withdraw(location: Location, ids: Iterable[str]) -> None:
    """Take announcements back: what they name is done, or stays."""
    Control(location, CLEANUP).delete(f"{i}.json" for i in ids)
