"""Rewriting fragments outside of the commit protocol: the live rows of some fragments go into one new file, and rows
that other writers deleted meanwhile are then deleted there as well (replay).

1. rewrite   on any worker, from one exact version: Lance's own compaction task writes the live rows of neighbouring
             fragments, in order, into one new fragment
2. number    the new fragment gets an id above all existing ones, with room for concurrent appends; so its row
             addresses are known before it is published
3. private   a detached version that contains the rewrite and no index: indices over fragments that are not published
             yet are built there. The table's own history does not change
4. replay    under the lock, on the newest version: rows that left an old fragment since 1 are marked deleted in the
             new one, whether they were deleted, or moved by an update or a fold. A group whose data files were
             exchanged is dropped
5. commit    one Rewrite of the remaining groups, on the base version

Invariants: every row, its stable row id and its versions stay. A crash leaves files and a detached version without a
reference.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from omnigraph.errors import StorageError
from omnigraph.storage import durability
from omnigraph.storage.files import deletion_files
from omnigraph.storage.lance import lance_api
from omnigraph.storage.layout import Location
from omnigraph.storage.manifest.records import Pin
from omnigraph.storage.objects.store import ObjectStore

if TYPE_CHECKING:
    from lance import FragmentMetadata, LanceDataset, Transaction

ID_GAP = 4096
"""Room for fragments that other writers append between planning and publication."""


@dataclass(frozen=True)
class Group:
    """Some neighbouring fragments and the fragment that replaces them, as Lance's JSON."""

    old: tuple[dict[str, Any], ...]
    new: dict[str, Any]

    @property
    def new_id(self) -> int:
        return int(self.new["id"])


@dataclass(frozen=True)
class Exchange:
    """A group on a newer version: its current old fragments, and the new one; None if no row remains."""

    old: tuple[FragmentMetadata, ...]
    new: FragmentMetadata | None


@dataclass(frozen=True)
class Replayed:
    """The part of a rewrite that can be committed on a newer version.

    `dropped` are ids of new fragments that will not exist; `replayed` counts rows that were moved or deleted meanwhile.
    """

    groups: tuple[Exchange, ...]
    dropped: frozenset[int]
    replayed: int


def first_new_id(table: LanceDataset) -> int:
    return max((int(f.fragment_id) for f in table.get_fragments()), default=0) + ID_GAP


def rewrite(location: Location, pin: Pin, table: LanceDataset, fragments: Sequence[int], *, new_id: int) -> Group:
    """Write the live rows of these fragments as one fragment, checked and synced, without a reference yet."""
    from lance.optimize import Compaction, CompactionTask

    chosen = [table.get_fragment(number) for number in fragments]
    rows = sum(f.metadata.num_rows for f in chosen)
    options: dict[str, Any] = {"target_rows_per_fragment": max(rows, 1), "num_threads": 1}
    with lance_api.reading(f"rewriting fragments of {pin.path}"):
        task = _task(Compaction, table, options)
        task["task"]["fragments"] = [f.metadata.to_json() for f in chosen]
        result = json.loads(CompactionTask.from_json(json.dumps(task)).execute(table).json())
    assert len(result["new_fragments"]) == 1, "a rewrite writes one fragment"
    new_fragment = {**result["new_fragments"][0], "id": new_id}
    if location.is_local:
        durability.sync_fragments(location.join(pin.path), [new_fragment])
    return Group(tuple(result["original_fragments"]), new_fragment)


def _task(compaction: Any, table: LanceDataset, options: dict[str, Any]) -> dict[str, Any]:
    """Lance's form of a compaction task with these options, for fragments that the caller adds."""
    body = json.loads(compaction.plan(table, options).json())
    return {"task": {"fragments": []}, "read_version": table.version, "options": body["options"]}


def private_version(location: Location, table: LanceDataset, groups: Sequence[Group]) -> tuple[LanceDataset, list[int]]:
    """A detached version without indices that contains the rewrite, and the numbers of the detached versions."""
    from omnigraph.storage.lance.indices import built_indices, exchange_segments

    segment_uuids = [s.uuid for index in built_indices(table) for s in index.segments]
    with lance_api.reading(f"preparing a version of {table.uri}"):
        without_indices = detached_commit(
            location, table, exchange_segments(table, [], removed=segment_uuids, version=table.version)
        )
        rewritten = detached_commit(
            location, without_indices, commit_of(without_indices, [_as_planned(group) for group in groups])
        )
    return rewritten, [int(without_indices.version), int(rewritten.version)]


