"""What commit records say about the commit graph, read in batches and remembered: a decided epoch never changes.

A walk through the graph meets as many commits as were merged. One question to the manifest's rows per commit would cost
a scan each, so commits and epochs are asked for together.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from omnigraph.storage.manifest.records import Record

if TYPE_CHECKING:
    from omnigraph.storage.manifest.table import Manifest

LINKS_MAX = 50_000
"""How many links are remembered before all are forgotten."""


@dataclass(frozen=True)
class EpochSpan:
    """Epochs of one incarnation, both ends included."""

    incarnation: str
    first: int
    last: int


@dataclass(frozen=True, slots=True)
class CommitLink:
    """One decided epoch. `commit` is None for an abort without effects. `other_parents` are the commits that it leads
    to besides the one before it on its own branch: what was merged, and what its incarnation was created from.
    """

    incarnation: str
    epoch: int
    commit: str | None
    other_parents: tuple[str, ...]

    @staticmethod
    def of(record: Record) -> CommitLink:
        start = record.parent if record.starts_incarnation else None
        parents = tuple(commit for commit in (record.merged_parent, start) if commit is not None)
        return CommitLink(record.incarnation, record.epoch, record.commit, parents)


class CommitLinks:
    """The links of one manifest. Threads may share it: an entry that two of them add is the same."""

    def __init__(self, manifest: Manifest) -> None:
        self._manifest = manifest
        self._by_commit: dict[str, CommitLink] = {}
        self._by_epoch: dict[tuple[str, int], CommitLink] = {}

    def of_commits(self, commits: Iterable[str]) -> dict[str, CommitLink]:
        """By commit. CommitNotFound if there is none."""
        wanted = list(dict.fromkeys(commits))
        links = {commit: self._by_commit[commit] for commit in wanted if commit in self._by_commit}
        unknown = [commit for commit in wanted if commit not in links]
        if unknown:
            records = self._manifest.records_of(unknown)
            links.update({commit: self._remembered(record) for commit, record in records.items()})
        return links

    def of_spans(self, spans: Sequence[EpochSpan]) -> list[list[CommitLink]]:
        """Per span the links of its epochs, oldest first. Every epoch is decided; some have no record."""
        links = {span: self._known(span) for span in spans}
        unknown = [span for span in links if len(links[span]) <= span.last - span.first]
        if unknown:
            records = self._manifest.records_of_spans(unknown)
            links.update({span: [self._remembered(record) for record in records[span]] for span in unknown})
        return [links[span] for span in spans]

    def _known(self, span: EpochSpan) -> list[CommitLink]:
        epochs = range(span.first, span.last + 1)
        links = (self._by_epoch.get((span.incarnation, epoch)) for epoch in epochs)
        return [link for link in links if link is not None]

    def _remembered(self, record: Record) -> CommitLink:
        link = CommitLink.of(record)
        if len(self._by_epoch) >= LINKS_MAX:
            self._by_epoch, self._by_commit = {}, {}
        self._by_epoch[record.incarnation, record.epoch] = link
        if record.commit is not None:
            self._by_commit[record.commit] = link
        return link
