"""What lies around the tables: undecided operations, drift, folders that no commit knows, files of strangers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from omnigraph.commit.door import Door
from omnigraph.errors import StorageError, VersionReclaimed
from omnigraph.maintenance.drift import drift_of
from omnigraph.maintenance.listing import children, folders, listed
from omnigraph.maintenance.recover import pending
from omnigraph.maintenance.verify.findings import FOREIGN, Finding, found
from omnigraph.pipeline.bulk.staging import STAGING
from omnigraph.storage.control import CLEANUP, LEASES
from omnigraph.storage.layout import CACHE, MANIFEST, RECOVERY, TABLE_FOLDERS, Location
from omnigraph.storage.records import Head

OWN = frozenset((MANIFEST, RECOVERY, STAGING, CLEANUP, LEASES, CACHE.partition("/")[0], *TABLE_FOLDERS.values()))
"""All that omnigraph puts directly into a graph's folder. Directly into those of tables it puts folders only."""


def check_tickets(door: Door, heads: Mapping[str, Head]) -> Iterator[Finding]:
    for one in pending(door):
        if one.branch in heads and not one.alive:
            text = f"an operation ({one.kind}) of a writer that died on {one.branch} is not settled"
            yield found("dead_ticket", text, branch=one.branch, examples=[f"epoch {one.epoch}, {one.operation}"])


def check_drift(door: Door, heads: Mapping[str, Head]) -> Iterator[Finding]:
    """Of the newest state of every branch: what lies above an older pin may be another writer's commit."""
    newest = door.manifest.heads()
    for branch in heads:
        if branch not in newest:
            continue
        view = door.view(branch)
        for table in view.pins:
            try:
                drift = drift_of(view, table)
                if drift is not None:
                    # Once more on a newer state: a repair may have published it in the meantime.
                    drift = drift_of(door.view(branch), table)
            except (StorageError, VersionReclaimed):
                continue  # the version itself is not there or can't be opened, which is told of it elsewhere
            if drift is not None:
                text = (
                    f"{drift.table_key} is at version {drift.head_version}, ahead of the published version "
                    f"{drift.pin.version}, and no operation of omnigraph explains it"
                )
                yield found(
                    "uncovered_drift", text, table=drift.table_key, branch=branch, examples=list(drift.operations)
                )


def check_folders(location: Location, known: set[str], *, old_s: float) -> Iterator[Finding]:
    """Tables that no commit knows, and files of jobs that ended long ago."""
    for folder in (*TABLE_FOLDERS.values(), STAGING):
        newest: dict[str, float] = {}
        for name, modified_s in _tops(location, folder, known):
            newest[name] = max(newest.get(name, 0.0), modified_s)
        old = sorted(name for name, modified_s in newest.items() if modified_s < old_s)
        if old:
            is_staging = folder == STAGING
            text = "files of jobs that ended long ago" if is_staging else "folders of tables that no commit knows"
            yield found("unexplained_file", text, count=len(old), examples=old)


def check_foreign(location: Location) -> Iterator[Finding]:
    """What lies where omnigraph puts nothing, of whatever age: no work in flight can have made it."""
    files, names = children(location, "")
    foreign = [*files, *(f"{name}/" for name in names if name not in OWN)]
    for folder in TABLE_FOLDERS.values():
        foreign += [f"{folder}/{name}" for name in children(location, folder)[0]]
    if foreign:
        text = "files lie where omnigraph puts none"
        yield found("unexplained_file", text, count=len(foreign), examples=sorted(foreign), cause=FOREIGN)


def _tops(location: Location, folder: str, known: set[str]) -> Iterator[tuple[str, float]]:
    """(folder, time of a file in it) of everything directly below `folder` that is not known."""
    for name in folders(location, folder):
        below = f"{folder}/{name}"
        if below not in known:
            for file in listed(location, below):
                yield below, file.modified_s
