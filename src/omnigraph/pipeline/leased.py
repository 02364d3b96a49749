"""Reading under a lease: the versions of one snapshot stay until the reader is done (`storage/leases.py`).

A branch's newest state may be replaced, and be about to be removed, between the look at its head and the lease: then
the newer one is taken. A state that was asked for by name is refused instead, with VersionReclaimed.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

from omnigraph.commit import owner
from omnigraph.commit.door import Door
from omnigraph.errors import StorageError, VersionReclaimed
from omnigraph.snapshot import AsOf, Snapshot
from omnigraph.storage import leases

TRIES_MOST = 5


@contextmanager
def leased(
    door: Door, branch: str, *, commit: str | None = None, as_of: AsOf | None = None, seconds: float | None = None
) -> Iterator[Snapshot]:
    """A snapshot that cleanup leaves alone while the block runs."""
    with ExitStack() as stack:
        for turn in range(1, TRIES_MOST + 1):
            snapshot = Snapshot.take(door, branch, commit, as_of)
            try:
                stack.enter_context(under_lease(snapshot, seconds=seconds))
                break
            except VersionReclaimed:
                if commit is not None or as_of is not None or turn == TRIES_MOST:
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
    )
    with ExitStack() as stack:
        try:
            stack.enter_context(held)
        except VersionReclaimed as error:
            key = view.table_keys.get(error.fields["table_key"], error.fields["table_key"])
            raise type(error)(table_key=key, version=error.fields["version"]) from error
        except StorageError as error:
            if required or not leases.may_not_write(error):
                raise
        yield snapshot
