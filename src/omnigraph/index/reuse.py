"""Translate row addresses of one version of a table to a later one.

An address is `fragment id << 32 | offset`. A compaction writes the live rows of old fragments, in their order, into new
ones, so addresses change; stored addresses, as those of an index until it is remapped, have to be translated. Recorded
per version that moved or removed rows:

* groups    the rewritten fragments, each with its rows and the offsets deleted by then, and the new ones with their
            rows. That is enough to compute any row's new address; no map of single rows is kept
* removed   fragments that were removed because every row in them was deleted. They enter no compaction, so no group
            names them, and their rows can't be enumerated any more: only the fragment's id is recorded

Translating an address:

1. chain   through the groups of each version in order; an offset that had been deleted before its rewrite gives None
2. check   the last fragment against all removed ones: an address there is None. Not before 1: a row may have been
           rewritten from one fragment into another that was removed later

Invariant: a live row always translates, to its current address. Fragment ids are never used twice (not by Lance, not
after an overwrite or a restore either), and nothing rewrites a removed fragment, so 2 never rejects a live row. A row
that was deleted alone translates to its address in a live fragment, whose deletion file has it; `live_rows` checks
that. A Restore cancels the versions after the one that it restores.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from omnigraph.errors import StorageError, VersionReclaimed
from omnigraph.storage.lance import lance_api
from omnigraph.storage.lance.transactions import Step, steps_above

if TYPE_CHECKING:
    from lance import LanceDataset

_U = np.uint64
_SHIFT = _U(32)
_OFFSET = _U(0xFFFFFFFF)
Runs = tuple[tuple[int, int], ...]
"""Offsets as runs (first, one past the last), ascending."""


class HistoryBroken(StorageError):
    """The history of a table is not sufficient to translate its row addresses."""


@dataclass(frozen=True)
class OldFragment:
    """A fragment before its rewrite: its physical rows, and the offsets that had been deleted."""

    fragment: int
    rows: int
    deleted: Runs = ()

    @property
    def live(self) -> int:
        return self.rows - sum(stop - start for start, stop in self.deleted)


@dataclass(frozen=True)
class NewFragment:
    fragment: int
    rows: int


@dataclass(frozen=True)
class Group:
    """The live rows of the old fragments, in their order, are the rows of the new ones, in theirs."""

    old: tuple[OldFragment, ...]
    new: tuple[NewFragment, ...]

    def __post_init__(self) -> None:
        live, rows = sum(f.live for f in self.old), sum(f.rows for f in self.new)
        if live != rows:
            raise HistoryBroken(doing="following a rewrite", detail=f"{live} live rows became {rows}")


@dataclass(frozen=True)
class ReuseVersion:
    """The changes of addresses by one version of the table."""

    version: int
    groups: tuple[Group, ...] = ()
    removed: tuple[int, ...] = ()

    def follow(self, addresses: np.ndarray, alive: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Addresses before this version as addresses after it. Removed fragments are not considered here."""
        if not self.groups or len(addresses) == 0:
            return addresses, alive
        old = self._old
        old_positions = np.minimum(np.searchsorted(old.fragments, addresses >> _SHIFT), len(old.fragments) - 1)
        hits = np.flatnonzero(alive & (old.fragments[old_positions] == addresses >> _SHIFT))
        moved, old_positions = addresses[hits], old_positions[hits]
        offsets = moved & _OFFSET
        below = np.searchsorted(old.dead, moved)
        dead = (below < len(old.dead)) & (np.append(old.dead, _U(0))[below] == moved)
        dead |= offsets >= old.rows[old_positions]
        positions = old.starts[old_positions] + offsets - (below - old.dead_starts[old_positions]).astype(np.uint64)
        positions[dead] = 0
        new_positions = np.minimum(
            np.searchsorted(old.new_ends, positions, side="right"), max(len(old.new_ends) - 1, 0)
        )
        addresses, alive = addresses.copy(), alive.copy()
        alive[hits[dead]] = False
        kept = ~dead
        if kept.any():
            target = new_positions[kept]
            begin = old.new_ends[target] - old.new_rows[target]
            addresses[hits[kept]] = (old.new_fragments[target] << _SHIFT) | (positions[kept] - begin)
        return addresses, alive

    @cached_property
    def _old(self) -> _Lookup:
        return _Lookup.of(self.groups)

    def to_json(self) -> dict[str, Any]:
        groups = [
            {
                "old": [[f.fragment, f.rows, [list(run) for run in f.deleted]] for f in group.old],
                "new": [[f.fragment, f.rows] for f in group.new],
            }
            for group in self.groups
        ]
        return {"version": self.version, "groups": groups, "removed": list(self.removed)}

    @staticmethod
    def of_json(body: Mapping[str, Any]) -> ReuseVersion:
        groups = tuple(
            Group(
                tuple(OldFragment(f, rows, tuple((a, b) for a, b in runs)) for f, rows, runs in group["old"]),
                tuple(NewFragment(f, rows) for f, rows in group["new"]),
            )
            for group in body["groups"]
        )
        return ReuseVersion(int(body["version"]), groups, tuple(body["removed"]))


