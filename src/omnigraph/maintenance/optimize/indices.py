"""What indices need: those that are declared and missing are built, others extended, merged or built again.

`omnigraph.index.segments` decides which segments are kept. This module handles what concerns an index as a whole, and
indices that are rebuilt because of an option or because their files can't be used:

1. check   the files of every segment: they exist and have together the size that the table's manifest records; on a
           local disk each of them ends in a footer that agrees with it. On an object store one listing per table is
           enough; the store guards contents. No index is opened, so that this costs little where nothing is wrong
2. plan    the whole index over the fragments that there will be, in place of all its segments. Nothing of the old one
           is read: vectors are counted and trained anew
3. drop    a vector index with too few vectors is dropped and pending: a full search is as fast. One over a removed
           property is dropped for good: with it Lance refuses every filter of the table

The content of a file is not checked here: `verify` does that, and `rebuild_indexes` repairs what it finds.
"""

from __future__ import annotations

import os
import posixpath
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from omnigraph.errors import StorageError
from omnigraph.index.build import (
    VECTORS_MIN,
    directed_vectors,
    outgrown,
    partitions,
    shares_centroids,
    trained_partitions,
    vector_kind,
)
from omnigraph.index.declared import DeclaredIndex, declared
from omnigraph.index.segments import IndexPlan, Layout, plan_index, plan_new
from omnigraph.language.schema.model import EntityType
from omnigraph.maintenance.optimize.model import PendingIndex
from omnigraph.storage import durability
from omnigraph.storage.files.footers import FOOTED_SUFFIXES, footer_problem
from omnigraph.storage.lance.indices import BuiltIndex, Segment, field_ids, segment_folder
from omnigraph.storage.lance.tables import name_of
from omnigraph.storage.layout import Location
from omnigraph.storage.manifest.records import Pin
from omnigraph.storage.objects import nofollow
from omnigraph.storage.objects.store import ObjectStore

if TYPE_CHECKING:
    from lance import LanceDataset

REQUESTED = "it was asked for"
MISSING = "its files are missing"
TRUNCATED = "its files are cut short or overwritten"
DAMAGED = "the footer of a file is damaged"
UNREADABLE = "it can't be read"
PROPERTY_REMOVED = "the property that it is over was removed"


def built_anew(
    location: Location, pin: Pin, table: LanceDataset, built: Sequence[BuiltIndex], *, every: bool
) -> dict[str, str]:
    """Indices by name that are rebuilt without reading the old ones, and why; `every` if an option says so."""
    requested = dict.fromkeys((b.name for b in built), REQUESTED) if every else {}
    fields = field_ids(table)
    without_property = dict.fromkeys((b.name for b in built if not fields.issuperset(b.fields)), PROPERTY_REMOVED)
    return requested | damaged(location, pin, table, built) | without_property


def sound(built: Sequence[BuiltIndex], anew: Mapping[str, str]) -> list[BuiltIndex]:
    """Those that remain usable until they are replaced."""
    return [b for b in built if anew.get(b.name, REQUESTED) == REQUESTED]


def damaged(location: Location, pin: Pin, table: LanceDataset, built: Sequence[BuiltIndex]) -> dict[str, str]:
    """Indices by name whose files can't be used, and why. Step 1."""
    check = _check_local if location.is_local else _check_remote
    segments = [(index, s) for index in built for s in index.segments if s.size_bytes]
    folders = {s.uuid: segment_folder(pin, table, s) for _, s in segments}
    reasons: dict[str, str] = {}
    for uuid, why in check(location, {s.uuid: (folders[s.uuid], s) for _, s in segments}):
        name = next(index.name for index, s in segments if s.uuid == uuid)
        reasons.setdefault(name, why)
    return reasons


def _check_local(location: Location, segments: Mapping[str, tuple[str, Segment]]) -> Iterator[tuple[str, str]]:
    for uuid, (folder, segment) in segments.items():
        path = location.join(folder)
        try:
            nofollow.require_path(location, folder)
            with os.scandir(path) as entries:
                paths = [entry.path for entry in entries if entry.is_file(follow_symlinks=False)]
            sizes = [durability.closed_size(path) for path in paths]
        except (FileNotFoundError, NotADirectoryError):
            sizes = []
        except OSError as error:
            raise StorageError(doing=f"listing {path}", detail=str(error)) from error
        if not sizes:
            yield uuid, MISSING
        elif None in sizes or sum(size or 0 for size in sizes) != segment.size_bytes:
            yield uuid, TRUNCATED
        elif any(footer_problem(path) for path in paths if path.endswith(FOOTED_SUFFIXES)):
            yield uuid, DAMAGED


def _check_remote(location: Location, segments: Mapping[str, tuple[str, Segment]]) -> Iterator[tuple[str, str]]:
    sizes: dict[str, int] = {}
    for root in {posixpath.dirname(folder) for folder, _ in segments.values()}:
        for file in ObjectStore(location, root).iter_files():
            folder = posixpath.dirname(file.path)
            sizes[f"{root}/{folder}"] = sizes.get(f"{root}/{folder}", 0) + file.size
    for uuid, (folder, segment) in segments.items():
        if folder not in sizes:
            yield uuid, MISSING
        elif sizes[folder] != segment.size_bytes:
            yield uuid, TRUNCATED


