"""The pins of a commit, and of many commits at once: whoever looks at all branches asks the manifest a few questions,
not some per commit.

1. records   of the commits themselves, by their ids, many in one question
2. ranges    of each incarnation the records from a full snapshot before every commit on; ranges that touch are one
3. replay    from the nearest full snapshot, or from a commit that is known already
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from omnigraph.storage.manifest.records import Pin, Record, apply_delta

if TYPE_CHECKING:
    from omnigraph.storage.manifest.table import Manifest


def pins_of(manifest: Manifest, commit: str, *, look_back: int) -> dict[str, Pin]:
    """The pins of one commit, from the nearest full record below it and the differences since."""
    chain: list[Record] = []
    nearby: dict[str, Record] = {}
    at: str | None = commit
    while at is not None:
        record = nearby.get(at) or manifest.record(at)
        if not nearby and record.snapshot is None:
            first = max(0, record.epoch - look_back)
            nearby = {r.commit: r for r in manifest.records(record.incarnation, first, record.epoch) if r.commit}
        chain.append(record)
        if record.snapshot is not None:
            break
        at = record.parent
        if at not in nearby:
            nearby = {}
    pins: dict[str, Pin] = {}
    for record in reversed(chain):
        pins = dict(record.snapshot) if record.snapshot is not None else apply_delta(pins, record.delta)
    return pins


def pins_of_many(manifest: Manifest, commits: Iterable[str], *, look_back: int) -> dict[str, dict[str, Pin]]:
    """All pins of each of these commits. `look_back`: a full snapshot is found within so many epochs."""
    records = manifest.records_of(commits)
    near = dict(records)
    epochs: dict[str, list[int]] = {}
    for record in records.values():
        if record.snapshot is None:
            epochs.setdefault(record.incarnation, []).append(record.epoch)
    for incarnation, found in epochs.items():
        for first, last in _ranges(sorted(found), look_back):
            near.update({r.commit: r for r in manifest.records(incarnation, first, last) if r.commit})
    known: dict[str, dict[str, Pin]] = {}
    order = sorted(records.values(), key=lambda r: (r.incarnation, r.epoch))
    for record in order:
        assert record.commit is not None
        known[record.commit] = _replayed(manifest, record, near, known)
    return known


def _ranges(epochs: list[int], look_back: int) -> Iterator[tuple[int, int]]:
    first, last = max(0, epochs[0] - look_back), epochs[0]
    for epoch in epochs[1:]:
        if epoch - look_back > last + 1:
            yield first, last
            first = epoch - look_back
        last = epoch
    yield first, last


def _replayed(
    manifest: Manifest, record: Record, near: dict[str, Record], known: dict[str, dict[str, Pin]]
) -> dict[str, Pin]:
    chain: list[Record] = []
    pins: dict[str, Pin] = {}
    at: Record | None = record
    while at is not None:
        if at.commit in known:
            pins = known[at.commit]
            break
        chain.append(at)
        if at.snapshot is not None:
            break
        at = None if at.parent is None else near.get(at.parent) or manifest.record(at.parent)
    for step in reversed(chain):
        pins = dict(step.snapshot) if step.snapshot is not None else apply_delta(pins, step.delta)
    return pins
