"""The commits that a state is made of, newest first, with merges or along first parents; the newest one at a time."""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping

from omnigraph.errors import NoCommitAtThatTime
from omnigraph.storage.manifest.records import Head, Record
from omnigraph.storage.manifest.table import FULL_EVERY, Manifest

RUN_EPOCHS = 8 * FULL_EVERY
"""How many epochs are fetched when the walk leaves what the head itself carries; each later run is twice as long, so
that a walk to the beginning takes few reads and a short one stays short.
"""


class _Records:
    """Records by commit, fetched in runs of an incarnation, not one by one."""

    def __init__(self, manifest: Manifest, heads: Iterable[Head]) -> None:
        self._manifest = manifest
        self._near = {r.commit: r for head in heads for r in head.recent if r.commit}
        self._run = RUN_EPOCHS

    def of(self, commit: str) -> Record:
        record = self._near.get(commit)
        if record is None:
            record = self._manifest.record(commit)
            first = max(0, record.epoch - self._run)
            run = self._manifest.records(record.incarnation, first, record.epoch)
            self._near = {r.commit: r for r in run if r.commit}
            self._run *= 2
        return record


def reachable(manifest: Manifest, branch: str, *, limit: int | None = None) -> Iterator[Record]:
    """Walk the first parents from the branch's head."""
    head = manifest.head(branch)
    records = _Records(manifest, [head])
    at: str | None = head.commit
    count = 0
    while at is not None and (limit is None or count < limit):
        record = records.of(at)
        yield record
        count += 1
        at = record.parent


def ancestry(manifest: Manifest, branches: Iterable[str], *, limit: int | None = None) -> list[Record]:
    """Every commit that these branches are made of, by both parents, children before parents; else the newest first.

    The newest `limit` are found first, with a parent never taken for newer than its child: clocks of writers differ.
    """
    heads = [manifest.head(branch) for branch in branches]
    records = _Records(manifest, heads)
    times: dict[str, int] = {}
    found: dict[str, Record] = {}
    todo: list[tuple[int, str]] = []

    def add(commit: str, before_us: int | None) -> None:
        made_us = records.of(commit).created_at_us
        time_us = made_us if before_us is None else min(made_us, before_us - 1)
        if commit not in times or time_us < times[commit]:
            times[commit] = time_us
        if commit not in found:
            heapq.heappush(todo, (-time_us, commit))

    for head in heads:
        add(head.commit, None)
    while todo and (limit is None or len(found) < limit):
        _, commit = heapq.heappop(todo)
        if commit in found:
            continue
        found[commit] = records.of(commit)
        for parent in parents_of(found[commit]):
            add(parent, times[commit])
    return _sorted(found, times)


def parents_of(record: Record) -> list[str]:
    return [commit for commit in (record.parent, record.merged_parent) if commit is not None]


def _sorted(found: Mapping[str, Record], times: Mapping[str, int]) -> list[Record]:
    """Children before parents."""
    children = Counter(parent for record in found.values() for parent in parents_of(record))
    ready = [(-times[commit], commit) for commit in found if not children[commit]]
    heapq.heapify(ready)
    order: list[Record] = []
    while ready:
        record = found[heapq.heappop(ready)[1]]
        order.append(record)
        for parent in parents_of(record):
            children[parent] -= 1
            if not children[parent] and parent in found:
                heapq.heappush(ready, (-times[parent], parent))
    return order


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
