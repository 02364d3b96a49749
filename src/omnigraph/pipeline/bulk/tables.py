"""Table files as Arrow, a part at a time: row groups of Parquet, batches of Arrow IPC, stripes of ORC, fragments of
Lance, byte ranges of CSV.

CSV has no types: every column is read as text, and each property's text is turned into its type by the rules of
`write.values`; JSON text stands for lists and vectors, base64 for blobs. Nothing at all means null, a quoted empty
text an empty text.
"""

from __future__ import annotations

import codecs
import csv
import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import orjson
import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.errors import FileUnreadable, UsageError
from omnigraph.language.schema.model import INTEGERS, EntityType, PropertyType
from omnigraph.pipeline.files import InputFile, open_input, read_lines, read_range, read_whole
from omnigraph.storage.columns import arrow_type
from omnigraph.write.arrays import Found, all_finite
from omnigraph.write.problems import Problem
from omnigraph.write.values import JsonNumber, convert

HEADER_BYTES = 1 << 20
ENCODING_HINT = "Say how the file is written, as in encoding=latin-1; nothing was written."
NOT_UTF8 = "not UTF-8; for a file in another encoding say so, as in encoding=latin-1"
_DECIMAL = r"^-?[0-9]+(\.[0-9]+)?$"
_PLAIN = {"F32": _DECIMAL, "F64": _DECIMAL, "Date": r"^\d{4}-\d{2}-\d{2}$"}


# ---- formats with types ----------------------------------------------------------------------------------------------


def part_count(kind: str, path: str) -> int:
    """Into how many parts the file can be cut."""
    if kind == "lance":
        return len(_lance(path).get_fragments())
    with open_input(path) as file:
        if kind == "parquet":
            import pyarrow.parquet as pq

            return int(pq.ParquetFile(file).metadata.num_row_groups)
        if kind == "orc":
            import pyarrow.orc as orc

            return int(orc.ORCFile(file).nstripes)
        return int(_ipc(file).num_record_batches)


def table_columns(kind: str, path: str) -> list[str]:
    if kind == "lance":
        return list(_lance(path).schema.names)
    with open_input(path) as file:
        if kind == "parquet":
            import pyarrow.parquet as pq

            return list(pq.ParquetFile(file).schema_arrow.names)
        if kind == "orc":
            import pyarrow.orc as orc

            return list(orc.ORCFile(file).schema.names)
        return list(_ipc(file).schema.names)


def read_part(kind: str, segment: Mapping[str, Any], columns: Sequence[str]) -> pa.Table:
    """Some columns of one segment of a file."""
    path, parts = segment["path"], range(segment["first"], segment["last"])
    try:
        if kind == "lance":
            found = _lance(path)
            fragments = [found.get_fragments()[i] for i in parts]
            return found.scanner(columns=list(columns), fragments=fragments).to_table()
        with open_input(path) as file:
            if kind == "parquet":
                import pyarrow.parquet as pq

                reader = pq.ParquetFile(file, memory_map=True)
                return reader.read_row_groups(list(parts), columns=list(columns), use_threads=False)
            if kind == "orc":
                import pyarrow.orc as orc

                stripes = [orc.ORCFile(file).read_stripe(i, columns=list(columns)) for i in parts]
                return pa.Table.from_batches(stripes)
            batches = _ipc(file)
            return pa.Table.from_batches([batches.get_batch(i) for i in parts], batches.schema).select(list(columns))
    except (OSError, ValueError) as error:
        raise FileUnreadable(path=path, detail=str(error)) from error


def _ipc(file: Any) -> Any:
    return pa.ipc.open_file(file)


def _lance(path: str) -> Any:
    import lance

    from omnigraph.storage.layout import locate

    return lance.dataset(path, storage_options=locate(path).lance_options)


# ---- CSV -------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class TextRows:
    """Rows of text with the line each one is on, counted from 1 within the segment, and the lines that are no rows."""

    table: pa.Table
    lines: np.ndarray
    bad: tuple[tuple[int, str, str], ...]
    """(line, reason, text)"""
    line_count: int


