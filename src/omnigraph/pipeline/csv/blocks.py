"""CSV in blocks of whole records, so that memory does not grow with the size of a segment or of an unpacked file.

1. read      the bytes of the segment in chunks, unpacked, without the header, as UTF-8
2. split     after the last record that ends in the chunks so far. The last byte is left to the next block: it may be
             half of a line end, or of two quotes
3. refuse    a record, or a comment, that is longer than the limit: RecordTooLong with its line

Where no record ends, twice as much is read before the next scan, so that one long record is not scanned again for
every chunk of it. The last block is the rest: a quote may be open in it.
"""

from __future__ import annotations

from codecs import getincrementaldecoder
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from omnigraph.errors import FileUnreadable, RecordTooLong
from omnigraph.pipeline.csv.options import CsvFormat
from omnigraph.pipeline.csv.records import Scan, scan
from omnigraph.pipeline.load.chunks import file_chunks, range_chunks
from omnigraph.pipeline.load.input_files import read_range

BLOCK_BYTES = 4 << 20
ENCODING_HINT = "Say how the file is written, as in encoding=latin-1; nothing was written."


@dataclass(frozen=True, eq=False)
class Block:
    """Whole records with their scan, and how many lines of the segment are before them."""

    text: bytes
    scan: Scan
    lines_before: int


def record_blocks(segment: Mapping[str, Any], format: CsvFormat) -> Iterator[Block]:
    """The blocks of a segment of `splits.csv_segments`, without its header. The last one may be empty."""
    block_bytes = BLOCK_BYTES
    limit = segment["max_line_bytes"]
    parts: list[bytes] = []
    size, scan_at, lines = 0, block_bytes, 0
    for chunk in _pieces(_decoded_chunks(segment, format), block_bytes):
        if _is_line_feeds(chunk) and all(map(_is_line_feeds, parts)):
            # Blank lines between records, of which a packed file can have billions.
            lines += size + len(chunk)
            parts, size = [], 0
            continue
        parts.append(chunk)
        size += len(chunk)
        if size < scan_at:
            continue
        text = b"".join(parts)
        scanned = scan(text, format)
        ends = scanned.record_ends[scanned.record_ends < size - 1]
        stop = int(ends[-1]) + 1 if len(ends) else 0
        _require_length(scanned, limit, segment, lines)
        if stop:
            block = Block(text[:stop], scanned.until(stop), lines)
            yield block
            lines += block.scan.line_count
        parts, size = [text[stop:]], size - stop
        scan_at = block_bytes if stop else 2 * size
        scan_at = min(scan_at, max(block_bytes, limit + 2))
    text = b"".join(parts)
    scanned = scan(text, format)
    _require_length(scanned, limit, segment, lines)
    yield Block(text, scanned, lines)


def _is_line_feeds(text: bytes) -> bool:
    return text[:1] in (b"", b"\n") and text.count(b"\n") == len(text)


def decoded(raw: bytes, format: CsvFormat, name: str, *, is_whole: bool) -> bytes:
    """The text as UTF-8, without the bytes of an incomplete character at its end."""
    return b"".join(_transcoded([raw], format, name, is_whole=is_whole))


def lines_before(segment: Mapping[str, Any]) -> int:
    """How many lines of the file are before the rows of a segment."""
    return count_lines(segment["path"], segment["start"]) if "start" in segment else int(segment["header_lines"])


def count_lines(path: str, stop: int, *, chunk_bytes: int = 16 << 20) -> int:
    """How many lines end before the byte `stop` of a file."""
    total = 0
    last = b""
    for start in range(0, stop, chunk_bytes):
        text = last + read_range(path, start, min(start + chunk_bytes, stop))
        last = b"\r" if text.endswith(b"\r") else b""
        text = text.removesuffix(b"\r")
        total += text.count(b"\n") + text.count(b"\r") - text.count(b"\r\n")
    return total + len(last)


def _require_length(scanned: Scan, limit: int, segment: Mapping[str, Any], lines: int) -> None:
    """RecordTooLong for a record above the limit. One that has not ended yet counts with its bytes so far."""
    if scanned.size <= limit:
        return
    is_ended = np.ones(len(scanned.stops), dtype=bool)
    is_ended[-1:] = scanned.is_complete
    over = np.flatnonzero(scanned.stops - scanned.starts - is_ended > limit)
    if len(over):
        line = int(scanned.lines(scanned.starts[over[:1]])[0])
        path = segment["source"]
        raise RecordTooLong(path=path, line=lines_before(segment) + lines + line, limit_bytes=limit)


def _pieces(chunks: Iterable[bytes], size_max: int) -> Iterator[bytes]:
    for chunk in chunks:
        for start in range(0, len(chunk), size_max):
            yield chunk if len(chunk) <= size_max else chunk[start : start + size_max]


def _decoded_chunks(segment: Mapping[str, Any], format: CsvFormat) -> Iterator[bytes]:
    if "start" in segment:
        chunks = range_chunks(segment["path"], segment["start"], segment["stop"])
    else:
        chunks = file_chunks(segment["path"], segment["compression"])
    skip_bytes = segment.get("header_bytes", 0)
    if format.is_ascii_transparent:
        chunks = _behind(chunks, skip_bytes)
    if format.encoding != "utf-8":
        chunks = _transcoded(chunks, format, segment["source"])
    return chunks if format.is_ascii_transparent else _behind(chunks, skip_bytes)


def _behind(chunks: Iterable[bytes], skip_bytes: int) -> Iterator[bytes]:
    """The chunks without their first bytes."""
    for chunk in chunks:
        yield chunk[skip_bytes:]
        skip_bytes = max(0, skip_bytes - len(chunk))


def _transcoded(chunks: Iterable[bytes], format: CsvFormat, name: str, *, is_whole: bool = True) -> Iterator[bytes]:
    decoder = getincrementaldecoder(format.encoding)()
    decoded_bytes, read_bytes = 0, 0
    try:
        for chunk in chunks:
            yield decoder.decode(chunk).encode()
            read_bytes += len(chunk)
            decoded_bytes = read_bytes - len(decoder.getstate()[0])
        yield decoder.decode(b"", final=is_whole).encode()
    except UnicodeError as error:
        position = (
            f"{error.reason} at byte {decoded_bytes + error.start}"
            if isinstance(error, UnicodeDecodeError)
            else str(error)
        )
        detail = f"it is not {format.encoding.upper()}: {position}."
        raise FileUnreadable(path=name, detail=detail, hint=ENCODING_HINT) from error
