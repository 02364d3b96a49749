"""Answers: one JSON document for programs, text and tables for people. Echo of the target of a write on stderr.

Tables are drawn by rich on a terminal, so that they fit its width; everywhere else they are aligned columns without
borders, easy on `grep` and `awk`.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TextIO


@dataclass(frozen=True)
class Table:
    """Cells are text already; `right` names the columns of numbers."""

    columns: Sequence[str]
    rows: Sequence[Sequence[str]]
    right: frozenset[str] = frozenset()


@dataclass(frozen=True)
class Answer:
    """What a verb has to say: `document` with --json, otherwise the lines and tables of `text`.

    `exit_code` is 1 where the verb did its work and the answer is a bad one.
    """

    document: Mapping[str, Any]
    text: Sequence[str | Table]
    as_json: bool
    exit_code: int = 0


def show(answer: Answer) -> None:
    if answer.as_json:
        write_json(answer.document)
        return
    for part in answer.text:
        if isinstance(part, str):
            write_text(sys.stdout, part if part.endswith("\n") else f"{part}\n")
        elif sys.stdout.isatty():
            _draw(part)
        else:
            write_text(sys.stdout, aligned(part))
    sys.stdout.flush()


def write_json(document: Mapping[str, Any]) -> None:
    """Always UTF-8, whatever the terminal speaks; bytes of a file name that are no UTF-8 become \\u escapes."""
    import json

    body = json.dumps(document, ensure_ascii=False, indent=2, default=str)
    sys.stdout.flush()
    sys.stdout.buffer.write(body.encode("utf-8", "backslashreplace") + b"\n")
    sys.stdout.flush()


def write_text(stream: TextIO, text: str) -> None:
    """A terminal that can't show a character gets a question mark rather than a failure."""
    encoding = stream.encoding or "utf-8"
    stream.write(text.encode(encoding, "replace").decode(encoding))
    stream.flush()


def echo_target(doing: str, target: str, *, branch: str | None = None, quiet: bool) -> None:
    """Every write says where it goes, before it goes there."""
    if not quiet:
        where = f" (branch {branch})" if branch is not None else ""
        write_text(sys.stderr, f"→ {doing} {target}{where}\n")


def aligned(table: Table) -> str:
    widths = [max(len(r[i]) for r in (table.columns, *table.rows)) for i in range(len(table.columns))]
    lines = []
    for row in (table.columns, *table.rows):
        cells = [
            cell.rjust(width) if name in table.right else cell.ljust(width)
            for name, cell, width in zip(table.columns, row, widths, strict=True)
        ]
        lines.append("  ".join(cells).rstrip())
    return "\n".join(lines) + "\n"


def count(number: int, one: str, many: str) -> str:
    return f"{number:,} {one if number == 1 else many}"


def _draw(table: Table) -> None:
    from rich import box
    from rich.console import Console
    from rich.table import Table as RichTable
    from rich.text import Text

    drawn = RichTable(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False)
    for name in table.columns:
        drawn.add_column(name, justify="right" if name in table.right else "left", overflow="fold")
    for row in table.rows:
        drawn.add_row(*(Text(cell) for cell in row))
    Console(file=sys.stdout, highlight=False).print(drawn)