@dataclass(frozen=True)
class _Lookup:
    """The groups of one version as arrays, old fragments sorted by id. Moved rows are numbered through all groups."""

    fragments: np.ndarray
    rows: np.ndarray
    starts: np.ndarray
    dead: np.ndarray
    dead_starts: np.ndarray
    new_fragments: np.ndarray
    new_rows: np.ndarray
    new_ends: np.ndarray

    @staticmethod
    def of(groups: Sequence[Group]) -> _Lookup:
        old = [f for group in groups for f in group.old]
        new = [f for group in groups for f in group.new]
        ends = np.cumsum([f.live for f in old], dtype=np.uint64)
        starts = ends - np.array([f.live for f in old], dtype=np.uint64)
        order = np.argsort([f.fragment for f in old])
        dead = [_offsets(old[i].deleted) | (_U(old[i].fragment) << _SHIFT) for i in order]
        counts = np.array([len(d) for d in dead], dtype=np.int64)
        new_rows = np.array([f.rows for f in new], dtype=np.uint64)
        return _Lookup(
            fragments=np.array([old[i].fragment for i in order], dtype=np.uint64),
            rows=np.array([old[i].rows for i in order], dtype=np.uint64),
            starts=starts[order],
            dead=np.concatenate(dead) if dead else np.empty(0, dtype=np.uint64),
            dead_starts=np.cumsum(counts) - counts,
            new_fragments=np.array([f.fragment for f in new], dtype=np.uint64),
            new_rows=new_rows,
            new_ends=np.cumsum(new_rows, dtype=np.uint64),
        )


@dataclass(frozen=True)
class Translated:
    """`addresses[i]` is valid where `alive[i]`; elsewhere the row no longer exists."""

    addresses: np.ndarray
    alive: np.ndarray

    def to_list(self) -> list[int | None]:
        return [a if ok else None for a, ok in zip(self.addresses.tolist(), self.alive.tolist(), strict=True)]


@dataclass(frozen=True)
class Reuse:
    """Versions of a table, oldest first, between the version of the addresses and the one to translate them to."""

    versions: tuple[ReuseVersion, ...] = ()

    def translate(self, addresses: np.ndarray) -> Translated:
        """The current addresses of the rows at these addresses; `addresses` are uint64."""
        current = np.asarray(addresses, dtype=np.uint64)
        alive = np.ones(len(current), dtype=bool)
        for version in self.versions:
            current, alive = version.follow(current, alive)
        return Translated(current, alive & ~np.isin(current >> _SHIFT, self._removed))

    def translate_one(self, address: int) -> int | None:
        return self.translate(np.array([address], dtype=np.uint64)).to_list()[0]

    @cached_property
    def _removed(self) -> np.ndarray:
        return np.array([f for version in self.versions for f in version.removed], dtype=np.uint64)

    def then(self, later: Reuse) -> Reuse:
        return Reuse((*self.versions, *later.versions))

    def since(self, version: int) -> Reuse:
        """The rest of the versions for addresses of `version`, as those of an index that was remapped up to there."""
        return Reuse(tuple(v for v in self.versions if v.version > version))

    def to_json(self) -> dict[str, Any]:
        return {"versions": [v.to_json() for v in self.versions]}

    @staticmethod
    def of_json(body: Mapping[str, Any]) -> Reuse:
        return Reuse(tuple(ReuseVersion.of_json(v) for v in body["versions"]))


def reuse_between(table: LanceDataset, first: int) -> Reuse:
    """From version `first` of the table to the version of `table`, by its transactions and the fragments between.

    VersionReclaimed if a version between was removed by cleanup, HistoryBroken if the records contradict each other.
    """
    versions: list[ReuseVersion] = []
    before = _checkout(table, first)
    for step in steps_above(table, first):
        after = _checkout(table, step.version)
        if step.operation == "Restore":
            versions = _restored(table, versions, first, step)
        else:
            change = _change(step, before, after)
            if change.groups or change.removed:
                versions.append(change)
        before = after
    return Reuse(tuple(versions))


def _checkout(table: LanceDataset, version: int) -> LanceDataset:
    try:
        return table.checkout_version(version)
    except (ValueError, OSError) as error:
        raise VersionReclaimed(table_key=table.uri, version=version) from error