def csv_header(file: InputFile, options: Mapping[str, str]) -> tuple[list[str], int]:
    """The names of the columns and where the rows begin."""
    whole = file.compression is not None
    raw = read_whole(file.path, file.compression) if whole else read_range(file.path, 0, HEADER_BYTES)
    first, _, _ = raw.partition(b"\n")
    after = min(len(first) + 1, max(len(raw), 1))
    encoding = _encoding(options)
    try:
        text = first.decode("utf-8-sig" if encoding == "utf-8" else encoding).rstrip("\r")
    except UnicodeDecodeError as error:
        detail = f"its first line is not {encoding.upper()}."
        raise FileUnreadable(path=file.name, detail=detail, hint=ENCODING_HINT) from error
    names = next(csv.reader([text], delimiter=_delimiter(file.path, options), quotechar=options.get("quote", '"')), [])
    if options.get("header", "true") == "false":
        return [f"c{i}" for i in range(1, len(names) + 1)], 0
    return names, after


def _encoding(options: Mapping[str, str]) -> str:
    """The name of the encoding that the option gives; UsageError for one that files can't be cut at line feeds in."""
    given = options.get("encoding", "utf-8")
    try:
        name = codecs.lookup(given).name.replace("utf-8-sig", "utf-8")
        line_feed = "\n".encode(name)
    except LookupError:
        raise UsageError(detail=f"there is no encoding {given!r} of text.") from None
    if line_feed != b"\n":
        raise UsageError(detail=f"CSV is not read in the encoding {given!r}: convert the file to UTF-8 first.")
    return name


def _delimiter(path: str, options: Mapping[str, str]) -> str:
    return options.get("delimiter", "\t" if ".tsv" in path.lower() else ",")


def read_csv(segment: Mapping[str, Any], options: Mapping[str, str]) -> TextRows:
    text, skipped = _csv_text(segment)
    try:
        rows = _read_rows(text, skipped, segment, options, pa.string())
    except pa.ArrowInvalid:
        # Some text is not UTF-8: as bytes, the rows that hold it can be told from the others.
        rows = _read_rows(text, skipped, segment, options, pa.binary())
    rows = rows if options.get("multiline") == "true" else _without_blank_lines(rows, text, skipped)
    return rows if not any(pa.types.is_binary(c.type) for c in rows.table.columns) else _decoded(rows)


def _read_rows(
    text: bytes, skipped: int, segment: Mapping[str, Any], options: Mapping[str, str], kind: pa.DataType
) -> TextRows:
    from pyarrow import csv as arrow_csv

    bad: list[tuple[int, str, str]] = []
    blank: list[int] = []

    def invalid(row: Any) -> str:
        line = row.number
        if not row.text.strip():
            blank.append(line)
        else:
            bad.append((line, f"{row.actual_columns} values for {row.expected_columns} columns", row.text))
        return "skip"

    names = segment["header"]
    if not text:
        return _placed(pa.table({name: pa.array([], pa.string()) for name in names}), bad, blank, skipped)
    try:
        table = arrow_csv.read_csv(
            io.BytesIO(text),
            read_options=arrow_csv.ReadOptions(
                use_threads=False, block_size=len(text) + 1, column_names=names, encoding=_encoding(options)
            ),
            parse_options=arrow_csv.ParseOptions(
                delimiter=_delimiter(segment["path"], options),
                quote_char=options.get("quote", '"'),
                escape_char=options.get("escape", False),
                newlines_in_values=options.get("multiline") == "true",
                ignore_empty_lines=False,
                invalid_row_handler=invalid,
            ),
            convert_options=arrow_csv.ConvertOptions(
                column_types=dict.fromkeys(names, kind),
                strings_can_be_null=True,
                quoted_strings_can_be_null=False,
                null_values=[""] if "null" not in options else ["", options["null"]],
            ),
        )
    except UnicodeDecodeError as error:
        detail = f"it is not {_encoding(options).upper()}: {error.reason} at byte {error.start}."
        raise FileUnreadable(path=segment["source"], detail=detail, hint=ENCODING_HINT) from error
    except (pa.ArrowInvalid, pa.ArrowKeyError) as error:
        if kind == pa.string():
            raise
        raise FileUnreadable(path=segment["source"], detail=str(error)) from error
    return _placed(table, bad, blank, skipped)


def _decoded(rows: TextRows) -> TextRows:
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
    table = pa.table({name: pa.array(column, pa.string()) for name, column in zip(names, columns, strict=True)})
    return TextRows(table, rows.lines[keep], tuple(sorted(bad)), rows.line_count)


