"""Verbs that bring states together: branch merge, commit revert, commit cherry-pick.

Conflicts are an answer and no failure: they are printed, or written to a file, and the exit code is 1.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any, Literal

from typer import Option

from omnigraph.cli.files import written
from omnigraph.cli.options import Actor, Branch, Conf, Engine, IfCommit, Json, Master, Quiet, Store, Words
from omnigraph.cli.output import Answer, Table, count, echo_target
from omnigraph.cli.progress import Progress
from omnigraph.cli.target import Target, checked_actor, open_direct, resolve_with
from omnigraph.cli.watch import watching
from omnigraph.errors import MergeConflicts, UsageError

if TYPE_CHECKING:
    from omnigraph.branch.merge.model import Conflict
    from omnigraph.branch.merge.result import MergeResult
    from omnigraph.graph.handle import Graph
    from omnigraph.tasks.progress import Watcher

CONFLICTS_SHOWN_MAX = 20

Into = Annotated[str, Option("--into", metavar="NAME", help="The branch that the source is merged into.")]
Onto = Annotated[str, Option("--onto", metavar="NAME", help="The branch that gets the change.")]
Strategy = Annotated[
    Literal["fail", "ours", "theirs"],
    Option(
        "--strategy",
        help="What becomes of conflicts between values: fail refuses the merge; ours keeps the target's side, theirs "
        "takes the source's, for the properties in conflict. Conflicts with a rule of the schema stay conflicts.",
    ),
]
Grain = Annotated[
    Literal["properties", "rows"],
    Option("--grain", help="rows: two sides that changed different properties of one row are a conflict as well."),
]
PlanOnly = Annotated[bool, Option("--plan", help="Show what the merge would do, with all conflicts; change nothing.")]
ConflictsFile = Annotated[
    str | None,
    Option(
        "--conflicts",
        metavar="FILE",
        help="Write the conflicts as JSON lines, each with an empty `resolution` to fill in.",
        show_default=False,
    ),
]
ResolveFile = Annotated[
    str | None,
    Option(
        "--resolve",
        metavar="FILE",
        help="Apply the resolutions of such a file: ours, theirs, base, or an object with values.",
        show_default=False,
    ),
]
DeleteBranch = Annotated[bool, Option("--delete-branch", help="Delete the source branch once it is merged.")]


def branch_merge(
    words: Words = None,
    store: Store = None,
    into: Into = "main",
    strategy: Strategy = "fail",
    grain: Grain = "properties",
    plan: PlanOnly = False,
    conflicts: ConflictsFile = None,
    resolve: ResolveFile = None,
    delete_branch: DeleteBranch = False,
    if_commit: IfCommit = None,
    actor: Actor = None,
    engine: Engine = None,
    master: Master = None,
    conf: Conf = None,
    json: Json = False,
    quiet: Quiet = False,
) -> Answer:
    """Merge what a branch, or any commit, changed since the merge base into a branch, in one commit.

    Two sides that changed different properties of one row merge. The same property changed to different values, and
    changes that together break a rule of the schema, are conflicts: then nothing is changed and the exit code is 1.
    """
    if plan and delete_branch:
        raise UsageError(detail="--plan changes nothing, so there is no branch to delete.")
    target, source = resolve_with(words or [], store, name="the branch or commit to merge")
    resolutions = _resolutions(resolve)
    with _opened(target, actor, engine, master, conf, quiet=quiet) as graph:
        options: dict[str, Any] = {"into": into, "strategy": strategy, "grain": grain, "resolutions": resolutions}
        if plan:
            work = partial(graph.plan_merge, source, **options)
        else:
            echo_target(f"merging {source} into", target.uri, branch=into, quiet=quiet)
            work = partial(graph.merge, source, delete_branch=delete_branch, if_commit=if_commit, **options)
        return _answer(work, source, into, conflicts, json=json, planned=plan)


def commit_revert(
    words: Words = None,
    store: Store = None,
    branch: Branch = "main",
    strategy: Strategy = "fail",
    conflicts: ConflictsFile = None,
    resolve: ResolveFile = None,
    if_commit: IfCommit = None,
    actor: Actor = None,
    engine: Engine = None,
    master: Master = None,
    conf: Conf = None,
    json: Json = False,
    quiet: Quiet = False,
) -> Answer:
    """Undo what one commit changed, on top of the branch's newest state, in one new commit."""
    target, commit = resolve_with(words or [], store, name="the commit to revert")
    resolutions = _resolutions(resolve)
    with _opened(target, actor, engine, master, conf, quiet=quiet) as graph:
        echo_target(f"reverting {commit} on", target.uri, branch=branch, quiet=quiet)
        options: dict[str, Any] = {"strategy": strategy, "resolutions": resolutions, "if_commit": if_commit}
        work = partial(graph.revert, commit, branch=branch, **options)
        return _answer(work, commit, branch, conflicts, json=json)