def _restored(table: LanceDataset, versions: list[ReuseVersion], first: int, step: Step) -> list[ReuseVersion]:
    """The versions that remain after a Restore: those after the restored version did not change its rows."""
    if step.body.version < first:
        detail = f"version {step.version} restored version {step.body.version}, which is older than {first}"
        raise HistoryBroken(doing=f"following the rows of {table.uri}", detail=detail)
    return [v for v in versions if v.version <= step.body.version]


def _change(step: Step, before: LanceDataset, after: LanceDataset) -> ReuseVersion:
    if step.operation is None:
        raise HistoryBroken(doing=f"following the rows of {after.uri}", detail=step.error or "a transaction is missing")
    groups = tuple(_group(before, after, g) for g in step.body.groups) if step.operation == "Rewrite" else ()
    rewritten = {f.fragment for group in groups for f in group.old}
    missing = {f.fragment_id for f in before.get_fragments()} - {f.fragment_id for f in after.get_fragments()}
    return ReuseVersion(step.version, groups, tuple(sorted(missing - rewritten)))


def _group(before: LanceDataset, after: LanceDataset, group: Any) -> Group:
    """One group of a rewrite. New fragments are identified by their files: the commit may have assigned their ids."""
    by_files = {_files(f.metadata): f for f in after.get_fragments()}
    new = []
    for written in group.new_fragments:
        fragment = by_files.get(_files(written))
        if fragment is None:
            raise HistoryBroken(doing=f"following the rows of {after.uri}", detail="a rewritten fragment is missing")
        new.append(NewFragment(fragment.fragment_id, int(fragment.physical_rows)))
    old = [old_fragment(before, f.id) for f in group.old_fragments]
    return Group(tuple(old), tuple(new))


def _files(metadata: Any) -> tuple[str, ...]:
    return tuple(file.path for file in metadata.files)


def old_fragment(table: LanceDataset, fragment: int) -> OldFragment:
    """A fragment of this version with the offsets that are deleted in it."""
    stored = table.get_fragment(fragment)
    if stored is None:
        raise HistoryBroken(doing=f"following the rows of {table.uri}", detail=f"fragment {fragment} is missing")
    rows = int(stored.physical_rows)
    if stored.metadata.deletion_file is None:
        return OldFragment(fragment, rows)
    deleted = np.ones(rows, dtype=bool)
    deleted[_live_offsets(table, stored)] = False
    return OldFragment(fragment, rows, runs_of(np.flatnonzero(deleted)))


def _live_offsets(table: LanceDataset, fragment: Any) -> np.ndarray:
    with lance_api.reading(f"reading the row addresses of {table.uri}"):
        batches = table.scanner(columns=[], with_row_address=True, fragments=[fragment]).to_batches()
        offsets = [batch.column("_rowaddr").to_numpy() & _OFFSET for batch in batches]
    return np.concatenate(offsets) if offsets else np.empty(0, dtype=np.uint64)


def live_rows(table: LanceDataset, addresses: np.ndarray) -> np.ndarray:
    """For each address whether it has a live row in this version of the table."""
    addresses = np.asarray(addresses, dtype=np.uint64)
    alive = np.zeros(len(addresses), dtype=bool)
    fragments = addresses >> _SHIFT
    stored = {f.fragment_id: f for f in table.get_fragments()}
    for fragment in np.unique(fragments).tolist():
        if fragment not in stored:
            continue
        rows = np.flatnonzero(fragments == _U(fragment))
        offsets = addresses[rows] & _OFFSET
        old = old_fragment(table, fragment)
        alive[rows] = (offsets < old.rows) & ~np.isin(offsets, _offsets(old.deleted))
    return alive


def runs_of(offsets: Iterable[int] | np.ndarray) -> Runs:
    """Ascending offsets as runs."""
    ascending = np.asarray(offsets if isinstance(offsets, np.ndarray) else list(offsets), dtype=np.int64)
    if len(ascending) == 0:
        return ()
    breaks = np.flatnonzero(np.diff(ascending) != 1)
    starts = ascending[np.concatenate([[0], breaks + 1])]
    stops = ascending[np.concatenate([breaks, [len(ascending) - 1]])] + 1
    return tuple(zip(starts.tolist(), stops.tolist(), strict=True))


def _offsets(runs: Runs) -> np.ndarray:
    if not runs:
        return np.empty(0, dtype=np.uint64)
    starts, stops = np.array(runs, dtype=np.int64).T
    lengths = stops - starts
    ends = np.cumsum(lengths)
    return np.asarray(np.arange(ends[-1]) + np.repeat(starts - (ends - lengths), lengths), dtype=np.uint64)
