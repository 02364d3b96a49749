"""The pins of one commit, and of many commits with a few queries of the manifest instead of some per commit.

1. records   of the commits themselves, by their ids, many in one query
2. ranges    per incarnation, the records from a full snapshot before every commit on; adjacent ranges are merged
3. replay    from the nearest full snapshot, or from a commit whose pins are already computed
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from omnigraph.storage.manifest.records import Pin, Record, apply_delta

if TYPE_CHECKING:
    from omnigraph.storage.manifest.table import Manifest


def pins_of(manifest: Manifest, commit: str, *, look_back: int) -> dict[str, Pin]:
    """The pins of one commit, from the nearest older record with a full snapshot and the differences since."""
    chain: list[Record] = []
    nearby: dict[str, Record] = {}
    commit_id: str | None = commit
    while commit_id is not None:
        record = nearby.get(commit_id) or manifest.record(commit_id)
        if not nearby and record.snapshot is None:
            first = max(0, record.epoch - look_back)
            nearby = {r.commit: r for r in manifest.records(record.incarnation, first, record.epoch) if r.commit}
        chain.append(record)
        if record.snapshot is not None:
            break
        commit_id = record.parent
        if commit_id not in nearby:
            nearby = {}
    pins: dict[str, Pin] = {}
    for record in reversed(chain):
        pins = dict(record.snapshot) if record.snapshot is not None else apply_delta(pins, record.delta)
    return pins


def pins_of_many(manifest: Manifest, commits: Iterable[str], *, look_back: int) -> dict[str, dict[str, Pin]]:
    """All pins of each of these commits. `look_back`: a full snapshot exists within this number of epochs."""
    records = manifest.records_of(commits)
    nearby = dict(records)
    epochs: dict[str, list[int]] = {}
    for record in records.values():
        if record.snapshot is None:
            epochs.setdefault(record.incarnation, []).append(record.epoch)
    for incarnation, incarnation_epochs in epochs.items():
        for first, last in _ranges(sorted(incarnation_epochs), look_back):
            nearby.update({r.commit: r for r in manifest.records(incarnation, first, last) if r.commit})
    pins_by_commit: dict[str, dict[str, Pin]] = {}
    order = sorted(records.values(), key=lambda r: (r.incarnation, r.epoch))
    for record in order:
        assert record.commit is not None
        pins_by_commit[record.commit] = _replayed(manifest, record, nearby, pins_by_commit)
    return pins_by_commit


def _ranges(epochs: list[int], look_back: int) -> Iterator[tuple[int, int]]:
    first, last = max(0, epochs[0] - look_back), epochs[0]
    for epoch in epochs[1:]:
        if epoch - look_back > last + 1:
            yield first, last
            first = epoch - look_back
        last = epoch
    yield first, last


def _replayed(
    manifest: Manifest, record: Record, nearby: dict[str, Record], pins_by_commit: dict[str, dict[str, Pin]]
) -> dict[str, Pin]:
    chain: list[Record] = []
    pins: dict[str, Pin] = {}
    ancestor: Record | None = record
    while ancestor is not None:
        if ancestor.commit in pins_by_commit:
            pins = pins_by_commit[ancestor.commit]
            break
        chain.append(ancestor)
        if ancestor.snapshot is not None:
            break
        ancestor = None if ancestor.parent is None else nearby.get(ancestor.parent) or manifest.record(ancestor.parent)
    for record_in_chain in reversed(chain):
        pins = (
            dict(record_in_chain.snapshot)
            if record_in_chain.snapshot is not None
            else apply_delta(pins, record_in_chain.delta)
        )
    return pins
