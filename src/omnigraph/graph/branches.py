"""The branch verbs of a graph handle: merge and what uses the same machinery, each a module of `omnigraph.branch`."""

from __future__ import annotations

import logging
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal

from omnigraph.arguments import checked, renamed
from omnigraph.branch.revisions import resolve
from omnigraph.config.logs import log_event
from omnigraph.errors import MergeConflicts
from omnigraph.storage.manifest.records import MAIN

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from threading import Event

    from omnigraph.branch.diff.diff import DataFrames, Diff
    from omnigraph.branch.diff.entity_history import EntityHistory
    from omnigraph.branch.feed.feed import Feed
    from omnigraph.branch.feed.page import Baseline, ChangePage
    from omnigraph.branch.merge import Merge, MergeOptions
    from omnigraph.branch.merge.result import MergeResult
    from omnigraph.branch.merge.rows.tasks import RowTasks
    from omnigraph.commit.committer import Committer
    from omnigraph.commit.request import Outcome
    from omnigraph.graph.results import BranchInfo
    from omnigraph.storage.layout import Location
    from omnigraph.storage.manifest.table import Manifest
    from omnigraph.tasks.engine import EngineSettings

logger = logging.getLogger(__name__)


class BranchMethods:
    """What `Graph` inherits: verbs that compare states and bring them together."""

    _committer: Committer
    _location: Location
    _manifest: Manifest

    def _run(
        self,
        operation: Any,
        *,
        branch: str = MAIN,
        actor: str | None = None,
        if_commit: str | None = None,
        operation_id: str | None = None,
    ) -> Outcome:
        raise NotImplementedError

    def delete_branch(self, name: str) -> BranchInfo:
        raise NotImplementedError

    @property
    def engines(self) -> EngineSettings:
        raise NotImplementedError

    @checked
    def plan_merge(
        self,
        source: str,
        *,
        into: str = MAIN,
        strategy: Literal["fail", "ours", "theirs"] = "fail",
        grain: Literal["properties", "rows"] = "properties",
        resolutions: Any = None,
        engine: str | None = None,
    ) -> MergeResult:
        """What `merge` would do: outcome, counts per table and all conflicts. Nothing is changed."""
        from omnigraph.branch.merge.result import MergeResult

        operation = self._merge_of(source, self._merge_options(strategy, grain, resolutions))
        operation = replace(operation, tasks=self._merge_tasks(engine))
        return MergeResult.of_plan(operation.plan(self._committer.view(into)), source=source, target=into)

    @checked
    def merge(
        self,
        source: str,
        *,
        into: str = MAIN,
        strategy: Literal["fail", "ours", "theirs"] = "fail",
        grain: Literal["properties", "rows"] = "properties",
        resolutions: Any = None,
        delete_branch: bool = False,
        if_commit: str | None = None,
        actor: str | None = None,
        operation_id: str | None = None,
        engine: str | None = None,
    ) -> MergeResult:
        """Bring what `source` (a branch, tag or commit) changed since the merge base into a branch, in one commit.

        Two sides that changed different properties of one row merge; `grain="rows"` makes that a conflict. Any
        conflict raises MergeConflicts and changes nothing, unless `strategy` chooses a side or `resolutions` decide
        it: `{(table_key, id): "ours" | "theirs" | "base" | {property: value}}`, or conflicts as dictionaries with
        `resolution` filled in.

        What reads or copies many rows runs as tasks, on Spark or on threads of this process: `engine` is `auto`,
        `spark` or `local`.
        """
        from omnigraph.branch.merge.result import MergeResult

        operation = self._merge_of(source, self._merge_options(strategy, grain, resolutions))
        options = {"if_commit": if_commit, "actor": actor, "operation_id": operation_id}
        result = MergeResult.of(self._merged(operation, into, options, engine), source=source, target=into)
        if delete_branch:
            self.delete_branch(source)
            result = replace(result, branch_deleted=True)
        return result

    @checked
    def revert(
        self,
        commit: str,
        *,
        branch: str = MAIN,
        strategy: Literal["fail", "ours", "theirs"] = "fail",
        resolutions: Any = None,
        if_commit: str | None = None,
        actor: str | None = None,
        operation_id: str | None = None,
        engine: str | None = None,
    ) -> MergeResult:
        """Undo what one commit changed, on top of the branch's newest state, in one commit.

        What was changed since in the same places is a conflict, as in a merge.
        """
        from omnigraph.branch.merge.result import MergeResult
        from omnigraph.branch.pick import revert_of

        options = self._merge_options(strategy, "properties", resolutions)
        operation = revert_of(self._manifest, resolve(self._manifest, commit, branch=branch), options)
        write = {"if_commit": if_commit, "actor": actor, "operation_id": operation_id}
        return MergeResult.of(self._merged(operation, branch, write, engine), source=commit, target=branch)

    @checked
    def cherry_pick(
        self,
        commit: str,
        *,
        onto: str = MAIN,
        strategy: Literal["fail", "ours", "theirs"] = "fail",
        resolutions: Any = None,
        if_commit: str | None = None,
        actor: str | None = None,
        operation_id: str | None = None,
        engine: str | None = None,
    ) -> MergeResult:
        """Bring what one commit changed, and nothing else of its history, onto a branch, in one commit."""
        from omnigraph.branch.merge.result import MergeResult
        from omnigraph.branch.pick import cherry_pick_of

        options = self._merge_options(strategy, "properties", resolutions)
        operation = cherry_pick_of(self._manifest, resolve(self._manifest, commit, branch=onto), options)
        write = {"if_commit": if_commit, "actor": actor, "operation_id": operation_id}
        return MergeResult.of(self._merged(operation, onto, write, engine), source=commit, target=onto)

    # ---- comparing ---------------------------------------------------------------------------------------------------

    @checked
    def diff(
        self,
        base: str,
        target: str,
        *,
        since_merge_base: bool = False,
        types: Sequence[str] | None = None,
        ids: Sequence[str] | None = None,
        operations: Sequence[str] | None = None,
        engine: str | None = None,
    ) -> Diff:
        """What differs between two states, which are named by a branch, a tag, a commit or a time.

        `since_merge_base` compares `target` with the merge base of both instead: what `target` changed since they went
        apart. `types`, `ids` and `operations` choose some of the changes. Nothing is read before the result is used.
        `engine="spark"` gives DataFrames.
        """
        from omnigraph.branch.diff.diff import ChangeFilter, Diff, diff_base

        chosen = ChangeFilter.of(types, ids, operations)
        old, new = (resolve(self._manifest, revision) for revision in (base, target))
        if since_merge_base:
            old = diff_base(self._manifest, old, new)
        view = self._committer.view(MAIN)
        return Diff(view.at(old), view.at(new), chosen, self._dataframes(engine))

    @checked
    def commit_changes(
        self,
        commit_id: str,
        *,
        types: Sequence[str] | None = None,
        ids: Sequence[str] | None = None,
        operations: Sequence[str] | None = None,
        engine: str | None = None,
    ) -> Diff:
        """What one commit did: the diff to its first parent. A merge did what it brought to its branch."""
        from omnigraph.branch.diff.diff import ChangeFilter, Diff, empty_state

        chosen = ChangeFilter.of(types, ids, operations)
        commit = resolve(self._manifest, commit_id)
        parent = self._manifest.record(commit).parent
        view = self._committer.view(MAIN)
        old = empty_state(view) if parent is None else view.at(parent)
        return Diff(old, view.at(commit), chosen, self._dataframes(engine))

    @renamed(id="entity_id")
    @checked
    def history(self, type_name: str, entity_id: str, *, branch: str = MAIN) -> EntityHistory:
        """Every version of one entity on a branch, newest first: who changed which properties, when, and the image."""
        from omnigraph.branch.diff.entity_history import entity_history

        view = self._committer.view(branch)
        return entity_history(view, view.type(type_name), entity_id, branch=branch)

    def _dataframes(self, engine: str | None) -> DataFrames | None:
        name, _ = self.engines.choose(work_bytes=0, requested=engine or "local")
        if name != "spark":
            return None
        from omnigraph.pipeline.datasource.diff import dataframes

        return dataframes(self.engines)

    # ---- change feed -------------------------------------------------------------------------------------------------

    @checked
    def changes(
        self,
        after: str | None = None,
        *,
        branch: str = MAIN,
        types: Sequence[str] | None = None,
        limit: int | None = None,
        from_start: bool = False,
        from_now: bool = False,
        page_rows: int | None = None,
    ) -> Iterator[ChangePage]:
        """What each commit of a branch changed, oldest first, up to the newest at the time of the call.

        `after` is the cursor of a page, or a commit id; without it the feed begins at the first commit. Each page has
        the cursor behind it: store it after the page is processed, and go on from it. `limit` is a number of commits.
        """
        feed = self._feed(branch, types, page_rows)
        head = feed.head()
        cursor = feed.start(head, after=after, from_start=from_start, from_now=from_now)
        return feed.pages(head, cursor, limit=limit)

    @checked
    def follow_changes(
        self,
        after: str | None = None,
        *,
        branch: str = MAIN,
        types: Sequence[str] | None = None,
        limit: int | None = None,
        from_start: bool = False,
        from_now: bool = False,
        page_rows: int | None = None,
        stop: Event | None = None,
    ) -> Iterator[ChangePage]:
        """As `changes`, and then what is committed from now on: it waits, until `stop` is set or `limit` is reached."""
        feed = self._feed(branch, types, page_rows)
        head = feed.head()
        cursor = feed.start(head, after=after, from_start=from_start, from_now=from_now)
        feed.pages(head, cursor, limit=limit)  # tells what is wrong with the call before anything is awaited
        return feed.follow(cursor, limit=limit, stop=stop)

    @checked
    def changes_cursor(self, *, branch: str = MAIN, commit: str | None = None) -> str:
        """The cursor behind a commit, by default behind the newest of the branch."""
        feed = self._feed(branch, None, None)
        return str(feed.start(feed.head(), after=commit, from_now=commit is None))

    @checked
    @contextmanager
    def changes_baseline(self, *, branch: str = MAIN, types: Sequence[str] | None = None) -> Iterator[Baseline]:
        """The newest state of a branch as inserts, under a lease while the block runs, and the cursor to go on from."""
        from omnigraph.branch.feed.cursor import Cursor
        from omnigraph.branch.feed.page import Baseline
        from omnigraph.pipeline.snapshot_lease import leased

        with leased(self._committer, branch) as snapshot:
            cursor = Cursor(snapshot.view.head.incarnation, snapshot.commit)
            yield Baseline(branch, snapshot.commit, str(cursor), snapshot.view, types)

    def _feed(self, branch: str, types: Sequence[str] | None, page_rows: int | None) -> Feed:
        from omnigraph.branch.feed.feed import Feed

        return Feed(self._committer, branch, types=types, page_rows=page_rows)

    # ---- merging -----------------------------------------------------------------------------------------------------

    def _merge_options(self, strategy: Any, grain: Any, resolutions: Any) -> MergeOptions:
        from omnigraph.branch.merge import MergeOptions
        from omnigraph.branch.merge.resolutions import read_resolutions, require_choice

        require_choice("strategy", strategy, ("fail", "ours", "theirs"))
        require_choice("grain", grain, ("properties", "rows"))
        return MergeOptions(strategy, grain, read_resolutions(resolutions))

    def _merge_of(self, source: str, options: MergeOptions) -> Merge:
        from omnigraph.branch.merge import Merge

        return Merge(resolve(self._manifest, source), options, summary={"source": source})

    def _merge_tasks(self, engine: str | None) -> RowTasks:
        from omnigraph.pipeline.merge_tasks import merge_tasks

        return merge_tasks(self.engines, engine)

    def _merged(self, operation: Merge, branch: str, options: Mapping[str, Any], engine: str | None) -> Outcome:
        self._manifest.require_writable()
        operation = replace(operation, tasks=self._merge_tasks(engine))
        try:
            return self._run(operation.sized(self._committer.view(branch)), branch=branch, **options)
        except MergeConflicts as error:
            fields = {"branch": branch, "kind": operation.kind, "source": operation.source, "reason": error.message}
            log_event(logger, logging.INFO, "conflicts refused a merge", graph=self._location.uri, **fields)
            raise
