"""Reading under a lease: the versions of one snapshot stay until the reader is done (`storage/leases.py`).

A branch's newest state may be replaced, and be about to be removed, between the look at its head and the lease: then
the newer one is taken. A state that was asked for by name is refused instead, with VersionReclaimed.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from omnigraph.commit import owner
from omnigraph.commit.door import Door
from omnigraph.errors import VersionReclaimed
from omnigraph.snapshot import AsOf, Snapshot
from omnigraph.storage import leases

TRIES_MOST = 5


@contextmanager
def leased(
    door: Door, branch: str, *, commit: str | None = None, as_of: AsOf | None = None, seconds: float | None = None
) -> Iterator[Snapshot]:
    """A snapshot that cleanup leaves alone while the block runs."""
    for turn in range(1, TRIES_MOST + 1):
        snapshot = Snapshot.take(door, branch, commit, as_of)
        holding = under_lease(snapshot, seconds=seconds)
        try:
            holding.__enter__()
        except VersionReclaimed:
            if commit is not None or as_of is not None or turn == TRIES_MOST:
                raise
            continue
        break
    try:
        yield snapshot
    finally:
        holding.__exit__(None, None, None)


@contextmanager
def under_lease(snapshot: Snapshot, *, seconds: float | None = None) -> Iterator[Snapshot]:
    """The same of a snapshot that was taken before; VersionReclaimed if it is gone, or about to be."""
    view = snapshot.view
    held = leases.hold(
        view.tables.location,
        view.pins.values(),
        seconds=leases.LEASE_S if seconds is None else seconds,
        owner=owner.myself(),
        branch=snapshot.branch,
        commit=snapshot.commit,
    )
    try:
        with held:
            yield snapshot
    except VersionReclaimed as error:
        key = view.table_keys.get(str(error.fields.get("table_key")))
        if key is None:
            raise
        raise VersionReclaimed(table_key=key, version=error.fields["version"]) from error
