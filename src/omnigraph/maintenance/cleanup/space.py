"""Cleanup on a full disk.

Before it frees anything cleanup writes a probe, its announcement and a version of the manifest; the protocol needs all
of them, even without other processes. If one of these writes fails on a full disk nothing has been removed yet, and the
run is repeated from its beginning with more space:

1. reserve   the reserve is released (`storage/objects/reserve.py`)
2. arrays    then the query arrays are removed: they are derived, and need no announcement
3. parts     in both, if the announcement does not fit, tables with the longest ones are left out. Each of them has an
             error in its row; the next run, for which this one has made room, does it
4. refuse    CleanupNeedsSpace has the number of bytes that the user must free

At the end a new reserve is allocated, several times as large as what this run has written. A crash leaves no reserve;
then 2 or 4 applies until a run has had room.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import accumulate

from omnigraph.errors import CleanupNeedsSpace, StorageError
from omnigraph.maintenance.cleanup.document import CleanupResult
from omnigraph.maintenance.cleanup.plan import CleanupPlan, TablePlan
from omnigraph.storage import durability
from omnigraph.storage.layout import CACHE, Location
from omnigraph.storage.manifest.table import Manifest
from omnigraph.storage.objects import nofollow, reserve

LEFT_OUT = "the disk was too full to announce what is to be removed here; run cleanup again"
NEEDED_MIN_BYTES = 1 << 16
"""For a handful of files of one block each, their folders, and what a file system needs for itself."""
_RESERVE_RUNS = 4

Run = Callable[[bool], CleanupResult]
"""One run from its beginning; whether it may leave tables out."""


def with_space(manifest: Manifest, run: Run) -> CleanupResult:
    """The result of a run, which gets the space that it needs to begin."""
    location = manifest.location
    size_bytes = 0
    try:
        result = _repeated(manifest, run)
        size_bytes = _RESERVE_RUNS * (_announced_bytes(result.plan.tables) + _needed_bytes(manifest))
        return result
    finally:
        reserve.keep(location, size_bytes=size_bytes)


def _repeated(manifest: Manifest, run: Run) -> CleanupResult:
    location = manifest.location
    try:
        return run(False)
    except StorageError as error:
        if not location.is_local or not reserve.is_full(error):
            raise
        full = error
    for release in (reserve.release, _remove_arrays):
        if release(location):
            try:
                return reserve.spending(location, lambda: run(True))
            except StorageError as error:
                if not reserve.is_full(error):
                    raise
                full = error
    raise CleanupNeedsSpace(
        uri=location.uri,
        needed_bytes=_needed_bytes(manifest),
        doing=full.fields["doing"],
        detail=full.fields["detail"],
    ) from full


def _remove_arrays(location: Location) -> bool:
    """Remove the query arrays. Whether there were any."""
    folders = nofollow.children(location, CACHE).folders
    for folder in folders:
        nofollow.remove_tree(location, f"{CACHE}/{folder}")
    return bool(folders)


def without_largest(plan: CleanupPlan) -> CleanupPlan | None:
    """The plan without the tables that have the longest announcements, half of all their bytes or more; None if
    nothing is left of it.
    """
    tables = sorted((t for t in plan.tables if not t.is_empty), key=lambda t: _announced_bytes([t]))
    totals = list(accumulate(_announced_bytes([t]) for t in tables))
    left_out = {t.path for t, total in zip(tables, totals, strict=True) if total > totals[-1] / 2}
    if len(left_out) == len(tables):
        return None
    return replace(
        plan,
        tables=tuple(
            TablePlan(t.table_key, t.path, kept=t.kept, error=LEFT_OUT) if t.path in left_out else t
            for t in plan.tables
        ),
    )


def _announced_bytes(tables: Sequence[TablePlan]) -> int:
    """About how long the announcement of these tables is."""
    files = [f for t in tables for f in (*t.files, *(f for fork in t.forks for f in fork.files))]
    return sum(len(f.path) + 3 for f in files) + sum(len(v.path) for t in tables for v in t.versions)


def _needed_bytes(manifest: Manifest) -> int:
    """About what a run writes on a local disk, without its announcement."""
    if not manifest.location.is_local:
        return 0
    try:
        path = durability.manifest_path(manifest.location.manifest_uri, manifest.table().version)
        return NEEDED_MIN_BYTES + 2 * os.path.getsize(path)
    except (OSError, StorageError):
        return NEEDED_MIN_BYTES
