"""Relocate: make a copied or moved graph independent of its old address.

Lance writes absolute addresses into versions of forks (`storage/files/base_paths.py`). A copied or moved graph is
refused when a fork is opened, until these are rewritten:

1. plan     list every table folder, read every version in it, note those with base paths of this table below another
            address. A preview ends here
2. refuse   `from_` that no version names; the old address is this folder under another path
3. record   the checksums that these files will have, beside those that they had: verify takes either
4. rewrite  each of these files, one after the other, as a whole (`storage/files/rebase.py`)
5. verify   the whole graph, without reading data

Keeps: rows, versions, their numbers and times, commits; the old address is only read, never written. Afterwards
both graphs work and share nothing. Main, and every rewritten fork, can be read and written meanwhile.

A crash leaves some files rewritten: each is complete and correct, the others are still refused with GraphMoved, and the
next run rewrites them. Running it on a graph that was not moved changes nothing.
"""

from __future__ import annotations

import os
import time
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from omnigraph.commit.committer import Committer
from omnigraph.errors import StorageError, UsageError
from omnigraph.maintenance.cleanup.orphans import table_folders
from omnigraph.maintenance.concurrency import map_threads
from omnigraph.maintenance.verify import VerifyOptions, VerifyResult, verify
from omnigraph.storage.files.base_paths import recorded_root
from omnigraph.storage.files.checksums import pack
from omnigraph.storage.files.rebase import StoredVersion, read_version, rebased, replace_version
from omnigraph.storage.files.references import folder_of
from omnigraph.storage.layout import MANIFEST, Location, locate
from omnigraph.storage.manifest.create import graph_exists
from omnigraph.storage.manifest.table import FORMAT, Manifest
from omnigraph.storage.objects.store import ObjectStore
from omnigraph.tasks.engine import EngineSettings


@dataclass(frozen=True)
class MovedVersion:
    """The file of a version that names other addresses than the graph's: `path` and `table` relative to the graph."""

    path: str
    table: str
    fork: str | None
    roots: tuple[str, ...]


@dataclass(frozen=True)
class RecordedRoot:
    """An address that versions name. `is_graph`: there is a graph at it, as far as this process can see."""

    root: str
    versions: int
    is_graph: bool


@dataclass(frozen=True)
class RelocateResult:
    uri: str
    confirmed: bool
    roots: tuple[RecordedRoot, ...]
    versions: tuple[MovedVersion, ...]
    rewritten: int
    verified: VerifyResult | None
    seconds: float

    @property
    def ok(self) -> bool:
        return self.verified is None or self.verified.ok

    def to_json(self) -> dict[str, Any]:
        return {
            "uri": self.uri,
            "confirmed": self.confirmed,
            "ok": self.ok,
            "recorded_roots": [{"root": r.root, "versions": r.versions, "is_graph": r.is_graph} for r in self.roots],
            "tables": _by_table(self.versions),
            "versions": len(self.versions),
            "rewritten": self.rewritten,
            "verify": None if self.verified is None else self.verified.to_json(),
            "seconds": round(self.seconds, 3),
        }


def relocate(
    committer: Committer, engines: EngineSettings, *, from_: str | None = None, confirm: bool = False
) -> RelocateResult:
    """Rewrite base paths of another address, or only those of `from_`. A preview without `confirm`."""
    started = time.monotonic()
    location = committer.manifest.location
    committer.manifest.require_writable() if confirm else committer.manifest.format()
    only = None if from_ is None else locate(from_, options=location.options).uri
    versions = tuple(_moved(location, only))
    roots = _roots(versions)
    if only is not None:
        _require_recorded(location, only, versions)
    else:
        _require_another_place(location, roots)
    rewritten = 0
    verified: VerifyResult | None = None
    if confirm:
        _record_checksums(committer.manifest, versions, only)
        rewritten = sum(map_threads(location, lambda version: _rewrite(location, version, only), versions))
        verified = verify(committer, engines, VerifyOptions(quick=True))
    return RelocateResult(
        uri=location.uri,
        confirmed=confirm,
        roots=tuple(RecordedRoot(root, count, _is_graph(location, root)) for root, count in roots.items()),
        versions=versions,
        rewritten=rewritten,
        verified=verified,
        seconds=time.monotonic() - started,
    )


