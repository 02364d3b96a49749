"""The verb changes: the change feed of a branch, and the baseline that it starts from.

1. look      at the options: where the feed begins, which form; wrong ones cost nothing
2. write     page by page to stdout: tables for people, JSON lines or one JSON document for programs
3. cursor    the position behind what was written: on stderr, in the JSON lines after each page, or in the document

Ctrl-C ends --follow: what was begun is finished or not counted by the cursor, which is printed.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Annotated, Any, Literal

from typer import Option

from omnigraph.cli.commands.export import Types
from omnigraph.cli.failure import EXIT_INTERRUPTED
from omnigraph.cli.options import Branch, Json, Quiet, Store, Words
from omnigraph.cli.output import Answer, Table, aligned, count, json_bytes, stdout_bytes, write_text
from omnigraph.cli.target import open_graph, resolve
from omnigraph.errors import UsageError

if TYPE_CHECKING:
    from omnigraph.branch.feed.page import Baseline, ChangePage

VALUE_CHARACTERS_MAX = 40

After = Annotated[
    str | None,
    Option("--after", metavar="CURSOR", help="Go on behind this cursor, or behind a commit.", show_default=False),
]
FromStart = Annotated[bool, Option("--from-start", help="Begin at the first commit; the default.")]
FromNow = Annotated[bool, Option("--from-now", help="Begin behind the newest commit.")]
Follow = Annotated[
    bool, Option("--follow", "-F", help="Wait for further commits, until Ctrl-C; one is seen within about a second.")
]
Limit = Annotated[int | None, Option("--limit", "-n", metavar="N", help="At most N commits.", show_default=False)]
Format = Annotated[
    Literal["table", "jsonl"],
    Option("--format", "-f", help="table: for people. jsonl: one line per row, and one with the cursor per page."),
]


def changes(
    words: Words = None,
    store: Store = None,
    branch: Branch = "main",
    after: After = None,
    from_start: FromStart = False,
    from_now: FromNow = False,
    follow: Follow = False,
    types: Types = None,
    limit: Limit = None,
    format: Format = "table",
    json: Json = False,
    quiet: Quiet = False,
) -> Answer:
    """Show what each commit of a branch changed, oldest first, from any position on.

    The cursor behind the last row is printed at the end; the next call goes on from it with --after. `changes baseline`
    writes all rows of the newest state as inserts, and the cursor from which the feed goes on after it.
    """
    words = list(words or [])
    is_baseline = words[:1] == ["baseline"]
    if is_baseline:
        words = words[1:]
    if len(words) > 1:
        raise UsageError(detail=f"one argument is expected: the graph's URI. Given: {' '.join(words)}")
    if json and (follow or format != "table"):
        given = "--follow" if follow else f"--format {format}"
        raise UsageError(detail=f"--json is one document and can't be used with {given}; use --format jsonl.")
    if (after is not None) + from_start + from_now > 1:
        raise UsageError(detail="a feed begins in one place: give one of --after, --from-start and --from-now.")
    if is_baseline and (after or from_start or from_now or follow or limit is not None):
        raise UsageError(detail="a baseline is the newest state: it takes no --after, --from-…, --follow or --limit.")
    target = resolve(words[0] if words else None, store)
    with open_graph(target) as graph:
        if is_baseline:
            with graph.changes_baseline(branch=branch, types=types) as baseline:
                return _baseline(baseline, format=format, json=json, quiet=quiet)
        # Read here, so that there is a cursor to print also if nothing comes.
        after = graph.changes_cursor(branch=branch) if from_now else after
        read = graph.follow_changes if follow else graph.changes
        pages = read(after, branch=branch, types=types, limit=limit)
        return _document(branch, pages, after) if json else _streamed(pages, after, format=format, quiet=quiet)


def _document(branch: str, pages: Iterable[ChangePage], cursor: str | None) -> Answer:
    commits: list[dict[str, Any]] = []
    is_open = False
    for page in pages:
        if is_open:
            commits[-1]["changes"] += page.changes()
        else:
            body = page.to_json()
            commits.append({name: body[name] for name in ("commits", "merged_parent", "schema_steps", "changes")})
        is_open, cursor = not page.completes_commit, page.cursor
    return Answer({"branch": branch, "steps": commits, "cursor": cursor}, [], True)


def _streamed(pages: Iterable[ChangePage], cursor: str | None, *, format: str, quiet: bool) -> Answer:
    exit_code = 0
    out = stdout_bytes()
    is_open = False
    try:
        for page in pages:
            if format == "jsonl":
                for line in _page_lines(page):
                    out.write(line)
            else:
                _write_page(page, with_headline=not is_open)
            out.flush()
            cursor, is_open = page.cursor, not page.completes_commit
    except KeyboardInterrupt:
        exit_code = EXIT_INTERRUPTED
    _tell_cursor(cursor, quiet=quiet)
    return Answer({}, [], False, exit_code)


def _tell_cursor(cursor: str | None, *, quiet: bool) -> None:
    if cursor is not None and not quiet:
        write_text(sys.stderr, f"→ go on with --after {cursor}\n")


# ---- lines -----------------------------------------------------------------------------------------------------------


def _page_lines(page: ChangePage) -> Iterator[bytes]:
    for change in page.changes():
        yield json_bytes({"commit": page.commit.id, **change})
    body = page.to_json()
    yield json_bytes({name: body[name] for name in body if name != "changes"})


def _write_page(page: ChangePage, *, with_headline: bool) -> None:
    if with_headline:
        write_text(sys.stdout, "\n".join(_headline(page)) + "\n")
    if page.rows is not None:
        write_text(sys.stdout, _rows_text(page.changes()))


def _headline(page: ChangePage) -> Iterator[str]:
    for commit in page.commits:
        by = f" by {commit.actor}" if commit.actor else ""
        merged = f", merges {commit.merged_parent}" if commit.merged_parent else ""
        yield f"commit {commit.id}  {commit.kind}  {commit.created_at.isoformat(timespec='seconds')}{by}{merged}"
    if len(page.commits) > 1:
        yield f"  net changes of {count(len(page.commits), 'commit', 'commits')}: cleanup removed the states between"
    for step in page.schema_steps:
        yield f"  schema: {step}"
    if page.rows is None:
        yield "  no row changed"


def _rows_text(rows: list[dict[str, Any]]) -> str:
    cells = [[f"  {row['operation']}", row["table_key"], row["id"], _values(row)] for row in rows]
    return aligned(Table(("  operation", "table", "id", "values"), cells))


def _values(row: dict[str, Any]) -> str:
    before, after = row["before"] or {}, row["after"] or {}
    if row["operation"] == "update":
        return ", ".join(f"{name}: {_short(before.get(name))} → {_short(after.get(name))}" for name in row["changed"])
    image = after or before
    return ", ".join(f"{name}: {_short(value)}" for name, value in image.items() if name != "id" and value is not None)


def _short(value: Any) -> str:
    text = json_bytes(value).decode().rstrip("\n")
    return text if len(text) <= VALUE_CHARACTERS_MAX else f"{text[: VALUE_CHARACTERS_MAX - 1]}…"


# ---- baseline --------------------------------------------------------------------------------------------------------


def _baseline(baseline: Baseline, *, format: str, json: bool, quiet: bool) -> Answer:
    from omnigraph.branch.feed.page import change_documents

    end = {"branch": baseline.branch, "commit": baseline.commit, "cursor": baseline.cursor}
    if json:
        rows = [row for batch in baseline.batches() for row in change_documents(batch)]
        return Answer({**end, "changes": rows}, [], True)
    out = stdout_bytes()
    if format == "table":
        write_text(sys.stdout, f"commit {baseline.commit}\n")
    for batch in baseline.batches():
        rows = change_documents(batch)
        if format == "table":
            write_text(sys.stdout, _rows_text(rows))
            continue
        for row in rows:
            out.write(json_bytes({"commit": baseline.commit, **row}))
    if format == "jsonl":
        out.write(json_bytes({**end, "completes_commit": True}))
    out.flush()
    _tell_cursor(baseline.cursor, quiet=quiet)
    return Answer({}, [], False)
