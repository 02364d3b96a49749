"""Read a segment of CSV as an Arrow table of texts, each row with its line.

1. text      the bytes of the segment, as UTF-8. A segment is whole records, or a whole file, packed or not
2. scan      the borders of records (`records`); a quote that never closes refuses the file, with the line
3. clean     comments, blank lines and values that mean null are cut out of the bytes
4. parse     by Arrow, in slices of whole records. Rows with another number of values than columns are no rows
5. place     every row gets the line on which its record begins

Nothing between two delimiters is null, a quoted empty text is an empty text, a quoted text is never null.
"""

from __future__ import annotations

import csv
import io
import re
from codecs import BOM_UTF8, getincrementaldecoder
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import orjson
import pyarrow as pa

from omnigraph.errors import FileUnreadable
from omnigraph.pipeline.csv.options import CsvFormat, csv_format
from omnigraph.pipeline.csv.records import Scan, scan
from omnigraph.pipeline.files import InputFile, read_beginning, read_range, read_whole

HEADER_BYTES = 1 << 20
RECORD_BYTES_MAX = 1 << 30
"""A longer record is refused: Arrow does not parse it, and most often a quote is missing."""
SLICE_BYTES_MAX = 256 << 20
ENCODING_HINT = "Say how the file is written, as in encoding=latin-1; nothing was written."
QUOTE_HINT = "Close it, or say which character quotes values, as in quote=' (quote= for none); nothing was written."
NOT_UTF8 = "not UTF-8; for a file in another encoding say so, as in encoding=latin-1"

BadRow = tuple[int, str, str]
"""(line, reason, text)"""


@dataclass(frozen=True, eq=False)
class TextRows:
    """Rows of text with the line each begins on, from 1 within the segment, and the records that are no rows."""

    table: pa.Table
    lines: np.ndarray
    bad: tuple[BadRow, ...]
    line_count: int


@dataclass(frozen=True)
class Header:
    """The names of the columns, the offset at which the rows begin, and how many lines are before it."""

    names: list[str]
    end: int
    lines: int


# ---- header ----------------------------------------------------------------------------------------------------------


def csv_header(file: InputFile, format: CsvFormat) -> Header:
    """The header of a file. Of a file that is decoded before it is read, `end` counts in the decoded bytes."""
    size = HEADER_BYTES
    while True:
        raw = read_beginning(file.path, size, file.compression)
        is_whole = len(raw) < size
        text = raw if format.is_ascii_transparent else _decoded(raw, format, file.name, is_whole=is_whole)
        header = _header_of(text, format, file.name, is_whole=is_whole)
        if header is not None:
            return header
        size *= 8


def _header_of(text: bytes, format: CsvFormat, name: str, *, is_whole: bool) -> Header | None:
    """None where the text ends before its first record does."""
    mark = len(BOM_UTF8) if text.startswith(BOM_UTF8) and format.encoding == "utf-8" else 0
    body = text[mark:]
    scanned = scan(body, format)
    kinds = _kinds(scanned, body)
    at = np.flatnonzero(kinds == _ROW)
    if not len(at):
        return Header([], len(text) if format.header else mark, 0) if is_whole else None
    start, stop = int(scanned.starts[at[0]]), int(scanned.stops[at[0]])
    if stop == len(body) and not is_whole:
        if stop <= RECORD_BYTES_MAX:
            return None
        raise too_long(name, int(scanned.lines(np.array([start]))[0]))
    if stop == len(body):
        _require_closed(scanned, name)
    names = _names(body[start:stop], format, name)
    if not format.header:
        return Header([f"c{i}" for i in range(1, len(names) + 1)], mark, 0)
    return Header(names, mark + stop, int(np.searchsorted(scanned.line_ends, stop)))


def _names(record: bytes, format: CsvFormat, name: str) -> list[str]:
    encoding = format.encoding if format.is_ascii_transparent else "utf-8"
    try:
        text = record.decode(encoding)
    except UnicodeDecodeError as error:
        detail = f"its first line is not {format.encoding.upper()}."
        raise FileUnreadable(path=name, detail=detail, hint=ENCODING_HINT) from error
    reader = csv.reader(
        io.StringIO(text, newline=""),
        delimiter=format.delimiter,
        quotechar=format.quote,
        quoting=csv.QUOTE_NONE if format.quote is None else csv.QUOTE_MINIMAL,
        escapechar=format.escape,
    )
    try:
        return next(reader, [])
    except csv.Error as error:
        raise FileUnreadable(path=name, detail=f"its header can't be read: {error}.") from error


