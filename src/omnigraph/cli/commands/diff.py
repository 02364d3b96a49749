"""The verbs diff and history: what differs between two states, and what happened to one entity.

1. look     at the options: two states, a form; wrong ones cost nothing
2. compare  on pinned states, under a lease
3. write    changes as they are read: to stdout, to a file that appears whole or not at all, or to files per type
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any, Literal

from typer import Option

from omnigraph.cli.changes_text import change_lines, stat_table, value_text
from omnigraph.cli.commands.completion import type_names
from omnigraph.cli.commands.export import Types
from omnigraph.cli.commands.query import refuse_terminal, sink_of
from omnigraph.cli.files import written
from omnigraph.cli.options import Branch, Conf, Engine, Json, Master, Store, Uri, Words
from omnigraph.cli.output import Answer, Table, json_bytes, write_text
from omnigraph.cli.target import Target, open_direct, open_graph, resolve, resolve_with
from omnigraph.errors import UsageError

if TYPE_CHECKING:
    from omnigraph.branch.diff.diff import Diff
    from omnigraph.branch.diff.entity_history import EntityHistory

Ids = Annotated[
    list[str] | None,
    Option("--id", metavar="ID", help="Only the entity with this id; may be repeated.", show_default=False),
]
Operations = Annotated[
    list[str] | None,
    Option(
        "--op",
        metavar="OPERATION",
        help="Only insert, update or delete; may be repeated.",
        show_default=False,
    ),
]
Stat = Annotated[bool, Option("--stat", help="Count the changes of each type instead of showing them.")]
Format = Annotated[
    Literal["table", "jsonl", "arrow", "parquet"] | None,
    Option(
        "--format",
        "-f",
        help="table, the default, is for people: one line per change. arrow and parquet are one file per type.",
        show_default=False,
    ),
]
Out = Annotated[
    str | None,
    Option(
        "--out",
        "-o",
        metavar="FILE|DIR",
        help="Where the changes go; stdout by default. arrow and parquet take a folder, or a file with one --type.",
        show_default=False,
    ),
]
TypeName = Annotated[str, Option("--type", metavar="NAME", help="The node or edge type.", autocompletion=type_names)]
Id = Annotated[str, Option("--id", metavar="ID", help="The entity's id.")]


def diff(
    words: Words = None,
    store: Store = None,
    types: Types = None,
    ids: Ids = None,
    op: Operations = None,
    stat: Stat = False,
    format: Format = None,
    out: Out = None,
    engine: Engine = None,
    master: Master = None,
    conf: Conf = None,
    json: Json = False,
) -> Answer | None:
    """Show what differs between two states, each named by a branch, a tag, a commit or a time.

    BASE..TARGET compares the two; BASE...TARGET shows what TARGET changed since their merge base. A side that is left
    out is main. Nodes come before edges, types by name, entities by id. A property that only one state has is a step
    of the schema, and changes no entity by itself.
    """
    target, revisions = resolve_with(words or [], store, name="the states BASE..TARGET")
    base, since_merge_base, newer = split_range(revisions)
    _check_options(json=json, stat=stat, format=format, out=out, engine=engine)
    options = {"types": types, "ids": ids, "operations": op, "engine": "spark" if engine == "spark" else None}
    with _opened(target, engine, master, conf) as graph:
        result = graph.diff(base, newer, since_merge_base=since_merge_base, **options)
        if stat:
            counts = result.stat()
            document = {**result.head_json(), "stat": counts}
            lines: list[str | Table] = [f"schema: {step}" for step in result.schema]
            return Answer(document, [*lines, stat_table(counts) if counts else "no entity differs"], json)
        return shown_changes(result, format="json" if json else format or "table", out=out, engine=engine)


def split_range(text: str) -> tuple[str, bool, str]:
    """(base, whether it means the merge base, target)."""
    for dots in ("...", ".."):
        base, found, target = text.partition(dots)
        if found:
            return base or "main", dots == "...", target or "main"
    raise UsageError(detail=f"two states are expected, as BASE..TARGET or BASE...TARGET, not {text!r}.")


def _check_options(*, json: bool, stat: bool, format: str | None, out: str | None, engine: str | None) -> None:
    if json and format is not None:
        raise UsageError(detail=f"--json and --format {format} contradict each other.")
    if stat and (format not in (None, "table") or out is not None):
        raise UsageError(detail="--stat shows counts; it takes neither --format nor --out.")
    if engine == "spark" and (stat or format != "parquet" or out is None):
        raise UsageError(detail="Spark writes tables: --engine spark needs --format parquet and --out DIR.")
    if out is not None and "://" in out:
        raise UsageError(detail=f"--out is a file or a folder of this machine, not {out}.")
    if format in ("arrow", "parquet") and out is None:
        raise UsageError(detail=f"--format {format} writes files; name a folder, or a file with one --type, by --out.")


def _opened(target: Target, engine: str | None, master: str | None, conf: Sequence[str] | None) -> Any:
    if engine != "spark":
        return open_graph(target)
    return open_direct(target, engine, master, conf, None)


# ---- writing ---------------------------------------------------------------------------------------------------------


def shown_changes(result: Diff, *, format: str, out: str | None, engine: str | None = None) -> Answer | None:
    """Changes as they are read, in one of the forms."""
    if format == "json" and out is None:
        return Answer(result.to_json(), [], True)
    if format in ("arrow", "parquet"):
        assert out is not None
        return _written_tables(result, format, out, engine)
    refuse_terminal(format, out)
    if format == "table" and out is None:
        for line in change_lines(result):
            write_text(sys.stdout, f"{line}\n")
        return None
    from omnigraph.branch.diff.diff import json_rows

    with sink_of(out) as sink:
        if format == "json":
            sink.write(json_bytes(result.to_json()))
        elif format == "table":
            sink.writelines(f"{line}\n".encode() for line in change_lines(result))
        else:
            for batch in result:
                sink.writelines(json_bytes(row) for row in json_rows(batch))
    return None


def _written_tables(result: Diff, format: str, out: str, engine: str | None) -> Answer:
    is_folder = out.endswith("/") or os.path.isdir(out) or engine == "spark" or len(result.types) != 1
    files = []
    for changes, batches in result.by_type():
        place = _file_of(changes.table_key, format, out) if is_folder else out
        files.append(place)
        if engine == "spark":
            result.dataframe(changes.table_key).write.mode("errorifexists").parquet(place)
            continue
        if is_folder:
            os.makedirs(os.path.dirname(place), exist_ok=True)
        with written(place) as sink, _table_writer(format, sink, changes.schema) as writer:
            for batch in batches:
                writer.write_table(batch)
    return Answer({}, [f"wrote {place}" for place in files] or ["no entity differs"], False)


def _file_of(table_key: str, format: str, out: str) -> str:
    from omnigraph.language import identifiers as form

    kind, _, name = table_key.partition(":")
    with form.reading("the schema of the diff"):  # here the name becomes a path
        return os.path.join(out, f"{kind}s", f"{form.type_name(name)}.{format}")


def _table_writer(format: str, sink: Any, schema: Any) -> Any:
    import pyarrow as pa

    if format == "arrow":
        return pa.ipc.new_stream(sink, schema)
    import pyarrow.parquet as pq

    return pq.ParquetWriter(sink, schema)


# ---- history ---------------------------------------------------------------------------------------------------------


def history(
    type: TypeName,
    id: Id,
    uri: Uri = None,
    store: Store = None,
    branch: Branch = "main",
    json: Json = False,
) -> Answer:
    """Show every version of one entity on a branch, newest first: which commit, who, when, and what it changed.

    The history ends where cleanup has removed older states.
    """
    target = resolve(uri, store)
    with open_graph(target) as graph:
        found = graph.history(type, id, branch=branch)
    return Answer(found.to_json(), history_text(found), json)


def history_text(found: EntityHistory) -> list[str | Table]:
    rows = []
    for version in found.versions:
        commit, image = version.commit, version.image or {}
        shown = version.changed if version.operation == "update" else [n for n in image if image[n] is not None]
        values = ", ".join(f"{name}: {value_text(image[name])}" for name in shown if name in image and name != "id")
        rows.append(
            [commit.id, f"{commit.created_at:%Y-%m-%d %H:%M:%S}Z", commit.actor or "", version.operation or "?", values]
        )
    lines: list[str | Table] = []
    if rows:
        lines.append(Table(("commit", "created", "actor", "operation", "values"), rows))
    elif found.collected is None:
        lines.append(f"{found.table_key} {found.id} never existed on {found.branch}")
    if found.collected is not None:
        lines.append(f"states from commit {found.collected} on back are removed: the history ends here")
    return lines
