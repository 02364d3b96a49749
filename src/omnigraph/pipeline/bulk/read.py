"""The read task: one piece of the input to staged rows, digests, and what is wrong with single rows.

1. rows      NDJSON records by `write.envelope`, tables by `tables` and `write.rows`: typed, with ids
2. judge     required, enum, @range, @check, per row; what breaks them is told, and stays among the rows, because the
             rules that come first (an id twice, an id that exists) are asked of these rows as well
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
from omnigraph.pipeline.bulk.source_rows import Given, column_mismatch, given_rows
from omnigraph.pipeline.bulk.tables import typed_text
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
class Rows:
    """Rows of one type, with the line of each within the piece."""

    table: pa.Table
    lines: np.ndarray
    has_own_ids: bool


@dataclass
class Found:
    """What a piece holds."""

    rows: dict[str, list[Rows]] = field(default_factory=dict)
    rejected: list[RejectedLine] = field(default_factory=list)
    segment_lines: list[int] = field(default_factory=list)

    @property
    def line_count(self) -> int:
        return sum(self.segment_lines)


def read_piece(task: Mapping[str, Any]) -> dict[str, Any]:
    context = context_of(task)
    piece = task["piece"]
    found = Found()
    for segment in piece["segments"]:
        if piece["kind"] == "records":
            _records(context, segment, found)
        else:
            _table(context, piece, segment, found)
    return _staged(context, piece, found)


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
        # What `start` cuts in two began before it, and ends behind it.
        before += int(start > 0 and read_range(path, start - 1, start) != b"\n")
        raise RecordTooLong(**{**error.fields, "line": before + error.fields["line"]}) from None


def _ulids_of(segment: Mapping[str, Any]) -> Ulids:
    ulids = segment.get("ulids")
    return Ulids.fresh() if ulids is None else Ulids(ulids[0], int(ulids[1]))


def _records(context: Context, segment: Mapping[str, Any], found: Found) -> None:
    found.segment_lines.append(0)
    _add(found, parse(context.schema, line_chunks_of(segment), threads=1, ulids=_ulids_of(segment)))


def _json_lines(context: Context, piece: Mapping[str, Any], segment: Mapping[str, Any], found: Found) -> None:
    """Lines that are the objects themselves. New ids are numbered by the bytes of these lines, not by those of the
    longer records that are made of them: the numbers of the next segment begin where these bytes end.
    """
    t, ulids = context.type(piece["type"]), _ulids_of(segment)
    found.segment_lines.append(0)
    for block in blocks(line_chunks_of(segment)):
        if is_blank(block.text):
            found.segment_lines[-1] += block.text.count(b"\n")
            continue
        originals = block.text.split(b"\n")[:-1]
        text = b"".join(_as_records(t, piece, originals))
        numbers = Ulids(ulids.time_ms, ulids.randomness + block.offset)
        parsed = parse(context.schema, [text], threads=1, block_bytes=len(text) + 1, ulids=numbers)
        rejected = [_as_given(context, line, originals[line.line - 1].rstrip(b"\r")) for line in parsed.rejected]
        _add(found, replace(parsed, rejected=tuple(rejected)))


def _add(found: Found, parsed: Parsed) -> None:
    """Rows and refused lines of the last segment, behind those it has already."""
    before = found.line_count
    for rows in parsed.rows.values():
        lines = np.asarray(rows.lines) + before
        found.rows.setdefault(rows.type.key, []).append(Rows(rows.table, lines, rows.has_own_ids))
    found.rejected += [replace(line, line=line.line + before) for line in parsed.rejected]
    found.segment_lines[-1] += parsed.line_count


def _as_given(context: Context, line: RejectedLine, original: bytes) -> RejectedLine:
    """A refused line of which a record was made, as it stands in the input: places in it are counted there."""
    verdict = judge(context.schema, original) if line.rule == "record" else None
    if isinstance(verdict, Refusal) and verdict.problem.message.startswith("not "):
        line = replace(line, reason=verdict.problem.message)
    return replace(line, record=original)


def _table(context: Context, piece: Mapping[str, Any], segment: Mapping[str, Any], found: Found) -> None:
    if piece["format"] == "jsonl":
        _json_lines(context, piece, segment, found)
        return
    t = context.type(piece["type"])
    given = given_rows(context, piece, segment)
    before = found.line_count
    found.rejected += [
        RejectedLine(line + before, "record", reason, record.encode(), t.key) for line, reason, record in given.bad
    ]
    _typed(t, given, segment, found)
    found.segment_lines.append(given.line_count)


def _typed(t: EntityType, given: Given, segment: Mapping[str, Any], found: Found) -> None:
    table, problems = typed_text(t, given.as_fields()) if given.is_text else (given.as_fields(), [])
    typed = rows_to_table(t, table, ulids=_ulids_of(segment), already=problems)
    whole = [v for v in typed.violations if v.row is None]
    if whole:
        # No row is better than another.
        raise column_mismatch(t, whole, given, segment["source"])
    before = found.line_count
    has_own_ids = bool(t.key_properties) or "id" in table.column_names
    lines = given.lines + before
    found.rows.setdefault(t.key, []).append(Rows(typed.table, lines[typed.positions], has_own_ids))
    told: dict[int, Violation] = {}
    for v in typed.violations:
        told.setdefault(v.row or 0, v)
    for row, v in told.items():
        found.rejected.append(
            RejectedLine(int(lines[row]), v.rule, v.message, given.record(row), t.key, v.entity_id, v.property)
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
        given = orjson.loads(line)
    except orjson.JSONDecodeError:
        return line + b"\n"
    data: dict[str, Any] = {}
    ends: dict[str, Any] = {}
    for column, value in given.items():
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


def _staged(context: Context, piece: Mapping[str, Any], found: Found) -> dict[str, Any]:
    staging = context.staging
    sender = Sender(context.buckets, width=3)
    base = piece["index"] << ROW_BITS
    types: dict[str, Any] = {}
    for key, parts in found.rows.items():
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
            "broken": _broken(context, t, table, lines),
        }
        send_rows(context, t, table, np.arange(base, base + table.num_rows, dtype=np.uint64), own_ids, sender)
    _send_bad(context, found.rejected, base, sender)
    return {
        "piece": piece["index"],
        "segments": found.segment_lines,
        "types": types,
        "named": sorted({*found.rows, *(line.table_key for line in found.rejected if line.table_key is not None)}),
        "sent": sender.send(staging, "in"),
        "rejected": _rejects(context, found.rejected),
        "rows_done": sum(t["rows"] for t in types.values()),
        "bytes_done": sum(segment["read"] for segment in piece["segments"]),
    }


def send_rows(
    context: Context, t: EntityType, table: pa.Table, names: np.ndarray, own_ids: bool, sender: Sender
) -> None:
    """The digests of input rows. Ids that were just made up are nobody's, and are looked up as endpoints only."""
    is_endpoint = isinstance(t, NodeType) and bool(context.schema.incident_edges(t.name))
    if own_ids or is_endpoint:
        sender.add(relation("id", t.key), digests(flat(table.column("id"))), names)
    for column in ("src", "dst") if t.kind == "edge" else ():
        sender.add(relation(column, t.key), digests(flat(table.column(column))), names)
    for number, properties in unique_tuples(t):
        texts = texts_of(t, table, properties)
        held = np.asarray(texts.is_valid())
        sender.add(relation(f"u{number}", t.key), digests(texts.drop_null()), names[held])