# ---- rows ------------------------------------------------------------------------------------------------------------


def read_csv(segment: Mapping[str, Any], options: Mapping[str, str]) -> TextRows:
    """The rows of a segment that `cut.csv_segments` made."""
    format = csv_format(options, path=segment["path"])
    text, lines_before = _text(segment, format)
    scanned = scan(text, format)
    _require_closed(scanned, segment["source"], segment)
    if not scanned.is_complete:
        text += b"\n"
        scanned = scan(text, format)
    rows = _Rows(text, scanned, format, segment).read()
    bad = tuple((line + lines_before, reason, record) for line, reason, record in rows.bad)
    return TextRows(rows.table, rows.lines + lines_before, bad, rows.line_count + lines_before)


def _text(segment: Mapping[str, Any], format: CsvFormat) -> tuple[bytes, int]:
    """The bytes of the rows as UTF-8, and how many lines of the file are before them in this segment."""
    if "start" in segment:
        text = read_range(segment["path"], segment["start"], segment["stop"])
        lines = int(segment["header_lines"])
        return (text if format.encoding == "utf-8" else _decoded(text, format, segment["source"])), lines
    text = read_whole(segment["path"], segment["compression"])
    if format.encoding != "utf-8":
        text = _decoded(text, format, segment["source"])
    header = _header_of(text, replace(format, encoding="utf-8"), segment["source"], is_whole=True)
    assert header is not None
    return text[header.end :], header.lines


def _decoded(raw: bytes, format: CsvFormat, name: str, *, is_whole: bool = True) -> bytes:
    try:
        return getincrementaldecoder(format.encoding)().decode(raw, final=is_whole).encode()
    except UnicodeError as error:
        where = f"{error.reason} at byte {error.start}" if isinstance(error, UnicodeDecodeError) else str(error)
        detail = f"it is not {format.encoding.upper()}: {where}."
        raise FileUnreadable(path=name, detail=detail, hint=ENCODING_HINT) from error


def _require_closed(scanned: Scan, name: str, segment: Mapping[str, Any] | None = None) -> None:
    """FileUnreadable where the file ends within quotes, or right behind an escape."""
    if not scanned.ends_in_quotes and not scanned.ends_in_escape:
        return
    at = int(scanned.quoted[-1, 0]) if scanned.ends_in_quotes else scanned.size - 1
    line = int(scanned.lines(np.array([at]))[0])
    if segment is not None:
        line += count_lines(segment["path"], segment["start"]) if "start" in segment else _header_lines(segment)
    raise unclosed(name, line) if scanned.ends_in_quotes else _ends_in_escape(name, line)


def _header_lines(segment: Mapping[str, Any]) -> int:
    return int(segment["header_lines"])


def unclosed(name: str, line: int) -> FileUnreadable:
    detail = f"the quote that opens in line {line} is not closed before the file ends."
    return FileUnreadable(path=name, detail=detail, hint=QUOTE_HINT)


def too_long(name: str, line: int) -> FileUnreadable:
    detail = f"the record in line {line} is longer than {RECORD_BYTES_MAX >> 20} MiB: a quote may not be closed."
    return FileUnreadable(path=name, detail=detail, hint=QUOTE_HINT)


def _ends_in_escape(name: str, line: int) -> FileUnreadable:
    detail = f"it ends with the escape character, in line {line}, and nothing follows."
    return FileUnreadable(path=name, detail=detail)


def count_lines(path: str, stop: int, *, chunk_bytes: int = 16 << 20) -> int:
    """How many lines end in front of the byte `stop` of a file."""
    total = 0
    last = b""
    for start in range(0, stop, chunk_bytes):
        text = last + read_range(path, start, min(start + chunk_bytes, stop))
        last = b"\r" if text.endswith(b"\r") else b""
        text = text.removesuffix(b"\r")
        total += text.count(b"\n") + text.count(b"\r") - text.count(b"\r\n")
    return total + len(last)


_ROW, _BLANK, _COMMENT = 0, 1, 2


