"""Which leases of readers, and which announcements of other cleanups, still count. No clock of the store decides that.

A reader writes its lease again three times as often as needed, and every write changes the object's mark. So a lease is
over when

* its owner is provably gone (`commit/owner.py`); or
* the very same object was seen twice, at least the lease's seconds apart on this machine's own CLOCK_BOOTTIME. A run of
  cleanup is short, so what it has seen is kept for the next one in `__cleanup/sightings`: the mark of each lease and
  since when it stands still, with the clock that says so. Only a run on the same boot can use that; or
* an earlier run, on whatever machine, has seen the very same object, and both the store's clock and this machine's say
  that it is older than any lease may be, and a day

Everything else holds: a lease that is seen for the first time, whatever its age; and one that its own process renews,
as long as that process provably lives, also if it was asleep. Announcements of cleanups count the same way, for a day.

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
from omnigraph.storage.objects.json_objects import Control
from omnigraph.storage.objects.leases import LEASE_MOST_S, Announcement, Lease

OBJECT = "sightings"
ANNOUNCED_MAX_S = 24 * 3600.0
"""An announcement that has stood still for longer is that of a cleanup which died."""
REASON_MAX_S = LEASE_MOST_S + 24 * 3600.0
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
    """What the next run has to know about these. Of a process that provably lives it can ask the process."""
    found = [of_lease(lease) for lease in leases if not (lease.renewing and owner.is_alive(lease.owner))]
    return found + [of_announcement(one) for one in announcements if not owner.is_alive(one.owner)]


def of_lease(lease: Lease) -> Observed:
    return Observed(f"lease:{lease.id}", lease.mark, lease.seconds, lease.modified_s)


def of_announcement(announcement: Announcement) -> Observed:
    return Observed(f"cleanup:{announcement.id}", announcement.mark, ANNOUNCED_MAX_S, announcement.modified_s)


@dataclass(frozen=True)
class Judge:
    """What earlier runs have seen. `now_s` is this machine's CLOCK_BOOTTIME before the judged objects were listed,
    `store_now_s` the store's time.
    """

    known: Mapping[str, Sighting]
    clock: str
    now_s: float
    store_now_s: float
    is_local: bool

    @staticmethod
    def reading(location: Location, *, now_s: float, store_now_s: float) -> Judge:
        return Judge(_read(location), owner.clock(), now_s, store_now_s, location.is_local)

    def is_over(self, lease: Lease) -> bool:
        """Whether a lease holds nothing any more."""
        if lease.renewing and owner.is_alive(lease.owner):
            return False
        return owner.is_gone(lease.owner) or self.has_stood_still(of_lease(lease))

    def is_dead(self, announcement: Announcement) -> bool:
        """Whether the cleanup that has announced this does not run any more. The last requests of a process that is
        gone may still be on their way to an object store.
        """
        if owner.is_alive(announcement.owner):
            return False
        is_gone = self.is_local and owner.is_gone(announcement.owner)
        return is_gone or self.has_stood_still(of_announcement(announcement))

    def has_stood_still(self, one: Observed) -> bool:
        before = self.known.get(one.key)
        if before is None or before.mark != one.mark:
            return False
        if self.clock and before.clock == self.clock:
            needed_s = one.seconds * (1 + _DRIFT) + _MARGIN_S
            if self.now_s - before.since_s >= needed_s:
                return True
        return min(self.store_now_s, time.time()) - one.modified_s > REASON_MAX_S


def boottime_s() -> float:
    return time.clock_gettime(time.CLOCK_BOOTTIME)


# ---- the object ------------------------------------------------------------------------------------------------------


def record(location: Location, found: Iterable[Observed]) -> None:
    """Keep what this run has seen for the next one."""
    before, clock, now_s = _read(location), owner.clock(), boottime_s()
    seen: dict[str, Any] = {}
    for one in found:
        known = before.get(one.key)
        is_same = known is not None and known.mark == one.mark and known.clock == clock
        seen[one.key] = asdict(known if known is not None and is_same else Sighting(one.mark, clock, now_s))
    Control(location, CLEANUP).put(OBJECT, {"seen": seen})


def forget(location: Location) -> None:
    Control(location, CLEANUP).delete([OBJECT])


def _read(location: Location) -> dict[str, Sighting]:
    body = Control(location, CLEANUP).read(OBJECT)
    entries = (body or {}).get("seen")
    found = {}
    for key, entry in entries.items() if isinstance(entries, dict) else ():
        try:
            found[key] = Sighting(str(entry["mark"]), str(entry["clock"]), float(entry["since_s"]))
        except (KeyError, TypeError, ValueError):
            continue  # not seen, as far as anybody knows
    return found