def unique_tuples(t: EntityType) -> list[tuple[int, Sequence[str]]]:
    return [(i, c.properties) for i, c in enumerate(t.constraints) if c.kind == "unique"]


def _send_bad(context: Context, rejected: Sequence[RejectedLine], base: int, sender: Sender) -> None:
    """Ids of nodes in records that were refused: an edge to one is told why it has no node."""
    for key in {line.table_key for line in rejected if line.table_key in context.types}:
        assert key is not None
        if key.startswith("node:"):
            told = [line for line in rejected if line.table_key == key and line.entity_id is not None]
            ids = pa.array([line.entity_id for line in told], pa.string())
            lines = np.array([base + line.line for line in told], dtype=np.uint64)
            sender.add(relation("bad", key), digests(ids), lines)


def _broken(context: Context, t: EntityType, table: pa.Table, lines: np.ndarray) -> dict[str, Any] | None:
    """Rows that break a rule of their own: staged with rule and message, counted by rule."""
    d = delta(t, rows=table, lines=pa.array(lines))
    found = check_fields(Image(context.schema, {t.name: d}, None))  # type: ignore[arg-type]
    if not found:
        return None
    told = pa.table(
        {
            "row": pa.array([v.row for v in found], pa.int64()),
            "rule": [v.rule for v in found],
            "message": [v.message for v in found],
            "property": pa.array([v.property for v in found], pa.string()),
        }
    )
    counts = Counter(v.rule for v in found)
    return {
        "file": context.staging.put_table("broken", told),
        "count": len(found),
        "by_rule": dict(counts),
        "rows": len({v.row for v in found}),
    }


def _rejects(context: Context, rejected: Sequence[RejectedLine]) -> dict[str, Any] | None:
    if not rejected:
        return None
    told = pa.table(
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
    return {"file": context.staging.put_table("rejected", told), "count": len(rejected), "by_rule": dict(counts)}
