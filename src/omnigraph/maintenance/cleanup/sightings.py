"""Which leases of readers and announcements of other cleanups still count. The store's clock alone never decides.

A reader writes its lease again three times as often as needed, and every write changes the object's mark. So a lease is
over when

* its owner is provably gone (`commit/owner.py`); or
* the same unchanged object was seen twice, at least the lease's seconds apart on this machine's own CLOCK_BOOTTIME. A
  run of cleanup is short, so its sightings are stored for the next one in `__cleanup/sightings`: the mark of each
  lease, since when it is unchanged, and by which clock. Only a run on the same boot can use that; or
* an earlier run, on any machine, has seen the same unchanged object, and by both the store's clock and this machine's
  it is older than the longest lease and a day

All others count: a lease that is seen for the first time, whatever its age; and one whose own process renews it, as
long as that process is provably alive, even if it was suspended. Announcements count the same way, for a day.

A preview writes nothing. A crash, or two cleanups that write `sightings` at the same time, lose sightings: then leases
count for longer.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from omnigraph.commit import owner
from omnigraph.storage.layout import CLEANUP, Location
from omnigraph.storage.objects.json_objects import JsonObjects
from omnigraph.storage.objects.leases import LEASE_MAX_S, Announcement, Lease

OBJECT = "sightings"
ANNOUNCED_MAX_S = 24 * 3600.0
"""An announcement that is unchanged for longer belongs to a crashed cleanup."""
REASON_MAX_S = LEASE_MAX_S + 24 * 3600.0
_DRIFT = 0.01
"""By how much the clocks of two machines may differ in speed, at the most."""
_MARGIN_S = 0.1


@dataclass(frozen=True)
class Sighting:
    """That an object with this mark was there, `since_s` on the CLOCK_BOOTTIME that `clock` names."""

    mark: str
    clock: str
    since_s: float


@dataclass(frozen=True)
class Observed:
    """An object that is judged by whether it changes."""

    key: str
    mark: str
    seconds: float
    modified_s: float
    """The store's time of its last write."""


def observed(leases: Iterable[Lease], announcements: Iterable[Announcement]) -> list[Observed]:
    """What the next run needs to know about these. Processes that are provably alive are left out."""
    objects = [of_lease(lease) for lease in leases if not (lease.renewing and owner.is_alive(lease.owner))]
    return objects + [
        of_announcement(announcement) for announcement in announcements if not owner.is_alive(announcement.owner)
    ]


def of_lease(lease: Lease) -> Observed:
    return Observed(f"lease:{lease.id}", lease.mark, lease.seconds, lease.modified_s)


def of_announcement(announcement: Announcement) -> Observed:
    return Observed(f"cleanup:{announcement.id}", announcement.mark, ANNOUNCED_MAX_S, announcement.modified_s)


@dataclass(frozen=True)
class Judge:
    """What earlier runs have seen. `now_s` is this machine's CLOCK_BOOTTIME before the judged objects were listed,
    `store_now_s` the store's time.
    """

    sightings: Mapping[str, Sighting]
    clock: str
    now_s: float
    store_now_s: float
    is_local: bool

    @staticmethod
    def reading(location: Location, *, now_s: float, store_now_s: float) -> Judge:
        return Judge(_read(location), owner.clock(), now_s, store_now_s, location.is_local)

    def is_over(self, lease: Lease) -> bool:
        """Whether a lease does not count any more."""
        if lease.renewing and owner.is_alive(lease.owner):
            return False
        return owner.is_gone(lease.owner) or self.has_stood_still(of_lease(lease))

    def is_dead(self, announcement: Announcement) -> bool:
        """Whether the cleanup that has announced this does not run any more. The last requests of a process that has
        ended may still be on their way to an object store.
        """
        if owner.is_alive(announcement.owner):
            return False
        is_gone = self.is_local and owner.is_gone(announcement.owner)
        return is_gone or self.has_stood_still(of_announcement(announcement))

    def has_stood_still(self, subject: Observed) -> bool:
        before = self.sightings.get(subject.key)
        if before is None or before.mark != subject.mark:
            return False
        if self.clock and before.clock == self.clock:
            needed_s = subject.seconds * (1 + _DRIFT) + _MARGIN_S
            if self.now_s - before.since_s >= needed_s:
                return True
        return min(self.store_now_s, time.time()) - subject.modified_s > REASON_MAX_S


def boottime_s() -> float:
    return time.clock_gettime(time.CLOCK_BOOTTIME)


# ---- the object ------------------------------------------------------------------------------------------------------


def record(location: Location, objects: Iterable[Observed]) -> None:
    """Store the sightings of this run for the next one."""
    before, clock, now_s = _read(location), owner.clock(), boottime_s()
    seen: dict[str, Any] = {}
    for subject in objects:
        sighting = before.get(subject.key)
        is_same = sighting is not None and sighting.mark == subject.mark and sighting.clock == clock
        seen[subject.key] = asdict(
            sighting if sighting is not None and is_same else Sighting(subject.mark, clock, now_s)
        )
    JsonObjects(location, CLEANUP).put(OBJECT, {"seen": seen})


def forget(location: Location) -> None:
    JsonObjects(location, CLEANUP).delete([OBJECT])


def _read(location: Location) -> dict[str, Sighting]:
    body = JsonObjects(location, CLEANUP).read(OBJECT)
    entries = (body or {}).get("seen")
    sightings = {}
    for key, entry in entries.items() if isinstance(entries, dict) else ():
        try:
            sightings[key] = Sighting(str(entry["mark"]), str(entry["clock"]), float(entry["since_s"]))
        except (KeyError, TypeError, ValueError):
            continue  # counts as not seen
    return sightings
