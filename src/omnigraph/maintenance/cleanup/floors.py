"""Floors: the versions that stay, whatever the policy says, and why.

* branch      pinned by the head of a live branch. On a line that the branch owns every version above the pin as well:
              writers are at work there, and whoever looks for a line's newest version counts upwards from its pin
* base        pinned by the commit that a live branch was made from
* merge_base  pinned by a commit that two live branches have in common last: a merge compares both with it
* tag         named by a tag of Lance
* lease       needed by a reader that is running, or may be

All of it is read from one version of the manifest and from what lies in the store, and is read a second time, after
cleanup has announced itself, before anything is removed.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import combinations
from typing import Any

from omnigraph.commit.door import Door
from omnigraph.commit.stage import View
from omnigraph.errors import BranchPinUnreadable, RecoveryPending, StorageError, SymlinkInGraph, UncoveredDrift
from omnigraph.maintenance.cleanup import sightings
from omnigraph.maintenance.drift import drift_of
from omnigraph.maintenance.recover import pending
from omnigraph.maintenance.together import together
from omnigraph.storage import lancefs
from omnigraph.storage.layout import RECOVERY
from omnigraph.storage.leases import Lease, leases
from omnigraph.storage.manifest import Manifest, quote
from omnigraph.storage.records import MAIN, Head, Pin, Record

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

    @property
    def incarnations(self) -> dict[str, str]:
        return {head.incarnation: branch for branch, head in self.heads.items()}

    def why(self, line: str, version: int) -> tuple[str, ...]:
        """Why this version stays; nothing if no floor holds it."""
        published = self.owned.get(line)
        above = ("at_or_above_a_pin",) if published is not None and version > published else ()
        return (*self.reasons.get((line, version), ()), *above)

    def is_read(self, folder: str) -> bool:
        """Whether anything live stands on this table folder, or on this one fork of it."""
        return any(line == folder or line.startswith(f"{folder}/") for line, _ in self.reasons)

    def reasons_of(self, folder: str) -> list[str]:
        """Why versions of this table folder stay, each reason once."""
        below = (why for (line, _), why in self.reasons.items() if line == folder or line.startswith(f"{folder}/"))
        return sorted({reason for reasons in below for reason in reasons})


def read_floors(door: Door, *, now_s: float, heads: Mapping[str, Head] | None = None) -> Floors:
    """The floors of these heads, which were read together; by default of the newest ones."""
    manifest = door.manifest
    heads = manifest.heads() if heads is None else heads
    reasons: dict[Place, list[str]] = {}
    owned: dict[str, int] = {}
    pins = {branch: manifest.pins(head) for branch, head in heads.items()}
    for branch, head in heads.items():
        for pin in pins[branch].values():
            reasons.setdefault((pin.path, pin.version), []).append(f"branch:{branch}")
            if pin.owned_by(head.incarnation, is_main=head.is_main):
                owned[pin.path] = pin.version
        if head.base is not None:
            _add(reasons, manifest.pins_at(head.base).values(), f"base:{branch}")
    for commit, pair in merge_bases(manifest, heads).items():
        _add(reasons, manifest.pins_at(commit).values(), f"merge_base:{pair[0]},{pair[1]}")
    live, over = _leases(door, now_s)
    for lease in live:
        for line, versions in lease.pins.items():
            for version in versions:
                reasons.setdefault((line, version), []).append(f"lease:{lease.id}")
    return Floors(
        heads=heads,
        pins=pins,
        reasons={place: tuple(found) for place, found in reasons.items()},
        owned=owned,
        leases=live,
        over=over,
    )


def _add(reasons: dict[Place, list[str]], pins: Iterable[Pin], why: str) -> None:
    for pin in pins:
        found = reasons.setdefault((pin.path, pin.version), [])
        if why not in found:
            found.append(why)


def _leases(door: Door, now_s: float) -> tuple[tuple[Lease, ...], tuple[Lease, ...]]:
    """The leases that hold, and those that do not any more."""
    location, began_s = door.manifest.location, sightings.boottime_s()
    found = leases(location)
    if not found:
        return (), ()
    judge = sightings.Judge.reading(location, now_s=began_s, store_now_s=now_s)
    live = tuple(lease for lease in found if not judge.is_over(lease))
    return live, tuple(lease for lease in found if lease not in live)


# ---- merge bases -----------------------------------------------------------------------------------------------------


def merge_bases(manifest: Manifest, heads: Mapping[str, Head]) -> dict[str, tuple[str, str]]:
    """Commits that two live branches share and that may be the newest such, each with one such pair.

    A branch's history is, per incarnation, everything up to some epoch: its own up to its head, that of the branch it
    was made from up to the commit it started from, and what was merged. What two histories share of one incarnation
    ends at the lower of their two epochs. All of these are returned: a few too many do no harm.
    """
    if len(heads) < 2:
        return {}
    merges = list(_merges(manifest, heads))
    known: dict[str, dict[str, tuple[int, str]]] = {}
    for branch, head in heads.items():
        known[branch] = _history(manifest, head, merges)
    found: dict[str, tuple[str, str]] = {}
    for one, other in combinations(sorted(known), 2):
        for incarnation in known[one].keys() & known[other].keys():
            _, commit = min(known[one][incarnation], known[other][incarnation])
            found.setdefault(commit, (one, other))
    return found


def _history(manifest: Manifest, head: Head, merges: list[Record]) -> dict[str, tuple[int, str]]:
    """By incarnation, the newest (epoch, commit) that is part of the history of this head."""
    reached: dict[str, tuple[int, str]] = {}
    todo: list[tuple[str, int, str]] = [(head.incarnation, head.epoch, head.commit)]
    if head.base is not None:
        base = manifest.record(head.base)
        todo.append((base.incarnation, base.epoch, head.base))
    while todo:
        incarnation, epoch, commit = todo.pop()
        before = reached.get(incarnation, (-1, ""))[0]
        if epoch <= before:
            continue
        reached[incarnation] = (epoch, commit)
        todo.extend(_parent_branch(manifest, incarnation, before))
        for record in merges:
            if record.incarnation == incarnation and before < record.epoch <= epoch and record.merged_parent:
                merged = manifest.record(record.merged_parent)
                todo.append((merged.incarnation, merged.epoch, record.merged_parent))
    return reached


def _parent_branch(manifest: Manifest, incarnation: str, before: int) -> Iterator[tuple[str, int, str]]:
    """What the first commit of an incarnation was made on: a commit of the branch that it was made from."""
    if before >= 0:
        return
    for first in manifest.records(incarnation, 0, 1):
        if first.parent is not None:
            parent = manifest.record(first.parent)
            if parent.incarnation != incarnation:
                yield parent.incarnation, parent.epoch, first.parent
                return


def _merges(manifest: Manifest, heads: Mapping[str, Head]) -> Iterator[Record]:
    """Every record of a merge, from the heads and from the rows."""
    for head in heads.values():
        yield from (r for r in head.recent if r.merged_parent)
    merged = quote('"m":')
    where = f"kind = 'commit' AND contains(body, {merged})"
    with lancefs.reading("looking for merges in the manifest"):
        bodies = manifest.table().to_table(columns=["body"], filter=where)["body"].to_pylist()
    for record in map(Record.loads, bodies):
        if record.merged_parent:
            yield record


# ---- what makes cleanup refuse ---------------------------------------------------------------------------------------


def require_settled(door: Door) -> None:
    """Refuse while an operation of a dead writer is not decided: its settling needs what lies above the pins."""
    for found in pending(door):
        if not found.alive:
            raise RecoveryPending(
                branch=found.branch,
                operation_id=found.operation,
                detail="cleanup removes nothing before that.",
                path=f"{RECOVERY}/{found.incarnation}",
            )


def require_no_drift(door: Door, floors: Floors, *, roots: Container[str] | None = None) -> None:
    """Refuse while a table that some branch owns, or one of these table folders, has moved without the door."""
    looks = []
    for view in _views(door, floors):
        owned = {table: pin for table, pin in view.pins.items() if view.owns(pin)}
        looks += [(view, table) for table, pin in owned.items() if roots is None or pin.root in roots]
    found_of = together(door.manifest.location, lambda look: drift_of(*look), looks)
    for (view, _), found in zip(looks, found_of, strict=True):
        if found is not None:
            raise UncoveredDrift(
                table_key=found.table_key,
                branch=view.head.branch,
                manifest_version=found.pin.version,
                lance_head_version=found.head_version,
            )


def require_pins(door: Door, floors: Floors, *, roots: Container[str] | None = None) -> dict[Place, Any]:
    """Open every version that a live branch stands on, or those of these table folders; refuse if one can't be. The
    handles, by place.
    """
    wanted: dict[Place, tuple[str, Pin]] = {}
    for branch, pins in floors.pins.items():
        for pin in pins.values():
            if roots is None or pin.root in roots:
                wanted.setdefault((pin.path, pin.version), (branch, pin))
    location = door.manifest.location

    def opened(place: Place) -> Any:
        try:
            # Not through the cache of handles: a version that is gone may still be open in there.
            return lancefs.open_table(location, location.join(place[0]), version=place[1])
        except lancefs.TableMissing:
            return "it is not there."
        except SymlinkInGraph:
            raise
        except StorageError as error:
            return str(error)

    found = dict(zip(wanted, together(location, opened, list(wanted)), strict=True))
    for place, handle in found.items():
        if isinstance(handle, str):
            branch, pin = wanted[place]
            key = _table_key(door, floors, branch, pin)
            raise BranchPinUnreadable(branch=branch, table_key=key, version=pin.version, detail=handle)
    return found


def _table_key(door: Door, floors: Floors, branch: str, pin: Pin) -> str:
    view = next(v for v in _views(door, floors) if v.head.branch == branch)
    return view.table_keys.get(pin.table, pin.table)


def _views(door: Door, floors: Floors) -> Iterator[View]:
    for branch, head in floors.heads.items():
        yield View(head=head, pins=floors.pins[branch], manifest=door.manifest, tables=door.tables)


def table_keys(door: Door, floors: Floors) -> dict[str, str]:
    """Table keys by type id, of every type that a live branch has; main's names win."""
    found: dict[str, str] = {}
    for view in sorted(_views(door, floors), key=lambda v: v.head.branch == MAIN):
        found.update(view.table_keys)
    return found
