"""The commits that a state is made of, newest first."""

from __future__ import annotations

from collections.abc import Iterator

from omnigraph.storage.manifest import FULL_EVERY, Manifest
from omnigraph.storage.records import Record


def reachable(manifest: Manifest, branch: str, *, limit: int | None = None) -> Iterator[Record]:
    """Walk the first parents from the branch's head. Records are fetched in runs, not one by one."""
    at: str | None = manifest.head(branch).commit
    near: dict[str, Record] = {}
    count = 0
    while at is not None and (limit is None or count < limit):
        record = near.get(at)
        if record is None:
            record = manifest.record(at)
            first = max(0, record.epoch - 8 * FULL_EVERY)
            near = {r.commit: r for r in manifest.records(record.incarnation, first, record.epoch) if r.commit}
        yield record
        count += 1
        at = record.parent
