"""The newest commits that two live branches share: a merge compares both with them, so their versions are retained.

A branch's history is, per incarnation, everything up to some epoch: its own up to its head, that of the branch it was
made from up to the commit it started from, and what was merged. What two histories share of one incarnation ends at the
lower of their two epochs. So of every incarnation all ends are kept but the highest: a few too many do no harm. The
work grows with the number of branches, not of pairs.

After merges in both directions (criss-cross) two branches may have several bases, none of them part of another's
history. A merge then compares with a merge of these, which takes their own bases, and so on: the closure is kept. Two
branches have several bases only if each has a merge in its history that the other lacks, and only such pairs are
looked at.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping, Set
from itertools import combinations

from omnigraph.storage.lance import lance_api
from omnigraph.storage.manifest.incarnations import start_of
from omnigraph.storage.manifest.records import Head, Record
from omnigraph.storage.manifest.table import Manifest, quote

End = tuple[int, str]
"""The newest epoch of an incarnation that is part of a history, and its commit."""
Position = tuple[str, int, str]
"""A commit with its incarnation and epoch: (incarnation, epoch, commit)."""


def merge_bases(manifest: Manifest, heads: Mapping[str, Head]) -> dict[str, tuple[str, str]]:
    """Commits that two live branches share and that may be the newest such, each with one such pair."""
    if len(heads) < 2:
        return {}
    histories = _Histories(manifest, heads)
    ends: dict[str, dict[End, list[str]]] = {}
    clocks = {branch: histories.of(head) for branch, head in sorted(heads.items())}
    for branch, clock in clocks.items():
        for incarnation, end in clock.items():
            ends.setdefault(incarnation, {}).setdefault(end, []).append(branch)
    pairs: dict[str, tuple[str, str]] = {}
    for branches in ends.values():
        for commit, pair in _shared(branches):
            pairs.setdefault(commit, pair)
    for commit, pair in _criss_crosses(histories, clocks):
        pairs.setdefault(commit, pair)
    return pairs


def _criss_crosses(
    histories: _Histories, clocks: Mapping[str, Mapping[str, End]]
) -> Iterator[tuple[str, tuple[str, str]]]:
    """Of every two branches with several bases: these, the bases of these, and so on."""
    merges = {branch: counts for branch, clock in clocks.items() if (counts := histories.merge_counts(clock))}
    for first, second in combinations(merges, 2):
        if _exceeds(merges[first], merges[second]) and _exceeds(merges[second], merges[first]):
            bases = histories.bases(clocks[first], clocks[second])
            if len(bases) > 1:
                yield from ((commit, (first, second)) for commit in histories.closure(bases))


def _exceeds(first: Mapping[str, int], second: Mapping[str, int]) -> bool:
    return any(count > second.get(incarnation, 0) for incarnation, count in first.items())


def _shared(branches: Mapping[End, list[str]]) -> Iterator[tuple[str, tuple[str, str]]]:
    """Of one incarnation: every commit at which the common part of two histories ends, with two such branches."""
    beyond: str | None = None
    for end in sorted(branches, reverse=True):
        names = branches[end]
        if len(names) > 1:
            yield end[1], (names[0], names[1])
        elif beyond is not None:
            yield end[1], (min(names[0], beyond), max(names[0], beyond))
        beyond = names[0] if beyond is None else min(beyond, names[0])


class _Histories:
    """What the histories of live branches are made of, each record read once."""

    def __init__(self, manifest: Manifest, heads: Mapping[str, Head]) -> None:
        self._manifest = manifest
        self._merges: dict[str, list[Record]] = {}
        for record in _merges(manifest, heads.values()):
            self._merges.setdefault(record.incarnation, []).append(record)
        self._epochs = {
            incarnation: sorted({r.epoch for r in records}) for incarnation, records in self._merges.items()
        }
        self._clocks: dict[str, dict[str, End]] = {}
        starts = {head.incarnation: head.base or head.reset_to for head in heads.values()}
        named = {commit for commit in starts.values() if commit is not None}
        named |= {r.merged_parent for records in self._merges.values() for r in records if r.merged_parent is not None}
        self._records = manifest.records_of(named)
        self._starts: dict[str, Position | None] = {
            incarnation: self._position(commit) for incarnation, commit in starts.items() if commit is not None
        }

    def of(self, head: Head) -> dict[str, End]:
        """The history of a head: per incarnation the newest epoch that is part of it."""
        return self._before((head.incarnation, head.epoch, head.commit))

    def _before(self, newest: Position) -> dict[str, End]:
        reached: dict[str, End] = {}
        todo = [newest]
        while todo:
            incarnation, epoch, commit = todo.pop()
            before = reached.get(incarnation, (-1, ""))[0]
            if epoch <= before:
                continue
            reached[incarnation] = (epoch, commit)
            start = self._start(incarnation) if before < 0 else None
            if start is not None:
                todo.append(start)
            for record in self._merges.get(incarnation, ()):
                if before < record.epoch <= epoch and record.merged_parent:
                    todo.append(self._position(record.merged_parent))
        return reached

    def merge_counts(self, clock: Mapping[str, End]) -> dict[str, int]:
        """How many merges of each incarnation are part of a history."""
        counts = {i: bisect_right(self._epochs[i], clock[i][0]) for i in self._epochs.keys() & clock.keys()}
        return {incarnation: count for incarnation, count in counts.items() if count}

    def bases(self, first: Mapping[str, End], second: Mapping[str, End]) -> set[str]:
        """The newest commits that two histories share: those that are not part of the history of another one."""
        shared = {min(first[incarnation], second[incarnation])[1] for incarnation in first.keys() & second.keys()}
        if len(shared) < 2:
            return shared
        return {c for c in shared if not any(c != d and self._is_in(c, self._clock(d)) for d in shared)}

    def closure(self, commits: Set[str]) -> set[str]:
        """These commits, the bases of every two of them, and so on."""
        closed = set(commits)
        todo = list(combinations(sorted(closed), 2))
        while todo:
            first, second = todo.pop()
            fresh = self.bases(self._clock(first), self._clock(second)) - closed
            todo += [*((new, old) for new in fresh for old in closed), *combinations(sorted(fresh), 2)]
            closed |= fresh
        return closed

    def _clock(self, commit: str) -> dict[str, End]:
        if commit not in self._clocks:
            self._clocks[commit] = self._before(self._position(commit))
        return self._clocks[commit]

    def _is_in(self, commit: str, clock: Mapping[str, End]) -> bool:
        incarnation, epoch, _ = self._position(commit)
        return epoch <= clock.get(incarnation, (-1, ""))[0]

    def _position(self, commit: str) -> Position:
        record = self._records.get(commit)
        if record is None:
            record = self._records[commit] = self._manifest.record(commit)
        return record.incarnation, record.epoch, commit

    def _start(self, incarnation: str) -> Position | None:
        """The commit, of another branch, that an incarnation was made from. Of a live branch its head names it."""
        if incarnation not in self._starts:
            start = start_of(self._manifest, incarnation)
            self._starts[incarnation] = None if start is None else (start.incarnation, start.epoch, str(start.commit))
        return self._starts[incarnation]


def _merges(manifest: Manifest, heads: Iterable[Head]) -> Iterator[Record]:
    """Every record of a merge, from the heads and from the rows."""
    for head in heads:
        yield from (r for r in head.recent if r.merged_parent)
    merged = quote('"m":')
    where = f"kind = 'commit' AND contains(body, {merged})"
    with lance_api.reading("looking for merges in the manifest"):
        bodies = manifest.table().to_table(columns=["body"], filter=where)["body"].to_pylist()
    for record in map(Record.loads, bodies):
        if record.merged_parent:
            yield record
