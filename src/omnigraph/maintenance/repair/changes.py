"""What publishing a drifted table would change: rows inserted, updated and deleted, with counts and the first ids.

1. differ   fragments of the pin and of HEAD are compared by their files. Same files, same deletions: nothing to
            compare. Same files, other deletions: the rows in which they differ. Otherwise all rows of the fragment
2. digest   those rows are read batch by batch, and of each only digests of its id and of its content are kept
3. match    by id: only in the pin is deleted, only in HEAD inserted, in both with other content updated

To know whether any row differs is cheaper: the digests of both sides are summed up in one pass.

Keeps: nothing is written. Memory stays bounded: with more rows than fit, the same rows are read several times, and each
pass handles the ids of one share of the digests. The digests are of 128 bits for ids and 64 for content.
"""

from __future__ import annotations

import heapq
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from omnigraph.language.schema.model import EntityType
from omnigraph.maintenance.repair.row_digests import id_digests, row_digests
from omnigraph.storage.files.blob_values import require_own_blobs
from omnigraph.storage.lance import tables as tables_of
from omnigraph.storage.lance.columns import arrow_schema
from omnigraph.tasks.digest_index import Index

if TYPE_CHECKING:
    from lance import LanceDataset

FIRST_IDS = 10
ROWS_PER_PASS = 2_000_000
"""At 40 bytes per row and side, and what matching takes: about 300 MB."""
TAKE_MAX = 4_096
BATCH_ROWS, BATCH_ROWS_BLOBS = 16_384, 64


@dataclass(frozen=True)
class Changed:
    """`first` are the first ids in the order of the table, at most ten of them. A foreign client can write null ids."""

    count: int
    first: tuple[str | None, ...]

    def to_json(self) -> dict[str, Any]:
        return {"count": self.count, "first": list(self.first)}


@dataclass(frozen=True)
class RowChanges:
    inserted: Changed
    updated: Changed
    deleted: Changed

    def __bool__(self) -> bool:
        return bool(self.inserted.count or self.updated.count or self.deleted.count)

    def to_json(self) -> dict[str, Any]:
        return {k: getattr(self, k).to_json() for k in ("inserted", "updated", "deleted")}


@dataclass(frozen=True)
class _Part:
    """Rows of one fragment of one side: all of them, or those at these addresses."""

    fragment: int
    rows: int
    addresses: np.ndarray | None = None
    row_ids: np.ndarray | None = None