def _is_utf8(value: bytes | None) -> bool:
    try:
        return value is None or value.decode() is not None
    except UnicodeDecodeError:
        return False


def _csv_text(segment: Mapping[str, Any]) -> tuple[bytes, int]:
    """The bytes of the segment, without the header, and how many lines of the file come before them."""
    if "start" in segment:
        text = read_lines(segment["path"], segment["start"], segment["stop"], size_bytes=segment["size"])
        return text, int(0 < segment["start"] == segment["after_header"])
    text = read_whole(segment["path"], segment["compression"])
    if not segment["skip_header"]:
        return text, 0
    return text.partition(b"\n")[2], 1


def _placed(table: pa.Table, bad: list[tuple[int, str, str]], blank: list[int], skipped: int) -> TextRows:
    """Give every row its line: those that were skipped stand between the others."""
    missing = np.array(sorted([line for line, _, _ in bad] + blank), dtype=np.int64)
    total = table.num_rows + len(missing)
    lines = np.arange(1, total + 1)
    if len(missing):
        lines = np.delete(lines, missing - 1)
    told = tuple((line + skipped, reason, text) for line, reason, text in bad)
    return TextRows(table, lines + skipped, told, total + skipped)


def _without_blank_lines(rows: TextRows, text: bytes, skipped: int) -> TextRows:
    """Arrow makes a row of nulls of a line without anything."""
    if not (b"\n\n" in text or b"\n\r\n" in text or text.startswith((b"\n", b"\r\n"))):
        return rows
    blank = [i + 1 + skipped for i, line in enumerate(text.split(b"\n")[:-1]) if not line.strip(b"\r")]
    keep = ~np.isin(rows.lines, blank)
    return TextRows(rows.table.filter(pa.array(keep)), rows.lines[keep], rows.bad, rows.line_count)


def typed_text(t: EntityType, table: pa.Table) -> tuple[pa.Table, Found]:
    """Columns of text named as fields, with each property's text turned into its type; what can't be is null."""
    columns: dict[str, pa.Array] = {}
    found: Found = []
    for name in table.column_names:
        column = table.column(name).combine_chunks()
        p = t.by_name.get(name)
        if p is None or p.type.kind in ("String", "Enum"):
            columns[name] = column
            continue
        columns[name], problems = text_column(p.type, column)
        found.extend((row, problem.on(name)) for row, problem in problems)
    return pa.table(columns), found


def text_column(p: PropertyType, column: pa.Array) -> tuple[pa.Array, Found]:
    quick = _quick(p, column)
    if quick is not None:
        return quick, []
    values: list[object] = []
    found: Found = []
    for row, text in enumerate(column.to_pylist()):
        value = None if text is None else _value(p, text)
        if isinstance(value, Problem):
            found.append((row, value))
            value = None
        values.append(value)
    return pa.array(values, arrow_type(p)), found


def _quick(p: PropertyType, column: pa.Array) -> pa.Array | None:
    """The whole column at once, where Arrow's reading of text can't differ from ours."""
    pattern = r"^-?[0-9]+$" if p.kind in INTEGERS else _PLAIN.get(p.kind)
    if pattern is None or pc.all(pc.match_substring_regex(column, pattern)).as_py() is False:
        return None
    try:
        stored = column.cast(arrow_type(p))
    except pa.ArrowInvalid:
        return None
    return stored if p.kind not in ("F32", "F64") or all_finite(stored) else None


def _value(p: PropertyType, text: str) -> object:
    """One text as a value of the property, or a Problem."""
    if p.kind in ("List", "Vector"):
        try:
            given = orjson.loads(text)
        except orjson.JSONDecodeError:
            return Problem("type", f"{text[:40]!r} is no JSON list")
        return convert(p, given, from_json=True)
    if p.kind == "Bool":
        known = {"true": True, "false": False, "1": True, "0": False}.get(text.lower())
        return Problem("type", f"{text[:40]!r} is neither true nor false") if known is None else known
    if p.kind in INTEGERS or p.kind in ("F32", "F64"):
        number = _number(text)
        return Problem("type", f"{text[:40]!r} is no number") if number is None else convert(p, number)
    return convert(p, text, from_json=True)


def _number(text: str) -> object:
    try:
        float(text)
    except ValueError:
        return None
    stripped = text.strip()
    return JsonNumber(stripped) if stripped and stripped[0] in "-0123456789" else float(text)
