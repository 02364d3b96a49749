"""The read task: one piece of the input to staged rows, digests, and what is wrong with single rows.

1. rows      NDJSON records by `write.envelope`, tables by `tables` and `write.rows`: typed, with ids
2. check     required, enum, @range, @check, per row; rows that break them are recorded and stay among the rows, because
             the rules that come first (an id twice, an id that exists) are checked for these rows as well
3. stage     per type: rows with the line each came from; per relation: digests by bucket
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import orjson
import pyarrow as pa

from omnigraph.errors import RecordTooLong, Violation
from omnigraph.language.schema.model import EntityType, NodeType
from omnigraph.pipeline.bulk.context import ROW_BITS, Context, context_of
from omnigraph.pipeline.bulk.input.source_rows import SourceRows, column_mismatch, read_source_rows
from omnigraph.pipeline.bulk.input.tables import typed_text
from omnigraph.pipeline.load.chunks import (
    LineLimit,
    file_chunks,
    line_chunks,
    range_chunks,
    with_last_line_feed,
    without_mark,
)
from omnigraph.pipeline.load.input_files import read_range
from omnigraph.storage.ulids import Ulids
from omnigraph.tasks.digests import digests
from omnigraph.tasks.exchange import Sender, relation
from omnigraph.write.delta import delta, flat
from omnigraph.write.envelope import Parsed, RejectedLine, parse
from omnigraph.write.envelope.blocks import blocks, is_blank
from omnigraph.write.envelope.record import Refusal, judge
from omnigraph.write.pending_view import Image
from omnigraph.write.rows import rows_to_table
from omnigraph.write.validate.fields import check_fields
from omnigraph.write.validate.unique import texts_of

LINE = "__line"


@dataclass
class TypeRows:
    """Rows of one type, with the line of each within the piece."""

    table: pa.Table
    lines: np.ndarray
    has_own_ids: bool


@dataclass
class PieceContent:
    """The rows and the refused lines of a piece."""

    rows: dict[str, list[TypeRows]] = field(default_factory=dict)
    rejected: list[RejectedLine] = field(default_factory=list)
    segment_lines: list[int] = field(default_factory=list)

    @property
    def line_count(self) -> int:
        return sum(self.segment_lines)


def read_piece(task: Mapping[str, Any]) -> dict[str, Any]:
    context = context_of(task)
    piece = task["piece"]
    content = PieceContent()
    for segment in piece["segments"]:
        if piece["kind"] == "records":
            _records(context, segment, content)
        else:
            _table(context, piece, segment, content)
    return _staged(context, piece, content)


# ---- reading ---------------------------------------------------------------------------------------------------------


def line_chunks_of(segment: Mapping[str, Any]) -> Iterator[bytes]:
    """The lines of a segment of a file of lines, each with its line feed; without the mark in front of UTF-8.

    RecordTooLong, with the line of the file, for one above the limit.
    """
    path, start = segment["path"], segment.get("start", 0)
    if "start" in segment:
        chunks = line_chunks(path, start, segment["stop"], size_bytes=segment["size"])
    else:
        chunks = file_chunks(path, segment["compression"])
    lines = LineLimit(segment["source"], segment["max_line_bytes"])
    try:
        for chunk in with_last_line_feed(without_mark(chunks) if start == 0 else chunks):
            lines.add(chunk)
            yield chunk
    except RecordTooLong as error:
        before = sum(part.count(b"\n") for part in range_chunks(path, 0, start))
        # A line that `start` cuts in two began before it, and ends behind it.
        before += int(start > 0 and read_range(path, start - 1, start) != b"\n")
        raise RecordTooLong(**{**error.fields, "line": before + error.fields["line"]}) from None


def _ulids_of(segment: Mapping[str, Any]) -> Ulids:
    ulids = segment.get("ulids")
    return Ulids.fresh() if ulids is None else Ulids(ulids[0], int(ulids[1]))


def _records(context: Context, segment: Mapping[str, Any], content: PieceContent) -> None:
    content.segment_lines.append(0)
    _add(content, parse(context.schema, line_chunks_of(segment), threads=1, ulids=_ulids_of(segment)))


def _json_lines(context: Context, piece: Mapping[str, Any], segment: Mapping[str, Any], content: PieceContent) -> None:
    """Lines that are the objects themselves. New ids are numbered by the bytes of these lines, not by those of the
    longer records that are made of them: the numbers of the next segment begin where these bytes end.
    """
    t, ulids = context.type(piece["type"]), _ulids_of(segment)
    content.segment_lines.append(0)
    for block in blocks(line_chunks_of(segment)):
        if is_blank(block.text):
            content.segment_lines[-1] += block.text.count(b"\n")
            continue
        originals = block.text.split(b"\n")[:-1]
        text = b"".join(_as_records(t, piece, originals))
        numbers = Ulids(ulids.time_ms, ulids.randomness + block.offset)
        parsed = parse(context.schema, [text], threads=1, block_bytes=len(text) + 1, ulids=numbers)
        rejected = [_as_in_input(context, line, originals[line.line - 1].rstrip(b"\r")) for line in parsed.rejected]
        _add(content, replace(parsed, rejected=tuple(rejected)))


def _add(content: PieceContent, parsed: Parsed) -> None:
    """Rows and refused lines of the last segment, behind those it has already."""
    before = content.line_count
    for rows in parsed.rows.values():
        lines = np.asarray(rows.lines) + before
        content.rows.setdefault(rows.type.key, []).append(TypeRows(rows.table, lines, rows.has_own_ids))
    content.rejected += [replace(line, line=line.line + before) for line in parsed.rejected]
    content.segment_lines[-1] += parsed.line_count


def _as_in_input(context: Context, line: RejectedLine, original: bytes) -> RejectedLine:
    """A refused line with its original text: positions in messages refer to the input, not to the record made of it."""
    verdict = judge(context.schema, original) if line.rule == "record" else None
    if isinstance(verdict, Refusal) and verdict.problem.message.startswith("not "):
        line = replace(line, reason=verdict.problem.message)
    return replace(line, record=original)


def _table(context: Context, piece: Mapping[str, Any], segment: Mapping[str, Any], content: PieceContent) -> None:
    if piece["format"] == "jsonl":
        _json_lines(context, piece, segment, content)
        return
    t = context.type(piece["type"])
    source_rows = read_source_rows(context, piece, segment)
    before = content.line_count
    content.rejected += [
        RejectedLine(line + before, "record", reason, record.encode(), t.key)
        for line, reason, record in source_rows.bad
    ]
    _typed(t, source_rows, segment, content)
    content.segment_lines.append(source_rows.line_count)


def _typed(t: EntityType, source_rows: SourceRows, segment: Mapping[str, Any], content: PieceContent) -> None:
    table, problems = typed_text(t, source_rows.as_fields()) if source_rows.is_text else (source_rows.as_fields(), [])
    typed = rows_to_table(t, table, ulids=_ulids_of(segment), already=problems)
    whole = [v for v in typed.violations if v.row is None]
    if whole:
        # The column as a whole has the wrong type: all rows are invalid.
        raise column_mismatch(t, whole, source_rows, segment["source"])
    before = content.line_count
    has_own_ids = bool(t.key_properties) or "id" in table.column_names
    lines = source_rows.lines + before
    content.rows.setdefault(t.key, []).append(TypeRows(typed.table, lines[typed.positions], has_own_ids))
    first_by_row: dict[int, Violation] = {}
    for v in typed.violations:
        first_by_row.setdefault(v.row or 0, v)
    for row, v in first_by_row.items():
        content.rejected.append(
            RejectedLine(int(lines[row]), v.rule, v.message, source_rows.record(row), t.key, v.entity_id, v.property)
        )


def _as_records(t: EntityType, piece: Mapping[str, Any], lines: Sequence[bytes]) -> Iterator[bytes]:
    """Lines that are the objects themselves, as the records that the envelope reads."""
    kind = b"type" if t.kind == "node" else b"edge"
    head = b'{"' + kind + b'":' + orjson.dumps(t.name)
    renamed, skip = piece["columns"], set(piece["skip"])
    for line in lines:
        if not line.lstrip().startswith(b"{"):
            yield line + b"\n"
        elif t.kind == "node" and not renamed and not skip:
            yield head + b',"data":' + line.rstrip(b"\r") + b"}\n"
        else:
            yield _renamed_record(t, line, head, renamed, skip)


def _renamed_record(t: EntityType, line: bytes, head: bytes, renamed: Mapping[str, str], skip: set[str]) -> bytes:
    try:
        values = orjson.loads(line)
    except orjson.JSONDecodeError:
        return line + b"\n"
    data: dict[str, Any] = {}
    ends: dict[str, Any] = {}
    for column, value in values.items():
        name = renamed.get(column, column)
        if column not in renamed and (column in skip or ("*" in skip and name not in {"id", "from", "to", *t.by_name})):
            continue
        if t.kind == "edge" and name not in t.by_name and name in ("from", "to", "src", "dst"):
            ends[{"src": "from", "dst": "to"}.get(name, name)] = value
        else:
            data[name] = value
    outer = b"".join(b',"' + k.encode() + b'":' + orjson.dumps(v) for k, v in ends.items())
    return head + outer + b',"data":' + orjson.dumps(data) + b"}\n"


# ---- staging ---------------------------------------------------------------------------------------------------------


def _staged(context: Context, piece: Mapping[str, Any], content: PieceContent) -> dict[str, Any]:
    staging = context.staging
    sender = Sender(context.buckets, width=3)
    base = piece["index"] << ROW_BITS
    types: dict[str, Any] = {}
    for key, parts in content.rows.items():
        t = context.type(key)
        table = pa.concat_tables([part.table for part in parts])
        if table.num_rows == 0:
            continue
        lines = np.concatenate([part.lines for part in parts])
        if len(parts) > 1:
            order = np.argsort(lines, kind="stable")
            table, lines = table.take(pa.array(order)), lines[order]
        own_ids = any(part.has_own_ids for part in parts)
        name = staging.put_table("rows", table.append_column(LINE, pa.array(lines)))
        types[key] = {
            "rows": table.num_rows,
            "table": name,
            "bytes": table.nbytes,
            "own_ids": own_ids,
            "broken": _stage_invalid_rows(context, t, table, lines),
        }
        send_rows(context, t, table, np.arange(base, base + table.num_rows, dtype=np.uint64), own_ids, sender)
    _send_bad(context, content.rejected, base, sender)
    return {
        "piece": piece["index"],
        "segments": content.segment_lines,
        "types": types,
        "named": sorted({*content.rows, *(line.table_key for line in content.rejected if line.table_key is not None)}),
        "sent": sender.send(staging, "in"),
        "rejected": _rejects(context, content.rejected),
        "rows_done": sum(t["rows"] for t in types.values()),
        "bytes_done": sum(segment["read"] for segment in piece["segments"]),
    }


def send_rows(
    context: Context, t: EntityType, table: pa.Table, names: np.ndarray, own_ids: bool, sender: Sender
) -> None:
    """The digests of input rows. Generated ids cannot collide, so they are sent only where edges look them up."""
    is_endpoint = isinstance(t, NodeType) and bool(context.schema.incident_edges(t.name))
    if own_ids or is_endpoint:
        sender.add(relation("id", t.key), digests(flat(table.column("id"))), names)
    for column in ("src", "dst") if t.kind == "edge" else ():
        sender.add(relation(column, t.key), digests(flat(table.column(column))), names)
    for number, properties in unique_tuples(t):
        texts = texts_of(t, table, properties)
        is_valid = np.asarray(texts.is_valid())
        sender.add(relation(f"u{number}", t.key), digests(texts.drop_null()), names[is_valid])


def unique_tuples(t: EntityType) -> list[tuple[int, Sequence[str]]]:
    return [(i, c.properties) for i, c in enumerate(t.constraints) if c.kind == "unique"]


def _send_bad(context: Context, rejected: Sequence[RejectedLine], base: int, sender: Sender) -> None:
    """Ids of nodes in refused records: the message of an edge to one says that it was rejected."""
    for key in {line.table_key for line in rejected if line.table_key in context.types}:
        assert key is not None
        if key.startswith("node:"):
            lines_of_type = [line for line in rejected if line.table_key == key and line.entity_id is not None]
            ids = pa.array([line.entity_id for line in lines_of_type], pa.string())
            lines = np.array([base + line.line for line in lines_of_type], dtype=np.uint64)
            sender.add(relation("bad", key), digests(ids), lines)


def _stage_invalid_rows(context: Context, t: EntityType, rows: pa.Table, lines: np.ndarray) -> dict[str, Any] | None:
    """Rows that break a rule of their own: staged with rule and message, counted by rule."""
    d = delta(t, rows=rows, lines=pa.array(lines))
    violations = check_fields(Image(context.schema, {t.name: d}, None))  # type: ignore[arg-type]
    if not violations:
        return None
    invalid = pa.table(
        {
            "row": pa.array([v.row for v in violations], pa.int64()),
            "rule": [v.rule for v in violations],
            "message": [v.message for v in violations],
            "property": pa.array([v.property for v in violations], pa.string()),
        }
    )
    counts = Counter(v.rule for v in violations)
    return {
        "file": context.staging.put_table("broken", invalid),
        "count": len(violations),
        "by_rule": dict(counts),
        "rows": len({v.row for v in violations}),
    }


def _rejects(context: Context, rejected: Sequence[RejectedLine]) -> dict[str, Any] | None:
    if not rejected:
        return None
    table = pa.table(
        {
            "line": pa.array([r.line for r in rejected], pa.int64()),
            "rule": [r.rule for r in rejected],
            "reason": [r.reason for r in rejected],
            "record": pa.array([r.record for r in rejected], pa.large_binary()),
            "table_key": pa.array([r.table_key for r in rejected], pa.string()),
            "entity_id": pa.array([r.entity_id for r in rejected], pa.string()),
            "property": pa.array([r.property for r in rejected], pa.string()),
        }
    ).sort_by("line")
    counts = Counter(r.rule for r in rejected)
    return {"file": context.staging.put_table("rejected", table), "count": len(rejected), "by_rule": dict(counts)}