def _rebuilt(
    table: LanceDataset, built: BuiltIndex, of: str, layout: Layout, *, why: str
) -> tuple[IndexPlan, PendingIndex | None]:
    """Steps 2 and 3."""
    plan = plan_index(built, layout, property=of, whole=why)
    assert plan is not None, "an index has segments, and all of them go"
    plan = replace(plan, reason=why, unusable=why != REQUESTED)
    if why == PROPERTY_REMOVED:
        return replace(plan, action="drop", property=built.name, build=(), rows=0), None
    if not built.kind.startswith("IVF"):
        return plan, None
    vectors = _vectors_in(table, built.column)
    if isinstance(vectors, str):
        dropped = replace(plan, action="drop", build=(), rows=0, reason=f"{why}; {vectors}")
        return dropped, PendingIndex(of, "IVF", vectors)
    if shares_centroids(built.kind):
        return _with(plan, vectors=vectors), None
    return _with(plan, partitions=partitions(vectors)), None


def _vectors_in(table: LanceDataset, column: str) -> int | str:
    """How many vectors there are to build an index from; or a text that says why they are too few."""
    vectors = int(table.count_rows(f"{name_of(column)} IS NOT NULL"))
    if vectors < VECTORS_MIN:
        return "no vectors yet" if not vectors else f"{vectors} vectors of at least {VECTORS_MIN}"
    directed = directed_vectors(table, column, count_max=VECTORS_MIN)
    if directed < VECTORS_MIN:
        text = "all of its vectors are zero" if not directed else f"{directed} vectors that are not zero"
        return f"{text}; it takes {VECTORS_MIN} that have a direction"
    return vectors


# ---- as they are -----------------------------------------------------------------------------------------------------


def index_work(
    table: LanceDataset,
    t: EntityType,
    layout: Layout,
    built: Sequence[BuiltIndex],
    *,
    whole: Mapping[str, str],
    anew: Mapping[str, str],
    absorb: bool = True,
) -> tuple[tuple[IndexPlan, ...], tuple[PendingIndex, ...]]:
    """What the indices need for this layout. `whole` are those that are built again, by name, and why; `anew` those of
    which nothing old is used.
    """
    if not layout.rows:
        return tuple(_rebuilt(table, b, b.column, layout, why=anew[b.name])[0] for b in built if b.name in anew), ()
    indexes: list[IndexPlan] = []
    pending: list[PendingIndex] = []
    properties: dict[str, str] = {}
    taken = {b.name for b in built}
    for want in declared(t):
        existing = _matching(want, built)
        if existing is None:
            missing = _missing(table, replace(want, name=_free(want.name, taken)), layout)
            (pending if isinstance(missing, PendingIndex) else indexes).append(missing)  # type: ignore[arg-type]
            continue
        properties[existing.name] = want.property
    for index in built:
        of, why = properties.get(index.name, index.column), anew.get(index.name)
        if why is None:
            try:
                indexes += _extended(table, index, of, layout, whole.get(index.name), absorb=absorb)
                continue
            except StorageError:
                why = UNREADABLE
        rebuilt, waiting = _rebuilt(table, index, of, layout, why=why)
        indexes.append(rebuilt)
        pending += [waiting] if waiting is not None and index.name in properties else []
    return tuple(indexes), tuple(pending)


def _free(name: str, taken: Collection[str]) -> str:
    """A name that no other index has: one may be left from a renamed property, or be of a foreign client."""
    return next(n for n in (name, *(f"{name}_{i}" for i in range(2, len(taken) + 3))) if n not in taken)


def _matching(want: DeclaredIndex, built: Sequence[BuiltIndex]) -> BuiltIndex | None:
    return next((b for b in built if b.column == want.column and b.kind.startswith(want.kind)), None)


def _extended(
    table: LanceDataset, built: BuiltIndex, of: str, layout: Layout, whole: str | None, *, absorb: bool
) -> list[IndexPlan]:
    """The plan of an index that exists, if it needs one."""
    plan = plan_index(built, layout, property=of, whole=whole, absorb=absorb)
    if plan is None or not built.kind.startswith("IVF"):
        return [] if plan is None else [plan]
    trained = trained_partitions(table, built.name)
    rows = sum(layout.rows.values())
    if outgrown(trained, rows) and absorb:
        plan = plan_index(built, layout, property=of, whole=f"it has outgrown its {trained} partitions")
        assert plan is not None
        trained = partitions(rows)
        if shares_centroids(built.kind):
            return [_with(plan, vectors=rows)]
    if shares_centroids(built.kind):
        return [_with(plan, centroids_of=built.name)]
    return [_with(plan, partitions=trained)]


def _with(plan: IndexPlan, **options: Any) -> IndexPlan:
    return replace(plan, options={**plan.options, **options})


def _missing(table: LanceDataset, want: DeclaredIndex, layout: Layout) -> IndexPlan | PendingIndex:
    if want.kind != "IVF":
        return plan_new(layout, property=want.property, column=want.column, name=want.name, kind=want.kind)
    vectors = _vectors_in(table, want.column)
    if isinstance(vectors, str):
        return PendingIndex(want.property, want.kind, vectors)
    kind = vector_kind(vectors, want.column)
    plan = plan_new(layout, property=want.property, column=want.column, name=want.name, kind=kind)
    return replace(plan, options={"vectors": vectors})


def coverage_of(
    t: EntityType, built: Sequence[BuiltIndex], rows: dict[int, int], pending: Sequence[PendingIndex]
) -> float:
    """The share of rows that the declared indices cover, all of them together, but for those that can't be built yet.

    1 for an empty table.
    """
    declared_indices = [
        w for w in declared(t) if not any(p.property == w.property and p.kind.startswith(w.kind) for p in pending)
    ]
    every = sum(rows.values()) * len(declared_indices)
    covered = 0
    for want in declared_indices:
        existing = _matching(want, built)
        covered += 0 if existing is None else sum(rows.get(n, 0) for n in existing.covered)
    return 1.0 if not every else covered / every
