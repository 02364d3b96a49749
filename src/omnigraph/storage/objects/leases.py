"""Leases of readers: versions that cleanup keeps while their holder is alive.

    __leases/<id>.json      the versions, and for how many seconds the lease is valid without a renewal
    __cleanup/<id>.json     the versions that a cleanup is about to remove (see `announce`)

A reader writes its lease first and then checks whether a cleanup has announced one of its versions; a cleanup announces
first and then lists the leases. So at least one of the two sees the other: either the version stays, or the reader gets
VersionReclaimed at once, and never in the middle of its work.

A reader renews its lease three times as often as needed, and every renewal changes the object. A cleanup checks whether
a lease changes by its own clock, never by the store's (`maintenance/cleanup/sightings.py`). A lease whose process is
provably gone is void. Readers and cleanups never wait for each other.

Long work that writes files before it has the advisory lock holds a lease with `prepares`: cleanup then keeps the
unreferenced files of these tables. A holder that was stopped, or could not reach the store, for longer than its lease
can't know what happened meanwhile: `Held.is_unbroken` is then false, by the holder's own CLOCK_BOOTTIME, which runs
while the machine sleeps.
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
from omnigraph.storage.objects.json_objects import JsonObjects
from omnigraph.storage.objects.store import StoredFile, all_exist

LEASE_S = 600.0
"""How long a lease is valid without a renewal."""
LEASE_MIN_S, LEASE_MAX_S = 1.0, 7 * 24 * 3600.0
FORGOTTEN_AFTER_S = 24 * 3600.0
"""A new lease deletes those that are older than the longest lease by this time and whose process is gone."""
_RENEWALS = 3
_REFUSED = re.compile(r"permission|denied|forbidden|read-only|unauthori|\b40[13]\b", re.IGNORECASE)

IsGone = Callable[[Mapping[str, Any] | None], bool]
Versions = Mapping[str, frozenset[int]]
"""Versions by the path of their version line, relative to the graph."""


@dataclass(frozen=True)
class Lease:
    """A reader's lease, as cleanup reads it."""

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
    """Whether the owner writes files for these tables that no version refers to yet."""
    renewing: bool = False
    """Whether the owner renews it as long as it lives."""


@dataclass(frozen=True)
class Announcement:
    """The versions and files that a cleanup is about to remove."""

    id: str
    owner: Mapping[str, Any] | None
    versions: Versions
    files: Mapping[str, list[str]]
    """By table folder: files that only the removed versions refer to."""
    unreferenced: Mapping[str, list[str]]
    mark: str
    modified_s: float


@dataclass
class HeldLease:
    """A lease, on the side of its holder."""

    location: Location
    id: str
    body: dict[str, Any]
    _renewed_s: float | None = None
    """The start time of the last successful renewal."""
    _has_lapsed: bool = False

    @property
    def name(self) -> str:
        return f"{self.id}.json"

    @property
    def is_unbroken(self) -> bool:
        """Whether the lease was valid from its beginning until now, without a gap."""
        if self._has_lapsed or self._renewed_s is None:
            return False
        return _boottime_s() - self._renewed_s <= float(self.body["seconds"])

    def renew(self) -> None:
        begun_s = _boottime_s()
        JsonObjects(self.location, LEASES).put(self.name, _renewed(self.body))
        self._has_lapsed |= self._renewed_s is not None and _boottime_s() - self._renewed_s > self.body["seconds"]
        self._renewed_s = begun_s

    def release(self) -> None:
        with suppress(StorageError):  # it expires by itself
            JsonObjects(self.location, LEASES).delete([self.name])


