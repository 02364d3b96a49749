"""Which rows of a table may differ between two versions of it, from metadata alone.

Two versions of one table, on whatever lines, are compared by fragment:

1. same files, same deletions    nothing to look at
2. same files, other deletions   the rows in which the deletion vectors differ
3. files of one version only     all live rows of that fragment
4. moved rows                    a row on both sides with the same row id, last updated in the same version, which both
                                 lines share, was only moved (fold, compaction, restore): it is left out. This needs
                                 stable row ids; without them moved rows are compared by value

The result is a superset of the rows that differ: `removed` (only in the first version) and `added` (only in the
second). An updated row is in both. Values are read only where the caller asks for columns of a small difference.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from omnigraph.storage.diff.table_version import (
    FILTER_ADDRESSES_MAX,
    ROW_VERSION,
    FragmentFile,
    FragmentKey,
    TableVersion,
    fragment_counts,
    fragment_ids_of,
    offsets_of,
    to_addresses,
)


def _no_addresses() -> np.ndarray:
    return np.empty(0, dtype=np.uint64)


@dataclass(frozen=True, eq=False)
class RowSet:
    """Live rows of one version, as parallel arrays. `last_updated` is 0 without stable row ids."""

    addresses: np.ndarray
    row_ids: np.ndarray
    last_updated: np.ndarray
    whole_fragments: frozenset[int] = frozenset()
    """Fragments of which all live rows are in the set."""

    def __len__(self) -> int:
        return len(self.addresses)

    @staticmethod
    def of(rows: pa.Table, whole_fragments: Iterable[int] = ()) -> RowSet:
        if ROW_VERSION in rows.column_names:
            last_updated = rows[ROW_VERSION].to_numpy()
        else:
            last_updated = np.zeros(rows.num_rows, np.uint64)
        addresses, row_ids = rows["_rowaddr"].to_numpy(), rows["_rowid"].to_numpy()
        return RowSet(addresses, row_ids, last_updated, frozenset(whole_fragments))

    @property
    def scattered(self) -> np.ndarray:
        """Addresses outside of the whole fragments."""
        if not self.whole_fragments:
            return self.addresses
        return self.addresses[~np.isin(fragment_ids_of(self.addresses), list(self.whole_fragments))]


@dataclass(frozen=True, eq=False)
class RowDiff:
    """`removed_rows` and `added_rows` are the same rows, in the same order, with the columns that were read."""

    removed: RowSet
    added: RowSet
    removed_rows: pa.Table
    added_rows: pa.Table
    moved: tuple[np.ndarray, np.ndarray] = field(default_factory=lambda: (_no_addresses(), _no_addresses()))
    """The addresses of moved rows, which are left out, in both versions, in the same order."""


def diff_rows(
    a: TableVersion,
    b: TableVersion,
    *,
    columns: tuple[Sequence[str], Sequence[str]] = ((), ()),
    rows_max: int = 0,
) -> RowDiff:
    """The rows in which `b` may differ from `a`.

    If at most `rows_max` rows have to be looked at, `columns` of either side are read on the way; else none is.
    Fields that only one side has make no difference: `column_diff` compares those.
    """
    only_a, only_b = _differing_places(a, b), _differing_places(b, a)
    read = columns if only_a.row_count + only_b.row_count <= rows_max else ((), ())
    removed_rows, removed = _read_rows(a, only_a, read[0])
    added_rows, added = _read_rows(b, only_b, read[1])
    return _without_moved(a, b, RowDiff(removed, added, removed_rows, added_rows))


def count_places(a: TableVersion, b: TableVersion) -> int:
    """How many rows of both versions `diff_rows` has to look at, moved ones included."""
    return _differing_places(a, b).row_count + _differing_places(b, a).row_count


def rows_only_in(version: TableVersion, other: TableVersion) -> int:
    """How many rows lie in fragments that the other version does not have. Reads no file."""
    mine, theirs = comparable_fragments(version, other)
    return sum(fragment.live_rows for key, fragment in mine.items() if key not in theirs)


@dataclass(frozen=True, eq=False)
class _Places:
    """Rows of one version that are not at the same place in the other: whole fragments, and scattered addresses."""

    fragments: list[FragmentFile]
    addresses: np.ndarray

    @property
    def row_count(self) -> int:
        return sum(f.live_rows for f in self.fragments) + len(self.addresses)


def _differing_places(version: TableVersion, other: TableVersion) -> _Places:
    mine, theirs = comparable_fragments(version, other)
    fragments = [fragment for key, fragment in mine.items() if key not in theirs]
    scattered = [np.empty(0, dtype=np.uint64)]
    for key in mine.keys() & theirs.keys():
        if mine[key].deletion == theirs[key].deletion:
            continue  # the id of a deletion file is random, so equal ids are the same file
        deleted, deleted_there = version.deleted_offsets(mine[key]), other.deleted_offsets(theirs[key])
        scattered.append(to_addresses(mine[key].id, np.setdiff1d(deleted_there, deleted, assume_unique=True)))
    return _Places(fragments, np.concatenate(scattered))


Fragments = dict[FragmentKey, FragmentFile]


def comparable_fragments(a: TableVersion, b: TableVersion) -> tuple[Fragments, Fragments]:
    """The fragments of both versions, keyed by the fields that mean the same property on both sides."""
    if a.field_properties == b.field_properties:
        return a.fragments, b.fragments
    common = {n for n, p in a.field_properties.items() if b.field_properties.get(n) == p}
    return _over_fields(a.fragments, common), _over_fields(b.fragments, common)


def unshared_fragments(a: TableVersion, b: TableVersion) -> frozenset[int]:
    """Fragments of `b` that store a field which does not mean the same property in `a`."""
    if a.field_properties == b.field_properties:
        return frozenset()
    fields = {n for n, p in b.field_properties.items() if a.field_properties.get(n) != p}
    return frozenset(f.id for f in b.fragments.values() if f.holds(fields))


def _without_moved(a: TableVersion, b: TableVersion, diff: RowDiff) -> RowDiff:
    removed, added = diff.removed, diff.added
    if not (a.has_stable_row_ids and b.has_stable_row_ids and len(removed) and len(added)):
        return diff
    shared = np.uint64(a.version_shared_with(b))
    _, at_a, at_b = np.intersect1d(removed.row_ids, added.row_ids, assume_unique=True, return_indices=True)
    is_moved = (removed.last_updated[at_a] == added.last_updated[at_b]) & (removed.last_updated[at_a] <= shared)
    if not is_moved.any():
        return diff
    removed_rows, left = _dropping(diff.removed_rows, at_a[is_moved])
    added_rows, right = _dropping(diff.added_rows, at_b[is_moved])
    moved = removed.addresses[at_a[is_moved]], added.addresses[at_b[is_moved]]
    return RowDiff(left, right, removed_rows, added_rows, moved)


def _dropping(rows: pa.Table, positions: np.ndarray) -> tuple[pa.Table, RowSet]:
    stays = np.ones(rows.num_rows, dtype=bool)
    stays[positions] = False
    kept = rows.filter(pa.array(stays))
    return kept, RowSet.of(kept)


def _over_fields(fragments: Fragments, fields: set[int]) -> Fragments:
    """The fragments, keyed by only those files and fields that mean the same on both sides."""
    by_key: Fragments = {}
    for key, fragment in fragments.items():
        shared = ((path, tuple(n for n in ids if n in fields)) for path, ids in key)
        by_key[tuple((path, ids) for path, ids in shared if ids)] = fragment
    return by_key if len(by_key) == len(fragments) else fragments


def _read_rows(version: TableVersion, places: _Places, columns: Sequence[str]) -> tuple[pa.Table, RowSet]:
    fragment_ids = [fragment.id for fragment in places.fragments]
    if not places.row_count:
        rows = version.row_schema(columns).empty_table()
    else:
        rows = version.rows_at(places.addresses, columns, whole_fragments=fragment_ids)
    return rows, RowSet.of(rows, fragment_ids)


# ---- the same image elsewhere ----------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Located:
    """Where rows of one version lie in another, with the very same image. Valid only where `is_known` is set."""

    is_known: np.ndarray
    addresses: np.ndarray
    row_ids: np.ndarray

    @staticmethod
    def nowhere(count: int) -> Located:
        return Located(np.zeros(count, dtype=bool), np.zeros(count, np.uint64), np.zeros(count, np.uint64))


def locate_unchanged(base: TableVersion, rows: RowSet, target: TableVersion) -> Located:
    """Find rows of `base` in `target` without reading values.

    A row that is not known may have been updated, deleted, or moved in a way that metadata does not show; or the
    target stores more of it than the base has.
    """
    if base.pin == target.pin:
        return Located(np.ones(len(rows), dtype=bool), rows.addresses, rows.row_ids)
    located = Located.nowhere(len(rows))
    unshared = unshared_fragments(base, target)
    fragment_ids, offsets = fragment_ids_of(rows.addresses), offsets_of(rows.addresses)
    for number in fragment_counts(rows.addresses):
        mine = base.fragments_by_id[number]
        theirs = target.fragments.get(mine.key)
        if theirs is None or theirs.id in unshared:
            continue
        here = np.flatnonzero(fragment_ids == number)
        if theirs.deletion is not None and theirs.deletion != mine.deletion:
            here = here[~np.isin(offsets[here], target.deleted_offsets(theirs))]
        located.is_known[here] = True
        located.addresses[here] = to_addresses(theirs.id, offsets[here])
        located.row_ids[here] = _row_ids(mine, theirs, rows.row_ids[here], offsets[here], target)
    if base.has_stable_row_ids and target.has_stable_row_ids:
        _locate_by_row_id(base, rows, target, located, unshared)
    return located


def physical_row_ids(fragment: FragmentFile) -> np.ndarray:
    """The row ids of all physical rows of a fragment, deleted ones included."""
    from lance.fragment import RowIdSequence

    return np.array(RowIdSequence.from_inline_metadata(fragment.metadata.row_id_meta).to_pyarrow().to_numpy())


def _row_ids(
    mine: FragmentFile, theirs: FragmentFile, row_ids: np.ndarray, offsets: np.ndarray, target: TableVersion
) -> np.ndarray:
    """The row ids on the target's line: an adopted fragment has others than on the line it comes from."""
    if not target.has_stable_row_ids:
        return to_addresses(theirs.id, offsets)
    left, right = mine.metadata.row_id_meta, theirs.metadata.row_id_meta
    if left is not None and right is not None and left.asdict() == right.asdict():
        return row_ids
    return np.asarray(physical_row_ids(theirs)[offsets])


