"""Read a segment of CSV as an Arrow table of texts, each row with its line.

1. text      the bytes of the segment, as UTF-8, in blocks of whole records (`blocks`). A segment is whole records, or a
             whole file, packed or not
2. scan      the borders of records (`records`); a file with a quote that never closes is refused, with the line
3. clean     comments, blank lines and values that mean null are removed from the bytes
4. parse     by Arrow, in slices of whole records. Rows with another number of values than columns are no rows
5. number    every row gets the line on which its record begins

Nothing between two delimiters is null, a quoted empty text is an empty text, a quoted text is never null.
"""

from __future__ import annotations

import csv
import io
import re
from codecs import BOM_UTF8
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import orjson
import pyarrow as pa

from omnigraph.errors import FileUnreadable, RecordTooLong
from omnigraph.pipeline.csv.blocks import ENCODING_HINT, decoded, lines_before, record_blocks
from omnigraph.pipeline.csv.options import CsvFormat, csv_format
from omnigraph.pipeline.csv.records import Scan, scan
from omnigraph.pipeline.load.chunks import LINE_BYTES_DEFAULT
from omnigraph.pipeline.load.input_files import InputFile, read_beginning

HEADER_BYTES = 1 << 20
LEADING_BYTES_MAX = 8 << 20
"""The maximum offset at which the first record of a file begins."""
SLICE_BYTES_MAX = 256 << 20
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


def csv_header(file: InputFile, format: CsvFormat, *, max_line_bytes: int = LINE_BYTES_DEFAULT) -> Header:
    """The header of a file. If the file is decoded before it is read, `end` counts the decoded bytes."""
    size = HEADER_BYTES
    while True:
        raw = read_beginning(file.path, size, file.compression)
        is_whole = len(raw) < size
        text = raw if format.is_ascii_transparent else decoded(raw, format, file.name, is_whole=is_whole)
        header = _header_of(text, format, file.name, is_whole=is_whole, max_line_bytes=max_line_bytes)
        if header is not None:
            return header
        size = min(8 * size, LEADING_BYTES_MAX + max_line_bytes + 2)


def _header_of(text: bytes, format: CsvFormat, name: str, *, is_whole: bool, max_line_bytes: int) -> Header | None:
    """None if the text ends before its first record does."""
    mark = len(BOM_UTF8) if text.startswith(BOM_UTF8) and format.encoding == "utf-8" else 0
    body = text[mark:]
    scanned = scan(body[:LEADING_BYTES_MAX], format)
    row_numbers = np.flatnonzero(_kinds(scanned, body) == _ROW)
    if not len(row_numbers):
        if len(body) <= LEADING_BYTES_MAX:
            return Header([], len(text) if format.header else mark, 0) if is_whole else None
        detail = f"its first {LEADING_BYTES_MAX >> 20} MiB are blank lines and comments, without a record."
        raise FileUnreadable(path=name, detail=detail)
    if len(body) > LEADING_BYTES_MAX:
        scanned = scan(body, format)
    start, stop = int(scanned.starts[row_numbers[0]]), int(scanned.stops[row_numbers[0]])
    is_open = stop == len(body) and not scanned.is_complete
    if stop - start - int(not is_open) > max_line_bytes:
        line = int(scanned.lines(np.array([start]))[0])
        raise RecordTooLong(path=name, line=line, limit_bytes=max_line_bytes)
    if stop == len(body) and not is_whole:
        return None
    if stop == len(body):
        _require_closed(scanned, name, 0)
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
    """The rows of a segment of `splits.csv_segments`."""
    parts = list(csv_blocks(segment, options))
    if len(parts) == 1:
        return parts[0]
    return TextRows(
        pa.concat_tables([part.table for part in parts]),
        np.concatenate([part.lines for part in parts]),
        tuple(row for part in parts for row in part.bad),
        parts[-1].line_count,
    )


def csv_blocks(segment: Mapping[str, Any], options: Mapping[str, str]) -> Iterator[TextRows]:
    """The same, block by block, at least one. Lines count within the segment."""
    format = csv_format(options, path=segment["path"])
    header_lines = int(segment["header_lines"])
    for block in record_blocks(segment, format):
        text, scanned = block.text, block.scan
        before = header_lines + block.lines_before
        if not text:
            yield TextRows(_empty(segment["header"], pa.string()), np.empty(0, np.int64), (), before)
            continue
        if not scanned.is_complete:
            if scanned.ends_in_quotes or scanned.ends_in_escape:
                _require_closed(scanned, segment["source"], lines_before(segment) + block.lines_before)
            text += b"\n"
            scanned = scan(text, format)
        rows = _Rows(text, scanned, format, segment).read()
        bad = tuple((line + before, reason, record) for line, reason, record in rows.bad)
        yield TextRows(rows.table, rows.lines + before, bad, rows.line_count + before)