# ---- plan ------------------------------------------------------------------------------------------------------------


def _moved(location: Location, only: str | None) -> Iterator[MovedVersion]:
    for table in table_folders(location):
        folder = folder_of(table, ObjectStore(location, table).iter_files())
        files = [f for f in folder.files if f.version is not None or f.kind == "detached"]
        forks = {f"{table}/{f.path}": folder.lines[f.line].fork for f in files}
        looked_at = map_threads(location, partial(_named_roots, location, table), sorted(forks))
        for path, roots in zip(sorted(forks), looked_at, strict=True):
            others = roots - {location.uri} if only is None else roots & {only}
            if others:
                yield MovedVersion(path, table, forks[path], tuple(sorted(others)))


def _named_roots(location: Location, table: str, path: str) -> set[str]:
    """The graph addresses that a version of the table names."""
    version = read_version(location, path)
    if version is None or not version.is_whole:
        return set()
    roots = (recorded_root(base, table) for base in version.parsed().bases.values())
    return {root for root in roots if root is not None}


def _roots(versions: Sequence[MovedVersion]) -> dict[str, int]:
    counts: dict[str, int] = {}
    for version in versions:
        for root in version.roots:
            counts[root] = counts.get(root, 0) + 1
    return dict(sorted(counts.items()))


def _require_recorded(location: Location, only: str, versions: Sequence[MovedVersion]) -> None:
    if only == location.uri:
        raise UsageError(detail=f"{only} is where the graph is: --from names the address that it was moved from.")
    if not versions:
        raise UsageError(detail=f"no version of a table of {location.uri} refers to {only}.")


def _require_another_place(location: Location, roots: dict[str, int]) -> None:
    for root in roots:
        if location.is_local and _is_same_folder(root, location.uri):
            detail = (
                f"{root} and {location.uri} are one folder under two paths. A program that uses the graph by the first "
                f"path could not read its branches any more. Use that path, or add --from {root} if no program does."
            )
            raise UsageError(detail=detail)


def _is_same_folder(first: str, second: str) -> bool:
    try:
        return os.path.samefile(first, second)
    except OSError:
        return False  # it does not exist, or access is denied


def _is_graph(location: Location, root: str) -> bool:
    """Whether there is a graph at an address of the same store. One of another store can't be checked."""
    if location.is_local != ("://" not in root):
        return False
    if location.is_local:
        return os.path.isdir(os.path.join(root, MANIFEST, "_versions"))
    try:
        return graph_exists(Location(root, is_local=False, options=location.options))
    except StorageError:
        return False  # access to the bucket is denied


def _by_table(versions: Sequence[MovedVersion]) -> list[dict[str, Any]]:
    counts: dict[tuple[str, str | None], int] = {}
    for version in versions:
        line = (version.table, version.fork)
        counts[line] = counts.get(line, 0) + 1
    return [{"table": table, "fork": fork, "versions": number} for (table, fork), number in counts.items()]


# ---- rewrite ---------------------------------------------------------------------------------------------------------


def _record_checksums(manifest: Manifest, versions: Sequence[MovedVersion], only: str | None) -> None:
    location = manifest.location
    pairs = map_threads(location, lambda moved: _rebased(location, moved, only), versions)
    new = {moved.path: zlib.crc32(pair[1]) for moved, pair in zip(versions, pairs, strict=True) if pair is not None}
    if new and manifest.format() >= FORMAT:  # older formats have no checksums
        manifest.append_checksums(pack(new))


def _rebased(location: Location, moved: MovedVersion, only: str | None) -> tuple[StoredVersion, bytes] | None:
    """A version and what its file is to hold; None if it was removed, or rewritten by another run, meanwhile."""
    version = read_version(location, moved.path)
    if version is None or not version.is_whole:
        return None
    raw = rebased(version, moved.table, root=location.uri, only=only)
    return None if raw == version.raw else (version, raw)


def _rewrite(location: Location, moved: MovedVersion, only: str | None) -> bool:
    pair = _rebased(location, moved, only)
    return pair is not None and replace_version(location, *pair)
