"""Inputs of a load: files, open files and iterables of bytes, read as one stream of lines that knows where each came
from.

Several files count their lines through: line 1 of the second file follows the last line of the first. `Lines.place`
turns such a number back into a file and a line of it, which is what a user wants to read.
"""

from __future__ import annotations

import bisect
import os
from codecs import BOM_UTF8
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import IO, Any

from omnigraph.errors import FileUnreadable, UsageError
from omnigraph.pipeline.files import COMPRESSED, find_files

CHUNK_BYTES = 4 * 1024 * 1024

Source = str | os.PathLike[str] | IO[bytes] | Iterable[bytes]


@dataclass(frozen=True)
class Lines:
    """A stream of bytes made of named parts. Reading it a second time works only where every part is a file."""

    parts: tuple[tuple[str, Any], ...]
    starts: list[int] = field(default_factory=list, compare=False)
    """The number of the first line of each part, filled in while reading."""

    @property
    def can_repeat(self) -> bool:
        return all(isinstance(part, str) for _, part in self.parts)

    def chunks(self) -> Iterator[bytes]:
        self.starts.clear()
        line = 1
        for _, part in self.parts:
            self.starts.append(line)
            last = b"\n"
            for chunk in _without_mark(_read(part)):
                if chunk:
                    line += chunk.count(b"\n")
                    last = chunk[-1:]
                    yield chunk
            if last != b"\n":
                line += 1
                yield b"\n"

    def place(self, line: int) -> tuple[str, int]:
        """The part that a line came from, and its number there."""
        index = max(0, bisect.bisect_right(self.starts, line) - 1)
        return self.parts[index][0], line - self.starts[index] + 1

    def text(self, line: int) -> str:
        """The line as messages about another line of the input name it."""
        source, number = self.place(line)
        return f"line {number}" if len(self.parts) == 1 else f"line {number} of {source}"


def lines_of(source: Source | Sequence[Source]) -> Lines:
    """The parts of a source: a path, a pattern of paths, an open file, an iterable of bytes, or several of these."""
    given = list(source) if isinstance(source, list | tuple) and not _is_bytes_sequence(source) else [source]
    parts: list[tuple[str, Any]] = []
    for one in given:
        if isinstance(one, str | os.PathLike):
            parts += [(file.name, file.path) for file in find_files(one)]
        else:
            parts.append((str(getattr(one, "name", "<input>")), one))
    if not parts:
        raise UsageError(detail="there is nothing to load: name at least one file.")
    return Lines(tuple(parts))


def _is_bytes_sequence(source: Any) -> bool:
    return len(source) > 0 and all(isinstance(one, bytes) for one in source)


def _without_mark(chunks: Iterable[bytes]) -> Iterator[bytes]:
    """The bytes without the mark that some programs put in front of UTF-8."""
    rest = iter(chunks)
    head = b""
    while len(head) < len(BOM_UTF8) and (chunk := next(rest, None)) is not None:
        head = bytes(chunk) if not head else head + chunk
    yield head.removeprefix(BOM_UTF8)
    yield from rest


def _read(part: Any) -> Iterator[bytes]:
    if not isinstance(part, str):
        yield from iter(lambda: part.read(CHUNK_BYTES), b"") if hasattr(part, "read") else part
        return
    import pyarrow as pa

    compression = COMPRESSED.get(os.path.splitext(part)[1].lower())
    try:
        with pa.input_stream(part, compression=compression) as file:
            while chunk := file.read(CHUNK_BYTES):
                yield chunk
    except OSError as error:
        raise FileUnreadable(path=part, detail=str(error)) from error
