"""Floors: the versions that stay, whatever the policy says, and why.

* branch      pinned by the head of a live branch. On a line that the branch owns every version above the pin as well:
              writers are at work there, and whoever looks for a line's newest version counts upwards from its pin
* base        pinned by the commit that a live branch was made from
* merge_base  pinned by a commit that two live branches have in common last, or two such bases of theirs: a merge
              compares with it
* tag         pinned by the commit that a tag of the graph names
* lance_tag   named by a tag of Lance, which is about one version of one table (`plan`)
* lease       needed by a reader that is running, or may be

All of it is read from one version of the manifest and from what lies in the store, and is read a second time, after
cleanup has announced itself, before anything is removed.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Container, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

from omnigraph.commit.committer import Committer
from omnigraph.commit.operation import View
from omnigraph.errors import BranchPinUnreadable, RecoveryPending, StorageError, SymlinkInGraph, UncoveredDrift
from omnigraph.maintenance.cleanup import sightings
from omnigraph.maintenance.cleanup.merge_bases import merge_bases
from omnigraph.maintenance.concurrency import map_threads
from omnigraph.maintenance.drift import drift_of
from omnigraph.maintenance.recover import pending
from omnigraph.storage.lance import lance_api
from omnigraph.storage.layout import RECOVERY
from omnigraph.storage.manifest.records import MAIN, Head, Pin, apply_delta
from omnigraph.storage.manifest.tags import read_tags
from omnigraph.storage.objects.leases import Lease, leases

Place = tuple[str, int]
"""A version: the path of its line, relative to the graph, and its number."""


@dataclass(frozen=True)
class Floors:
    """What was found: heads, their pins, and the reasons why versions stay."""

    heads: Mapping[str, Head]
    pins: Mapping[str, Mapping[str, Pin]]
    """All pins of each branch, by table id."""
    reasons: Mapping[Place, tuple[str, ...]]
    owned: Mapping[str, int]
    """The published version of every line that a branch owns."""
    leases: tuple[Lease, ...] = ()
    over: tuple[Lease, ...] = ()
    """Leases that hold nothing any more."""

    drops: dict[str, Any] = field(default_factory=dict, compare=False)
    """What `orphans` has found out about ended types, by type id, and about resets."""

    @cached_property
    def incarnations(self) -> dict[str, str]:
        return {head.incarnation: branch for branch, head in self.heads.items()}

    def why(self, line: str, version: int) -> tuple[str, ...]:
        """Why this version stays; nothing if no floor holds it."""
        published = self.owned.get(line)
        above = ("at_or_above_a_pin",) if published is not None and version > published else ()
        return (*self.reasons.get((line, version), ()), *above)

    def holding(self, more: Collection[Lease]) -> Floors:
        """The same floors with these leases, which were taken to be over, counted as well."""
        reasons = dict(self.reasons)
        for lease in more:
            reasons |= {place: (*reasons.get(place, ()), f"lease:{lease.id}") for place in _places(lease)}
        over = tuple(lease for lease in self.over if lease not in more)
        return replace(self, reasons=reasons, leases=(*self.leases, *more), over=over)

    def is_read(self, folder: str) -> bool:
        """Whether anything live stands on this table folder, or on this one fork of it."""
        return folder in self._read_folders

    @cached_property
    def _read_folders(self) -> frozenset[str]:
        """The lines that something stands on, and all folders above them."""
        found: set[str] = set()
        for line, _ in self.reasons:
            folder = line
            while folder and folder not in found:
                found.add(folder)
                folder = folder.rpartition("/")[0]
        return frozenset(found)

    def reasons_of(self, folder: str) -> list[str]:
        """Why versions of this table folder stay, each reason once."""
        below = (why for (line, _), why in self.reasons.items() if line == folder or line.startswith(f"{folder}/"))
        return sorted({reason for reasons in below for reason in reasons})


def read_floors(committer: Committer, *, now_s: float, heads: Mapping[str, Head] | None = None) -> Floors:
    """The floors of these heads, which were read together; by default of the newest ones."""
    manifest = committer.manifest
    heads = manifest.heads() if heads is None else heads
    reasons: dict[Place, dict[str, None]] = {}
    owned: dict[str, int] = {}
    shared = merge_bases(manifest, heads)
    # Tags may be newer than the heads: one that was set since has seen the announcement (`branch/tags.py`).
    tags = read_tags(manifest)
    bases = {head.base for head in heads.values() if head.base is not None}
    of_commit = manifest.pins_of_commits({*shared, *bases, *(tag.commit for tag in tags.values())})
    pins = {
        branch: apply_delta({} if head.base is None else of_commit[head.base], head.pins)
        for branch, head in heads.items()
    }
    for branch, head in heads.items():
        for pin in pins[branch].values():
            reasons.setdefault((pin.path, pin.version), {})[f"branch:{branch}"] = None
            if pin.owned_by(head.incarnation, is_main=head.is_main):
                owned[pin.path] = pin.version
        if head.base is not None:
            _add(reasons, of_commit[head.base].values(), f"base:{branch}")
    for commit, pair in shared.items():
        _add(reasons, of_commit[commit].values(), f"merge_base:{pair[0]},{pair[1]}")
    for name, tag in tags.items():
        _add(reasons, of_commit[tag.commit].values(), f"tag:{name}")
    live, over = _leases(committer, now_s)
    for lease in live:
        for place in _places(lease):
            reasons.setdefault(place, {})[f"lease:{lease.id}"] = None
    return Floors(
        heads=heads,
        pins=pins,
        reasons={place: tuple(found) for place, found in reasons.items()},
        owned=owned,
        leases=live,
        over=over,
    )


class FreshFloors:
    """The floors as they are now, read anew only if a head or a lease has changed since they were read last."""

    def __init__(self, committer: Committer, read: Callable[[], Floors]) -> None:
        self._committer = committer
        self._read = read
        self._known: tuple[object, Floors] | None = None

    def __call__(self) -> Floors:
        manifest = self._committer.manifest
        state = (int(manifest.table().version), tuple((lease.id, lease.mark) for lease in leases(manifest.location)))
        if self._known is None or self._known[0] != state:
            self._known = (state, self._read())
        return self._known[1]


def table_folder_of(line: str) -> str:
    """The table folder that a line, or something below it, lies in."""
    return "/".join(line.split("/")[:2])


def _places(lease: Lease) -> Iterator[Place]:
    return ((line, version) for line, versions in lease.pins.items() for version in versions)


def _add(reasons: dict[Place, dict[str, None]], pins: Iterable[Pin], why: str) -> None:
    for pin in pins:
        reasons.setdefault((pin.path, pin.version), {})[why] = None


def _leases(committer: Committer, now_s: float) -> tuple[tuple[Lease, ...], tuple[Lease, ...]]:
    """The leases that hold, and those that do not any more."""
    location, began_s = committer.manifest.location, sightings.boottime_s()
    found = leases(location)
    if not found:
        return (), ()
    judge = sightings.Judge.reading(location, now_s=began_s, store_now_s=now_s)
    live = tuple(lease for lease in found if not judge.is_over(lease))
    return live, tuple(lease for lease in found if lease not in live)


# ---- what makes cleanup refuse ---------------------------------------------------------------------------------------


def require_settled(committer: Committer) -> None:
    """Refuse while an operation of a dead writer is not decided: its settling needs what lies above the pins."""
    for found in pending(committer):
        if not found.alive:
            raise RecoveryPending(
                branch=found.branch,
                operation_id=found.operation,
                detail="cleanup removes nothing before that.",
                path=f"{RECOVERY}/{found.incarnation}",
            )


def require_no_drift(committer: Committer, floors: Floors, *, roots: Container[str] | None = None) -> None:
    """Refuse while a table that some branch owns, or one of these table folders, has moved without the door."""
    looks = []
    for view in _views(committer, floors):
        owned = {table: pin for table, pin in view.pins.items() if view.owns(pin)}
        looks += [(view, table) for table, pin in owned.items() if roots is None or pin.root in roots]
    found_of = map_threads(committer.manifest.location, lambda look: drift_of(*look), looks)
    for (view, _), found in zip(looks, found_of, strict=True):
        if found is not None:
            raise UncoveredDrift(
                table_key=found.table_key,
                branch=view.head.branch,
                manifest_version=found.pin.version,
                lance_head_version=found.head_version,
            )


def require_pins(committer: Committer, floors: Floors, *, roots: Container[str] | None = None) -> dict[Place, Any]:
    """Open every version that a live branch stands on, or those of these table folders; refuse if one can't be. The
    handles, by place.
    """
    wanted: dict[Place, tuple[str, Pin]] = {}
    for branch, pins in floors.pins.items():
        for pin in pins.values():
            if roots is None or pin.root in roots:
                wanted.setdefault((pin.path, pin.version), (branch, pin))
    location = committer.manifest.location

    def opened(place: Place) -> Any:
        try:
            # Not through the cache of handles: a version that is gone may still be open in there.
            return lance_api.open_table(location, location.join(place[0]), version=place[1])
        except lance_api.TableMissing:
            return "it is not there."
        except SymlinkInGraph:
            raise
        except StorageError as error:
            return str(error)

    found = dict(zip(wanted, map_threads(location, opened, list(wanted)), strict=True))
    for place, handle in found.items():
        if isinstance(handle, str):
            branch, pin = wanted[place]
            key = _table_key(committer, floors, branch, pin)
            raise BranchPinUnreadable(branch=branch, table_key=key, version=pin.version, detail=handle)
    return found


def _table_key(committer: Committer, floors: Floors, branch: str, pin: Pin) -> str:
    view = next(v for v in _views(committer, floors) if v.head.branch == branch)
    return view.table_keys.get(pin.table, pin.table)


def _views(committer: Committer, floors: Floors) -> Iterator[View]:
    for branch, head in floors.heads.items():
        yield View(head=head, pins=floors.pins[branch], manifest=committer.manifest, tables=committer.tables)


def table_keys(committer: Committer, floors: Floors) -> dict[str, str]:
    """Table keys by type id, of every type that a live branch has; main's names win."""
    found: dict[str, str] = {}
    for view in sorted(_views(committer, floors), key=lambda v: v.head.branch == MAIN):
        found.update(view.table_keys)
    return found
