"""Inputs of a load: files, open files and iterables of bytes, read as one stream of lines.

Lines are numbered through all files: line 1 of the second file follows the last line of the first. `Lines.place` turns
such a number back into a file and a line of it, for messages.
"""

from __future__ import annotations

import bisect
import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import IO, Any

from omnigraph.errors import UsageError
from omnigraph.pipeline.load.chunks import (
    CHUNK_BYTES,
    LINE_BYTES_DEFAULT,
    LineLimit,
    file_chunks,
    with_last_line_feed,
    without_mark,
)
from omnigraph.pipeline.load.input_files import COMPRESSED, find_files

Source = str | os.PathLike[str] | IO[bytes] | Iterable[bytes]


@dataclass(frozen=True)
class Lines:
    """A stream of bytes made of named parts. It can be read a second time only if every part is a file."""

    parts: tuple[tuple[str, Any], ...]
    max_line_bytes: int = LINE_BYTES_DEFAULT
    starts: list[int] = field(default_factory=list, compare=False)
    """The number of the first line of each part, filled in while reading."""

    @property
    def can_repeat(self) -> bool:
        return all(isinstance(part, str) for _, part in self.parts)

    def chunks(self) -> Iterator[bytes]:
        """RecordTooLong for a line above the limit."""
        self.starts.clear()
        before = 0
        for name, part in self.parts:
            self.starts.append(before + 1)
            lines = LineLimit(name, self.max_line_bytes)
            for chunk in with_last_line_feed(without_mark(_read(part))):
                lines.add(chunk)
                yield chunk
            before += lines.line_count

    def place(self, line: int) -> tuple[str, int]:
        """The part that a line came from, and its number there."""
        index = max(0, bisect.bisect_right(self.starts, line) - 1)
        return self.parts[index][0], line - self.starts[index] + 1

    def text(self, line: int) -> str:
        """The line as messages about another line refer to it."""
        source, number = self.place(line)
        return f"line {number}" if len(self.parts) == 1 else f"line {number} of {source}"


def lines_of(source: Source | Sequence[Source], *, max_line_bytes: int = LINE_BYTES_DEFAULT) -> Lines:
    """The parts of a source: a path, a pattern of paths, an open file, an iterable of bytes, or several of these."""
    sources = list(source) if isinstance(source, list | tuple) and not _is_bytes_sequence(source) else [source]
    parts: list[tuple[str, Any]] = []
    for item in sources:
        if isinstance(item, str | os.PathLike):
            parts += [(file.name, file.path) for file in find_files(item)]
        else:
            parts.append((str(getattr(item, "name", "<input>")), item))
    if not parts:
        raise UsageError(detail="there is nothing to load: name at least one file.")
    return Lines(tuple(parts), max_line_bytes)


def _is_bytes_sequence(source: Any) -> bool:
    return len(source) > 0 and all(isinstance(item, bytes) for item in source)


def _read(part: Any) -> Iterator[bytes]:
    if isinstance(part, str):
        yield from file_chunks(part, COMPRESSED.get(os.path.splitext(part)[1].lower()))
    elif hasattr(part, "read"):
        yield from iter(lambda: part.read(CHUNK_BYTES), b"")
    else:
        yield from map(_as_bytes, part)


def _as_bytes(chunk: Any) -> bytes:
    if isinstance(chunk, bytes):
        return chunk
    try:
        return bytes(memoryview(chunk))
    except TypeError:
        raise UsageError(detail=f"an iterable of a load gives bytes, not {type(chunk).__name__}.") from None
