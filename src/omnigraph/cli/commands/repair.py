"""The verb repair: see what moved tables without omnigraph, and publish or discard it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Annotated

from typer import Option

from omnigraph.cli.options import Branch, Cluster, GraphId, Json, Quiet, Store, Uri
from omnigraph.cli.output import Answer, Table, count, echo_target
from omnigraph.cli.target import open_graph, resolve_direct
from omnigraph.cli.text import Lines

if TYPE_CHECKING:
    from omnigraph.maintenance.repair.run import RepairResult, TableRepair

Confirm = Annotated[bool, Option("--confirm", help="Do it. Without it, only show what would be done.")]
Force = Annotated[bool, Option("--force", help="Publish also what is not verified as maintenance. Look at it first.")]
Discard = Annotated[bool, Option("--discard", help="Bring drifted tables back to what is published, instead.")]
Tables = Annotated[
    str | None,
    Option("--tables", metavar="NAMES", help="Only these tables, as Person,Knows; by default all.", show_default=False),
]


def repair(
    uri: Uri = None,
    store: Store = None,
    cluster: Cluster = None,
    graph: GraphId = None,
    branch: Branch = "main",
    tables: Tables = None,
    confirm: Confirm = False,
    force: Force = False,
    discard: Discard = False,
    json: Json = False,
    quiet: Quiet = False,
) -> Answer:
    """Show tables that were changed without omnigraph, and publish or discard these changes.

    Changes that touch no row are published with --confirm; all others are refused, with exit code 1, unless --force
    says so. Nothing is changed without --confirm.
    """
    target = resolve_direct(uri, store, cluster, graph, verb="repair")
    echo_target("repairing", target.uri, branch=branch, quiet=quiet)
    names = None if tables is None else [name.strip() for name in tables.split(",") if name.strip()]
    with open_graph(target) as opened:
        result = opened.repair(branch=branch, confirm=confirm, force=force, discard=discard, tables=names)
    text = repair_text(result, uri=target.uri, some=names is not None)
    return Answer(result.to_json(), text, json, exit_code=1 if result.refused else 0)


def repair_text(result: RepairResult, *, uri: str, some: bool = False) -> Lines:
    """`some`: not all tables were looked at."""
    drifted = [t for t in result.tables if t.classification != "clean"]
    if not drifted and some:
        return [f"no drift on {result.branch} in {_keys(result.tables)}; no other table was looked at"]
    if not drifted:
        return [f"no drift on {result.branch}: every table is what is published"]
    columns = ("table", "classification", "action", "published", "newest", "operations")
    rows = [
        [
            t.table_key,
            t.classification.replace("_", " "),
            t.action.replace("_", " "),
            str(t.manifest_version),
            str(t.lance_head_version),
            _shown(t.operations),
        ]
        for t in drifted
    ]
    lines: Lines = [Table(columns, rows, frozenset(("published", "newest")), names=True)]
    for table in drifted:
        lines += _details(table)
    return [*lines, *_advice(result, drifted, uri)]


def _keys(tables: Iterable[TableRepair]) -> str:
    return ", ".join(t.table_key for t in tables)


def _shown(operations: tuple[str, ...]) -> str:
    """Runs of the same operation as one, with their number."""
    runs: list[tuple[str, int]] = []
    for name in operations:
        again = bool(runs) and runs[-1][0] == name
        runs[-1 if again else len(runs) :] = [(name, runs[-1][1] + 1 if again else 1)]
    parts = [name if number == 1 else f"{name} x{number}" for name, number in runs]
    return ", ".join(parts[:6]) + (f", … {len(parts) - 6} more" if len(parts) > 6 else "")


def _details(table: TableRepair) -> Lines:
    lines: Lines = [] if table.error is None else [f"{table.table_key}: {table.error}"]
    if table.changes is None:
        return lines
    if not table.changes:
        return [*lines, f"{table.table_key}: no row would change"]
    for word in ("inserted", "updated", "deleted"):
        found = getattr(table.changes, word)
        if found.count:
            more = ", …" if found.count > len(found.first) else ""
            rows = count(found.count, "row", "rows")
            ids = ", ".join("null" if name is None else name for name in found.first)
            lines.append(f"{table.table_key}: {rows} would be {word}: {ids}{more}")
    return lines


def _advice(result: RepairResult, drifted: list[TableRepair], uri: str) -> Lines:
    if result.commit is not None:
        actions = ", ".join(sorted({t.action for t in drifted} - {"refused"}))
        lines: Lines = [f"{actions} on {result.branch}, commit {result.commit.id}"]
    else:
        lines = ["nothing was changed"]
    forced = [t for t in drifted if t.action == "forced"]
    if forced:
        lines.append(f"→ nobody checked the rows of {_keys(forced)}: run omnigraph verify {uri}")
    refused = [t for t in drifted if t.action in ("refused", "would_refuse")]
    if refused:
        return [*lines, *_ways_out(refused)]
    return lines if result.confirmed else [*lines, "→ add --confirm to do it"]


def _ways_out(refused: list[TableRepair]) -> Lines:
    """What can be done with refused tables: not all of them can be published, nor all taken back."""
    groups: dict[str, list[str]] = {}
    for table in refused:
        ways = ["publish them with --force --confirm"] if table.may_publish else []
        ways += ["take them back with --discard --confirm"] if table.may_discard else []
        groups.setdefault(", or ".join(ways) or "see what is missing with omnigraph verify", []).append(table.table_key)
    if len(groups) == 1:
        return [f"→ refused tables: {way}" for way in groups]
    return [f"→ {', '.join(keys)}: {way}" for way, keys in groups.items()]
