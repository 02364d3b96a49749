"""The commits that a state is made of, newest first, and the one that was the newest at a time."""

from __future__ import annotations

from collections.abc import Iterator

from omnigraph.errors import NoCommitAtThatTime
from omnigraph.storage.manifest import FULL_EVERY, Manifest
from omnigraph.storage.records import Record

RUN_EPOCHS = 8 * FULL_EVERY
"""How many epochs are fetched when the walk leaves what the head itself carries; each later run is twice as long, so
that a walk to the beginning takes few reads and a short one stays short.
"""


def reachable(manifest: Manifest, branch: str, *, limit: int | None = None) -> Iterator[Record]:
    """Walk the first parents from the branch's head. Records are fetched in runs, not one by one."""
    head = manifest.head(branch)
    at: str | None = head.commit
    near = {r.commit: r for r in head.recent if r.commit}
    run = RUN_EPOCHS
    count = 0
    while at is not None and (limit is None or count < limit):
        record = near.get(at)
        if record is None:
            record = manifest.record(at)
            first = max(0, record.epoch - run)
            near = {r.commit: r for r in manifest.records(record.incarnation, first, record.epoch) if r.commit}
            run *= 2
        yield record
        count += 1
        at = record.parent


def newest_at(manifest: Manifest, branch: str, *, moment_us: int, told: str) -> str:
    """The newest commit of the branch that was not made after a moment, in microseconds since 1970.

    What the branch was made from belongs to its history. Clocks of writers may differ: the newest commit is the one
    that the walk meets first, whatever older ones say. `told` is the moment in the caller's words.
    """
    first: Record | None = None
    for record in reachable(manifest, branch):
        if record.created_at_us <= moment_us:
            assert record.commit is not None
            return record.commit
        first = record
    assert first is not None
    raise NoCommitAtThatTime(branch=branch, as_of=told, first=first.created_at.isoformat(timespec="microseconds"))
