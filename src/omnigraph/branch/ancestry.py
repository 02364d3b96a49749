"""Merge bases: the newest commits that two histories have in common.

The history of a commit is, per branch incarnation, every epoch up to some epoch: its own up to the commit, that of the
branch it was created from up to the commit it started at, and what was merged. So a history is a vector clock, and what
two histories share of one incarnation ends at the lower of their epochs.

1. start     with the two commits
2. explore   per side and incarnation the epochs that the other side does not have: their merges, and what the
             incarnation was created from. What both have is not read: whatever lies behind it is older
3. meet      per incarnation the lower epoch; a meeting point in the history of another one is no base

Reads the records between the bases and the two commits, never the whole history.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from omnigraph.storage.manifest.records import Record
from omnigraph.storage.manifest.table import Manifest


@dataclass
class _History:
    """The newest (epoch, commit) reached per incarnation, and the epoch up to which its records were explored."""

    reached: dict[str, tuple[int, str]] = field(default_factory=dict)
    explored: dict[str, int] = field(default_factory=dict)

    def reach(self, record: Record) -> None:
        assert record.commit is not None
        if record.epoch > self.epoch_of(record.incarnation):
            self.reached[record.incarnation] = (record.epoch, record.commit)

    def epoch_of(self, incarnation: str) -> int:
        return self.reached.get(incarnation, (-1, ""))[0]


@dataclass(frozen=True)
class _Span:
    """Epochs of one incarnation that one side has and the other has not."""

    side: _History
    incarnation: str
    first: int
    last: int


def merge_bases(manifest: Manifest, left: str, right: str) -> list[str]:
    """The best common ancestors of two commits, sorted by id: usually one, several after criss-cross merges."""
    if left == right:
        return [left]
    sides = (_History(), _History())
    for side, commit in zip(sides, (left, right), strict=True):
        side.reach(manifest.record(commit))
    while (span := _shortest_span(sides)) is not None:
        _explore(manifest, span)
    shared = sides[0].reached.keys() & sides[1].reached.keys()
    meeting = {min(sides[0].reached[i], sides[1].reached[i])[1] for i in shared}
    if len(meeting) > 1:
        meeting = {c for c in meeting if not any(c != d and is_ancestor(manifest, c, d) for d in meeting)}
    return sorted(meeting)


def is_ancestor(manifest: Manifest, old: str, new: str) -> bool:
    """Whether `old` is in the history of `new`, or `new` itself."""
    return merge_bases(manifest, old, new) == [old]


def _shortest_span(sides: tuple[_History, _History]) -> _Span | None:
    spans = []
    for side, other in (sides, sides[::-1]):
        for incarnation, (epoch, _) in side.reached.items():
            shared = min(epoch, other.epoch_of(incarnation))
            first = max(side.explored.get(incarnation, 0), shared)
            if first < epoch:
                spans.append(_Span(side, incarnation, first + 1, epoch))
    return min(spans, key=lambda span: span.last - span.first, default=None)


def _explore(manifest: Manifest, span: _Span) -> None:
    span.side.explored[span.incarnation] = span.last
    for record in manifest.records(span.incarnation, span.first, span.last):
        for commit in _other_parents(record):
            span.side.reach(manifest.record(commit))


def _other_parents(record: Record) -> Iterator[str]:
    """The commits that a record leads to besides the one before it on its own branch."""
    if record.merged_parent is not None:
        yield record.merged_parent
    if record.starts_incarnation and record.parent is not None:
        yield record.parent
