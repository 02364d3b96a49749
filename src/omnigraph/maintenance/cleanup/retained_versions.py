"""Retained versions: the versions that cleanup keeps whatever the policy says, and why.

* branch      pinned by the head of a live branch. On a line that the branch owns every version above the pin as well:
              writers work there, and the search for a line's newest version counts upwards from its pin
* base        pinned by the commit that a live branch was made from
* merge_base  pinned by a newest commit that two live branches share, or two such bases of theirs: a merge compares
              with it
* tag         pinned by the commit that a tag of the graph names
* lance_tag   named by a tag of Lance, which is about one version of one table (`plan`)
* lease       needed by a reader that is running, or may be

All of it is read from one version of the manifest and from objects of the store. It is read a second time after the
announcement, before anything is removed.
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

LineVersion = tuple[str, int]
"""A version: the path of its line, relative to the graph, and its number."""


@dataclass(frozen=True)
class RetainedVersions:
    """Heads, their pins, and the reasons why versions are retained."""

    heads: Mapping[str, Head]
    pins: Mapping[str, Mapping[str, Pin]]
    """All pins of each branch, by table id."""
    reasons: Mapping[LineVersion, tuple[str, ...]]
    owned: Mapping[str, int]
    """The published version of every line that a branch owns."""
    leases: tuple[Lease, ...] = ()
    over: tuple[Lease, ...] = ()
    """Leases that do not count any more."""

    drops: dict[str, Any] = field(default_factory=dict, compare=False)
    """A cache of `orphans`: dropped types by type id, and resets."""

    @cached_property
    def incarnations(self) -> dict[str, str]:
        return {head.incarnation: branch for branch, head in self.heads.items()}

    def why(self, line: str, version: int) -> tuple[str, ...]:
        """Why this version is retained; empty if it is not."""
        published = self.owned.get(line)
        above = ("at_or_above_a_pin",) if published is not None and version > published else ()
        return (*self.reasons.get((line, version), ()), *above)

    def holding(self, more: Collection[Lease]) -> RetainedVersions:
        """The same with these leases, which seemed to be over, counted as well."""
        reasons = dict(self.reasons)
        for lease in more:
            reasons |= {
                line_version: (*reasons.get(line_version, ()), f"lease:{lease.id}")
                for line_version in _line_versions(lease)
            }
        over = tuple(lease for lease in self.over if lease not in more)
        return replace(self, reasons=reasons, leases=(*self.leases, *more), over=over)

    def is_read(self, folder: str) -> bool:
        """Whether a version of this table folder, or of this one fork of it, is retained."""
        return folder in self._read_folders

    @cached_property
    def _read_folders(self) -> frozenset[str]:
        """The lines with retained versions, and all folders above them."""
        folders: set[str] = set()
        for line, _ in self.reasons:
            folder = line
            while folder and folder not in folders:
                folders.add(folder)
                folder = folder.rpartition("/")[0]
        return frozenset(folders)

    def reasons_of(self, folder: str) -> list[str]:
        """Why versions of this table folder are retained, each reason once."""
        below = (why for (line, _), why in self.reasons.items() if line == folder or line.startswith(f"{folder}/"))
        return sorted({reason for reasons in below for reason in reasons})


def read_retained_versions(
    committer: Committer, *, now_s: float, heads: Mapping[str, Head] | None = None
) -> RetainedVersions:
    """The retained versions for these heads, which were read together; by default for the newest ones."""
    manifest = committer.manifest
    heads = manifest.heads() if heads is None else heads
    reasons: dict[LineVersion, dict[str, None]] = {}
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
        for line_version in _line_versions(lease):
            reasons.setdefault(line_version, {})[f"lease:{lease.id}"] = None
    return RetainedVersions(
        heads=heads,
        pins=pins,
        reasons={line_version: tuple(names) for line_version, names in reasons.items()},
        owned=owned,
        leases=live,
        over=over,
    )


class FreshRetainedVersions:
    """The current retained versions, read again only if a head or a lease has changed since the last read."""

    def __init__(self, committer: Committer, read: Callable[[], RetainedVersions]) -> None:
        self._committer = committer
        self._read = read
        self._last: tuple[object, RetainedVersions] | None = None

    def __call__(self) -> RetainedVersions:
        manifest = self._committer.manifest
        state = (int(manifest.table().version), tuple((lease.id, lease.mark) for lease in leases(manifest.location)))
        if self._last is None or self._last[0] != state:
            self._last = (state, self._read())
        return self._last[1]


def table_folder_of(line: str) -> str:
    """The table folder that a line, or something below it, lies in."""
    return "/".join(line.split("/")[:2])


def _line_versions(lease: Lease) -> Iterator[LineVersion]:
    return ((line, version) for line, versions in lease.pins.items() for version in versions)


def _add(reasons: dict[LineVersion, dict[str, None]], pins: Iterable[Pin], why: str) -> None:
    for pin in pins:
        reasons.setdefault((pin.path, pin.version), {})[why] = None


def _leases(committer: Committer, now_s: float) -> tuple[tuple[Lease, ...], tuple[Lease, ...]]:
    """The leases that count, and those that do not any more."""
    location, began_s = committer.manifest.location, sightings.boottime_s()
    stored = leases(location)
    if not stored:
        return (), ()
    judge = sightings.Judge.reading(location, now_s=began_s, store_now_s=now_s)
    live = tuple(lease for lease in stored if not judge.is_over(lease))
    return live, tuple(lease for lease in stored if lease not in live)


# ---- what makes cleanup refuse ---------------------------------------------------------------------------------------


def require_recovered(committer: Committer) -> None:
    """Refuse while an operation of a crashed writer is undecided: its recovery needs the versions above the pins."""
    for operation in pending(committer):
        if not operation.alive:
            raise RecoveryPending(
                branch=operation.branch,
                operation_id=operation.operation,
                detail="cleanup removes nothing before that.",
                path=f"{RECOVERY}/{operation.incarnation}",
            )


def require_no_drift(committer: Committer, retained: RetainedVersions, *, roots: Container[str] | None = None) -> None:
    """Refuse while a table that some branch owns, or one of these table folders, has drift."""
    checks = []
    for view in _views(committer, retained):
        owned = {table: pin for table, pin in view.pins.items() if view.owns(pin)}
        checks += [(view, table) for table, pin in owned.items() if roots is None or pin.root in roots]
    drifts = map_threads(committer.manifest.location, lambda check: drift_of(*check), checks)
    for (view, _), drift in zip(checks, drifts, strict=True):
        if drift is not None:
            raise UncoveredDrift(
                table_key=drift.table_key,
                branch=view.head.branch,
                manifest_version=drift.pin.version,
                lance_head_version=drift.head_version,
            )


def require_pins(
    committer: Committer, retained: RetainedVersions, *, roots: Container[str] | None = None
) -> dict[LineVersion, Any]:
    """Open every version that a live branch pins, or those of these table folders; refuse if one can't be opened.
    Returns the handles.
    """
    pins_by_version: dict[LineVersion, tuple[str, Pin]] = {}
    for branch, pins in retained.pins.items():
        for pin in pins.values():
            if roots is None or pin.root in roots:
                pins_by_version.setdefault((pin.path, pin.version), (branch, pin))
    location = committer.manifest.location

    def opened(line_version: LineVersion) -> Any:
        try:
            # Not through the cache of handles: a removed version may still be open there.
            return lance_api.open_table(location, location.join(line_version[0]), version=line_version[1])
        except lance_api.TableMissing:
            return "it is not there."
        except SymlinkInGraph:
            raise
        except StorageError as error:
            return str(error)

    handles = dict(zip(pins_by_version, map_threads(location, opened, list(pins_by_version)), strict=True))
    for line_version, handle in handles.items():
        if isinstance(handle, str):
            branch, pin = pins_by_version[line_version]
            key = _table_key(committer, retained, branch, pin)
            raise BranchPinUnreadable(branch=branch, table_key=key, version=pin.version, detail=handle)
    return handles


def _table_key(committer: Committer, retained: RetainedVersions, branch: str, pin: Pin) -> str:
    view = next(v for v in _views(committer, retained) if v.head.branch == branch)
    return view.table_keys.get(pin.table, pin.table)


def _views(committer: Committer, retained: RetainedVersions) -> Iterator[View]:
    for branch, head in retained.heads.items():
        yield View(head=head, pins=retained.pins[branch], manifest=committer.manifest, tables=committer.tables)


def table_keys(committer: Committer, retained: RetainedVersions) -> dict[str, str]:
    """Table keys by type id, of every type that a live branch has; main's names win."""
    keys: dict[str, str] = {}
    for view in sorted(_views(committer, retained), key=lambda v: v.head.branch == MAIN):
        keys.update(view.table_keys)
    return keys