def _locate_by_row_id(
    base: TableVersion, rows: RowSet, target: TableVersion, located: Located, unshared: frozenset[int]
) -> None:
    shared = np.uint64(base.version_shared_with(target))
    pending = np.flatnonzero(~located.is_known)
    pending = pending[rows.last_updated[pending] <= shared]
    if not len(pending):
        return
    row_ids = rows.row_ids[pending]
    if len(pending) <= FILTER_ADDRESSES_MAX:
        where = f"_rowid IN ({','.join(map(str, row_ids.tolist()))})"
        stored = pa.concat_tables([target.row_schema([]).empty_table(), *target.scan([], where=where)])
    else:
        fresh = [f.id for key, f in target.fragments.items() if key not in base.fragments]
        stored = target.rows_at(np.empty(0, np.uint64), whole_fragments=fresh)
    there = RowSet.of(stored)
    _, at_base, at_target = np.intersect1d(row_ids, there.row_ids, assume_unique=True, return_indices=True)
    same = rows.last_updated[pending[at_base]] == there.last_updated[at_target]
    same &= ~np.isin(fragment_ids_of(there.addresses[at_target]), list(unshared))
    positions, where_at = pending[at_base[same]], at_target[same]
    located.is_known[positions] = True
    located.addresses[positions] = there.addresses[where_at]
    located.row_ids[positions] = there.row_ids[where_at]