def _renewed(body: Mapping[str, Any]) -> dict[str, Any]:
    """The body of a lease with a new token, so that a digest of the object changes too."""
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
) -> HeldLease:
    """Write a lease on these pins, as one object. Raises VersionReclaimed if one of them is announced for removal or
    was removed, VersionMissing if it was lost.

    `prepares`: the owner will write files for these tables. `renewing`: the owner renews the lease while it is alive.
    `is_gone` checks whether a process has ended: a crashed cleanup does not remove what it announced.
    `live_pins` reads the pins of the current heads and of the commits from which branches were created. No cleanup
    removes these, and no branch returns to a version that it has left: on an object store they need no request each.
    `table_keys` name tables in errors.
    """
    if not LEASE_MIN_S <= seconds <= LEASE_MAX_S:
        detail = f"a lease lasts between {LEASE_MIN_S:.0f} s and {LEASE_MAX_S:.0f} s, not {seconds:g} s."
        raise UsageError(detail=detail)
    leased_pins = tuple(pins)
    versions: dict[str, set[int]] = {}
    for pin in leased_pins:
        versions.setdefault(pin.path, set()).add(pin.version)
    body = {
        "seconds": seconds,
        "owner": None if owner is None else dict(owner),
        "branch": branch,
        "commit": commit,
        "prepares": prepares,
        "renewing": renewing,
        "pins": {path: sorted(numbers) for path, numbers in versions.items()},
    }
    lease = HeldLease(location, secrets.token_hex(8), body)
    lease.renew()
    try:
        require_staying(location, leased_pins, is_gone, live_pins, table_keys)
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
    """Raise VersionReclaimed if a cleanup announced or removed one of these versions, VersionMissing if it was lost."""
    names = table_keys or {}
    # The last requests of a crashed process may still reach an object store.
    announced_versions = announced(location, is_gone if location.is_local else lambda _: False)
    announced_pins = [pin for pin in pins if pin.version in announced_versions.get(pin.path, ())]
    # Checking a local file costs less than reading the heads.
    live = frozenset[Pin]() if location.is_local and not announced_pins else live_pins()
    for pin in announced_pins:
        # A cleanup that announces a live version read the heads earlier: it reads them again and keeps the version.
        if pin not in live:
            raise VersionReclaimed(table_key=names.get(pin.table, pin.table), version=pin.version)
    files = {pin: durability.manifest_path(pin.path, pin.version) for pin in pins if pin not in live}
    if not all_exist(location, files.values()):
        for pin, file in files.items():
            if not all_exist(location, [file]):
                raise absence(location, pin.path, pin.version, table_key=names.get(pin.table, ""))


def may_not_write(error: StorageError) -> bool:
    """Whether the store refused a lease because this reader has no write permission."""
    return bool(_REFUSED.search(str(error)))


@contextmanager
def hold(location: Location, pins: Iterable[Pin], *, seconds: float = LEASE_S, **about: Any) -> Iterator[HeldLease]:
    """A lease that a thread renews until the block ends."""
    lease = take(location, pins, seconds=seconds, renewing=True, **about)
    with suppress(StorageError):  # the next lease tries again
        _forget_old(location, about.get("is_gone", lambda _: False))
    stopped = threading.Event()

    def renewing() -> None:
        while not stopped.wait(seconds / _RENEWALS):
            with suppress(StorageError):  # the next renewal comes before the lease expires
                lease.renew()

    thread = threading.Thread(target=renewing, name="omnigraph-lease", daemon=True)
    thread.start()
    try:
        yield lease
    finally:
        stopped.set()
        thread.join()
        lease.release()


def renew(location: Location, lease_id: str) -> None:
    """Renew the lease of another process: a task of a job does that for its driver."""
    control = JsonObjects(location, LEASES)
    body = control.read(f"{lease_id}.json")
    if body:
        control.put(f"{lease_id}.json", _renewed(body))


def leases(location: Location) -> list[Lease]:
    """All leases, valid or not. Raises StorageError for one that can't be read; none is ignored."""
    control = JsonObjects(location, LEASES)
    all_leases = []
    for entry in control.entries():
        if not entry.path.endswith(".json"):
            continue  # a temporary file of a crashed writer
        body = control.read(entry.path)
        if body is not None:
            all_leases.append(_lease(entry, body))
    return all_leases


def _lease(entry: StoredFile, body: Mapping[str, Any]) -> Lease:
    try:
        return Lease(
            id=entry.path.removesuffix(".json"),
            pins=_versions(body["pins"]),
            seconds=_seconds(body["seconds"]),
            mark=f"{entry.etag}|{body.get('renewal', '')}",
            modified_s=entry.modified_s,
            owner=body.get("owner"),
            branch=str(body.get("branch") or ""),
            commit=str(body.get("commit") or ""),
            prepares=bool(body.get("prepares")),
            renewing=bool(body.get("renewing")),
        )
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise StorageError(doing=f"reading {LEASES}/{entry.path}", detail="it can't be understood") from error


