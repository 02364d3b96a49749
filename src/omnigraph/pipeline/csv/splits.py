"""Split large CSV files where records begin.

A line end may be within quotes, so that it depends on the text before it whether a record begins after it.

1. header    the driver reads the columns of every file (`read.csv_header`)
2. scan      one task per block of a large file. A block is the bytes between two line ends near even offsets; at such
             a line end a file is between records or within quotes. The task returns, for both, where the first record
             of its block begins and in which state the block ends. Without quotes this is a search for one byte
3. compose   the driver goes through the blocks of a file with the actual state at each

The cost is one more pass over files that are larger than a piece, in parallel. Packed files (small ones: `bulk.unpack`
unpacks the others), and files in encodings that are not ASCII-transparent, are one segment.
A task that runs twice gives the same result and writes nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from omnigraph.errors import FileUnreadable, OmnigraphError, RecordTooLong
from omnigraph.pipeline.csv.blocks import count_lines
from omnigraph.pipeline.csv.options import CsvFormat, csv_format
from omnigraph.pipeline.csv.read import Header, csv_header, unclosed
from omnigraph.pipeline.csv.records import Scan, is_border, scan
from omnigraph.pipeline.load.chunks import LINE_BYTES_DEFAULT
from omnigraph.pipeline.load.input_files import InputFile, read_range
from omnigraph.tasks.runner import Runner

AHEAD_BYTES = 1 << 16
SCAN_BYTES_MAX = 8 << 20
"""A scan takes up to 40 bytes of memory for each byte of its block, if these are line ends."""
_BEHIND_BYTES = 3
"""A border is recognised by the line end before it, at most two bytes, and the byte before that."""


@dataclass(frozen=True)
class CsvFile:
    """A file with its header, and the offsets at which its segments begin; None for a file that is one segment."""

    file: InputFile
    header: Header
    starts: tuple[int, ...] | None
    max_line_bytes: int


def with_headers(
    files: Sequence[InputFile], options: Mapping[str, str], *, max_line_bytes: int = LINE_BYTES_DEFAULT
) -> list[CsvFile]:
    """The files with their headers, not split yet. No record may be longer than `max_line_bytes`."""
    csv_files = []
    for file in files:
        format = csv_format(options, path=file.path)
        header = csv_header(file, format, max_line_bytes=max_line_bytes)
        is_whole = file.compression is not None or not format.is_ascii_transparent
        csv_files.append(CsvFile(file, header, None if is_whole else (header.end,), max_line_bytes))
    return csv_files


def split_files(runner: Runner, inputs: Sequence[tuple[CsvFile, Mapping[str, str]]], *, size: int) -> list[CsvFile]:
    """The same files, in order, with the offsets at which records begin, about every `size` bytes."""
    tasks: list[dict[str, Any]] = []
    owners: dict[str, list[int]] = {}
    for csv, options in inputs:
        key = _key(csv, options)
        if csv.starts is None or key in owners or csv.file.size_bytes - csv.header.end <= size:
            continue
        blocks = _blocks(csv, options, size)
        owners[key] = list(range(len(tasks), len(tasks) + len(blocks)))
        tasks += blocks
    if not tasks:
        return [csv for csv, _ in inputs]
    results = runner.run(scan_block, tasks, stage="finding records")
    cuts = {key: _composed(tasks, results, numbers) for key, numbers in owners.items()}
    return [replace(csv, starts=cuts.get(_key(csv, options), csv.starts)) for csv, options in inputs]


def csv_segments(csv: CsvFile) -> Iterator[dict[str, Any]]:
    """The segments that tasks read: whole records of the file, in order."""
    file, header = csv.file, csv.header
    about = {"source": file.name, "path": file.path, "size": file.size_bytes, "header": header.names}
    about["max_line_bytes"] = csv.max_line_bytes
    if csv.starts is None:
        whole = {"compression": file.compression, "header_lines": header.lines, "header_bytes": header.end}
        yield {**about, **whole, "bytes": file.text_bytes, "read": file.size_bytes}
        return
    for start, stop in zip(csv.starts, (*csv.starts[1:], file.size_bytes), strict=True):
        if start < stop:
            lines = header.lines if start == header.end else 0
            yield {
                **about,
                "start": start,
                "stop": stop,
                "header_lines": lines,
                "bytes": stop - start,
                "read": stop - start,
            }


def _key(csv: CsvFile, options: Mapping[str, str]) -> str:
    return f"{csv.file.path}\0{sorted(options.items())}"


def _blocks(csv: CsvFile, options: Mapping[str, str], size: int) -> list[dict[str, Any]]:
    begin, end = csv.header.end, csv.file.size_bytes
    about = {"path": csv.file.path, "source": csv.file.name, "size": end, "begin": begin, "options": dict(options)}
    about["max_line_bytes"] = csv.max_line_bytes
    size = min(size, SCAN_BYTES_MAX)
    return [{**about, "start": start, "stop": min(start + size, end)} for start in range(begin, end, size)]


# ---- on a worker -----------------------------------------------------------------------------------------------------


def scan_block(task: Mapping[str, Any]) -> dict[str, Any]:
    """For both states in which the block may begin: where its first record begins, and whether it ends in quotes."""
    format = csv_format(task["options"], path=task["path"])
    start = task["start"] if task["start"] == task["begin"] else _border(task, format, task["start"])
    stop = _border(task, format, task["stop"])
    progress = {"rows_done": 0, "bytes_done": stop - start}
    if format.quote is None or start >= stop:
        return {**progress, "first": [start, None], "quoted": [False, True]}
    text = read_range(task["path"], start, stop)
    if format.quote.encode() not in text:
        return {**progress, "first": [start, None], "quoted": [False, True]}
    outside = scan(text, format)
    begins, ends_in_quotes = _from_quotes(text, format, outside)
    first = [start, None if begins is None else start + begins]
    return {**progress, "first": first, "quoted": [outside.ends_in_quotes, ends_in_quotes]}


def _from_quotes(text: bytes, format: CsvFormat, outside: Scan) -> tuple[int | None, bool]:
    """Where the first record begins if the text begins within quotes, and whether it then ends in quotes.

    After the first line end that ends a record in both cases, both are the same: usually a few lines are enough.
    """
    size = AHEAD_BYTES
    while True:
        part = text[:size]
        inside = scan(part, format, in_quotes=True)
        is_whole = len(part) == len(text)
        # The last byte may be half of a line end or of two quotes.
        ends = inside.record_ends if is_whole else inside.record_ends[inside.record_ends < len(part) - 1]
        first = int(ends[0]) + 1 if len(ends) and ends[0] + 1 < len(text) else None
        if is_whole:
            return first, inside.ends_in_quotes
        if np.isin(ends, outside.record_ends, assume_unique=True).any():
            return first, outside.ends_in_quotes
        size *= 8


def _border(task: Mapping[str, Any], format: CsvFormat, offset: int) -> int:
    """The first border of lines at or after an offset; the end of the file if there is none."""
    size = task["size"]
    while offset < size:
        first = max(task["begin"], offset - _BEHIND_BYTES)
        stop = min(offset + AHEAD_BYTES, size)
        data = np.frombuffer(read_range(task["path"], first, stop), dtype=np.uint8)
        if len(data) < stop - first:
            raise FileUnreadable(path=task["source"], detail="it became shorter while it was read.")
        # The byte after a CR decides whether it ends a line: the last byte of the window is left to the next one.
        last = len(data) if stop == size else len(data) - 1
        ends = np.flatnonzero((data == 10) | (data == 13)) + 1
        for end in ends[(ends >= offset - first) & (ends < last)].tolist():
            if is_border(data, end, format):
                return int(first + end)
        offset = first + last
    return int(size)


# ---- on the driver ---------------------------------------------------------------------------------------------------


def _composed(tasks: Sequence[Mapping[str, Any]], results: Sequence[Any], numbers: Sequence[int]) -> tuple[int, ...]:
    """The offsets of one file. FileUnreadable for a quote that never closes, or RecordTooLong for its record."""
    starts: list[int] = []
    in_quotes = False
    open_block = numbers[0]
    for number in numbers:
        result = results[number]
        first = result["first"][int(in_quotes)]
        if first is not None and first < tasks[number]["size"] and (not starts or first > starts[-1]):
            starts.append(first)
        if result["quoted"][int(in_quotes)] and first is not None:
            open_block = number
        in_quotes = result["quoted"][int(in_quotes)]
    if in_quotes:
        raise _open_quote(tasks[open_block], starts)
    return tuple(starts)


def _open_quote(task: Mapping[str, Any], starts: Sequence[int]) -> OmnigraphError:
    """The error for a quote that is open from a block to the end of the file; its record may also be too long."""
    format = csv_format(task["options"], path=task["path"])
    stop = _border(task, format, task["stop"])
    start = max(start for start in starts if start < stop)
    scanned = scan(read_range(task["path"], start, stop), format)
    quote_at = int(scanned.quoted[-1, 0]) if scanned.ends_in_quotes else 0
    record_at = int(scanned.starts[-1])
    record_line, quote_line = scanned.lines(np.array([record_at, quote_at])) + count_lines(task["path"], start)
    limit = task["max_line_bytes"]
    if task["size"] - start - record_at > limit:
        return RecordTooLong(path=task["source"], line=int(record_line), limit_bytes=limit)
    return unclosed(task["source"], int(quote_line))