def detached_commit(location: Location, base: LanceDataset, tx: Transaction) -> LanceDataset:
    """Commit a version outside of the table's history, which no other process sees."""
    import lance

    return lance.LanceDataset.commit(base, tx, storage_options=location.lance_options, detached=True)


def commit_of(base: LanceDataset, groups: Sequence[Exchange]) -> Transaction:
    """The Rewrite that replaces the old fragments by the new ones."""
    op = lance_api.operations()
    rewrite_groups = [op.RewriteGroup(list(g.old), [] if g.new is None else [g.new]) for g in groups]
    return lance_api.transaction(op.Rewrite(rewrite_groups, []), read_version=base.version)


def _as_planned(group: Group) -> Exchange:
    return Exchange(tuple(fragment_from_json(body) for body in group.old), fragment_from_json(group.new))


def fragment_from_json(body: Mapping[str, Any]) -> FragmentMetadata:
    from lance.fragment import FragmentMetadata

    fragment: FragmentMetadata = FragmentMetadata.from_json(json.dumps(body))
    return fragment


# ---- deferred --------------------------------------------------------------------------------------------------------

DEFERRED = ("ReserveFragments", "Rewrite")
"""The operations of Lance's own commit of a compaction, which accepts no stamp."""


def rewrite_deferred(location: Location, pin: Pin, table: LanceDataset, fragments: Sequence[int]) -> dict[str, Any]:
    """Like `rewrite`, for a commit that does not change indices; returns Lance's own result, as JSON."""
    from lance.optimize import Compaction, CompactionTask

    chosen = [table.get_fragment(number) for number in fragments]
    rows = sum(f.metadata.num_rows for f in chosen)
    with lance_api.reading(f"rewriting fragments of {pin.path}"):
        task = _task(Compaction, table, _deferred(max(rows, 1)))
        task["task"]["fragments"] = [f.metadata.to_json() for f in chosen]
        result: dict[str, Any] = json.loads(CompactionTask.from_json(json.dumps(task)).execute(table).json())
    if location.is_local:
        durability.sync_fragments(location.join(pin.path), result["new_fragments"])
    return result


def commit_deferred(table: LanceDataset, results: Sequence[Mapping[str, Any]]) -> LanceDataset:
    """Lance's own commit: it reserves ids, and records in the fragment-reuse index where every row went.

    Lance refuses results older than the newest change of an index. The caller has checked that the fragments are
    unchanged (`untouched`), so the results are declared to be of this version.

    If it fails, Lance removes the files that the results name, even if the version has landed and only the response
    was lost (lance#8123). So after a failure the caller must neither publish the versions that it finds nor retry.
    """
    from lance.optimize import Compaction, RewriteResult

    handle = table.checkout_version(table.version)
    rewrite_results = [RewriteResult.from_json(json.dumps({**r, "read_version": int(table.version)})) for r in results]
    Compaction.commit(handle, rewrite_results, _deferred(1))
    return handle


def _deferred(target_rows: int) -> dict[str, Any]:
    return {"target_rows_per_fragment": target_rows, "num_threads": 1, "defer_index_remap": True}


def untouched(now: LanceDataset, old: Iterable[Mapping[str, Any]]) -> bool:
    """Whether all these fragments are unchanged in `now`, with the same rows."""
    current = _metadata(now)
    then = {int(body["id"]): fragment_from_json(body) for body in old}
    return all(
        n in current and _files(current[n]) == _files(was) and _deletion(current[n]) == _deletion(was)
        for n, was in then.items()
    )


# ---- replay ----------------------------------------------------------------------------------------------------------


