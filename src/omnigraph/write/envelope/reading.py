"""Reading: all lines of an input, block by block, on as many threads as are asked for. See the package's docstring."""

from __future__ import annotations

import os
from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from itertools import chain, groupby, islice
from typing import BinaryIO

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.errors import Violation
from omnigraph.language.schema.model import EntityType, Schema
from omnigraph.storage.lance.columns import arrow_schema, arrow_type
from omnigraph.storage.ulids import Ulids
from omnigraph.write.envelope.blocks import BLOCK_BYTES, Block, Group, blocks, groups, is_blank, lines_of
from omnigraph.write.envelope.record import Record, Refusal, judge
from omnigraph.write.envelope.typed import Piece, TypeReader
from omnigraph.write.keys import canonical_ids

# So few lines are read faster by the judge than by a call of Arrow's reader.
JUDGED_MAX = 16
# A piece of so few lines is not halved when it fails, but judged.
HALVED_MIN = 64
# After so many failures, a group that has hardly any good lines is left to the judge altogether.
FAILURES_MAX = 32

_KINDS = {"type": "node", "edge": "edge"}


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
    """Rows of one type in the order of their lines. `has_own_ids` is false where all ids are new ULIDs."""

    type: EntityType
    table: pa.Table
    lines: pa.Array
    has_own_ids: bool


@dataclass(frozen=True, eq=False)
class Parsed:
    """What an input holds. `line_count` counts all lines, blank ones included."""

    rows: Mapping[str, TypeRows]
    rejected: tuple[RejectedLine, ...]
    line_count: int
    kept: Sequence[tuple[int, bytes]] = field(default=(), repr=False)

    def records(self, lines: Iterable[int]) -> dict[int, bytes]:
        """The texts of some lines, of an input that was parsed with `keep_text`."""
        found: dict[int, bytes] = {}
        for place, wanted in groupby(sorted(lines), key=self._block_of):
            first, text = self.kept[place]
            texts = text.split(b"\n")
            found |= {line: texts[line - first].rstrip(b"\r") for line in wanted}
        return found

    def _block_of(self, line: int) -> int:
        return bisect_right(self.kept, line, key=lambda kept: kept[0]) - 1


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
    ulids: Ulids | None = None,
) -> Parsed:
    """`chunks` are the bytes of the input in any pieces. `threads` defaults to the number of processors, at most 8.

    `ulids` are what new ids are taken from, by the byte at which a line's block begins and its place there.
    """
    work = _Work(schema, ulids or Ulids.fresh())
    parts: dict[str, list[_Rows]] = {}
    rejected: list[RejectedLine] = []
    kept: list[tuple[int, bytes]] = []
    first_line = 1
    cut = blocks(chunks, block_bytes=block_bytes)
    for block, result in _mapped(work.read, cut, threads or min(os.cpu_count() or 1, 8)):
        for key, rows in result.rows.items():
            parts.setdefault(key, []).append(replace(rows, places=rows.places + first_line))
        rejected.extend(replace(line, line=line.line + first_line) for line in result.rejected)
        if keep_text and not is_blank(block.text):
            kept.append((first_line, block.text))
        first_line += result.line_count
    rows_of = {t.name: _type_rows(t, parts[t.key]) for t in schema.types() if t.key in parts}
    return Parsed(rows_of, tuple(rejected), first_line - 1, kept)


def _type_rows(t: EntityType, parts: Sequence[_Rows]) -> TypeRows:
    table = pa.concat_tables([part.table for part in parts])
    lines = pa.array(np.concatenate([part.places for part in parts]))
    return TypeRows(t, table, lines, any(part.has_own_ids for part in parts))


def _mapped(
    read: Callable[[Block], _BlockResult], cut: Iterator[Block], threads: int
) -> Iterator[tuple[Block, _BlockResult]]:
    """Each block with its result, in order; at most twice as many blocks as threads wait."""
    head = list(islice(cut, 2))
    if len(head) < 2 or threads == 1:
        # Too little for threads to be worth their start.
        yield from ((block, read(block)) for block in chain(head, cut))
        return
    with ThreadPoolExecutor(threads, thread_name_prefix="omnigraph-parse") as pool:
        waiting: deque[tuple[Block, Future[_BlockResult]]] = deque()
        for block in chain(head, cut):
            waiting.append((block, pool.submit(read, block)))
            if len(waiting) > 2 * threads:
                done, future = waiting.popleft()
                yield done, future.result()
        for done, future in waiting:
            yield done, future.result()


@dataclass(frozen=True, eq=False)
class _Rows:
    """Rows of one type with the place of each one's line, counted from the start of the block."""

    table: pa.Table
    places: np.ndarray
    has_own_ids: bool


@dataclass(frozen=True, eq=False)
class _BlockResult:
    """`line` of the rejected lines is their place in the block."""

    rows: Mapping[str, _Rows]
    rejected: Sequence[RejectedLine]
    line_count: int