def row_changes(old: LanceDataset, new: LanceDataset, t: EntityType, *, rows_per_pass: int = 0) -> RowChanges:
    """How the rows of `new` differ from those of `old`; both have the columns of the type."""
    removed, added = _differing(old, new, t)
    rows_max = max(sum(p.rows for p in removed), sum(p.rows for p in added))
    passes = max(1, -(-rows_max // (rows_per_pass or ROWS_PER_PASS)))
    inserted, updated, deleted = _Tally(), _Tally(), _Tally()
    for number in range(passes):
        old_side = _Side.read(old, t, removed, share=(number, passes))
        new_side = _Side.read(new, t, added, share=(number, passes))
        match = old_side.match(new_side)
        matched = match >= 0
        differ = np.zeros(len(new_side.ids), dtype=bool)
        differ[matched] = new_side.content[matched] != old_side.content[match[matched]]
        inserted.add(new_side, ~matched)
        updated.add(new_side, differ)
        still = np.zeros(len(old_side.ids), dtype=bool)
        still[match[matched]] = True
        # A row whose id is there twice is matched once: a second row with a matched id is no deletion.
        deleted.add(old_side, ~still & ~old_side.is_among(new_side))
    return RowChanges(inserted.changed(new, t), updated.changed(new, t), deleted.changed(old, t))


def same_rows(old: LanceDataset, new: LanceDataset, t: EntityType) -> bool:
    """Whether both sides hold the same rows, wherever they lie; where row ids are stable, each under its own."""
    removed, added = _differing(old, new, t)
    return _sum(old, t, removed) == _sum(new, t, added)


def _sum(table: LanceDataset, t: EntityType, parts: Sequence[_Part]) -> int:
    columns = [*arrow_schema(t).names, *(["_rowid"] if table.has_stable_row_ids else [])]
    sums = (row_digests(batch.select(columns)).sum(dtype=np.uint64) for batch in _rows(table, t, parts))
    return sum(map(int, sums)) % 2**64


class _Tally:
    """A count, and the offsets of the first rows."""

    def __init__(self) -> None:
        self.count = 0
        self._first: list[tuple[int, int]] = []

    def add(self, side: _Side, mask: np.ndarray) -> None:
        rows = np.flatnonzero(mask)
        self.count += len(rows)
        candidates = zip(side.offsets[rows[:FIRST_IDS]].tolist(), side.row_ids[rows[:FIRST_IDS]].tolist(), strict=True)
        self._first = heapq.nsmallest(FIRST_IDS, [*self._first, *candidates])

    def changed(self, table: LanceDataset, t: EntityType) -> Changed:
        if not self._first:
            return Changed(self.count, ())
        row_ids = [row_id for _, row_id in self._first]
        rows = tables_of.take(table, t, pa.array(row_ids, pa.uint64()), ["id"])
        by_row = dict(zip(rows["_rowid"].to_pylist(), rows["id"].to_pylist(), strict=True))
        return Changed(self.count, tuple(by_row[row_id] for row_id in row_ids))


@dataclass(frozen=True)
class _Side:
    """Digests of the rows of one side that belong to one share of the ids, in the order of the table."""

    ids: np.ndarray
    content: np.ndarray
    row_ids: np.ndarray
    offsets: np.ndarray

    @staticmethod
    def read(table: LanceDataset, t: EntityType, parts: Sequence[_Part], *, share: tuple[int, int]) -> _Side:
        chunks: list[tuple[np.ndarray, ...]] = []
        offset = 0
        number, of = share
        for batch in _rows(table, t, parts):
            ids = id_digests(batch.column("id"))
            offsets = np.arange(offset, offset + batch.num_rows)
            offset += batch.num_rows
            selected = np.flatnonzero((ids[:, 0] >> np.uint64(40)) % np.uint64(of) == number)
            content = row_digests(batch.drop_columns(list(tables_of.ROW_COLUMNS)).take(pa.array(selected)))
            rows = batch.column("_rowid").to_numpy().astype(np.uint64)
            chunks.append((ids[selected], content, rows[selected], offsets[selected]))
        if not chunks:
            none = np.empty(0, dtype=np.uint64)
            return _Side(np.empty((0, 2), dtype=np.uint64), none, none, none)
        return _Side(*(np.concatenate(column) for column in zip(*chunks, strict=True)))

    def match(self, other: _Side) -> np.ndarray:
        """For each row of `other` the row here with the same id; -1 if there is none."""
        return Index(self.ids).find(other.ids)

    def is_among(self, other: _Side) -> np.ndarray:
        return np.asarray(other.match(self) >= 0)


def _rows(table: LanceDataset, t: EntityType, parts: Sequence[_Part]) -> Iterator[pa.Table]:
    columns = arrow_schema(t).names
    whole = [p.fragment for p in parts if p.addresses is None]
    if whole:
        yield from _scan(table, t, columns, whole)
    few = [p.row_ids for p in parts if p.row_ids is not None and p.rows <= TAKE_MAX]
    if few:
        row_ids = np.concatenate(few)
        for start in range(0, len(row_ids), TAKE_MAX):
            ids = pa.array(row_ids[start : start + TAKE_MAX], pa.uint64())
            yield tables_of.take(table, t, ids, columns)
    for part in parts:
        if part.addresses is not None and part.rows > TAKE_MAX:
            for batch in _scan(table, t, columns, [part.fragment]):
                yield batch.filter(pa.array(np.isin(batch.column("_rowaddr").to_numpy(), part.addresses)))


def _scan(table: LanceDataset, t: EntityType, columns: Sequence[str], fragments: Sequence[int]) -> Iterator[pa.Table]:
    has_blobs = any(p.type.kind == "Blob" for p in t.properties)
    options: dict[str, Any] = {"blob_handling": "all_binary"} if has_blobs and columns else {}
    scanner = table.scanner(
        columns=list(columns),
        fragments=[table.get_fragment(f) for f in fragments],
        with_row_id=True,
        with_row_address=True,
        batch_size=BATCH_ROWS_BLOBS if options else BATCH_ROWS,
        **options,
    )
    with tables_of.reading(table, t):
        require_own_blobs(table, t, columns, fragments=[table.get_fragment(f) for f in fragments])
        for batch in scanner.to_batches():
            yield pa.table(batch)


def _differing(old: LanceDataset, new: LanceDataset, t: EntityType) -> tuple[list[_Part], list[_Part]]:
    """The rows that only one side has at their address, per fragment."""
    before, after = _fragments(old), _fragments(new)
    removed = [_Part(f.fragment_id, f.count_rows()) for key, f in before.items() if key not in after]
    added = [_Part(f.fragment_id, f.count_rows()) for key, f in after.items() if key not in before]
    for key in before.keys() & after.keys():
        a, b = before[key], after[key]
        if _deletion(a) != _deletion(b):
            was, now = (_live(side, t, f.fragment_id) for side, f in ((old, a), (new, b)))
            removed.extend(_only(was, now, a.fragment_id))
            added.extend(_only(now, was, b.fragment_id))
    return sorted(removed, key=lambda p: p.fragment), sorted(added, key=lambda p: p.fragment)


def _fragments(table: LanceDataset) -> dict[str, Any]:
    return {json.dumps(f.metadata.to_json()["files"]): f for f in table.get_fragments()}


def _deletion(fragment: Any) -> str:
    return json.dumps(fragment.metadata.to_json().get("deletion_file"))


def _live(table: LanceDataset, t: EntityType, fragment: int) -> tuple[np.ndarray, np.ndarray]:
    """Offsets and row ids of a fragment's rows; no column is read."""
    batches = list(_scan(table, t, [], [fragment]))
    addresses = np.concatenate([b.column("_rowaddr").to_numpy() for b in batches] or [np.empty(0, np.uint64)])
    row_ids = np.concatenate([b.column("_rowid").to_numpy() for b in batches] or [np.empty(0, np.uint64)])
    return addresses & np.uint64(0xFFFFFFFF), row_ids


def _only(own: tuple[np.ndarray, np.ndarray], other: tuple[np.ndarray, np.ndarray], fragment: int) -> list[_Part]:
    lone = ~np.isin(own[0], other[0])
    if not lone.any():
        return []
    addresses = own[0][lone] | (np.uint64(fragment) << np.uint64(32))
    return [_Part(fragment, int(lone.sum()), addresses, own[1][lone])]
