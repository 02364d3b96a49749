"""The verb export: one state of a graph as JSON lines on stdout or in one file, or as a folder of files.

1. look      at the options: what --out and --format mean together; wrong ones cost nothing
2. stream    without a folder, records in a stable order; a file appears whole or not at all
3. folder    else the tasks of an export, on Spark or in this process, with progress on stderr
"""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Annotated, Any, Literal

from typer import Option

from omnigraph.cli.commands.completion import type_names
from omnigraph.cli.files import written
from omnigraph.cli.options import AsOf, At, Branch, Conf, Engine, Json, Master, Quiet, Store, Uri
from omnigraph.cli.output import Answer, count, echo_target, stdout_bytes
from omnigraph.cli.progress import Progress
from omnigraph.cli.target import Target, open_direct, open_graph, resolve
from omnigraph.config.sizes import size_text
from omnigraph.errors import UsageError

if TYPE_CHECKING:
    from omnigraph.graph.results import ExportResult
    from omnigraph.pipeline.export.stream import Format as FormatName

Types = Annotated[
    list[str] | None,
    Option(
        "--type",
        metavar="NAME",
        help="Only this node or edge type; may be repeated.",
        show_default=False,
        autocompletion=type_names,
    ),
]
Format = Annotated[
    Literal["jsonl", "parquet", "csv", "lance"],
    Option("--format", "-f", help="jsonl: records that load takes back. parquet, csv, lance: a folder of tables."),
]
Out = Annotated[
    str | None,
    Option(
        "--out",
        "-o",
        metavar="FILE|DIR",
        help="A file of JSON lines, complete or not at all, packed if it ends in .gz or .zst; or a folder: a name that "
        "ends in /, a folder that is there, an s3:// URI, or any format other than jsonl.",
        show_default=False,
    ),
]


def export(
    uri: Uri = None,
    store: Store = None,
    branch: Branch = "main",
    commit: At = None,
    as_of: AsOf = None,
    types: Types = None,
    format: Format = "jsonl",
    out: Out = None,
    engine: Engine = None,
    master: Master = None,
    conf: Conf = None,
    json: Json = False,
    quiet: Quiet = False,
) -> Answer | None:
    """Write all entities: as JSON lines, in a form and an order that `load` takes back, or as a folder of tables.

    JSON lines: nodes come before edges, types by name, entities by id: the same state gives the same bytes. A folder
    has one folder per type, the schema, and _export.json, which is written last.
    """
    state = {"branch": branch, "commit": commit, "as_of": as_of, "types": types}
    if out is not None and _is_folder(out, format):
        target = resolve(uri, store)
        result = _to_folder(target, out, state, format=format, engine=engine, master=master, conf=conf, quiet=quiet)
        return _answer(result, result.out or out, json)
    _check_stream(format=format, out=out, engine=engine, conf=conf, json=json)
    target = resolve(uri, store)
    return _to_stream(target, out, state, json=json, quiet=quiet)


def _is_folder(out: str, format: str) -> bool:
    return format != "jsonl" or out.endswith("/") or "://" in out or os.path.isdir(out)


def _check_stream(*, format: str, out: str | None, engine: str | None, conf: list[str] | None, json: bool) -> None:
    if format != "jsonl":
        raise UsageError(detail=f"--format {format} writes a folder of tables; name it with --out DIR.")
    if json and out is None:
        raise UsageError(detail="export writes its JSON lines to stdout; with --json it also needs --out.")
    # What the environment says holds for commands that have a choice, and is no mistake here.
    if conf or (engine == "spark" and os.environ.get("OMNIGRAPH_ENGINE") != "spark"):
        raise UsageError(
            detail="one stream of lines is written by this process; with --out DIR, Spark writes a folder."
        )


def _to_stream(target: Target, out: str | None, state: dict[str, Any], *, json: bool, quiet: bool) -> Answer | None:
    done = 0

    def counted(lines: bytes) -> None:
        nonlocal done
        done += len(lines)
        sink.write(lines)

    with open_graph(target) as graph, Progress("exporting", lambda: size_text(done), quiet=quiet or out is None):
        if out is None:
            sink = stdout_bytes()
            graph.export(counted, **state)
            sys.stdout.flush()
            return None
        echo_target("exporting to", out, quiet=quiet)
        with written(out) as sink:
            result = graph.export(counted, **state)
    return _answer(result, out, json, files=1)


def _to_folder(
    target: Target,
    out: str,
    state: dict[str, Any],
    *,
    format: FormatName,
    engine: str | None,
    master: str | None,
    conf: list[str] | None,
    quiet: bool,
) -> ExportResult:
    from omnigraph.cli.watch import watching
    from omnigraph.pipeline.export.folder import folder_location

    to = folder_location(out)
    with watching(quiet=quiet) as watcher, open_direct(target, engine, master, conf, watcher) as graph:
        echo_target("exporting to", to.uri, quiet=quiet)
        return graph.export(to.uri, file_format=format, **state)


def _answer(result: ExportResult, out: str, as_json: bool, *, files: int | None = None) -> Answer:
    document = {**result.to_json(), "out": out}
    if files is not None:
        document["files"] = files
    total = count(sum(result.rows.values()), "entity", "entities")
    return Answer(document, [f"exported {total} of commit {result.commit} to {out}"], as_json)