def _kinds(scanned: Scan, text: bytes) -> np.ndarray:
    """What each record is: a row, a blank line, a comment."""
    starts, stops = scanned.starts, scanned.stops
    data = np.frombuffer(text, dtype=np.uint8)
    kinds = np.full(len(starts), _ROW, dtype=np.int8)
    first = data[starts]
    is_end = (first == 10) | (first == 13)
    kinds[is_end & (stops - starts <= 2)] = _BLANK
    kinds[np.isin(starts, scanned.comments)] = _COMMENT
    return kinds


class _Rows:
    """Steps 3 to 5 for a text that is whole records."""

    def __init__(self, text: bytes, scanned: Scan, format: CsvFormat, segment: Mapping[str, Any]) -> None:
        self._text = text
        self._scan = scanned
        self._format = format
        self._segment = segment
        is_row = _kinds(scanned, text) == _ROW
        self._starts, self._stops = scanned.starts[is_row], scanned.stops[is_row]
        self._lines = scanned.lines(self._starts)
        self._is_row = is_row
        too_long_at = np.flatnonzero(self._stops - self._starts > RECORD_BYTES_MAX)
        if len(too_long_at):
            line = int(self._lines[too_long_at[0]])
            before = count_lines(segment["path"], segment["start"]) if "start" in segment else _header_lines(segment)
            raise too_long(segment["source"], before + line)

    def read(self) -> TextRows:
        try:
            return self._read(pa.string())
        except pa.ArrowInvalid:
            # Some text is not UTF-8: as bytes, the rows that hold it can be told from the others.
            return _texts(self._read(pa.binary()))

    def _read(self, kind: pa.DataType) -> TextRows:
        names = self._segment["header"]
        bad: dict[int, str] = self._over_lines()
        tables = [_empty(names, kind)]
        clean, sizes = self._cleaned()
        ends = np.cumsum(sizes)
        first, begin = 0, 0
        while first < len(ends):
            last = max(first + 1, int(np.searchsorted(ends, begin + SLICE_BYTES_MAX, side="right")))
            part = clean[begin : int(ends[last - 1])]
            tables.append(self._parsed(part, names, kind, first, bad))
            first, begin = last, int(ends[last - 1])
        table = pa.concat_tables(tables).combine_chunks() if len(tables) == 2 else pa.concat_tables(tables)
        return self._placed(table, bad)

    def _parsed(self, text: bytes, names: list[str], kind: pa.DataType, first: int, bad: dict[int, str]) -> pa.Table:
        from pyarrow import csv as arrow_csv

        def invalid(row: Any) -> str:
            bad[first + row.number - 1] = f"{row.actual_columns} values for {row.expected_columns} columns"
            return "skip"

        format = self._format
        try:
            return arrow_csv.read_csv(
                # Arrow passes over one mark in front; a second one belongs to the first value.
                pa.BufferReader(BOM_UTF8 + text),
                read_options=arrow_csv.ReadOptions(
                    use_threads=False, block_size=len(text) + len(BOM_UTF8) + 1, column_names=names
                ),
                parse_options=arrow_csv.ParseOptions(
                    delimiter=format.delimiter,
                    quote_char=format.quote or False,
                    escape_char=format.escape or False,
                    newlines_in_values=True,
                    ignore_empty_lines=False,
                    invalid_row_handler=invalid,
                ),
                convert_options=arrow_csv.ConvertOptions(
                    column_types=dict.fromkeys(names, kind),
                    strings_can_be_null=True,
                    quoted_strings_can_be_null=False,
                    null_values=["", format.null] if format.null and not self._null_is_cut else [""],
                ),
            )
        except (pa.ArrowInvalid, pa.ArrowKeyError) as error:
            if kind == pa.string() and isinstance(error, pa.ArrowInvalid):
                raise
            raise FileUnreadable(path=self._segment["source"], detail=str(error)) from error

    @property
    def _null_is_cut(self) -> bool:
        """Arrow compares values after it has removed escapes: a null that holds one is cut out before."""
        format = self._format
        return bool(format.null and format.escape is not None and format.escape in format.null)

    def _cleaned(self) -> tuple[bytes, np.ndarray]:
        """The text of the rows alone, and the bytes of each."""
        keep = np.repeat(self._is_row, self._scan.stops - self._scan.starts)
        nulls = self._nulls() if self._null_is_cut else None
        if keep.all() and not nulls:
            return self._text, self._stops - self._starts
        for start, stop in nulls or ():
            keep[start:stop] = False
        # From one row to the next: comments and blank lines between them count nothing.
        sizes = np.add.reduceat(keep, self._starts, dtype=np.int64) if len(self._starts) else self._starts
        return np.frombuffer(self._text, dtype=np.uint8)[keep].tobytes(), sizes

    def _nulls(self) -> list[tuple[int, int]]:
        """Where a value that is not quoted is the text that means null."""
        format = self._format
        assert format.null is not None
        border = b"[" + re.escape(format.delimiter.encode()) + rb"\r\n]"
        pattern = rb"(?:\A|(?<=" + border + rb"))" + re.escape(format.null.encode()) + rb"(?=" + border + rb"|\Z)"
        spans = [match.span() for match in re.finditer(pattern, self._text)]
        starts = np.array([start for start, _ in spans], np.int64)
        is_plain = ~self._scan.is_quoted(starts) & ~np.isin(starts - 1, self._scan.escaped)
        if len(self._segment["header"]) > 1:
            # A line of one value is no row of several columns; without the value Arrow would take it for one.
            whole = self._starts[self._scan.lines(self._starts) == self._scan.lines(self._stops - 1)]
            ends = np.array([stop for _, stop in spans], np.int64)
            data = np.frombuffer(self._text, dtype=np.uint8)
            is_plain &= ~(np.isin(starts, whole) & np.isin(data[ends], (10, 13)))
        return [span for span, is_value in zip(spans, is_plain.tolist(), strict=True) if is_value]

    def _over_lines(self) -> dict[int, str]:
        """Rows that hold line breaks, where the file should have none."""
        if self._format.multiline:
            return {}
        several = np.flatnonzero(self._scan.lines(self._stops - 1) > self._lines)
        return dict.fromkeys(several.tolist(), "a quoted value holds a line break, and multiline is false")

    def _placed(self, table: pa.Table, bad: dict[int, str]) -> TextRows:
        """The rows with their lines, and those that are none, with their texts."""
        ragged = [number for number, reason in bad.items() if " values for " in reason]
        parsed = np.delete(np.arange(len(self._starts)), ragged)
        assert len(parsed) == table.num_rows, "Arrow and the scan find the same records"
        refused = np.isin(parsed, list(bad))
        if refused.any():
            table, parsed = table.filter(pa.array(~refused)), parsed[~refused]
        told = [(int(self._lines[n]), reason, self._record(n)) for n, reason in sorted(bad.items())]
        told = [row for row in told if row[2].strip(" ") or self._format.delimiter == " "]
        return TextRows(table, self._lines[parsed], tuple(told), self._scan.line_count)

    def _record(self, number: int) -> str:
        text = self._text[int(self._starts[number]) : int(self._stops[number])]
        return text.removesuffix(b"\n").removesuffix(b"\r").decode("utf-8", "backslashreplace")