def commit_cherry_pick(
    words: Words = None,
    store: Store = None,
    onto: Onto = "main",
    strategy: Strategy = "fail",
    conflicts: ConflictsFile = None,
    resolve: ResolveFile = None,
    if_commit: IfCommit = None,
    actor: Actor = None,
    engine: Engine = None,
    master: Master = None,
    conf: Conf = None,
    json: Json = False,
    quiet: Quiet = False,
) -> Answer:
    """Bring what one commit changed, and nothing else of its history, onto a branch, in one new commit."""
    target, commit = resolve_with(words or [], store, name="the commit to cherry-pick")
    resolutions = _resolutions(resolve)
    with _opened(target, actor, engine, master, conf, quiet=quiet) as graph:
        echo_target(f"cherry-picking {commit} onto", target.uri, branch=onto, quiet=quiet)
        options: dict[str, Any] = {"strategy": strategy, "resolutions": resolutions, "if_commit": if_commit}
        work = partial(graph.cherry_pick, commit, onto=onto, **options)
        return _answer(work, commit, onto, conflicts, json=json)


@contextmanager
def _opened(
    target: Target,
    actor: str | None,
    engine: str | None,
    master: str | None,
    conf: list[str] | None,
    *,
    quiet: bool,
) -> Iterator[Graph]:
    """The graph, and progress on stderr while it is at work."""
    with Progress("merging", quiet=quiet) as progress, watching(quiet=quiet) as watcher:
        shown = _Stages(watcher, progress)
        with open_direct(target, engine, master, conf, shown, actor=checked_actor(actor)) as graph:
            yield graph


@dataclass(frozen=True)
class _Stages:
    """A watcher that ends the line of a merge in one piece as soon as there are tasks to show."""

    watcher: Watcher
    progress: Progress

    def engine(self, name: str, reason: str) -> None:
        self.progress.end()
        self.watcher.engine(name, reason)

    def stage(self, name: str, *, tasks: int) -> None:
        self.watcher.stage(name, tasks=tasks)

    def advance(self, *, tasks: int, rows: int, size_bytes: int) -> None:
        self.watcher.advance(tasks=tasks, rows=rows, size_bytes=size_bytes)


def _resolutions(path: str | None) -> Any:
    if path is None:
        return None
    from omnigraph.branch.merge.resolutions import read_resolution_file

    return read_resolution_file(path)


def _answer(
    work: Callable[[], MergeResult],
    source: str,
    target: str,
    conflicts_file: str | None,
    *,
    json: bool,
    planned: bool = False,
) -> Answer:
    import omnigraph
    from omnigraph.branch.merge.resolutions import conflict_lines

    try:
        result = work()
    except MergeConflicts as error:
        result = omnigraph.MergeResult.of_plan(error.plan, source=source, target=target)
    if conflicts_file is not None:
        with written(conflicts_file) as file:
            file.write(conflict_lines(result.conflicts))
    exit_code = 1 if result.outcome == "conflicts" else 0
    return Answer(result.to_json(), _text(result, conflicts_file, planned=planned), json, exit_code)


def _text(result: MergeResult, conflicts_file: str | None, *, planned: bool) -> list[str | Table]:
    lines: list[str | Table] = [_headline(result, planned=planned)]
    lines += [f"  {step}" for step in result.schema_steps]
    if result.tables and result.outcome != "conflicts":
        columns = ("table", "inserted", "updated", "deleted", "adopted fragments", "copied rows")
        shown = columns[:4] if planned else columns
        rows = [
            [t.table_key, *(f"{value:,}" for value in list(t.to_json().values())[1 : len(shown)])]
            for t in result.tables
        ]
        lines.append(Table(shown, rows, frozenset(shown[1:]), names=True))
    if result.conflicts:
        lines.append(_conflict_table(result.conflicts[:CONFLICTS_SHOWN_MAX]))
        if len(result.conflicts) > CONFLICTS_SHOWN_MAX:
            lines.append(f"… and {len(result.conflicts) - CONFLICTS_SHOWN_MAX:,} more")
        where = conflicts_file or "FILE"
        if conflicts_file is None:
            lines.append("→ write them to a file with --conflicts FILE, fill in `resolution`, and use --resolve FILE")
        else:
            lines.append(f"→ fill in `resolution` in {where}, and merge again with --resolve {where}")
    if result.branch_deleted:
        lines.append(f"deleted {result.source}")
    return lines


def _headline(result: MergeResult, *, planned: bool) -> str:
    pair = f"{result.source} into {result.target}"
    if result.outcome == "already_up_to_date":
        return f"{result.target} has everything of {result.source} already; nothing to merge"
    if result.outcome == "conflicts":
        return f"{pair}: {count(len(result.conflicts), 'conflict', 'conflicts')}; nothing was changed"
    how = "fast-forward" if result.outcome == "fast_forward" else "three-way"
    if planned or result.commit is None:
        return f"would merge {pair} ({how})" if planned else f"{pair}: nothing changed"
    return f"merged {pair} ({how}), commit {result.commit.id}"


def _conflict_table(conflicts: tuple[Conflict, ...]) -> Table:
    rows = []
    for conflict in conflicts:
        entity = conflict.table_key if conflict.id is None else f"{conflict.table_key} {conflict.id}"
        rows.append([entity, conflict.kind, conflict.message])
    return Table(("entity", "conflict", "what"), rows, names=True)
