"""Verbs on storage itself: no server can run them, and they act in nobody's name."""

from __future__ import annotations

from typing import Annotated, Literal

from typer import Option

from omnigraph.cli.files import read_text
from omnigraph.cli.options import Branch, DataLoss, Json, Quiet, SchemaFile, Store, Uri
from omnigraph.cli.output import Answer, count, echo_target
from omnigraph.cli.progress import Progress
from omnigraph.cli.target import open_graph, resolve
from omnigraph.cli.text import plan_text

RowIds = Annotated[
    Literal["stable", "address"],
    Option("--row-ids", help="stable: rows keep their ids when files are rewritten. address: for deferred remaps."),
]


def init(
    schema: SchemaFile,
    uri: Uri = None,
    store: Store = None,
    row_ids: RowIds = "stable",
    json: Json = False,
    quiet: Quiet = False,
) -> Answer:
    """Create a graph at a new address, with a table for every type of the schema.

    What was there before stays untouched: a graph is created only where there is none.
    """
    target = resolve(uri, store)
    text = read_text(schema)
    echo_target("creating a graph at", target.uri, quiet=quiet)
    import omnigraph

    with (
        Progress("creating", quiet=quiet),
        omnigraph.init(target.uri, text, row_ids=row_ids, schema_file=schema) as graph,
    ):
        commit = graph.commits(limit=1)[0]
        types = len(list(graph.schema().types()))
    document = {"uri": target.uri, "branch": commit.branch, "commit": commit.to_json(), "row_ids": row_ids}
    said = f"created a graph with {count(types, 'type', 'types')} at {target.uri}, commit {commit.id}"
    return Answer(document, [said], json)


def schema_plan(
    schema: SchemaFile,
    uri: Uri = None,
    store: Store = None,
    branch: Branch = "main",
    allow_data_loss: DataLoss = False,
    json: Json = False,
) -> Answer:
    """Show what `schema apply` would do, step by step, and what it can't do. Nothing is changed."""
    target = resolve(uri, store)
    text = read_text(schema)
    with open_graph(target) as graph:
        plan = graph.plan_schema(text, branch=branch, allow_data_loss=allow_data_loss, schema_file=schema)
    return Answer(plan.to_json(), plan_text(plan), json)
