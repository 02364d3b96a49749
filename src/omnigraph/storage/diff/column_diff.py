"""Rows that `row_diff` leaves out and that may still differ: in columns that only one of two versions has.

`row_diff` compares fragments by the fields that mean the same property in both versions. A property that was added
since, or dropped in the first version, or that two branches added under ids of their own, is in no such field. Its
values lie in further fields or files of the same fragments (a default, or vectors made by `embed`), which `row_diff`
does not look at; or in the new fragment of a row that was only moved. Rows that were updated since are in `row_diff`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from omnigraph.storage.diff.row_diff import RowDiff, comparable_fragments
from omnigraph.storage.diff.table_version import (
    FragmentFile,
    TableVersion,
    fragment_counts,
    fragment_ids_of,
    offsets_of,
    to_addresses,
)
from omnigraph.storage.lance.tables import name_of


@dataclass(frozen=True)
class UnsharedColumn:
    """A column of `b`. `property_ids` are its ids in `a` and in `b`; None in `a` for a column that was added.

    `is_filled` selects the values of an added column that are not those that the addition gave to every row; without it
    all that are not null.
    """

    name: str
    property_ids: tuple[str | None, str]
    is_filled: Callable[[pa.ChunkedArray], np.ndarray] | None = None


@dataclass(frozen=True, eq=False)
class PlacedRows:
    """The addresses of the same rows in both versions, in the same order."""

    in_a: np.ndarray
    in_b: np.ndarray

    def __len__(self) -> int:
        return len(self.in_a)


def rows_left_out(a: TableVersion, b: TableVersion, diff: RowDiff, columns: Iterable[UnsharedColumn]) -> PlacedRows:
    """Rows that are live in both versions, are not in their `row_diff`, and may differ in one of these columns."""
    left, right = comparable_fragments(a, b)
    pairs = {right[key].id: (left[key], right[key]) for key in left.keys() & right.keys()}
    moved = {n: b.fragments_by_id[n] for n in fragment_counts(diff.moved[1])}
    parts = [np.empty(0, dtype=np.uint64)]
    for column in columns:
        in_a, in_b = (
            set() if property_id is None else _fields_of(version, property_id)
            for version, property_id in zip((a, b), column.property_ids, strict=True)
        )
        stored = [n for n, (mine, theirs) in pairs.items() if mine.holds(in_a) or theirs.holds(in_b)]
        stored += [n for n, fragment in moved.items() if n not in pairs and (in_a or fragment.holds(in_b))]
        if not stored:
            continue
        if column.property_ids[0] is None:
            parts.append(_filled_rows(b, column, stored))
        else:
            parts += [to_addresses(n, np.arange(b.fragments_by_id[n].physical_rows)) for n in stored]
    addresses = np.unique(np.concatenate(parts))
    in_place = _live(a, b, pairs, addresses[np.isin(fragment_ids_of(addresses), list(pairs))])
    is_unshared = np.isin(diff.moved[1], addresses)
    return PlacedRows(
        np.concatenate([in_place.in_a, diff.moved[0][is_unshared]]),
        np.concatenate([in_place.in_b, diff.moved[1][is_unshared]]),
    )


def _fields_of(version: TableVersion, property_id: str) -> set[int]:
    return {n for n, name in version.field_properties.items() if name.partition(".")[0] == property_id}


def _filled_rows(b: TableVersion, column: UnsharedColumn, fragments: list[int]) -> np.ndarray:
    if column.is_filled is None:
        batches = b.scan([], fragments=fragments, where=f"{name_of(column.name)} IS NOT NULL")
        addresses = [batch["_rowaddr"].to_numpy() for batch in batches]
    else:
        addresses = [
            batch["_rowaddr"].to_numpy()[column.is_filled(batch[column.name])]
            for batch in b.scan([column.name], fragments=fragments)
        ]
    return np.concatenate([np.empty(0, dtype=np.uint64), *addresses])


def _live(
    a: TableVersion, b: TableVersion, pairs: dict[int, tuple[FragmentFile, FragmentFile]], addresses: np.ndarray
) -> PlacedRows:
    in_a, in_b = [np.empty(0, dtype=np.uint64)], [np.empty(0, dtype=np.uint64)]
    fragment_ids, offsets = fragment_ids_of(addresses), offsets_of(addresses)
    for number in fragment_counts(addresses):
        mine, theirs = pairs[number]
        deleted = np.union1d(a.deleted_offsets(mine), b.deleted_offsets(theirs))
        live = np.setdiff1d(offsets[fragment_ids == number], deleted, assume_unique=True)
        in_a.append(to_addresses(mine.id, live))
        in_b.append(to_addresses(theirs.id, live))
    return PlacedRows(np.concatenate(in_a), np.concatenate(in_b))
