"""The verb query: a read query from a file or the command line, its rows in one of several forms.

1. look      at the options: which query, which parameters, which form; wrong ones cost nothing
2. run       on one pinned state
3. write     rows to stdout or to a file; a file appears whole or not at all
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import islice
from typing import TYPE_CHECKING, Annotated, Any, Literal, cast

from typer import Option

from omnigraph.cli.files import parse_json, read_json, read_text, written
from omnigraph.cli.options import AsOf, At, Branch, Json, Store, Words
from omnigraph.cli.output import Answer, Table, json_bytes, stdout_bytes
from omnigraph.cli.target import Target, open_graph, resolve
from omnigraph.errors import UsageError
from omnigraph.language.controls import escaped

if TYPE_CHECKING:
    from typing import IO

    from omnigraph.graph.prepared_query import PreparedQuery
    from omnigraph.query.result import Result

QueryFile = Annotated[
    str | None,
    Option("--query", "--file", metavar="FILE", help="The .gq file; - reads it from stdin.", show_default=False),
]
Source = Annotated[
    str | None,
    Option("--execute", "-e", metavar="SOURCE", help="The query itself, instead of a file.", show_default=False),
]
Name = Annotated[
    str | None,
    Option("--name", metavar="NAME", help="Which query of the file; needed if it has several.", show_default=False),
]
Param = Annotated[
    list[str] | None,
    Option("--param", "-p", metavar="NAME=VALUE", help="One parameter; may be repeated.", show_default=False),
]
Params = Annotated[
    str | None,
    Option(
        "--params", metavar="JSON|@FILE", help="Parameters, as one JSON object or a file of it.", show_default=False
    ),
]
Format = Annotated[
    Literal["table", "json", "jsonl", "csv", "kv", "arrow", "parquet"] | None,
    Option(
        "--format", "-f", help="table, the default, is for people. arrow and parquet are files.", show_default=False
    ),
]
Out = Annotated[
    str | None,
    Option("--out", "-o", metavar="FILE", help="Where the rows go; stdout by default.", show_default=False),
]
Explain = Annotated[bool, Option("--explain", help="Show the steps with their rows and times instead of the rows.")]
Timeout = Annotated[
    float | None, Option("--timeout", metavar="SECONDS", help="Stop after so many seconds.", show_default=False)
]
MaxRows = Annotated[
    int | None, Option("--max-rows", metavar="N", help="Fail if there are more rows than this.", show_default=False)
]
MaxMemory = Annotated[
    str | None,
    Option("--max-memory", metavar="SIZE", help="Fail before more memory is used, as 512MiB.", show_default=False),
]


def query(
    words: Words = None,
    store: Store = None,
    file: QueryFile = None,
    execute: Source = None,
    name: Name = None,
    param: Param = None,
    params: Params = None,
    branch: Branch = "main",
    commit: At = None,
    as_of: AsOf = None,
    format: Format = None,
    out: Out = None,
    explain: Explain = False,
    timeout: Timeout = None,
    max_rows: MaxRows = None,
    max_memory: MaxMemory = None,
    json: Json = False,
) -> Answer | None:
    """Run a read query on one state of a graph: by default the newest of a branch.

    The order of the rows is always the same. A query that writes is refused.
    """
    target, named = target_and_name(words, store, name)
    text, shown = source_text(file, execute)
    if json and format not in (None, "json"):
        raise UsageError(detail=f"--json and --format {format} contradict each other.")
    memory = None if max_memory is None else _bytes(max_memory)
    with open_graph(target) as graph:
        statement = graph.prepare(
            text,
            named,
            branch=branch,
            commit=commit,
            as_of=as_of,
            timeout_s=timeout,
            max_rows=max_rows,
            max_memory_bytes=memory,
            query_file=shown,
        )
        require_kind(statement, writes=False)
        result = cast("Result", statement.run(parameters(statement, param, params)))
        if explain:
            return Answer(result.explain(), [result.explained()], json or format == "json")
        return _answered(result, target, format="json" if json else format or "table", out=out)


def target_and_name(words: Sequence[str] | None, store: str | None, name: str | None) -> tuple[Target, str | None]:
    """`[URI] [NAME]`: with --store only the name is left."""
    given = list(words or ())
    uri = given.pop(0) if store is None and given else None
    if given and name is None:
        name = given.pop(0)
    if given:
        raise UsageError(detail=f"what is {' '.join(given)}? A query takes the graph's URI and the name of one query.")
    return resolve(uri, store), name


def source_text(file: str | None, execute: str | None) -> tuple[str, str]:
    if (file is None) == (execute is None):
        both = "both of them are" if file is not None else "neither is"
        raise UsageError(detail=f"a query comes from a file (--query) or from the command line (-e); {both} given.")
    if execute is not None:
        if not execute.strip():
            raise UsageError(detail="the query behind -e is empty.")
        return execute, "<query>"
    assert file is not None
    return read_text(file), file


def require_kind(statement: PreparedQuery, *, writes: bool) -> None:
    """Refuse a query that writes to `query`, and one that only reads to `mutate`."""
    if statement.is_write and not writes:
        raise UsageError(detail=f"{statement.name} writes; `mutate` runs it, `query` only reads.")
    if writes and not statement.is_write:
        raise UsageError(detail=f"{statement.name} only reads; `query` runs it, `mutate` runs what writes.")


def parameters(statement: PreparedQuery, param: Sequence[str] | None, params: str | None) -> Mapping[str, Any]:
    """Values from --params, then from --param: text for what is declared as text or time, JSON for the rest."""
    found: dict[str, Any] = {}
    if params is not None and params.startswith("@"):
        found.update(read_json(params[1:]))
    elif params is not None:
        try:
            body = parse_json(params)
        except ValueError as error:
            raise UsageError(detail=f"--params is no JSON: {error}.") from error
        if not isinstance(body, dict):
            raise UsageError(detail='--params is one JSON object, as {"name": "Ada"}.')
        found.update(body)
    types = {p.name: p.type for p in statement.params}
    for item in param or ():
        name, sign, value = item.partition("=")
        if not sign or not name:
            raise UsageError(detail=f"--param takes NAME=VALUE, not {item!r}.")
        found[name.removeprefix("$")] = _typed(types.get(name.removeprefix("$"), "String"), value)
    return found


def _typed(type_name: str, value: str) -> Any:
    if type_name in ("String", "Date", "DateTime", "Blob"):
        return value
    try:
        return parse_json(value)
    except ValueError:
        return value  # what it is not is said where it is bound


def _bytes(text: str) -> int:
    from omnigraph.config.sizes import size_of

    return size_of(text, option="--max-memory")


# ---- rows ------------------------------------------------------------------------------------------------------------


def envelope(result: Result, target: Target) -> dict[str, Any]:
    return {**head(result, target), "rows": plain(result.to_pylist())}


def head(result: Result, target: Target) -> dict[str, Any]:
    return {
        "query_name": result.name,
        "target": target.uri,
        "branch": result.branch,
        "graph_commit_id": result.commit,
        "row_count": result.num_rows,
        "columns": result.columns,
    }


def plain(value: Any) -> Any:
    """As JSON has it: moments in UTC with a Z, dates as text."""
    from datetime import date, datetime

    if isinstance(value, dict):
        return {k: plain(v) for k, v in value.items()}
    if isinstance(value, list):
        return [plain(v) for v in value]
    if isinstance(value, datetime):
        return value.isoformat().replace("+00:00", "Z")
    return value.isoformat() if isinstance(value, date) else value


def _answered(result: Result, target: Target, *, format: str, out: str | None) -> Answer | None:
    if format == "json" and out is None:
        return Answer(envelope(result, target), [], True)
    if format == "table" and out is None:
        return Answer({}, [rows_table(result)], False)
    refuse_terminal(format, out)
    with sink_of(out) as sink:
        write_rows(result, head(result, target), format, sink)
    return None


def refuse_terminal(format: str, out: str | None) -> None:
    if out is None and format in ("arrow", "parquet") and sys.stdout.isatty():
        raise UsageError(detail=f"{format} is not for a terminal; name a file with --out.")


@contextmanager
def sink_of(out: str | None) -> Iterator[IO[bytes]]:
    """The file, which appears whole or not at all, or stdout."""
    if out is not None:
        with written(out) as file:
            yield file
        return
    yield stdout_bytes()
    sys.stdout.flush()


def rows_table(result: Result, *, most: int | None = None) -> Table:
    """All rows, or the first of them."""
    import pyarrow as pa

    from omnigraph.query.result import cell

    shown = result.to_pylist() if most is None else [r for b in islice(result.batches(most), 1) for r in b.to_pylist()]
    rows = [[cell(v) for v in row.values()] for row in shown]
    types = result.schema
    numbers = [f.name for f in types if pa.types.is_integer(f.type) or pa.types.is_floating(f.type)]
    return Table(result.columns, rows, frozenset(numbers))


def write_rows(result: Result, head: Mapping[str, Any], format: str, sink: IO[bytes]) -> None:
    """`head` is what json and jsonl say about the rows."""
    if format == "json":
        sink.write(json_bytes({**head, "rows": plain(result.to_pylist())}))
    elif format == "jsonl":
        sink.write(json_bytes(head))
        for row in result:
            sink.write(json_bytes(plain(row)))
    elif format == "kv":
        for number, row in enumerate(result):
            sink.write(b"\n" if number else b"")
            for key, value in row.items():
                sink.write(escaped(f"{key}: {_text(value)}\n").encode())
    elif format == "csv":
        _write_csv(result, sink)
    elif format == "table":
        from omnigraph.cli.output import aligned

        sink.write(aligned(rows_table(result)).encode())
    else:
        _write_file(result, format, sink)


def _write_csv(result: Result, sink: IO[bytes]) -> None:
    import csv
    import io

    for batch in [None, *result.batches()]:
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        if batch is None:
            writer.writerow(result.columns)
        else:
            writer.writerows([_text(v) for v in row.values()] for row in batch.to_pylist())
        sink.write(text.getvalue().encode())


def _text(value: Any) -> str:
    import json

    if value is None:
        return ""
    shown = plain(value)
    return shown if isinstance(shown, str) else json.dumps(shown, ensure_ascii=False)


def _write_file(result: Result, format: str, sink: IO[bytes]) -> None:
    import pyarrow as pa

    if format == "arrow":
        with pa.ipc.new_stream(sink, result.schema) as stream:
            for batch in result.batches():
                stream.write_batch(batch)
        return
    import pyarrow.parquet as pq

    with pq.ParquetWriter(sink, result.schema) as file:
        for batch in result.batches():
            file.write_batch(batch)