def _require_closed(scanned: Scan, name: str, lines: int) -> None:
    """FileUnreadable if the file ends within quotes, or right after an escape; `lines` are before the text."""
    if not scanned.ends_in_quotes and not scanned.ends_in_escape:
        return
    position = int(scanned.quoted[-1, 0]) if scanned.ends_in_quotes else scanned.size - 1
    line = lines + int(scanned.lines(np.array([position]))[0])
    raise unclosed(name, line) if scanned.ends_in_quotes else _ends_in_escape(name, line)


def unclosed(name: str, line: int) -> FileUnreadable:
    detail = f"the quote that opens in line {line} is not closed before the file ends."
    return FileUnreadable(path=name, detail=detail, hint=QUOTE_HINT)


def _ends_in_escape(name: str, line: int) -> FileUnreadable:
    detail = f"it ends with the escape character, in line {line}, and nothing follows."
    return FileUnreadable(path=name, detail=detail)


_ROW, _BLANK, _COMMENT = 0, 1, 2


def _kinds(scanned: Scan, text: bytes) -> np.ndarray:
    """The kind of each record: a row, a blank line, a comment."""
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

    def read(self) -> TextRows:
        try:
            return self._read(pa.string())
        except pa.ArrowInvalid:
            # Some text is not UTF-8: read as bytes, to find the rows that have it.
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
                # Arrow skips one byte order mark; a second one is part of the first value.
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
        """Arrow compares values after it has removed escapes: a null with an escape in it is removed before."""
        format = self._format
        return bool(format.null and format.escape is not None and format.escape in format.null)

    def _cleaned(self) -> tuple[bytes, np.ndarray]:
        """The text of the rows only, and the size of each."""
        keep = np.repeat(self._is_row, self._scan.stops - self._scan.starts)
        nulls = self._nulls() if self._null_is_cut else None
        if keep.all() and not nulls:
            return self._text, self._stops - self._starts
        for start, stop in nulls or ():
            keep[start:stop] = False
        # From one row to the next: comments and blank lines between them have no bytes.
        sizes = np.add.reduceat(keep, self._starts, dtype=np.int64) if len(self._starts) else self._starts
        return np.frombuffer(self._text, dtype=np.uint8)[keep].tobytes(), sizes

    def _nulls(self) -> list[tuple[int, int]]:
        """The ranges of unquoted values that are the text for null."""
        format = self._format
        assert format.null is not None
        border = b"[" + re.escape(format.delimiter.encode()) + rb"\r\n]"
        pattern = rb"(?:\A|(?<=" + border + rb"))" + re.escape(format.null.encode()) + rb"(?=" + border + rb"|\Z)"
        spans = [match.span() for match in re.finditer(pattern, self._text)]
        starts = np.array([start for start, _ in spans], np.int64)
        is_plain = ~self._scan.is_quoted(starts) & ~np.isin(starts - 1, self._scan.escaped)
        if len(self._segment["header"]) > 1:
            # A line of one value is no row of several columns; without the value Arrow would read it as one.
            one_line_rows = self._starts[self._scan.lines(self._starts) == self._scan.lines(self._stops - 1)]
            ends = np.array([stop for _, stop in spans], np.int64)
            data = np.frombuffer(self._text, dtype=np.uint8)
            is_plain &= ~(np.isin(starts, one_line_rows) & np.isin(data[ends], (10, 13)))
        return [span for span, is_value in zip(spans, is_plain.tolist(), strict=True) if is_value]

    def _over_lines(self) -> dict[int, str]:
        """Rows with line breaks in values, if `multiline` is false."""
        if self._format.multiline:
            return {}
        several = np.flatnonzero(self._scan.lines(self._stops - 1) > self._lines)
        return dict.fromkeys(several.tolist(), "a quoted value holds a line break, and multiline is false")

    def _placed(self, table: pa.Table, bad: dict[int, str]) -> TextRows:
        """The rows with their lines, and the records that are no rows, with their texts."""
        ragged = [number for number, reason in bad.items() if " values for " in reason]
        parsed = np.delete(np.arange(len(self._starts)), ragged)
        assert len(parsed) == table.num_rows, "Arrow and the scan find the same records"
        refused = np.isin(parsed, list(bad))
        if refused.any():
            table, parsed = table.filter(pa.array(~refused)), parsed[~refused]
        bad_rows = [(int(self._lines[n]), reason, self._record(n)) for n, reason in sorted(bad.items())]
        bad_rows = [row for row in bad_rows if row[2].strip(" ") or self._format.delimiter == " "]
        return TextRows(table, self._lines[parsed], tuple(bad_rows), self._scan.line_count)

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
        bad_column = next((name for name, value in zip(names, row, strict=True) if not _is_utf8(value)), None)
        if bad_column is not None:
            keep[i] = False
            record = orjson.dumps(dict(zip(names, texts, strict=True))).decode()
            bad.append((int(rows.lines[i]), f"{bad_column}: {NOT_UTF8}", record))
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
