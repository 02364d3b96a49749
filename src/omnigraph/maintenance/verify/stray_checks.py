"""Checks around the tables: undecided operations, lost commits, drift, folders that no commit names, foreign files."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress

from omnigraph.commit.advisory_lock import AdvisoryLocks, epoch_of
from omnigraph.commit.committer import Committer
from omnigraph.commit.operation import View
from omnigraph.commit.stamp import Stamp
from omnigraph.errors import BranchNotFound, CommitNotFound, GraphMoved, NotAGraph, StorageError, VersionReclaimed
from omnigraph.maintenance.drift import Drift, drift_of
from omnigraph.maintenance.recover import pending
from omnigraph.maintenance.verify.files import BOOKKEEPING
from omnigraph.maintenance.verify.findings import FOREIGN, Finding, make_finding
from omnigraph.maintenance.verify.reading import reading
from omnigraph.storage.files.references import folder_of
from omnigraph.storage.lance import lance_api
from omnigraph.storage.layout import (
    LAYOUT_FOLDERS,
    MANIFEST,
    RECOVERY,
    RESERVE,
    STAGING,
    TABLE_FOLDERS,
    TABLE_NAME,
    Location,
)
from omnigraph.storage.manifest.records import Head, Pin
from omnigraph.storage.manifest.table import FORMAT
from omnigraph.storage.objects.control_objects import ControlObjects
from omnigraph.storage.objects.store import ObjectStore, StoredFile

_INTENT = re.compile(r"[0-9A-HJKMNP-TV-Z]{26}\.json(#\d+)?")
"""What programs of older formats kept directly in `__recovery`."""


def check_locks(committer: Committer, heads: Mapping[str, Head]) -> Iterator[Finding]:
    for operation in pending(committer):
        if operation.branch in heads and not operation.alive:
            text = f"an operation ({operation.kind}) of a crashed writer on {operation.branch} is not recovered"
            yield make_finding(
                "dead_ticket",
                text,
                branch=operation.branch,
                examples=[f"epoch {operation.epoch}, {operation.operation}"],
            )


def check_lost(committer: Committer, heads: Mapping[str, Head]) -> Iterator[Finding]:
    """Operations with effects that the head of their branch does not have, and that no writer holds a lock for.

    A lock exists before the first effect, and is deleted only after the head has moved. So versions are read first,
    then the lock, then the head once more: a running writer has the lock, or has moved the head by now. If neither is
    so the head was further once, and the version of the manifest that had it is lost.
    """
    if committer.manifest.format() < FORMAT:
        return
    for view in _views(committer, heads):
        ahead: dict[int, set[str]] = {}
        for table, pin in view.pins.items():
            for stamp in _stamps_above(view, pin):
                if stamp.incarnation == view.head.incarnation and stamp.epoch > view.head.epoch:
                    ahead.setdefault(stamp.epoch, set()).add(view.table_keys.get(table, table))
        for epoch, tables in sorted(ahead.items()):
            if _is_lost(committer, view.head, epoch):
                branch, reached = view.head.branch, view.head.epoch
                text = f"epoch {epoch} of {branch} has left versions in tables, and the head is only at {reached}"
                yield make_finding("commit_lost", text, branch=branch, count=len(tables), examples=sorted(tables))


def _is_lost(committer: Committer, head: Head, epoch: int) -> bool:
    if AdvisoryLocks(ControlObjects(committer.manifest.location)).holder(head.incarnation, epoch) is not None:
        return False
    now = committer.manifest.find(head.branch)
    return now is not None and now.incarnation == head.incarnation and now.epoch < epoch


def _stamps_above(view: View, pin: Pin) -> list[Stamp]:
    """The stamps on versions above a pin of a table that the branch owns."""
    try:
        with reading(f"reading the history of {pin.path}"):
            if not view.owns(pin) or view.tables.newest_version(pin) == pin.version:
                return []
            stamps = lance_api.stamps_above(view.tables.newest(pin), pin.version)
    except (GraphMoved, StorageError, VersionReclaimed, lance_api.TableMissing):
        return []  # reported by the files task
    return [stamp for _, text in stamps if (stamp := Stamp.parse(text)) is not None]


class _SchemalessView(View):
    """A view of a branch whose schema can't be read: tables are known by their ids."""

    @property
    def table_keys(self) -> dict[str, str]:
        return {table: f"{'edge' if table[0] == 'e' else 'node'}:{table}" for table in self.pins}


def _views(committer: Committer, heads: Iterable[str]) -> Iterator[View]:
    with suppress(StorageError, CommitNotFound, NotAGraph), reading("reading the states of branches"):
        committer.manifest.preload(committer.manifest.heads().values())
    for branch in heads:
        view = _seen(committer, branch)
        if view is not None:
            yield view


