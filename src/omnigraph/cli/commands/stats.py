"""The verb stats: the health of a graph in figures."""

from __future__ import annotations

from typing import TYPE_CHECKING

from omnigraph.cli.options import Branch, Cluster, GraphId, Json, Quiet, Store, Uri
from omnigraph.cli.output import Answer, Table, count, echo_target
from omnigraph.cli.target import open_graph, resolve_direct
from omnigraph.cli.text import Lines
from omnigraph.config.sizes import short_size_text

if TYPE_CHECKING:
    from omnigraph.maintenance.stats import GraphStats, TableStats


def stats(
    uri: Uri = None,
    store: Store = None,
    cluster: Cluster = None,
    graph_id: GraphId = None,
    branch: Branch = "main",
    json: Json = False,
    quiet: Quiet = False,
) -> Answer:
    """Show how healthy a graph is: fragments, deleted rows, index coverage, versions, bytes; and what to run.

    Nothing is changed and no data is read. Exit code 1 if a table can't be opened; the others have their figures.
    """
    target = resolve_direct(uri, store, cluster, graph_id, verb="stats")
    echo_target("looking at", target.uri, branch=branch, quiet=quiet)
    with open_graph(target) as graph:
        result = graph.stats(branch=branch)
    return Answer(result.to_json(), stats_text(result), json, exit_code=0 if result.ok else 1)


def stats_text(found: GraphStats) -> Lines:
    columns = ("table", "rows", "deleted", "fragments", "small", "live", "on disk", "versions", "indices")
    rows = [_row(table) for table in found.tables]
    lines: Lines = [Table(columns, rows, frozenset(columns[1:-1]), names=True)]
    manifest = (
        f"{count(found.manifest_versions, 'version', 'versions')}, "
        f"{count(found.manifest_fragments, 'fragment', 'fragments')}, {short_size_text(found.manifest_bytes)}"
    )
    lines.append(
        f"{count(found.branches, 'branch', 'branches')}, {count(found.tags, 'tag', 'tags')}, "
        f"{count(found.forks, 'fork', 'forks')}, "
        f"{count(found.commits, 'commit', 'commits')}; manifest: {manifest}"
    )
    optimized = found.last_optimize or "not lately"
    stored, live = short_size_text(found.bytes_on_disk), short_size_text(found.bytes_live)
    lines.append(f"on disk: {stored}, live: {live}; last optimize: {optimized}")
    return [*lines, *found.advice] if found.advice else [*lines, "there is nothing to do"]


def _row(table: TableStats) -> list[str]:
    if table.error is not None:
        return [table.table_key, *[""] * 5, short_size_text(table.bytes_on_disk), f"{table.versions:,}", table.error]
    covered = sum(i.rows_covered == i.rows for i in table.indices)
    known = len(table.indices) + len(table.missing_indices)
    drifted = ", drifted" if table.drifted else ""
    return [
        table.table_key,
        f"{table.rows:,}",
        f"{100 * table.deleted_fraction:.0f} %",
        f"{table.fragments:,}",
        f"{table.small_fragments:,}",
        short_size_text(table.bytes_live),
        short_size_text(table.bytes_on_disk),
        f"{table.versions:,}",
        f"{covered} of {known} whole, {100 * table.coverage:.0f} %{drifted}",
    ]
