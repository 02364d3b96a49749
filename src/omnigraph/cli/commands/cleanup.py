"""The verb cleanup: remove versions that nobody needs any more, and what dead writers left."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from typer import Option

from omnigraph.cli.consent import require_consent
from omnigraph.cli.options import Cluster, GraphId, Json, Quiet, Store, Uri, Yes
from omnigraph.cli.output import Answer, Table, count, echo_target
from omnigraph.cli.target import open_direct, resolve_direct
from omnigraph.cli.text import Lines
from omnigraph.cli.watch import watching
from omnigraph.config.sizes import size_text
from omnigraph.errors import UsageError

if TYPE_CHECKING:
    from omnigraph.maintenance.cleanup import CleanupResult

SHOWN_MAX = 10
_FIGURES = frozenset(("versions", "files", "size"))

Keep = Annotated[
    int | None,
    Option("--keep", metavar="N", help="Keep the newest N versions of every table's line.", show_default=False),
]
OlderThan = Annotated[
    str | None,
    Option(
        "--older-than",
        metavar="DURATION",
        help="Remove only versions that were replaced so long ago, as 90s, 15m, 12h, 7d or 2w: every state since then "
        "stays readable. With --keep, both must let a version go.",
        show_default=False,
    ),
]
PolicyFile = Annotated[
    str | None,
    Option(
        "--policy",
        metavar="FILE",
        help="What to keep per branch, a YAML file, instead of --keep and --older-than.",
        show_default=False,
    ),
]
OrphansOlderThan = Annotated[
    str | None,
    Option(
        "--orphans-older-than",
        metavar="DURATION",
        help="Remove files that no version refers to once they are so old; 7d by default, and at least 4d.",
        show_default=False,
    ),
]
ManifestOlderThan = Annotated[
    str | None,
    Option(
        "--manifest-older-than",
        metavar="DURATION",
        help="Keep the manifest's own versions for so long, whatever else is said; 3d by default, and at least 5m.",
        show_default=False,
    ),
]
Plan = Annotated[bool, Option("--plan", help="Only show what would be removed, as without --confirm.")]
Apply = Annotated[
    str | None,
    Option(
        "--apply",
        metavar="FILE",
        help="Remove what a plan names that --plan --json wrote, and nothing else; what has come into use since stays.",
        show_default=False,
    ),
]
Confirm = Annotated[bool, Option("--confirm", help="Do it. Without it, only show what would be done.")]


def cleanup(
    uri: Uri = None,
    store: Store = None,
    cluster: Cluster = None,
    graph: GraphId = None,
    keep: Keep = None,
    older_than: OlderThan = None,
    policy: PolicyFile = None,
    orphans_older_than: OrphansOlderThan = None,
    manifest_older_than: ManifestOlderThan = None,
    plan: Plan = False,
    apply: Apply = None,
    confirm: Confirm = False,
    yes: Yes = False,
    json: Json = False,
    quiet: Quiet = False,
) -> Answer:
    """Remove old versions, forks of deleted branches, and files that dead writers left.

    Nothing is removed without --confirm. Whatever a live branch, a tag of Lance or a running reader needs stays.
    """
    target = resolve_direct(uri, store, cluster, graph, verb="cleanup")
    if plan and (confirm or apply is not None):
        raise UsageError(detail=f"--plan only looks; {'--confirm' if confirm else '--apply'} is for another call.")
    given = (keep, older_than, policy, orphans_older_than, manifest_older_than)
    if apply is not None and any(one is not None for one in given):
        raise UsageError(detail="a plan has its own policy: with --apply, give neither limits nor --policy.")
    from omnigraph.maintenance.cleanup import make_policy
    from omnigraph.maintenance.cleanup.document import read_plan

    chosen = None
    if apply is None:
        chosen = make_policy(
            keep=keep,
            older_than=older_than,
            policy=policy,
            orphans_older_than=orphans_older_than,
            manifest_older_than=manifest_older_than,
        )
    if apply is not None:
        read_plan(apply)
    if confirm:
        require_consent("cleanup", "old versions will be gone for good", target, yes=yes, as_json=json)
    echo_target("cleaning up" if confirm else "looking what to clean up in", target.uri, quiet=quiet)
    with watching(quiet=quiet) as watcher, open_direct(target, None, None, None, watcher) as opened:
        result = opened.maintenance.cleanup(policy=chosen, plan=apply, confirm=confirm)
    return Answer(result.to_json(), cleanup_text(result), json, exit_code=1 if result.failed else 0)


def cleanup_text(result: CleanupResult) -> Lines:
    done = result.confirmed
    lines: Lines = []
    busy = [t for t in result.tables if t.files_removed or t.error]
    if busy:
        rows = [
            [
                t.table_key,
                f"{t.old_versions_removed:,}",
                f"{t.files_removed:,}",
                size_text(t.bytes_removed),
                t.error or (_WHOLE.get(t.whole or "", "")),
            ]
            for t in busy
        ]
        lines.append(Table(("table", "versions", "files", "size", ""), rows, _FIGURES, names=True))
    lines += _forks(result) + _staging(result) + _caches(result) + _kept(result)
    for refused in result.refused[:SHOWN_MAX]:
        of = f" of {refused.table_key}" if refused.table_key else ""
        lines.append(f"stays: {refused.what}{of}, because of {refused.reason}")
    if len(result.refused) > SHOWN_MAX:
        lines.append(f"and {len(result.refused) - SHOWN_MAX:,} more of the plan stay; --json names them all")
    lines += [f"warning: {text}" for text in result.plan.warnings]
    if not (busy or result.reclaimed_forks or result.staging or result.caches):
        return [*lines, "there is nothing to remove"]
    said = f"{count(result.old_versions_removed, 'version', 'versions')}, {size_text(result.bytes_removed)}"
    if not done:
        return [*lines, f"would remove {said}; nothing was removed: add --confirm to do it"]
    lines.append(f"removed {said} in {result.seconds:.1f} s")
    if result.failed:
        lines.append("some of it failed and stays as it is: run the same command again")
    return lines


_WHOLE = {"dropped_type": "the whole table: its type was dropped", "abandoned": "the whole table: nothing names it"}
_FORK_REASONS = {
    "branch_gone": "its branch is gone",
    "never_published": "a first write that lost against another",
    "dropped_type": "its branch dropped the type",
    "abandoned": "nobody has published it",
}


def _forks(result: CleanupResult) -> Lines:
    verb = "reclaimed" if result.confirmed else "would reclaim"
    lines: Lines = []
    for one in result.reclaimed_forks:
        fork = one.fork
        if one.error is not None:
            lines.append(f"fork {fork.fork} of {fork.table_key} stays: {one.error}")
        else:
            why = _FORK_REASONS.get(fork.reason, fork.reason)
            lines.append(f"{verb} fork {fork.fork} of {fork.table_key}, {size_text(fork.size)}: {why}")
    return lines


def _staging(result: CleanupResult) -> Lines:
    verb = "removed" if result.confirmed else "would remove"
    return [
        f"{one.staged.path} stays: {one.error}"
        if one.error
        else f"{verb} {one.staged.path}, {size_text(one.staged.size)}: the load that staged it is over"
        for one in result.staging
    ]


_CACHE_REASONS = {
    "version_gone": "arrays of a version that is gone",
    "abandoned": "arrays that a query did not finish",
}


def _caches(result: CleanupResult) -> Lines:
    verb = "removed" if result.confirmed else "would remove"
    return [
        f"{one.staged.path} stays: {one.error}"
        if one.error
        else f"{verb} {one.staged.path}, {size_text(one.staged.size)}: {_CACHE_REASONS[one.staged.reason]}"
        for one in result.caches
    ]


def _kept(result: CleanupResult) -> Lines:
    """What the policy would let go and something live needs, by what needs it."""
    because: dict[str, int] = {}
    for table in result.tables:
        for kept in table.kept:
            for reason in kept.because:
                because[reason] = because.get(reason, 0) + 1
    lines: Lines = []
    for reason, number in sorted(because.items())[:SHOWN_MAX]:
        what, _, who = reason.partition(":")
        told = _KEPT_REASONS.get(what, "{who}").format(who=who.replace(",", " and "))
        lines.append(f"{count(number, 'version stays', 'versions stay')}: {told}")
    return lines


_KEPT_REASONS = {
    "branch": "the branch {who} stands there",
    "base": "the branch {who} was made there",
    "merge_base": "a merge of {who} compares with that",
    "tag": "the tag {who} names a commit of it",
    "lance_tag": "Lance's own tag {who} names it",
    "lease": "a reader holds the lease {who}",
    "at_or_above_a_pin": "above what is published",
}
