"""Parse: all lines of an input, block by block, on as many threads as are asked for. See the package's docstring."""

from __future__ import annotations

import os
from bisect import bisect_right
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import BinaryIO

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.errors import Violation
from omnigraph.language.schema.model import EntityType, Schema
from omnigraph.storage.columns import arrow_schema, arrow_type
from omnigraph.write.envelope.blocks import BLOCK_BYTES, Block, Group, blocks, groups
from omnigraph.write.envelope.record import Record, Refusal, judge
from omnigraph.write.envelope.typed import TypeReader
from omnigraph.write.keys import Ulids, canonical_ids

JUDGED_MAX = 16


@dataclass(frozen=True)
class RejectedLine:
    """A line that is left out, with its own text, so that it can be corrected and loaded again."""

    line: int
    rule: str
    reason: str
    record: bytes
    table_key: str | None = None
    entity_id: str | None = None
    property: str | None = None

    def to_json(self) -> dict[str, object]:
        text = self.record.decode("utf-8", "backslashreplace")
        return {"line": self.line, "rule": self.rule, "reason": self.reason, "record": text}

    def violation(self) -> Violation:
        return Violation(
            rule=self.rule,
            table_key=self.table_key or "record",
            message=self.reason,
            entity_id=self.entity_id,
            property=self.property,
            line=self.line,
        )


@dataclass(frozen=True, eq=False)
class TypeRows:
    """Rows of one type in the order of their lines."""

    type: EntityType
    table: pa.Table
    lines: pa.Array


@dataclass(frozen=True, eq=False)
class Parsed:
    """What an input holds. `line_count` counts all lines, blank ones included."""

    rows: Mapping[str, TypeRows]
    rejected: tuple[RejectedLine, ...]
    line_count: int
    kept: Sequence[Block] = field(default=(), repr=False)

    def record(self, line: int) -> bytes:
        """The text of a line, of an input that was parsed with `keep_text`."""
        block = self.kept[bisect_right([b.first_line for b in self.kept], line) - 1]
        return block.text.split(b"\n", line - block.first_line + 1)[line - block.first_line].rstrip(b"\r")


def chunks_of(file: BinaryIO, *, chunk_bytes: int = BLOCK_BYTES) -> Iterator[bytes]:
    while chunk := file.read(chunk_bytes):
        yield chunk


def parse(
    schema: Schema,
    chunks: Iterable[bytes],
    *,
    threads: int | None = None,
    block_bytes: int = BLOCK_BYTES,
    keep_text: bool = False,
) -> Parsed:
    """`chunks` are the bytes of the input in any pieces. `threads` defaults to the number of processors, at most 8."""
    ulids = Ulids.fresh()
    readers = {t.key: TypeReader(t, ulids) for t in schema.types()}
    kept: list[Block] = []
    results: list[_BlockRows] = []
    line_count = 0
    cut = blocks(chunks, block_bytes=block_bytes)
    for block, result in _mapped(schema, readers, ulids, cut, threads or min(os.cpu_count() or 1, 8)):
        line_count += block.line_count
        results.append(result)
        if keep_text:
            kept.append(block)
    rejected = tuple(line for result in results for line in result.rejected)
    rows = {}
    for t in schema.types():
        parts = [result.rows[t.key] for result in results if t.key in result.rows]
        if parts:
            lines = np.concatenate([numbers for _, numbers in parts])
            rows[t.name] = TypeRows(t, pa.concat_tables([table for table, _ in parts]), pa.array(lines))
    return Parsed(rows, rejected, line_count, kept)


@dataclass(frozen=True, eq=False)
class _BlockRows:
    rows: Mapping[str, tuple[pa.Table, np.ndarray]]
    rejected: Sequence[RejectedLine]


def _mapped(
    schema: Schema, readers: Mapping[str, TypeReader], ulids: Ulids, cut: Iterator[Block], threads: int
) -> Iterator[tuple[Block, _BlockRows]]:
    """Each block with its rows, in order; at most twice as many blocks as threads are in memory unread."""
    first = next(cut, None)
    second = next(cut, None)
    if first is None:
        return
    if second is None or threads == 1:
        # Too little for threads to be worth their start.
        for block in (first, *([] if second is None else [second]), *cut):
            yield block, _block_rows(schema, readers, ulids, block)
        return
    with ThreadPoolExecutor(threads, thread_name_prefix="omnigraph-parse") as pool:
        waiting: deque[tuple[Block, Future[_BlockRows]]] = deque()
        for block in _chained(first, second, cut):
            waiting.append((block, pool.submit(_block_rows, schema, readers, ulids, block)))
            if len(waiting) > 2 * threads:
                done, future = waiting.popleft()
                yield done, future.result()
        for done, future in waiting:
            yield done, future.result()


