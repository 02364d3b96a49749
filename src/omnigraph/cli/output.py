"""Answers: one JSON document for programs, text and tables for people. Echo of the target of a write on stderr.

Tables are drawn by rich on a terminal, so that they fit its width; everywhere else they are aligned columns without
borders, easy on `grep` and `awk`. Where a terminal is narrow, cells have several lines. Names are cut in their middle
instead, and only on a terminal: a name in pieces on several lines can't be read, nor found again.

Whatever is printed passes through here, and leaves without control characters: names, values and messages may come from
a graph that somebody else has made, and a terminal would obey them. Only a stream of data that goes into a file or a
pipe is left as it is.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import IO, Any, Literal, TextIO, cast

from omnigraph.errors.redact import redact, redacted
from omnigraph.language.controls import escaped

GAP = 2
"""Between two columns."""
NAME_MIN, NAME_GOOD = 12, 24
"""Names are cut to the one, if it must be, so that no word is broken; to the other, so that cells have one line."""
WORD_MAX = 14
"""Longer words, as paths in messages, may be broken."""


@dataclass(frozen=True)
class Table:
    """Cells are text already; `right` names the columns of numbers; `names` says that the first column has names."""

    columns: Sequence[str]
    rows: Sequence[Sequence[str]]
    right: frozenset[str] = frozenset()
    names: bool = False


@dataclass(frozen=True)
class Answer:
    """What a verb has to say: `document` with --json, otherwise the lines and tables of `text`.

    `exit_code` is 1 where the verb did its work and the answer is a bad one.
    """

    document: Mapping[str, Any]
    text: Sequence[str | Table]
    as_json: bool
    exit_code: int = 0

    def without_secrets(self) -> Answer:
        """The same, with what is concealed at this moment shown by its name."""
        text = [
            replace(part, rows=[[redact(cell) for cell in row] for row in part.rows])
            if isinstance(part, Table)
            else redact(part)
            for part in self.text
        ]
        return replace(self, document=redacted(dict(self.document)), text=text)


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
    sys.stdout.flush()
    sys.stdout.buffer.write(json_bytes(document, indent=2))
    sys.stdout.flush()


def json_bytes(document: Any, *, indent: int | None = None) -> bytes:
    """A document and the end of its line. Always UTF-8, whatever the terminal speaks; control characters, and bytes of
    a file name that are no UTF-8, become \\u escapes.
    """
    import json

    return escaped(json.dumps(document, ensure_ascii=False, indent=indent, default=str)).encode() + b"\n"


class TerminalBytes:
    """A terminal as a place for data: what it would obey is escaped. Each write is whole characters."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def write(self, data: bytes) -> int:
        write_text(self._stream, data.decode(errors="backslashreplace"))
        return len(data)

    def flush(self) -> None:
        self._stream.flush()


def stdout_bytes() -> IO[bytes]:
    """Where data goes that was asked for without a file."""
    return cast("IO[bytes]", TerminalBytes(sys.stdout)) if sys.stdout.isatty() else sys.stdout.buffer


def write_text(stream: TextIO, text: str) -> None:
    """A terminal gets no character that it would obey, and for one that it can't show a question mark."""
    encoding = stream.encoding or "utf-8"
    stream.write(escaped(text).encode(encoding, "replace").decode(encoding))
    stream.flush()


def echo_target(doing: str, target: str, *, branch: str | None = None, quiet: bool) -> None:
    """Every write says where it goes, before it goes there."""
    if not quiet:
        where = f" (branch {branch})" if branch is not None else ""
        write_text(sys.stderr, redact(f"→ {doing} {target}{where}\n"))


def _shown(table: Table) -> Table:
    """The table with cells of one line each that no terminal obeys."""
    columns, *rows = ([escaped(cell, lines=False) for cell in row] for row in (table.columns, *table.rows))
    right = frozenset(escaped(name, lines=False) for name in table.right)
    return replace(table, columns=columns, rows=rows, right=right)


def aligned(table: Table) -> str:
    table = _shown(table)
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

    table = _shown(table)
    console = Console(file=sys.stdout, highlight=False)
    widths = _widths(table, console.width) if table.names else None
    drawn = RichTable(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False, padding=(0, 1, 0, 0))
    for i, name in enumerate(table.columns):
        justify: Literal["left", "right"] = "right" if name in table.right else "left"
        drawn.add_column(name, justify=justify, overflow="fold", width=None if widths is None else widths[i])
    for row in table.rows:
        first = row[0] if widths is None else cut(row[0], widths[0])
        drawn.add_row(*(Text(cell) for cell in (first, *row[1:])))
    console.print(drawn)


def _widths(table: Table, room: int) -> list[int] | None:
    """Widths with which names are cut and no word of the other columns is broken; None if there are none."""
    columns = list(zip(table.columns, *table.rows, strict=True))
    whole = [max(len(cell) for cell in column) for column in columns]
    words = [max((len(word) for cell in column for word in cell.split()), default=0) for column in columns]
    widths = [min(whole[0], NAME_MIN), *(min(width, WORD_MAX) for width in words[1:])]
    left = room - GAP * (len(widths) - 1) - sum(widths)
    if left < 0:
        return None
    others = sorted(range(1, len(widths)), key=lambda i: whole[i] - widths[i])
    for i, most in ((0, NAME_GOOD), *((i, whole[i]) for i in others), (0, whole[0])):
        more = max(0, min(left, min(most, whole[i]) - widths[i]))
        widths[i], left = widths[i] + more, left - more
    return widths


def cut(name: str, width: int) -> str:
    """A name in so many characters: its middle is left out, because names are told apart by their ends."""
    if len(name) <= width:
        return name
    end = width // 2
    return f"{name[: width - end - 1]}…{name[len(name) - end :]}"
