"""Reading under a lease: the versions of one snapshot stay until the reader is done (`storage/objects/leases.py`).

A branch's newest state may be replaced, and be about to be removed, between the look at its head and the lease: then
the newer one is taken. A state that was asked for by name is refused instead, with VersionReclaimed.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager

from omnigraph.branch.revisions import resolve
from omnigraph.commit import owner
from omnigraph.commit.committer import Committer
from omnigraph.errors import StorageError, VersionReclaimed
from omnigraph.graph.snapshot import AsOf, Snapshot
from omnigraph.storage.layout import Location
from omnigraph.storage.manifest.records import Pin
from omnigraph.storage.objects import leases

TRIES_MAX = 5
TASKS_LEASE_S = 3600.0
"""How long a job may take between two tasks' beginnings before cleanup may take its versions away."""


@contextmanager
def leased(
    committer: Committer,
    branch: str,
    *,
    commit: str | None = None,
    as_of: AsOf | None = None,
    seconds: float | None = None,
) -> Iterator[Snapshot]:
    """A snapshot that cleanup leaves alone while the block runs."""
    with ExitStack() as stack:
        for turn in range(1, TRIES_MAX + 1):
            named = None if commit is None else resolve(committer.manifest, commit, branch=branch)
            snapshot = Snapshot.take(committer, branch, named, as_of)
            try:
                stack.enter_context(under_lease(snapshot, seconds=seconds))
                break
            except VersionReclaimed:
                if commit is not None or as_of is not None or turn == TRIES_MAX:
                    raise
        yield snapshot


@contextmanager
def under_lease(snapshot: Snapshot, *, seconds: float | None = None, required: bool = True) -> Iterator[Snapshot]:
    """The same of a snapshot that was taken before; VersionReclaimed if it is gone, or about to be.

    `required` False: a reader that may not write reads without a lease, and takes its chances.
    """
    view = snapshot.view
    held = leases.hold(
        view.tables.location,
        view.pins.values(),
        seconds=leases.LEASE_S if seconds is None else seconds,
        owner=owner.myself(),
        is_gone=owner.is_gone,
        branch=snapshot.branch,
        commit=snapshot.commit,
        table_keys=view.table_keys,
    )
    with ExitStack() as stack:
        try:
            stack.enter_context(held)
        except StorageError as error:
            if required or not leases.may_not_write(error):
                raise
        yield snapshot


def lease_for_tasks(location: Location, pins: Iterable[Pin], commit: str, table_keys: Mapping[str, str]) -> str | None:
    """The id of a lease that every task of a job renews when it begins; None for a reader that may not write."""
    try:
        return leases.take(location, pins, seconds=TASKS_LEASE_S, commit=commit, table_keys=table_keys).id
    except StorageError as error:
        if not leases.may_not_write(error):
            raise
        return None