def _chained(first: Block, second: Block, rest: Iterator[Block]) -> Iterator[Block]:
    yield first
    yield second
    yield from rest


def _block_rows(schema: Schema, readers: Mapping[str, TypeReader], ulids: Ulids, block: Block) -> _BlockRows:
    read: dict[str, list[tuple[pa.Table, np.ndarray]]] = {}
    unsure: list[tuple[int, bytes]] = []
    for group in groups(block):
        reader = _reader_of(readers, group)
        if reader is None:
            unsure.extend(zip(group.numbers.tolist(), group.lines.to_pylist(), strict=True))
        else:
            key, typed = reader
            _read_group(typed, group, read.setdefault(key, []), unsure)
    records, rejected = _judged(schema, unsure)
    for key, good in records.items():
        read.setdefault(key, []).append(_table_of(good, ulids))
    return _BlockRows({key: _in_order(parts) for key, parts in read.items() if parts}, rejected)


def _reader_of(readers: Mapping[str, TypeReader], group: Group) -> tuple[str, TypeReader] | None:
    if group.prefix is None:
        return None
    key = f"{'node' if group.prefix.kind == 'type' else 'edge'}:{group.prefix.name}"
    return (key, readers[key]) if key in readers else None


def _read_group(
    reader: TypeReader, group: Group, read: list[tuple[pa.Table, np.ndarray]], unsure: list[tuple[int, bytes]]
) -> None:
    """Read a group, halving what can't be read at once; lines that are left go to `unsure`."""
    assert group.prefix is not None
    ambiguous = reader.ambiguous(group.lines)
    lines, numbers = group.lines, group.numbers
    if ambiguous is not None:
        mask = np.asarray(ambiguous)
        unsure.extend(zip(numbers[mask].tolist(), lines.filter(ambiguous).to_pylist(), strict=True))
        lines, numbers = lines.filter(pa.array(~mask)), numbers[~mask]
    waiting = [(0, len(lines))]
    while waiting:
        start, stop = waiting.pop()
        piece = lines.slice(start, stop - start)
        if stop - start <= JUDGED_MAX:
            unsure.extend(zip(numbers[start:stop].tolist(), piece.to_pylist(), strict=True))
            continue
        table = reader.read(piece, group.prefix, numbers[start:stop])
        if table is not None:
            read.append((table, numbers[start:stop]))
            continue
        middle = (start + stop) // 2
        waiting += [(middle, stop), (start, middle)]


def _judged(
    schema: Schema, lines: Iterable[tuple[int, bytes]]
) -> tuple[dict[str, list[tuple[int, Record]]], list[RejectedLine]]:
    good: dict[str, list[tuple[int, Record]]] = {}
    rejected: list[RejectedLine] = []
    for number, text in sorted(lines):
        verdict = judge(schema, text)
        if isinstance(verdict, Record):
            good.setdefault(verdict.type.key, []).append((number, verdict))
        else:
            rejected.append(_rejected(number, text, verdict))
    return good, rejected


def _rejected(number: int, text: bytes, refusal: Refusal) -> RejectedLine:
    return RejectedLine(
        line=number,
        rule=refusal.problem.rule,
        reason=refusal.problem.message,
        record=text.rstrip(b"\r\n"),
        table_key=None if refusal.type is None else refusal.type.key,
        entity_id=refusal.id,
        property=refusal.problem.property,
    )


def _table_of(records: Sequence[tuple[int, Record]], ulids: Ulids) -> tuple[pa.Table, np.ndarray]:
    t = records[0][1].type
    numbers = np.array([number for number, _ in records], dtype=np.int64)
    columns = {p.name: pa.array([r.values[p.name] for _, r in records], arrow_type(p.type)) for p in t.properties}
    if t.key_properties:
        columns["id"] = canonical_ids(t, pa.table(columns))
    else:
        fresh = ulids.ids(numbers)
        columns["id"] = pc.coalesce(pa.array([r.id for _, r in records], pa.string()), fresh)
    if t.kind == "edge":
        columns["src"] = pa.array([r.src for _, r in records], pa.string())
        columns["dst"] = pa.array([r.dst for _, r in records], pa.string())
    schema = arrow_schema(t)
    return pa.table([columns[name] for name in schema.names], schema=schema), numbers


def _in_order(parts: Sequence[tuple[pa.Table, np.ndarray]]) -> tuple[pa.Table, np.ndarray]:
    if len(parts) == 1:
        return parts[0]
    table = pa.concat_tables([part for part, _ in parts])
    numbers = np.concatenate([lines for _, lines in parts])
    if (np.diff(numbers) > 0).all():
        return table, numbers
    order = np.argsort(numbers, kind="stable")
    return table.take(pa.array(order)), numbers[order]