def _seen(committer: Committer, branch: str) -> View | None:
    """The branch's newest state, as far as the manifest can be read; None if it does not exist."""
    head = committer.manifest.find(branch)
    if head is None:
        return None
    try:
        with reading(f"reading the state of {branch}"):
            view = committer.view(branch)
            return view if view.table_keys else None  # which reads the schema
    except BranchNotFound:
        return None
    except (StorageError, CommitNotFound, NotAGraph):
        pins = {table: pin for table, pin in head.pins.items() if pin is not None}
        return _SchemalessView(head=head, pins=pins, manifest=committer.manifest, tables=committer.tables)


def check_drift(committer: Committer, heads: Mapping[str, Head]) -> Iterator[Finding]:
    """Drift in the newest state of every branch: versions above an older pin may be another writer's commit."""
    for view in _views(committer, heads):
        for table in view.pins:
            drift = _drift(committer, view, table)
            if drift is not None:
                text = (
                    f"{drift.table_key} is at version {drift.head_version}, ahead of the published version "
                    f"{drift.pin.version}, and no operation of omnigraph explains it"
                )
                yield make_finding(
                    "uncovered_drift",
                    text,
                    table=drift.table_key,
                    branch=view.head.branch,
                    examples=drift.operations,
                )


def _drift(committer: Committer, view: View, table: str) -> Drift | None:
    try:
        with reading(f"reading the history of {view.pins[table].path}"):
            drift = drift_of(view, table)
            # Once more on a newer state: a repair may have published it in the meantime.
            newer = None if drift is None else _seen(committer, view.head.branch)
            return None if newer is None or table not in newer.pins else drift_of(newer, table)
    except (GraphMoved, StorageError, VersionReclaimed, lance_api.TableMissing):
        return None  # the version is missing or can't be opened, which the files task reports


def check_folders(location: Location, folders_known: set[str] | None, *, old_s: float) -> Iterator[Finding]:
    """Tables that no commit names, and files of jobs that ended long ago. `folders_known` is None if unknown."""
    for folder in (*TABLE_FOLDERS.values(), STAGING):
        is_staging = folder == STAGING
        newest: dict[str, float] = {}
        for name, modified_s in _tops(location, folder, folders_known or set()):
            newest[name] = max(newest.get(name, 0.0), modified_s)
        old = sorted(name for name, modified_s in newest.items() if modified_s < old_s)
        foreign = [] if is_staging else [name for name in old if not TABLE_NAME.fullmatch(name.rpartition("/")[2])]
        abandoned = [name for name in old if name not in foreign]
        if abandoned and (is_staging or folders_known is not None):
            text = "files of jobs that ended long ago" if is_staging else "folders of tables that no commit knows"
            yield make_finding("unexplained_file", text, count=len(abandoned), examples=abandoned)
        if foreign:
            text = "folders lie where omnigraph puts those of tables only"
            yield make_finding("unexplained_file", text, count=len(foreign), examples=foreign, cause=FOREIGN)


def check_foreign(location: Location, *, old_s: float) -> Iterator[Finding]:
    """Files where omnigraph writes none, of any age: no work in flight can have written them.

    In folders where Lance and the store keep files of their own, only old ones.
    """
    children = ObjectStore(location).children()
    foreign = [name for name in children.files_and_links if name != RESERVE or not location.is_local]
    foreign += [f"{name}/" for name in children.folders if name not in LAYOUT_FOLDERS]
    for folder in TABLE_FOLDERS.values():
        foreign += [f"{folder}/{name}" for name in ObjectStore(location, folder).children().files_and_links]
    for folder, foreign_names in ((MANIFEST, _beside_lance), (RECOVERY, _no_control)):
        links: list[str] = []
        old = [file for file in ObjectStore(location, folder).list_files(links=links) if file.modified_s < old_s]
        foreign += [f"{folder}/{path}" for path in (*foreign_names(old), *links)]
    if foreign:
        text = "files lie where omnigraph puts none"
        yield make_finding("unexplained_file", text, count=len(foreign), examples=sorted(foreign), cause=FOREIGN)


def _beside_lance(files: Iterable[StoredFile]) -> Iterator[str]:
    other = folder_of(MANIFEST, files).other
    yield from (file.path for file in other if not BOOKKEEPING.search(file.path))


def _no_control(files: Iterable[StoredFile]) -> Iterator[str]:
    for file in files:
        is_lock = file.path.count("/") == 1 and epoch_of(file.path) is not None
        if not is_lock and not _INTENT.fullmatch(file.path):
            yield file.path


def _tops(location: Location, folder: str, folders_known: set[str]) -> Iterator[tuple[str, float]]:
    """(folder, time of a file in it) of everything directly below `folder` that is not known."""
    for name in ObjectStore(location, folder).children().folders:
        below = f"{folder}/{name}"
        if below not in folders_known:
            for file in ObjectStore(location, below).list_files(links=[]):
                yield below, file.modified_s
