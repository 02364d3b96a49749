"""The verb maintain: recover, verify, optimize and cleanup in one run with one report, for a schedule."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Annotated

from typer import Option

from omnigraph.cli.commands.cleanup import Confirm, Keep, OlderThan
from omnigraph.cli.commands.optimize import MaxBytes, MaxTime
from omnigraph.cli.consent import require_consent
from omnigraph.cli.files import written
from omnigraph.cli.options import Cluster, Conf, Engine, GraphId, Json, Master, Quiet, Store, Uri, Yes
from omnigraph.cli.output import Answer, Table, echo_target
from omnigraph.cli.target import open_direct, resolve_direct
from omnigraph.cli.text import Lines
from omnigraph.cli.watch import watching
from omnigraph.config.durations import seconds_of
from omnigraph.config.sizes import short_size_text, size_of
from omnigraph.errors import FileUnwritable

if TYPE_CHECKING:
    from omnigraph.maintenance.maintain.run import Figures, MaintainResult

PolicyFile = Annotated[
    str | None,
    Option(
        "--policy",
        metavar="FILE",
        help="What to do and within which limits, a YAML file with the sections optimize, verify, budget and cleanup.",
        show_default=False,
    ),
]
Branches = Annotated[
    list[str] | None,
    Option(
        "--branch",
        "-b",
        metavar="NAME",
        help="A branch to optimize, or a pattern as 'review/*'; may be repeated. By default those of the policy, or "
        "main.",
        show_default=False,
    ),
]
Html = Annotated[
    str | None,
    Option(
        "--html",
        metavar="FILE",
        help="Write the report as a page with plots, too; it needs nothing else to be shown.",
        show_default=False,
    ),
]


def maintain(
    uri: Uri = None,
    store: Store = None,
    cluster: Cluster = None,
    graph: GraphId = None,
    policy: PolicyFile = None,
    branch: Branches = None,
    keep: Keep = None,
    older_than: OlderThan = None,
    max_time: MaxTime = None,
    max_bytes: MaxBytes = None,
    confirm: Confirm = False,
    yes: Yes = False,
    html: Html = None,
    engine: Engine = None,
    master: Master = None,
    conf: Conf = None,
    json: Json = False,
    quiet: Quiet = False,
) -> Answer:
    """Recover, verify, optimize and clean up, in this order, and report it: one command for a schedule.

    A step that fails does not stop the others; exit code 1 then, and if something is wrong with the graph. Old versions
    are removed only with --confirm, and only if a policy or --keep and --older-than say what to keep; otherwise the
    report shows what could be removed.
    """
    target = resolve_direct(uri, store, cluster, graph, verb="maintain")
    from omnigraph.maintenance.maintain.policy import make_maintain_policy

    chosen = make_maintain_policy(
        policy,
        branches=branch,
        keep=keep,
        older_than=older_than,
        max_time_s=None if max_time is None else seconds_of(max_time, option="--max-time"),
        max_bytes=None if max_bytes is None else size_of(max_bytes, option="--max-bytes"),
    )
    if confirm and chosen.retention is not None:
        require_consent("maintain", "old versions will be gone for good", target, yes=yes, as_json=json)
    if html is not None:
        _require_folder(html)
    echo_target("maintaining", target.uri, quiet=quiet)
    with watching(quiet=quiet) as watcher, open_direct(target, engine, master, conf, watcher) as opened:
        result = opened.maintain(chosen, confirm=confirm)
    lines = maintain_text(result)
    if html is not None:
        with written(html) as file:
            file.write(result.to_html().encode())
        lines.append(f"report: {os.path.abspath(html)}")
    return Answer(result.to_json(), lines, json, exit_code=0 if result.ok else 1)


def _require_folder(path: str) -> None:
    """A report that could not be written is told before the work, not after it."""
    folder = os.path.dirname(os.path.abspath(path))
    if not os.path.isdir(folder):
        raise FileUnwritable(path=path, detail=f"there is no folder {folder}.")
    if os.path.isdir(path):
        raise FileUnwritable(path=path, detail="it is a folder.")


def maintain_text(result: MaintainResult) -> Lines:
    lines: Lines = []
    for step in result.steps:
        name = step.name if step.branch is None else f"{step.name} {step.branch}"
        lines.append(f"{name}: {step.outcome}; {step.summary} ({step.seconds:.1f} s)")
        lines += [f"  {note}" for note in step.notes]
    for one in result.figures:
        lines += _figures(one)
    verdict = "ok" if result.ok else "not ok: see the steps above"
    return [*lines, f"{verdict}, in {result.seconds:.1f} s"]


def _figures(one: Figures) -> Lines:
    lines: Lines = [] if one.error is None else [f"branch {one.branch} could not be measured: {one.error}"]
    if one.before is None or one.after is None:
        return lines
    from omnigraph.maintenance.maintain.report import count_text, share_text

    def moved(before: str, after: str) -> str:
        return before if before == after else f"{before} → {after}"

    was = {t.table_key: t for t in one.before.tables}
    rows = []
    for table in one.after.tables:
        old = was.get(table.table_key, table)
        rows.append(
            [
                table.table_key,
                moved(count_text(old.fragments), count_text(table.fragments)),
                moved(short_size_text(old.bytes_live), short_size_text(table.bytes_live)),
                moved(short_size_text(old.bytes_on_disk), short_size_text(table.bytes_on_disk)),
                moved(count_text(old.versions), count_text(table.versions)),
                moved(share_text(old.coverage), share_text(table.coverage)),
            ]
        )
    before, after = one.before, one.after
    rows.append(
        [
            "__manifest",
            moved(count_text(before.manifest_fragments), count_text(after.manifest_fragments)),
            "",
            moved(short_size_text(before.manifest_bytes), short_size_text(after.manifest_bytes)),
            moved(count_text(before.manifest_versions), count_text(after.manifest_versions)),
            "",
        ]
    )
    columns = (f"table on {one.branch}", "fragments", "live", "on disk", "versions", "index coverage")
    return [*lines, Table(columns, rows, names=True)]