class Replayer:
    """Applies deletions since the version `then` to rewritten fragments; may be called repeatedly.

    It caches what it read and wrote: the second call, under the lock, only reads the changes since the first.
    """

    def __init__(self, location: Location, pin: Pin, then: LanceDataset, private: LanceDataset) -> None:
        self._location = location
        self._pin = pin
        self._then = then
        self._private = private
        self._live: dict[tuple[int, Any], np.ndarray] = {}
        self._planned: dict[int, Exchange] = {}
        self._marked: dict[int, tuple[bytes, FragmentMetadata | None]] = {}

    def replay(self, groups: Sequence[Group], now: LanceDataset) -> Replayed:
        """The groups that can be committed on `now`."""
        current = _metadata(now)
        highest = max(current, default=0)
        exchanges: list[Exchange] = []
        dropped: set[int] = set()
        count = 0
        for group in groups:
            planned = self._planned.get(group.new_id)
            if planned is None:
                planned = self._planned[group.new_id] = _as_planned(group)
            moved = self._moved(planned, current, now) if highest < group.new_id else None
            old = tuple(current[o.id] for o in planned.old if o.id in current)
            if moved is None or not old:
                dropped.add(group.new_id)
                continue
            count += len(moved)
            new = self._without(planned, moved)
            exchanges.append(Exchange(old, new))
            if new is None:
                dropped.add(group.new_id)
        return Replayed(tuple(exchanges), frozenset(dropped), count)

    def _moved(
        self, planned: Exchange, current: Mapping[int, FragmentMetadata], now: LanceDataset
    ) -> np.ndarray | None:
        """Positions in the new fragment of rows that were moved or deleted since; None if data files changed."""
        positions: list[np.ndarray] = []
        base = 0
        for old in planned.old:
            current_fragment = current.get(old.id)
            if current_fragment is None:
                positions.append(np.arange(base, base + old.num_rows))
            elif _files(current_fragment) != _files(old):
                return None
            elif _deletion(current_fragment) != _deletion(old):
                before, after = self._live_rows(self._then, old), self._live_rows(now, current_fragment)
                if not np.isin(after, before, assume_unique=True).all():
                    return None  # deleted rows are live again: this is not the table that was rewritten
                positions.append(base + np.flatnonzero(~np.isin(before, after, assume_unique=True)))
            base += old.num_rows
        return np.concatenate(positions) if positions else np.empty(0, dtype=np.int64)

    def _without(self, planned: Exchange, moved: np.ndarray) -> FragmentMetadata | None:
        """The new fragment with these rows marked deleted; None if no row remains."""
        assert planned.new is not None
        if not len(moved):
            return planned.new
        key = moved.astype(np.int64).tobytes()
        cached = self._marked.get(planned.new.id)
        if cached is not None and cached[0] == key:
            return cached[1]
        remaining: FragmentMetadata | None = self._private.get_fragment(planned.new.id).delete_rows(moved.tolist())
        if remaining is not None:
            deletion_files.note_written(self._location, self._pin.path, remaining)
        if remaining is not None and self._location.is_local:
            body = remaining.to_json()
            deletion_only = [{"id": body["id"], "files": [], "deletion_file": body["deletion_file"]}]
            durability.sync_fragments(self._location.join(self._pin.path), deletion_only)
        self._marked[planned.new.id] = (key, remaining)
        return remaining

    def _live_rows(self, table: LanceDataset, fragment: FragmentMetadata) -> np.ndarray:
        key = (fragment.id, _deletion(fragment))
        if key not in self._live:
            self._live[key] = live_offsets(table, fragment.id)
        return self._live[key]


def live_offsets(table: LanceDataset, fragment: int) -> np.ndarray:
    """Offsets of a fragment's rows that are not deleted, ascending. Reads deletions, no data."""
    with lance_api.reading(f"reading deletions of {table.uri}"):
        rows = table.scanner(
            columns=[], with_row_address=True, fragments=[table.get_fragment(fragment)], scan_in_order=True
        ).to_table()
    addresses = rows["_rowaddr"].to_numpy()
    return np.asarray(addresses & np.uint64(0xFFFFFFFF)).astype(np.int64)


def _metadata(table: LanceDataset) -> dict[int, FragmentMetadata]:
    return {int(f.fragment_id): f.metadata for f in table.get_fragments()}


def _files(fragment: FragmentMetadata) -> list[Any]:
    return [(f.path, tuple(f.fields)) for f in fragment.files]


def _deletion(fragment: FragmentMetadata) -> Any:
    deletion = fragment.deletion_file
    return None if deletion is None else (deletion.read_version, deletion.id)


def changed_fields(then: LanceDataset, now: LanceDataset) -> dict[int, set[int]]:
    """Fragments of both versions, and their fields that are in another file now: indices over these are out of date."""
    before, after = _metadata(then), _metadata(now)
    changed: dict[int, set[int]] = {}
    for number in before.keys() & after.keys():
        if _files(before[number]) != _files(after[number]):
            old_paths, new_paths = _path_by_field(before[number]), _path_by_field(after[number])
            changed[number] = {
                field for field in old_paths.keys() | new_paths.keys() if old_paths.get(field) != new_paths.get(field)
            }
    return changed


def _path_by_field(fragment: FragmentMetadata) -> dict[int, str]:
    """The file of each field."""
    return {field: f.path for f in fragment.files for field in f.fields if field >= 0}


# ---- afterwards ------------------------------------------------------------------------------------------------------


def remove_detached(location: Location, pin: Pin, versions: Iterable[int]) -> None:
    """Delete detached versions that are no longer needed. Cleanup deletes those for which this fails."""
    names = [f"d{version}.manifest" for version in versions]
    with suppress(StorageError):
        ObjectStore(location, f"{pin.path}/_versions").delete_many(names)
