"""The verb mutate: a query that writes, in one commit or none, and the rows that it returns.

1. look      at the options, the query and where its rows go; what is wrong there costs nothing
2. run       through the one door
3. tell      what was done, then the rows; a file that can't take them does not undo the write, which has been told
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated, Any, cast

from typer import Option

from omnigraph.cli.commands.query import (
    Format,
    Name,
    Out,
    Param,
    Params,
    QueryFile,
    Source,
    parameters,
    plain,
    refuse_terminal,
    require_kind,
    rows_table,
    sink_of,
    source_text,
    target_and_name,
    write_rows,
)
from omnigraph.cli.options import Actor, Branch, IfCommit, Json, Quiet, Store, Words
from omnigraph.cli.output import Answer, Table, write_text
from omnigraph.cli.target import Target, checked_actor, open_graph
from omnigraph.errors import UsageError

if TYPE_CHECKING:
    from omnigraph.graph.prepared_query import PreparedQuery
    from omnigraph.query.mutation.result import MutationResult

OperationId = Annotated[
    str | None,
    Option(
        "--operation-id",
        metavar="ID",
        help="A name of your choice for this very write: given again, the write is not done again.",
        show_default=False,
    ),
]


def mutate(
    words: Words = None,
    store: Store = None,
    file: QueryFile = None,
    execute: Source = None,
    name: Name = None,
    param: Param = None,
    params: Params = None,
    branch: Branch = "main",
    if_commit: IfCommit = None,
    operation_id: OperationId = None,
    actor: Actor = None,
    format: Format = None,
    out: Out = None,
    json: Json = False,
    quiet: Quiet = False,
) -> Answer | None:
    """Run a query that writes: all its statements, in their order, in one commit or none.

    What changes nothing makes no commit. A query that only reads is refused.
    """
    target, named = target_and_name(words, store, name)
    text, shown = source_text(file, execute)
    if json and format not in (None, "json"):
        raise UsageError(detail=f"--json and --format {format} contradict each other.")
    form = "json" if json else format or "table"
    refuse_terminal(form, out)
    with open_graph(target, actor=checked_actor(actor)) as graph:
        statement = graph.prepare(text, named, branch=branch, query_file=shown)
        require_kind(statement, writes=True)
        _require_rows(statement, form)
        values = parameters(statement, param, params)

        def run() -> MutationResult:
            return cast("MutationResult", statement.run(values, if_commit=if_commit, operation_id=operation_id))

        if out is None and form in ("json", "table"):
            done = run()
            return Answer({**head(done, target), "rows": plain(done.to_pylist())}, lines_of(done), form == "json")
        with sink_of(out) as sink:
            done = run()
            if not quiet:
                write_text(sys.stderr, f"→ {done}\n")
            write_rows(done.rows(), head(done, target), form, sink)
    return None


def _require_rows(statement: PreparedQuery, format: str) -> None:
    """Refuse, before anything is written, a format of rows for a query that returns none."""
    if format not in ("table", "json", "jsonl") and not statement.columns:
        detail = f"{statement.name} returns no rows for --format {format}; end a statement with `returning {{ … }}`."
        raise UsageError(detail=detail)


def head(done: MutationResult, target: Target) -> dict[str, Any]:
    body = done.to_json()
    return {
        "query_name": body.pop("query_name"),
        "target": target.uri,
        **body,
        "row_count": len(done),
        "columns": done.columns,
    }


def lines_of(done: MutationResult) -> list[str | Table]:
    lines: list[str | Table] = [str(done)]
    keys = sorted({*done.inserted, *done.updated, *done.deleted}, key=lambda k: (not k.startswith("node:"), k))
    if keys and not done.repeated:
        columns = ("type", "inserted", "updated", "deleted")
        rows = [[k, *(f"{c.get(k, 0):,}" for c in (done.inserted, done.updated, done.deleted))] for k in keys]
        lines.append(Table(columns, rows, frozenset(columns[1:])))
    if done.returned is not None:
        lines += ["", rows_table(done.rows())]
    return lines
