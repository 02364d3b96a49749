"""The verb optimize: merge small fragments, restore index coverage, build declared indices."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, Any

from typer import Option

from omnigraph.cli.files import read_json
from omnigraph.cli.options import Branch, Cluster, Conf, Engine, GraphId, Json, Master, Quiet, Store, Uri
from omnigraph.cli.output import Answer, Table, count, echo_target
from omnigraph.cli.target import open_direct, resolve_direct
from omnigraph.cli.text import Lines
from omnigraph.cli.watch import watching
from omnigraph.config.durations import seconds_of
from omnigraph.config.sizes import size_of, size_text
from omnigraph.errors import UsageError

if TYPE_CHECKING:
    from omnigraph.maintenance.optimize import OptimizePlan, OptimizeResult, TablePlan, TableResult

Tables = Annotated[
    str | None,
    Option("--tables", metavar="NAMES", help="Only these tables, as Person,Knows; by default all.", show_default=False),
]
Target = Annotated[
    int | None,
    Option(
        "--target-rows-per-fragment",
        metavar="N",
        help="What fragments are merged towards; by default 200,000. Fragments of half of it are left alone.",
        show_default=False,
    ),
]
MaxBytes = Annotated[
    str | None,
    Option("--max-bytes", metavar="SIZE", help="Read at most so much, as 500MiB or 20GiB.", show_default=False),
]
MaxRows = Annotated[
    int | None, Option("--max-rows", metavar="N", help="Read at most so many rows.", show_default=False)
]
MaxTime = Annotated[
    str | None,
    Option(
        "--max-time",
        metavar="TIME",
        help="Begin no new work after so long, as 10m or 1h; what is done by then is published.",
        show_default=False,
    ),
]
Concurrency = Annotated[
    int | None,
    Option(
        "--concurrency",
        metavar="N",
        help="How many tables are worked on at a time; by default OMNIGRAPH_MAINTENANCE_CONCURRENCY, or 8.",
        show_default=False,
    ),
]
Defer = Annotated[
    bool,
    Option(
        "--defer-index-remap",
        help="Compact without touching indices, which follow through a fragment-reuse index; for graphs made with "
        "--row-ids address.",
    ),
]
Drain = Annotated[bool, Option("--drain", help="Build every index anew and end what --defer-index-remap began.")]
Rebuild = Annotated[
    bool,
    Option(
        "--rebuild-indexes",
        help="Build every index of the tables anew from their rows, whatever the old ones say. Indices whose files are "
        "missing or cut short are built anew without it.",
    ),
]
Plan = Annotated[bool, Option("--plan", help="Only show what would be done, and why. Nothing is changed.")]
Apply = Annotated[
    str | None,
    Option("--apply", metavar="FILE", help="Do exactly what a saved --plan --json says.", show_default=False),
]
_FLAGS = {
    "max_time_s": "--max-time",
    "max_bytes": "--max-bytes",
    "max_rows": "--max-rows",
    "concurrency": "--concurrency",
    "target_rows_per_fragment": "--target-rows-per-fragment",
    "defer_index_remap": "--defer-index-remap",
    "drain": "--drain",
}


def optimize(
    uri: Uri = None,
    store: Store = None,
    cluster: Cluster = None,
    graph: GraphId = None,
    branch: Branch = "main",
    tables: Tables = None,
    target_rows_per_fragment: Target = None,
    max_bytes: MaxBytes = None,
    max_rows: MaxRows = None,
    max_time: MaxTime = None,
    concurrency: Concurrency = None,
    defer_index_remap: Defer = False,
    drain: Drain = False,
    rebuild_indexes: Rebuild = False,
    plan: Plan = False,
    apply: Apply = None,
    engine: Engine = None,
    master: Master = None,
    conf: Conf = None,
    json: Json = False,
    quiet: Quiet = False,
) -> Answer:
    """Merge small fragments, restore index coverage and build declared indices, in one commit.

    Rows never change and old versions stay. It may run beside any number of writers; a second run does nothing. Exit
    code 1 if a table failed.
    """
    target = resolve_direct(uri, store, cluster, graph, verb="optimize")
    options: dict[str, Any] = {
        "tables": None if tables is None else [name.strip() for name in tables.split(",") if name.strip()],
        "target_rows_per_fragment": target_rows_per_fragment,
        "max_bytes": None if max_bytes is None else size_of(max_bytes, option="--max-bytes"),
        "max_rows": max_rows,
        "defer_index_remap": defer_index_remap,
        "drain": drain,
        "rebuild_indexes": rebuild_indexes,
    }
    if apply is not None and (plan or any(options.values())):
        raise UsageError(detail="--apply does what its plan says: it takes no further choice of work.")
    options["max_time_s"] = None if max_time is None else seconds_of(max_time, option="--max-time")
    options["concurrency"] = concurrency
    saved = None if apply is None else _saved(apply, branch)
    branch = branch if saved is None else saved.branch
    echo_target("planning to optimize" if plan else "optimizing", target.uri, branch=branch, quiet=quiet)
    with _flags_named(), watching(quiet=quiet) as watcher, open_direct(target, engine, master, conf, watcher) as opened:
        if plan:
            made = opened.plan_optimize(branch=branch, **options)
            return Answer(made.to_json(), plan_text(made), json)
        result = opened.optimize(branch=branch, plan=saved, engine=engine, **options)
    return Answer(result.to_json(), result_text(result), json, exit_code=0 if result.ok else 1)


def _saved(path: str, branch: str) -> OptimizePlan:
    import omnigraph

    found = omnigraph.OptimizePlan.of(read_json(path), path=path)
    if branch not in ("main", found.branch):
        raise UsageError(detail=f"the plan in {path} is for the branch {found.branch}, and --branch names {branch}.")
    return found


@contextmanager
def _flags_named() -> Iterator[None]:
    """Python's names of options, in what it says of them, as they are on the command line."""
    try:
        yield
    except UsageError as error:
        told = error.fields.get("detail")
        if type(error) is not UsageError or not isinstance(told, str):
            raise
        names = re.compile(rf"(?<![\w-])({'|'.join(_FLAGS)})(?!\w)")
        raise UsageError(detail=names.sub(lambda found: _FLAGS[found[1]], told)) from error