def _versions(body: Any) -> dict[str, frozenset[int]]:
    return {path: frozenset(map(form.version, form.sequence(numbers))) for path, numbers in form.mapping(body).items()}


def _seconds(value: Any) -> float:
    if isinstance(value, int | float) and LEASE_MIN_S <= value <= LEASE_MAX_S:
        return float(value)
    raise form.Malformed(f"{form.shown(value)} is not how long a lease lasts")


def drop(location: Location, expired: Iterable[Lease]) -> None:
    """Delete expired leases, unless they were renewed since they were read."""
    marks = {lease.id: lease.mark for lease in expired}
    if marks:
        unchanged = [lease.id for lease in leases(location) if marks.get(lease.id) == lease.mark]
        JsonObjects(location, LEASES).delete(f"{i}.json" for i in unchanged)


def _forget_old(location: Location, is_gone: IsGone) -> None:
    """Delete old leases of processes that are gone. The store's clock only selects the candidates."""
    control = JsonObjects(location, LEASES)
    entries = control.entries()
    newest_s = max((e.modified_s for e in entries), default=0.0)  # the time of the lease that was just taken
    old_names = [e.path for e in entries if newest_s - e.modified_s > LEASE_MAX_S + FORGOTTEN_AFTER_S]
    control.delete(name for name in old_names if is_gone((control.read(name) or {}).get("owner")))


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
    """Announce the versions and files that are about to be removed; returns the announcement's id.

    `files` are by table folder, relative to it. If this cleanup crashes, the next one reads here which files only the
    removed versions referred to. `unreferenced` are files that no published version ever referred to: a writer that
    has prepared one of these does not use it (`announced_files`).
    """
    name = secrets.token_hex(8)
    body = {
        "owner": dict(owner),
        "at_s": now_s,
        "versions": {path: sorted(numbers) for path, numbers in versions.items()},
        "files": dict(files),
        "unreferenced": dict(unreferenced or {}),
    }
    JsonObjects(location, CLEANUP).put(f"{name}.json", body)
    return name


def announced(location: Location, is_gone: IsGone = lambda _: False) -> dict[str, set[int]]:
    """The versions that cleanups are about to remove, without cleanups whose process is gone."""
    return _versions_of(a for a in announcements(location) if not is_gone(a.owner))


def _versions_of(listed: Iterable[Announcement]) -> dict[str, set[int]]:
    versions_by_path: dict[str, set[int]] = {}
    for announcement in listed:
        for path, versions in announcement.versions.items():
            versions_by_path.setdefault(path, set()).update(versions)
    return versions_by_path


def announced_files(location: Location) -> set[str]:
    """Every file that a running or crashed cleanup has announced for removal, relative to the graph.

    The last requests of a crashed cleanup may still reach an object store.
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
    """All announcements. Raises HostileOrDamagedManifest for one that no cleanup wrote: its content is unknown."""
    control = JsonObjects(location, CLEANUP)
    readable = []
    for entry in control.entries():
        if entry.path.endswith(".json"):
            body = control.read(entry.path)
            if body:
                readable.append(_announcement(entry, body))
    return readable


def _announcement(entry: StoredFile, body: Mapping[str, Any]) -> Announcement:
    with form.reading(f"{CLEANUP}/{form.shown(entry.path)}"):
        return Announcement(
            id=entry.path.removesuffix(".json"),
            owner=body.get("owner"),
            versions=_versions(body.get("versions") or {}),
            files=_paths(body.get("files") or {}),
            unreferenced=_paths(body.get("unreferenced") or {}),
            mark=entry.etag,
            modified_s=entry.modified_s,
        )


def _paths(body: Any) -> dict[str, list[str]]:
    return {folder: [form.text(p) for p in form.sequence(paths)] for folder, paths in form.mapping(body).items()}


def withdraw(location: Location, ids: Iterable[str]) -> None:
    """Delete announcements whose versions and files were removed, or stay."""
    JsonObjects(location, CLEANUP).delete(f"{i}.json" for i in ids)