class _Work:
    """What reading a block needs; shared by all threads, never changed."""

    def __init__(self, schema: Schema, ulids: Ulids) -> None:
        self._schema = schema
        self._ulids = ulids
        self._readers = {t.key: TypeReader(t, self._ulids) for t in schema.types()}

    def read(self, block: Block) -> _BlockResult:
        if is_blank(block.text):
            return _BlockResult({}, [], block.text.count(b"\n"))
        lines = lines_of(block)
        read: dict[str, list[_Rows]] = {}
        unsure: list[tuple[int, bytes]] = []
        for group in groups(lines):
            key = None if group.prefix is None else f"{_KINDS[group.prefix.kind]}:{group.prefix.name}"
            if key is None or key not in self._readers:
                unsure.extend(zip(group.places.tolist(), group.lines.to_pylist(), strict=True))
                continue
            _read_group(self._readers[key], group, block.offset, read.setdefault(key, []), unsure)
        records, rejected = _judged(self._schema, unsure)
        for key, good in records.items():
            read.setdefault(key, []).append(_table_of(good, block.offset, self._ulids))
        return _BlockResult({key: _in_order(parts) for key, parts in read.items() if parts}, rejected, len(lines))


def _read_group(
    reader: TypeReader, group: Group, offset: int, read: list[_Rows], unsure: list[tuple[int, bytes]]
) -> None:
    """Read a group in pieces as large as go through; lines that are left go to `unsure`.

    A piece that fails is cut at the line that failed, or in half if that is not known; then pieces grow again.
    """
    assert group.prefix is not None
    waiting = [(0, len(group.lines))]
    size, failures, lines_read = len(group.lines), 0, 0
    while waiting:
        start, stop = waiting.pop()
        if stop - start > size:
            waiting.append((start + size, stop))
            stop = start + size
        is_hopeless = failures >= FAILURES_MAX and lines_read < failures * HALVED_MIN
        if stop - start <= JUDGED_MAX or is_hopeless:
            unsure.extend(_lines_at(group, start, stop))
            continue
        lines, places = group.lines.slice(start, stop - start), group.places[start:stop]
        result = reader.read(lines, group.prefix, places + offset)
        if isinstance(result, Piece):
            lines_read += result.table.num_rows
            read.append(_kept(result, lines, places, unsure))
            size *= 2
            continue
        failures += 1
        if result.row is not None:
            at = start + result.row
            unsure.extend(_lines_at(group, at, at + 1))
            waiting += [(at + 1, stop), (start, at)]
            size = max(2 * result.row, HALVED_MIN)
        elif stop - start <= HALVED_MIN:
            unsure.extend(_lines_at(group, start, stop))
        else:
            size = (stop - start + 1) // 2
            waiting.append((start, stop))


def _lines_at(group: Group, start: int, stop: int) -> Iterable[tuple[int, bytes]]:
    return zip(group.places[start:stop].tolist(), group.lines.slice(start, stop - start).to_pylist(), strict=True)


def _kept(piece: Piece, lines: pa.Array, places: np.ndarray, unsure: list[tuple[int, bytes]]) -> _Rows:
    """The rows of a piece; the lines that it is unsure of go to `unsure`."""
    if piece.unsure is not None:
        left = lines.filter(pa.array(piece.unsure)).to_pylist()
        unsure.extend(zip(places[piece.unsure].tolist(), left, strict=True))
        places = places[~piece.unsure]
    return _Rows(piece.table, places, piece.has_own_ids)


def _judged(
    schema: Schema, lines: Iterable[tuple[int, bytes]]
) -> tuple[dict[str, list[tuple[int, Record]]], list[RejectedLine]]:
    good: dict[str, list[tuple[int, Record]]] = {}
    rejected: list[RejectedLine] = []
    for place, line in sorted(lines):
        text = line.rstrip(b"\r\n")
        verdict = judge(schema, text)
        if isinstance(verdict, Record):
            good.setdefault(verdict.type.key, []).append((place, verdict))
        else:
            rejected.append(_rejected(place, text, verdict))
    return good, rejected


def _rejected(place: int, text: bytes, refusal: Refusal) -> RejectedLine:
    return RejectedLine(
        line=place,
        rule=refusal.problem.rule,
        reason=refusal.problem.message,
        record=text,
        table_key=None if refusal.type is None else refusal.type.key,
        entity_id=refusal.id,
        property=refusal.problem.property,
    )


def _table_of(records: Sequence[tuple[int, Record]], offset: int, ulids: Ulids) -> _Rows:
    t = records[0][1].type
    places = np.array([place for place, _ in records], dtype=np.int64)
    columns = {p.name: pa.array([r.values[p.name] for _, r in records], arrow_type(p.type)) for p in t.properties}
    given = pa.array([r.id for _, r in records], pa.string())
    if t.key_properties:
        columns["id"] = canonical_ids(t, pa.table(columns))
    else:
        columns["id"] = pc.coalesce(given, ulids.ids(places + offset))
    if t.kind == "edge":
        columns["src"] = pa.array([r.src for _, r in records], pa.string())
        columns["dst"] = pa.array([r.dst for _, r in records], pa.string())
    schema = arrow_schema(t)
    table = pa.table([columns[name] for name in schema.names], schema=schema)
    return _Rows(table, places, bool(t.key_properties) or given.null_count < len(given))


def _in_order(parts: Sequence[_Rows]) -> _Rows:
    if len(parts) == 1:
        return parts[0]
    table = pa.concat_tables([part.table for part in parts])
    places = np.concatenate([part.places for part in parts])
    order = np.argsort(places, kind="stable")
    return _Rows(table.take(pa.array(order)), places[order], any(part.has_own_ids for part in parts))
