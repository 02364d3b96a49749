"""What a merge does to the rows of one type, before anything is written.

Rows of the source that apply as they are stay addresses: their fragments may be adopted without reading a value. Rows
whose image was decided by value (`copied`, `replaced`) are held as images in the shape of the merged type; of those
that tasks decided (`deferred`) only the columns that rules look at are held, and the tasks write them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa

from omnigraph.branch.diff.states import full_schema, reshaped, stored_names
from omnigraph.branch.merge.model import Conflict
from omnigraph.errors import Violation
from omnigraph.language.schema.model import EntityType
from omnigraph.storage.diff.table_version import TableVersion
from omnigraph.write.delta import TypeDelta, delta, flat

RankedViolation = tuple[tuple[int, int], Violation]
"""A rule that a decided image breaks by itself, and its place among others: which check, and which sort of image."""


def _no_addresses() -> np.ndarray:
    return np.empty(0, dtype=np.uint64)


def _no_rows() -> pa.Table:
    return pa.table({"id": pa.array([], pa.string())})


@dataclass(frozen=True, eq=False)
class SourceRows:
    """Rows of the source version: what was read of them, and their addresses there, in the same order."""

    rows: pa.Table = field(default_factory=_no_rows)
    addresses: np.ndarray = field(default_factory=_no_addresses)

    def __len__(self) -> int:
        return len(self.addresses)

    def filter(self, mask: np.ndarray) -> SourceRows:
        return SourceRows(self.rows.filter(pa.array(mask)), self.addresses[mask])

    @property
    def ids(self) -> pa.Array:
        return flat(self.rows["id"]).cast(pa.string())


@dataclass(frozen=True, eq=False)
class TargetRows:
    """Rows of the target version that are replaced or deleted: ids, addresses and row ids, in the same order."""

    ids: pa.Array = field(default_factory=lambda: pa.array([], pa.string()))
    addresses: np.ndarray = field(default_factory=_no_addresses)
    row_ids: np.ndarray = field(default_factory=_no_addresses)

    def __len__(self) -> int:
        return len(self.addresses)

    @staticmethod
    def concat(parts: Sequence[TargetRows]) -> TargetRows:
        if not parts:
            return TargetRows()
        return TargetRows(
            pa.concat_arrays([p.ids.cast(pa.string()) for p in parts]),
            np.concatenate([p.addresses for p in parts]),
            np.concatenate([p.row_ids for p in parts]),
        )


@dataclass(frozen=True, eq=False)
class DecidedRows:
    """Images decided by value, with the columns that rules look at. `is_taken`: as the source has it, and not combined
    from both sides.
    """

    rows: pa.Table
    is_taken: np.ndarray


@dataclass(frozen=True, eq=False)
class DeferredRows:
    """What tasks decided by value. `tasks` decide it again where they write it: no image is kept."""

    tasks: tuple[dict[str, Any], ...]
    counts: tuple[tuple[int, int], ...]
    """How many new rows and new images each task has."""
    copied: DecidedRows
    replaced: DecidedRows
    replaced_rows: TargetRows
    violations: tuple[RankedViolation, ...] = ()
    goes_first: bool = True
    """Whether its entities come before those that were decided in this process."""

    @property
    def row_count(self) -> int:
        return len(self.copied.is_taken) + len(self.replaced.is_taken)


@dataclass(frozen=True, eq=False)
class RowChanges:
    """`inserted` and `updated` rows of the source as they are; `updated[i]` replaces `overwritten[i]`. `copied` are
    images of new rows; `replaced[i]` is the new image of `replaced_rows[i]`; of each the first `taken_counts` are as
    the source has them. `deleted` rows go.
    """

    type: EntityType
    columns: list[str]
    theirs: TableVersion | None = None
    inserted: SourceRows = field(default_factory=SourceRows)
    updated: SourceRows = field(default_factory=SourceRows)
    overwritten: TargetRows = field(default_factory=TargetRows)
    copied: pa.Table | None = None
    replaced: pa.Table | None = None
    replaced_rows: TargetRows = field(default_factory=TargetRows)
    taken_counts: tuple[int, int] = (0, 0)
    deleted: TargetRows = field(default_factory=TargetRows)
    deferred: DeferredRows | None = None
    conflicts: tuple[Conflict, ...] = ()

    @property
    def insert_count(self) -> int:
        deferred = 0 if self.deferred is None else self.deferred.copied.rows.num_rows
        return len(self.inserted) + (0 if self.copied is None else self.copied.num_rows) + deferred

    @property
    def update_count(self) -> int:
        deferred = 0 if self.deferred is None else len(self.deferred.replaced_rows)
        return len(self.updated) + len(self.replaced_rows) + deferred

    @property
    def delete_count(self) -> int:
        return len(self.deleted)

    @property
    def is_empty(self) -> bool:
        return not (self.insert_count or self.update_count or self.delete_count)

    @cached_property
    def rule_delta(self) -> TypeDelta:
        """The change as the rules across rows see it: with the columns that they look at."""
        t = self.type
        columns = rule_columns(t)
        parts = [self.images(rows, columns) for rows in (self.inserted, self.updated) if len(rows)]
        parts += [rows for rows in self._decided(columns) if rows is not None]
        schema = pa.schema([full_schema(t).field(c).with_nullable(True) for c in columns])
        rows = pa.concat_tables([schema.empty_table(), *(part.cast(schema) for part in parts)]).combine_chunks()
        return TypeDelta(type=t, rows=rows, deleted=delta(t, deleted=self.deleted.ids).deleted)

    def _decided(self, columns: list[str]) -> list[pa.Table | None]:
        """New rows and new images that were decided by value: the taken ones first, as if one process decided all."""
        here = [None if rows is None else rows.select(columns) for rows in (self.copied, self.replaced)]
        if self.deferred is None:
            return here
        in_tasks = (self.deferred.copied, self.deferred.replaced)
        return [
            _joined(rows, taken, decided, tasks_first=self.deferred.goes_first)
            for rows, taken, decided in zip(here, self.taken_counts, in_tasks, strict=True)
        ]

    def images(self, rows: SourceRows, columns: list[str]) -> pa.Table:
        """Rows of the source in the shape of the merged type; what was not read of them yet is read here."""
        assert self.theirs is not None
        names = stored_names(self.theirs.type, self.type, columns)
        stored = [n for n in dict.fromkeys(["id", *names]) if n in self.theirs.table.schema.names]
        table = rows.rows
        if not set(stored) <= set(table.column_names):
            table = self.theirs.rows_in_order(rows.addresses, stored)
        return reshaped(table, self.theirs.type, self.type, columns)


def _joined(rows: pa.Table | None, taken: int, decided: DecidedRows, *, tasks_first: bool) -> pa.Table:
    if rows is None:
        parts, is_taken = [decided.rows], [decided.is_taken]
    else:
        parts = [decided.rows, rows.cast(decided.rows.schema)]
        is_taken = [decided.is_taken, np.arange(rows.num_rows) < taken]
        if not tasks_first:
            parts, is_taken = parts[::-1], is_taken[::-1]
    return pa.concat_tables(parts).take(pa.array(np.argsort(~np.concatenate(is_taken), kind="stable")))


def rule_columns(t: EntityType) -> list[str]:
    """The columns that rules across rows look at."""
    columns = ["id", *(("src", "dst") if t.kind == "edge" else ())]
    for constraint in t.constraints:
        if constraint.kind == "unique":
            columns += [name for name in constraint.properties if name not in columns]
    return columns
