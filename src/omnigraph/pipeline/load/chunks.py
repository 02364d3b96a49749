"""Text inputs as chunks of bytes: unpacked as they are read, without a byte order mark, with a limit for one line.

Memory is that of a chunk, whatever a file unpacks to. The length of a line is its bytes up to its line feed.
`LineLimit` refuses a line in the first chunk that brings it above the limit: a packed file without line feeds is
refused after that many bytes, and not read to its end.
"""

from __future__ import annotations

from codecs import BOM_UTF8
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np

from omnigraph.errors import FileUnreadable, RecordTooLong, UsageError
from omnigraph.pipeline.load.input_files import is_remote, open_input, read_range

CHUNK_BYTES = 4 << 20
REMOTE_CHUNK_BYTES = 16 << 20
"""A request per chunk: fewer and larger ones for a store."""
LINE_BYTES_DEFAULT = 256 << 20
LINE_BYTES_MAX = 1 << 30
"""Offsets into the text of Arrow arrays are 32 bits wide."""


def checked_line_bytes(value: int | None, *, option: str = "max_line_bytes") -> int:
    """The limit that an option sets, in bytes; UsageError if it is out of range."""
    if value is None:
        return LINE_BYTES_DEFAULT
    if not 1 <= value <= LINE_BYTES_MAX:
        raise UsageError(detail=f"{option} is from 1 byte to {LINE_BYTES_MAX >> 20} MiB, not {value} bytes.")
    return value


class LineLimit:
    """Counts the lines of one text that comes in chunks; RecordTooLong for one that is longer than the limit."""

    def __init__(self, source: str, max_line_bytes: int) -> None:
        self.line_count = 0
        """Lines that have ended."""
        self._source = source
        self._max_bytes = max_line_bytes
        self._open_bytes = 0

    def add(self, chunk: bytes) -> None:
        first = chunk.find(b"\n")
        self._require(self._open_bytes + (len(chunk) if first < 0 else first), 1)
        if first < 0:
            self._open_bytes += len(chunk)
            return
        if len(chunk) - first > self._max_bytes:
            lengths = np.diff(np.flatnonzero(np.frombuffer(chunk, dtype=np.uint8) == 10)) - 1
            over = np.flatnonzero(lengths > self._max_bytes)
            if len(over):
                self._require(int(lengths[over[0]]), int(over[0]) + 2)
        self.line_count += chunk.count(b"\n")
        self._open_bytes = len(chunk) - chunk.rfind(b"\n") - 1
        self._require(self._open_bytes, 1)

    def _require(self, size: int, lines_on: int) -> None:
        if size > self._max_bytes:
            raise RecordTooLong(path=self._source, line=self.line_count + lines_on, limit_bytes=self._max_bytes)


def file_chunks(path: str, compression: str | None) -> Iterator[bytes]:
    """A whole file, unpacked."""
    import pyarrow as pa

    size = REMOTE_CHUNK_BYTES if is_remote(path) else CHUNK_BYTES
    try:
        # Not mapped: a file that is read once, in order, need not stay in memory.
        with open_input(path) if is_remote(path) else pa.OSFile(path) as raw:
            file: Any = raw if compression is None else pa.CompressedInputStream(raw, compression)
            while chunk := bytes(file.read(size)):
                yield chunk
    except OSError as error:
        raise FileUnreadable(path=path, detail=str(error)) from error


def range_chunks(path: str, start: int, stop: int) -> Iterator[bytes]:
    """The bytes of a plain file from `start` to `stop`."""
    step = REMOTE_CHUNK_BYTES if is_remote(path) else CHUNK_BYTES
    for offset in range(start, stop, step):
        yield read_range(path, offset, min(offset + step, stop))


def line_chunks(path: str, start: int, stop: int, *, size_bytes: int) -> Iterator[bytes]:
    """All lines of a plain file that begin from `start` to `stop`, whole, each with its line feed."""
    last = b"\n"
    # A line begins at `start` if the byte before is a line feed; else it belongs to the range that has its beginning.
    is_in_line = start > 0
    for chunk in range_chunks(path, start - int(is_in_line), stop):
        if is_in_line:
            cut = chunk.find(b"\n")
            if cut < 0:
                continue
            is_in_line = False
            chunk = chunk[cut + 1 :]
        if chunk:
            yield chunk
            last = chunk[-1:]
    if is_in_line or last == b"\n":
        return
    for chunk in range_chunks(path, stop, size_bytes):
        end = chunk.find(b"\n") + 1
        yield chunk[:end] if end else chunk
        if end:
            return
    yield b"\n"


def without_mark(chunks: Iterable[bytes]) -> Iterator[bytes]:
    """The bytes without the byte order mark of UTF-8."""
    rest = iter(chunks)
    head = b""
    while len(head) < len(BOM_UTF8) and (chunk := next(rest, None)) is not None:
        head = bytes(chunk) if not head else head + chunk
    yield head.removeprefix(BOM_UTF8)
    yield from rest


def with_last_line_feed(chunks: Iterable[bytes]) -> Iterator[bytes]:
    """The same chunks; a line feed is added if the last line has none."""
    last = b"\n"
    for chunk in chunks:
        if chunk:
            last = chunk[-1:]
            yield chunk
    if last != b"\n":
        yield b"\n"
