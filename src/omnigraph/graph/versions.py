"""Tags and history of a graph handle, and branches that go to another commit. See `omnigraph.branch`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from omnigraph.arguments import checked
from omnigraph.branch.reset import Reset
from omnigraph.branch.revisions import resolve
from omnigraph.branch.tags import create_tag, delete_tag
from omnigraph.commit.request import Request
from omnigraph.errors import UsageError
from omnigraph.graph.results import CommitInfo, ResetResult, TagInfo
from omnigraph.storage.manifest.records import MAIN
from omnigraph.storage.manifest.tags import read_tags

if TYPE_CHECKING:
    from collections.abc import Sequence

    from omnigraph.commit.committer import Committer


class VersionMethods:
    """What `Graph` inherits: history, tags, and the reset of branches."""

    _committer: Committer

    def _by(self, actor: str | None) -> str | None:
        raise NotImplementedError

    @checked
    def commit_graph(self, branches: Sequence[str] | None = None, *, limit: int | None = None) -> list[CommitInfo]:
        """The commits that these branches, all by default, are made of, with what was merged: children before parents,
        else the newest first.
        """
        from omnigraph.graph.commits import ancestry

        if limit is not None and limit < 0:
            raise UsageError(detail=f"limit is a number of commits, not {limit}.")
        manifest = self._committer.manifest
        chosen = sorted(manifest.heads()) if branches is None else branches
        return [CommitInfo.of(record) for record in ancestry(manifest, chosen, limit=limit)]

    def tags(self) -> list[TagInfo]:
        """All tags, sorted by name."""
        return [TagInfo.of(tag) for _, tag in sorted(read_tags(self._committer.manifest).items())]

    @checked
    def create_tag(
        self,
        name: str,
        commit: str | None = None,
        *,
        branch: str = MAIN,
        message: str | None = None,
        actor: str | None = None,
    ) -> TagInfo:
        """A name for a commit, which cleanup then keeps with all its tables: that of a revision (the id of a commit, a
        branch, another tag, a time), or the newest of `branch`.
        """
        manifest, by = self._committer.manifest, self._by(actor)

        def revision() -> str:
            return manifest.head(branch).commit if commit is None else resolve(manifest, commit, branch=branch)

        with self._committer.mutex:
            return TagInfo.of(create_tag(manifest, name, revision, actor=by, message=message))

    @checked
    def delete_tag(self, name: str) -> TagInfo:
        """Remove a tag. The commit stays as long as cleanup keeps it."""
        with self._committer.mutex:
            return TagInfo.of(delete_tag(self._committer.manifest, name))

    @checked
    def reset_branch(
        self, name: str, *, to: str, if_commit: str | None = None, actor: str | None = None
    ) -> ResetResult:
        """Let the branch stand at another commit: that of a revision (the id of a commit, a branch, a tag, a time).

        What came after that commit is no longer part of the branch; it stays readable by its id as long as cleanup
        keeps it. Refused (BranchInUse) while other branches were made from this one, and with `if_commit` unless that
        commit is the branch's newest.
        """
        request = Request(branch=name, actor=self._by(actor), if_commit=if_commit)
        before = self._committer.manifest.head(name)
        outcome = self._committer.run(Reset(to), request)
        if outcome.record is not None:
            self._committer.sweep()
        return ResetResult.of(name, before.commit, outcome)
