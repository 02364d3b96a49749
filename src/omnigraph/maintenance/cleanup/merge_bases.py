"""Commits that two live branches have in common last: a merge compares both with them, so their versions stay.

A branch's history is, per incarnation, everything up to some epoch: its own up to its head, that of the branch it was
made from up to the commit it started from, and what was merged. What two histories share of one incarnation ends at the
lower of their two epochs. So of every incarnation all ends are kept but the highest: a few too many do no harm. That
takes as long as there are branches, and not as long as there are pairs of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from omnigraph.storage import lancefs
from omnigraph.storage.manifest import Manifest, quote
from omnigraph.storage.records import Head, Record

End = tuple[int, str]
"""The newest epoch of an incarnation that is part of a history, and its commit."""


def merge_bases(manifest: Manifest, heads: Mapping[str, Head]) -> dict[str, tuple[str, str]]:
    """Commits that two live branches share and that may be the newest such, each with one such pair."""
    if len(heads) < 2:
        return {}
    histories = _Histories(manifest, heads)
    ends: dict[str, dict[End, list[str]]] = {}
    for branch in sorted(heads):
        for incarnation, end in histories.of(heads[branch]).items():
            ends.setdefault(incarnation, {}).setdefault(end, []).append(branch)
    found: dict[str, tuple[str, str]] = {}
    for branches in ends.values():
        for commit, pair in _shared(branches):
            found.setdefault(commit, pair)
    return found


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
    """What the histories of live branches are made of, each record asked for once."""

    def __init__(self, manifest: Manifest, heads: Mapping[str, Head]) -> None:
        self._manifest = manifest
        self._merges: dict[str, list[Record]] = {}
        for record in _merges(manifest, heads.values()):
            self._merges.setdefault(record.incarnation, []).append(record)
        named = {head.base for head in heads.values() if head.base is not None}
        named |= {r.merged_parent for found in self._merges.values() for r in found if r.merged_parent is not None}
        self._records = manifest.records_of(named)
        self._starts: dict[str, tuple[str, int, str] | None] = {
            head.incarnation: self._place(head.base) for head in heads.values() if head.base is not None
        }

    def of(self, head: Head) -> dict[str, End]:
        reached: dict[str, End] = {}
        todo = [(head.incarnation, head.epoch, head.commit)]
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
                    todo.append(self._place(record.merged_parent))
        return reached

    def _place(self, commit: str) -> tuple[str, int, str]:
        record = self._records.get(commit)
        if record is None:
            record = self._records[commit] = self._manifest.record(commit)
        return record.incarnation, record.epoch, commit

    def _start(self, incarnation: str) -> tuple[str, int, str] | None:
        """The commit, of another branch, that an incarnation was made from. Of a live branch its head names it."""
        if incarnation not in self._starts:
            self._starts[incarnation] = self._first_parent(incarnation)
        return self._starts[incarnation]

    def _first_parent(self, incarnation: str) -> tuple[str, int, str] | None:
        for first in self._manifest.records(incarnation, 0, 1):
            if first.parent is not None:
                place = self._place(first.parent)
                if place[0] != incarnation:
                    return place
        return None


def _merges(manifest: Manifest, heads: Iterable[Head]) -> Iterator[Record]:
    """Every record of a merge, from the heads and from the rows."""
    for head in heads:
        yield from (r for r in head.recent if r.merged_parent)
    merged = quote('"m":')
    where = f"kind = 'commit' AND contains(body, {merged})"
    with lancefs.reading("looking for merges in the manifest"):
        bodies = manifest.table().to_table(columns=["body"], filter=where)["body"].to_pylist()
    for record in map(Record.loads, bodies):
        if record.merged_parent:
            yield record
