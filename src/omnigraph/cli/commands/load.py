"""The verb load: NDJSON records of nodes and edges into one branch, in one commit.

1. look      at the options and at the names of all input files; wrong ones cost nothing
2. ask       if existing data on a remote target is to be replaced
3. load      all files as one stream
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from typing import Annotated, Any, Literal

from typer import Option

from omnigraph.cli.consent import require_consent
from omnigraph.cli.files import STDIN
from omnigraph.cli.options import Actor, Branch, Conf, Engine, IfCommit, Json, Master, Quiet, Store, Words, Yes
from omnigraph.cli.output import Answer, echo_target
from omnigraph.cli.target import Target, checked_actor, open_direct, resolve
from omnigraph.cli.text import load_text
from omnigraph.config.sizes import size_of
from omnigraph.errors import UsageError

Data = Annotated[
    list[str] | None,
    Option(
        "--data",
        "-d",
        metavar="FILE",
        help="NDJSON records, also .gz and .zst; a pattern; a folder; s3://…; - is stdin. May be repeated.",
        show_default=False,
    ),
]
Nodes = Annotated[
    list[str] | None,
    Option(
        "--nodes",
        metavar="TYPE=PATH",
        help="A table of nodes: CSV, Parquet, JSON lines, Arrow, ORC, Lance, by its ending or ,format=…; columns by "
        "name or ,map=column:property; ,skip=column. May be repeated.",
        show_default=False,
    ),
]
Edges = Annotated[
    list[str] | None,
    Option(
        "--edges",
        metavar="TYPE=PATH",
        help="A table of edges, as --nodes, with ,from=column,to=column. May be repeated.",
        show_default=False,
    ),
]
Mode = Annotated[
    Literal["append", "merge", "overwrite"],
    Option(
        "--mode",
        help="append: new entities only. merge: add or replace by id. overwrite: replace all entities of each type "
        "that is in the files.",
    ),
]
Base = Annotated[
    str | None,
    Option("--from", metavar="NAME", help="Create --branch from this branch if it is missing.", show_default=False),
]
OnError = Annotated[
    Literal["fail", "quarantine"],
    Option("--on-error", help="fail: one wrong line stops the load. quarantine: put wrong lines aside, load the rest."),
]
Quarantine = Annotated[
    str | None,
    Option(
        "--quarantine",
        metavar="FILE",
        help="Where --on-error quarantine puts wrong lines; by default the first file's name with .rejected.jsonl.",
        show_default=False,
    ),
]
MaxLineBytes = Annotated[
    str | None,
    Option(
        "--max-line-bytes",
        metavar="SIZE",
        help="Refuse the load if a record of NDJSON, JSON lines or CSV is longer than this; by default 256MiB.",
        show_default=False,
    ),
]


def load(
    mode: Mode,
    words: Words = None,
    data: Data = None,
    nodes: Nodes = None,
    edges: Edges = None,
    store: Store = None,
    branch: Branch = "main",
    from_: Base = None,
    on_error: OnError = "fail",
    quarantine: Quarantine = None,
    max_line_bytes: MaxLineBytes = None,
    engine: Engine = None,
    master: Master = None,
    conf: Conf = None,
    if_commit: IfCommit = None,
    actor: Actor = None,
    yes: Yes = False,
    json: Json = False,
    quiet: Quiet = False,
) -> Answer:
    """Load nodes and edges, in one commit: all of them, or none.

    A line of --data is {"type": "Person", "data": {…}} or {"edge": "Knows", "from": "id", "to": "id", "data": {…}}.
    """
    from omnigraph.cli.watch import watching
    from omnigraph.pipeline.load.chunks import checked_line_bytes
    from omnigraph.pipeline.load.table_sources import parse_option

    target, more = _target_and_files(words or [], store)
    _check_options(branch=branch, from_=from_, on_error=on_error, quarantine=quarantine)
    tables = [
        dict(parse_option(text, edges=kind) for text in given or []) for given, kind in ((nodes, False), (edges, True))
    ]
    _refuse_twice(nodes, edges, tables)
    files = _found([*(data or []), *more])
    line_bytes = None if max_line_bytes is None else size_of(max_line_bytes, option="--max-line-bytes")
    checked_line_bytes(line_bytes, option="--max-line-bytes")
    if not files and not any(tables):
        raise UsageError(detail="there is nothing to load: name files with --data, --nodes or --edges.")
    if on_error == "quarantine" and quarantine is None and STDIN in files:
        quarantine = "stdin.rejected.jsonl"
    if mode == "overwrite":
        effect = f"entities of the types in the input will be replaced on branch {branch}"
        require_consent("load --mode overwrite", effect, target, yes=yes, as_json=json)
    named = checked_actor(actor)
    with watching(quiet=quiet) as watcher, open_direct(target, engine, master, conf, watcher, actor=named) as graph:
        echo_target("loading into", target.uri, branch=branch, quiet=quiet)
        result = graph.load(
            [_source(name) for name in files] or None,
            nodes=tables[0],
            edges=tables[1],
            mode=mode,
            branch=branch,
            from_branch=from_,
            on_error=on_error,
            quarantine=quarantine,
            max_line_bytes=line_bytes,
            if_commit=if_commit,
        )
    return Answer(result.to_json(), load_text(result), json)


def _refuse_twice(nodes: list[str] | None, edges: list[str] | None, tables: list[dict[str, Any]]) -> None:
    for given, found, flag in ((nodes or [], tables[0], "--nodes"), (edges or [], tables[1], "--edges")):
        if len(found) < len(given):
            detail = f"{flag} names a type twice: give its files as one pattern, or load them one after the other."
            raise UsageError(detail=detail)


def _target_and_files(words: Sequence[str], store: str | None) -> tuple[Target, Sequence[str]]:
    """The shell turns `--data *.jsonl` into one option value and more words: those are files as well.

    As with a pattern that we expand, they do not include what an earlier load has put aside.
    """
    if store is None:
        if len(words) > 1 and os.path.isfile(words[0]):
            detail = f"{words[0]} is a file, not a graph: name the graph before --data, or with --store."
            raise UsageError(detail=detail)
        return resolve(words[0] if words else None, None), _without_rejects(words[1:])
    for word in words:
        if not os.path.isfile(word):
            resolve(word, store)
    return resolve(None, store), _without_rejects(words)


def _without_rejects(words: Sequence[str]) -> list[str]:
    from omnigraph.pipeline.load.input_files import REJECTED

    return [word for word in words if not word.endswith(REJECTED)]


def _check_options(*, branch: str, from_: str | None, on_error: str, quarantine: str | None) -> None:
    if from_ is not None and branch == "main":
        raise UsageError(detail="--from says what a missing --branch is made from; name that branch with --branch.")
    if quarantine is not None and on_error != "quarantine":
        raise UsageError(detail="--quarantine names where wrong lines go; it needs --on-error quarantine.")


def _found(names: Sequence[str]) -> list[str]:
    """The files that the names mean, patterns and folders expanded; FileUnreadable if there are none."""
    from omnigraph.pipeline.load.input_files import find_files

    files: list[str] = []
    for name in names:
        files += [STDIN] if name == STDIN else [file.name for file in find_files(name)]
    if files.count(STDIN) > 1:
        raise UsageError(detail="stdin (-) can be read once only.")
    return files


def _source(name: str) -> Any:
    return sys.stdin.buffer if name == STDIN else name