def _empty(names: list[str], kind: pa.DataType) -> pa.Table:
    return pa.Table.from_arrays([pa.array([], kind) for _ in names], names=names)


def _texts(rows: TextRows) -> TextRows:
    """Rows of bytes as text; those that are not UTF-8 are no rows."""
    names = rows.table.column_names
    columns: list[list[str | None]] = [[] for _ in names]
    keep = np.ones(rows.table.num_rows, dtype=bool)
    bad = list(rows.bad)
    for i, row in enumerate(zip(*(column.to_pylist() for column in rows.table.columns), strict=True)):
        texts = [None if value is None else value.decode("utf-8", "backslashreplace") for value in row]
        wrong = next((name for name, value in zip(names, row, strict=True) if not _is_utf8(value)), None)
        if wrong is not None:
            keep[i] = False
            record = orjson.dumps(dict(zip(names, texts, strict=True))).decode()
            bad.append((int(rows.lines[i]), f"{wrong}: {NOT_UTF8}", record))
            continue
        for column, text in zip(columns, texts, strict=True):
            column.append(text)
    table = pa.Table.from_arrays([pa.array(column, pa.string()) for column in columns], names=names)
    return TextRows(table, rows.lines[keep], tuple(sorted(bad)), rows.line_count)


def _is_utf8(value: bytes | None) -> bool:
    try:
        return value is None or value.decode() is not None
    except UnicodeDecodeError:
        return False
