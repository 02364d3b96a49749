"""Merge bases: the newest commits that two histories have in common.

The history of a commit is, per branch incarnation, every epoch up to some epoch: its own up to the commit, that of the
branch it was created from up to the commit it started at, and what was merged. So a history is a vector clock, and what
two histories share of one incarnation ends at the lower of their epochs.

1. start     with the two commits
2. explore   per side and incarnation the epochs that the other side does not have: their merges, and what the
             incarnation was created from. What both have is not read: whatever lies behind it is older. Short spans
             come first, and those of about the same length together
3. meet      per incarnation the lower epoch; a meeting point in the history of another one is no base

Reads the records between the bases and the two commits, never the whole history, in a number of questions that follows
the depth of the merges in it and not their count.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from omnigraph.storage.manifest.commit_links import CommitLink, EpochSpan
from omnigraph.storage.manifest.table import Manifest

SPAN_EPOCHS_MIN = 32
"""Spans of up to this many epochs are short, whatever the shortest one has."""


@dataclass(eq=False)
class _History:
    """The newest (epoch, commit) reached per incarnation, and the epoch up to which its records were explored."""

    reached: dict[str, tuple[int, str]] = field(default_factory=dict)
    explored: dict[str, int] = field(default_factory=dict)

    def reach(self, link: CommitLink) -> None:
        assert link.commit is not None
        if link.epoch > self.epoch_of(link.incarnation):
            self.reached[link.incarnation] = (link.epoch, link.commit)

    def epoch_of(self, incarnation: str) -> int:
        return self.reached.get(incarnation, (-1, ""))[0]


def merge_bases(manifest: Manifest, left: str, right: str) -> list[str]:
    """The best common ancestors of two commits, sorted by id: usually one, several after criss-cross merges."""
    if left == right:
        return [left]
    sides = (_History(), _History())
    links = manifest.links.of_commits((left, right))
    for side, commit in zip(sides, (left, right), strict=True):
        side.reach(links[commit])
    while spans := _short_spans(sides):
        _explore(manifest, spans)
    shared = sides[0].reached.keys() & sides[1].reached.keys()
    meeting = {min(sides[0].reached[i], sides[1].reached[i])[1] for i in shared}
    if len(meeting) > 1:
        meeting = {c for c in meeting if not any(c != d and is_ancestor(manifest, c, d) for d in meeting)}
    return sorted(meeting)


def is_ancestor(manifest: Manifest, old: str, new: str) -> bool:
    """Whether `old` is in the history of `new`, or `new` itself."""
    return merge_bases(manifest, old, new) == [old]


def _short_spans(sides: tuple[_History, _History]) -> list[tuple[_History, EpochSpan]]:
    """Unexplored epochs that one side has and the other has not: the shortest span, and all that are not much longer.
    A long one may shrink once the other side has been followed.
    """
    spans = []
    for side, other in (sides, sides[::-1]):
        for incarnation, (epoch, _) in side.reached.items():
            shared = min(epoch, other.epoch_of(incarnation))
            first = max(side.explored.get(incarnation, 0), shared)
            if first < epoch:
                spans.append((side, EpochSpan(incarnation, first + 1, epoch)))
    lengths = [span.last - span.first + 1 for _, span in spans]
    longest = max(SPAN_EPOCHS_MIN, 2 * min(lengths, default=0))
    return [pair for pair, length in zip(spans, lengths, strict=True) if length <= longest]


def _explore(manifest: Manifest, spans: list[tuple[_History, EpochSpan]]) -> None:
    explored = manifest.links.of_spans([span for _, span in spans])
    parents = [[c for link in links for c in link.other_parents] for links in explored]
    linked = manifest.links.of_commits(commit for commits in parents for commit in commits)
    for (side, span), commits in zip(spans, parents, strict=True):
        side.explored[span.incarnation] = span.last
        for commit in commits:
            side.reach(linked[commit])
