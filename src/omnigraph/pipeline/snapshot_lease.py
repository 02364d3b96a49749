"""Reading under a lease: the versions of one snapshot are kept until the reader ends (`storage/objects/leases.py`).

A branch's newest state may be replaced, and announced for removal, between reading its head and taking the lease: then
the newer state is used. A state that was requested by name is refused instead, with VersionReclaimed.
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
"""The time between the starts of two tasks of a job after which cleanup may remove its versions."""


@contextmanager
def leased(
    committer: Committer,
    branch: str,
    *,
    commit: str | None = None,
    as_of: AsOf | None = None,
    seconds: float | None = None,
) -> Iterator[Snapshot]:
    """A snapshot whose versions cleanup keeps while the block runs."""
    with ExitStack() as stack:
        for attempt in range(1, TRIES_MAX + 1):
            commit_id = None if commit is None else resolve(committer.manifest, commit, branch=branch)
            snapshot = Snapshot.take(committer, branch, commit_id, as_of)
            try:
                stack.enter_context(under_lease(snapshot, seconds=seconds))
                break
            except VersionReclaimed:
                if commit is not None or as_of is not None or attempt == TRIES_MAX:
                    raise
        yield snapshot


@contextmanager
def under_lease(snapshot: Snapshot, *, seconds: float | None = None, required: bool = True) -> Iterator[Snapshot]:
    """The same for a snapshot that was taken before; VersionReclaimed if it was removed, or is announced for removal.

    `required` False: a reader without write permission reads without a lease; its versions may be removed meanwhile.
    """
    view = snapshot.view
    lease = leases.hold(
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
            stack.enter_context(lease)
        except StorageError as error:
            if required or not leases.may_not_write(error):
                raise
        yield snapshot


def lease_for_tasks(location: Location, pins: Iterable[Pin], commit: str, table_keys: Mapping[str, str]) -> str | None:
    """The id of a lease that every task of a job renews when it starts; None for a reader without write permission."""
    try:
        return leases.take(location, pins, seconds=TASKS_LEASE_S, commit=commit, table_keys=table_keys).id
    except StorageError as error:
        if not leases.may_not_write(error):
            raise
        return None
