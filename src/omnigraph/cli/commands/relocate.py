"""The verb relocate: rewrite the addresses that forks of a copied or moved graph hold."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from typer import Option

from omnigraph.cli.commands.verify import findings_text
from omnigraph.cli.options import Cluster, GraphId, Json, Quiet, Store, Uri
from omnigraph.cli.output import Answer, Table, count, echo_target
from omnigraph.cli.target import open_graph, resolve_direct
from omnigraph.cli.text import Lines

if TYPE_CHECKING:
    from omnigraph.maintenance.relocate import RelocateResult

From = Annotated[
    str | None,
    Option(
        "--from",
        metavar="OLD_ROOT",
        help="Rewrite only what refers to this address; by default all that is not the graph's own.",
        show_default=False,
    ),
]
Confirm = Annotated[bool, Option("--confirm", help="Do it. Without it, only show what would be done.")]


def relocate(
    uri: Uri = None,
    store: Store = None,
    cluster: Cluster = None,
    graph: GraphId = None,
    from_: From = None,
    confirm: Confirm = False,
    json: Json = False,
    quiet: Quiet = False,
) -> Answer:
    """Rewrite the absolute addresses in a graph whose folder was copied or moved, and check the graph.

    Nothing is rewritten without --confirm. Of a copy the original is not touched, and the two are independent
    afterwards. A run that was stopped is completed by the next one.
    """
    target = resolve_direct(uri, store, cluster, graph, verb="relocate")
    echo_target("relocating" if confirm else "looking what to relocate in", target.uri, quiet=quiet)
    with open_graph(target) as opened:
        result = opened.relocate(from_address=from_, confirm=confirm)
    return Answer(result.to_json(), relocate_text(result), json, exit_code=0 if result.ok else 1)


def relocate_text(result: RelocateResult) -> Lines:
    if not result.versions:
        lines: Lines = ["there is nothing to rewrite: no fork refers to another address"]
        return lines if result.verified is None else [*lines, *findings_text(result.verified)]
    rows = [[r.root, f"{r.versions:,}", "a graph is there" if r.is_graph else ""] for r in result.roots]
    lines = [Table(("recorded address", "versions", ""), rows, frozenset(("versions",)))]
    tables = len({version.table for version in result.versions})
    what = f"{count(len(result.versions), 'version', 'versions')} of {count(tables, 'table', 'tables')}"
    if any(root.is_graph for root in result.roots):
        lines.append("what is at the recorded address stays as it is: the two graphs are independent afterwards")
    if not result.confirmed:
        return [*lines, f"would rewrite {what}; nothing was rewritten: add --confirm to do it"]
    lines.append(f"rewrote {count(result.rewritten, 'version', 'versions')} in {result.seconds:.1f} s")
    return lines if result.verified is None else [*lines, *findings_text(result.verified)]