def plan_text(plan: OptimizePlan) -> Lines:
    work = [t for t in plan.tables if t.has_work]
    lines: Lines = []
    if not work:
        is_left = any(t.left_fragments or t.left_indexes for t in plan.tables)
        lines.append(f"nothing {'fits the budget' if is_left else 'to optimize'} on {plan.branch}")
    for table in work:
        lines += _table_plan(table)
    for table in plan.tables:
        lines += _notes(table)
    if plan.manifest_fragments:
        lines.append(f"__manifest: {count(plan.manifest_fragments, 'fragment', 'fragments')} would become one")
    if work:
        size, rows = sum(t.read_bytes for t in work), sum(t.read_rows for t in work)
        lines.append(f"in all: about {size_text(size)} and {count(rows, 'row', 'rows')} to read, in one commit")
    return lines


def _table_plan(table: TablePlan) -> Lines:
    body = table.to_json()
    size = f"{count(table.rows, 'row', 'rows')} in {count(table.fragments, 'fragment', 'fragments')}"
    lines: Lines = [f"{table.table_key}: {size}"]
    if table.bins:
        said = f"  rewrite {body['fragments_in']} fragments into {body['fragments_out']}: read "
        said += f"{size_text(sum(b.read_bytes for b in table.bins))}, write about {size_text(body['bytes_to_write'])}"
        gone = body["rows_deleted"]
        lines.append(said + (f", drop {count(gone, 'deleted row', 'deleted rows')}" if gone else ""))
        reasons = sorted({b.reason for b in table.bins})
        lines.append(f"    because: {'; '.join(reasons[:4])}{' …' if len(reasons) > 4 else ''}")
    for index in table.indexes:
        segments = count(len(index.build), "segment", "segments")
        lines.append(
            f"  {index.action} {index.kind} of {index.property}: {segments}, {index.rows:,} rows; {index.reason}"
        )
    if table.drain:
        lines.append("  end the deferred remap: build every index anew, drop the fragment-reuse index")
    if table.stale_config:
        lines.append(f"  remove the settings {', '.join(table.stale_config)}")
    return lines


def _notes(table: TablePlan) -> Lines:
    lines: Lines = [f"{table.table_key}: failed: {table.error}"] if table.error else []
    if table.skipped:
        versions = f"published {table.pin.version}, newest {table.lance_head_version}"
        lines.append(f"{table.table_key}: skipped, it was changed without omnigraph ({versions}); see omnigraph repair")
    lines += [f"{table.table_key}: {p.kind} of {p.property} is pending: {p.reason}" for p in table.pending_indexes]
    if table.left_fragments or table.left_indexes:
        left = f"{table.left_fragments} fragments and {table.left_indexes} indices"
        lines.append(f"{table.table_key}: {left} are left for a later run: they do not fit the budget")
    return lines


def result_text(result: OptimizeResult) -> Lines:
    lines: Lines = []
    changed = [t for t in result.tables if t.committed]
    if changed:
        columns = ("table", "fragments", "data", "index coverage", "seconds")
        rows = [_row(t) for t in changed]
        lines.append(Table(columns, rows, frozenset(("seconds",)), names=True))
    for table in result.tables:
        lines += _result_notes(table)
    if result.commit is None:
        is_clear = not any(t.error or t.skipped or t.left_fragments or t.left_indexes for t in result.tables)
        said = f"nothing to optimize on {result.branch}" if is_clear else f"nothing was done on {result.branch}"
        lines.append(f"{said}; no commit was made")
        return lines
    gone = sum(t.fragments_removed for t in result.tables)
    came = sum(t.fragments_added for t in result.tables)
    built = sum(t.indexes_built for t in result.tables)
    said = f"merged {count(gone, 'fragment', 'fragments')} into {came}, built {count(built, 'segment', 'segments')}"
    commits = ", ".join(commit.id for commit in result.commits)
    lines.append(f"{said} of indices in {result.seconds:.1f} s, commit {commits}")
    return lines


def _row(t: TableResult) -> list[str]:
    moved = f"{t.fragments_removed:,} → {t.fragments_added:,}" if t.fragments_removed else "unchanged"
    size = f"{size_text(t.bytes_before)} → {size_text(t.bytes_after)}"
    coverage = "" if t.table_key.startswith("__") else f"{_percent(t.coverage_before)} → {_percent(t.coverage_after)}"
    return [t.table_key, moved, size, coverage, f"{t.seconds:.1f}"]


def _percent(share: float) -> str:
    """Never 100 % for less than all of it."""
    return f"{int(share * 1000) / 10:g} %"


def _result_notes(t: TableResult) -> Lines:
    lines: Lines = []
    if t.error:
        lines.append(f"{t.table_key}: failed: {t.error}")
    if t.skipped:
        lines.append(f"{t.table_key}: skipped, {t.why_skipped}")
    lines += [f"{t.table_key}: {p.kind} of {p.property} is pending: {p.reason}" for p in t.pending_indexes]
    if t.left_fragments or t.left_indexes:
        left = f"{t.left_fragments} fragments and {t.left_indexes} indices"
        lines.append(f"{t.table_key}: {left} are left for a later run")
    return lines
