"""What indices need: those that are declared and missing are built, others extended, merged or built again.

Which segments stay is the business of `omnigraph.index.segments`. Here is what it takes to know of the index itself,
and those that are built anew, because somebody asks for it or because their files can't be used:

1. look    at the files of every segment: they are there and have together the size that the table's manifest notes;
           on a local disk each of them ends in a footer that agrees with it. On an object store one listing per table
           tells, and contents are the store's business. No index is opened, so that this costs little where nothing is
           wrong
2. plan    the whole index over the fragments that there will be, in place of all its segments. Nothing of the old one
           is read: vectors are counted and trained anew
3. drop    a vector index with too few vectors goes and is pending: a search that looks at all of them is as quick. One
           over a property that is gone goes for good: with it Lance refuses every filter of the table

What is inside a file is not looked at here: `verify` does that, and `rebuild_indexes` mends what it finds.
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
from omnigraph.storage.objects.listing import listed

if TYPE_CHECKING:
    from lance import LanceDataset

ASKED = "it was asked for"
MISSING = "its files are missing"
CUT = "its files are cut short or overwritten"
DAMAGED = "the footer of a file is damaged"
UNREADABLE = "it can't be read"
PROPERTY_REMOVED = "the property that it is over is gone"


def built_anew(
    location: Location, pin: Pin, table: LanceDataset, built: Sequence[BuiltIndex], *, every: bool
) -> dict[str, str]:
    """Indices by name that are built anew without a look at the old ones, and why; `every` if that was asked for."""
    asked = dict.fromkeys((b.name for b in built), ASKED) if every else {}
    fields = field_ids(table)
    homeless = dict.fromkeys((b.name for b in built if not fields.issuperset(b.fields)), PROPERTY_REMOVED)
    return asked | damaged(location, pin, table, built) | homeless


def sound(built: Sequence[BuiltIndex], anew: Mapping[str, str]) -> list[BuiltIndex]:
    """Those that answer until they are replaced."""
    return [b for b in built if anew.get(b.name, ASKED) == ASKED]


def damaged(location: Location, pin: Pin, table: LanceDataset, built: Sequence[BuiltIndex]) -> dict[str, str]:
    """Indices by name whose files can't be used, and why. Step 1."""
    look = _look_here if location.is_local else _look_there
    segments = [(index, s) for index in built for s in index.segments if s.size_bytes]
    folders = {s.uuid: segment_folder(pin, table, s) for _, s in segments}
    found: dict[str, str] = {}
    for uuid, why in look(location, {s.uuid: (folders[s.uuid], s) for _, s in segments}):
        name = next(index.name for index, s in segments if s.uuid == uuid)
        found.setdefault(name, why)
    return found


def _look_here(location: Location, segments: Mapping[str, tuple[str, Segment]]) -> Iterator[tuple[str, str]]:
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
            yield uuid, CUT
        elif any(footer_problem(path) for path in paths if path.endswith(FOOTED_SUFFIXES)):
            yield uuid, DAMAGED


def _look_there(location: Location, segments: Mapping[str, tuple[str, Segment]]) -> Iterator[tuple[str, str]]:
    sizes: dict[str, int] = {}
    for root in {posixpath.dirname(folder) for folder, _ in segments.values()}:
        for file in listed(location, root):
            folder = posixpath.dirname(file.path)
            sizes[f"{root}/{folder}"] = sizes.get(f"{root}/{folder}", 0) + file.size
    for uuid, (folder, segment) in segments.items():
        if folder not in sizes:
            yield uuid, MISSING
        elif sizes[folder] != segment.size_bytes:
            yield uuid, CUT


def _rebuilt(
    table: LanceDataset, built: BuiltIndex, of: str, layout: Layout, *, why: str
) -> tuple[IndexPlan, PendingIndex | None]:
    """Steps 2 and 3."""
    found = plan_index(built, layout, property=of, whole=why)
    assert found is not None, "an index has segments, and all of them go"
    found = replace(found, reason=why, unusable=why != ASKED)
    if why == PROPERTY_REMOVED:
        return replace(found, action="drop", property=built.name, build=(), rows=0), None
    if not built.kind.startswith("IVF"):
        return found, None
    vectors = _vectors_in(table, built.column)
    if isinstance(vectors, str):
        gone = replace(found, action="drop", build=(), rows=0, reason=f"{why}; {vectors}")
        return gone, PendingIndex(of, "IVF", vectors)
    if shares_centroids(built.kind):
        return _with(found, vectors=vectors), None
    return _with(found, partitions=partitions(vectors)), None


def _vectors_in(table: LanceDataset, column: str) -> int | str:
    """How many vectors there are to build an index from; or, in words, why they are too few."""
    vectors = int(table.count_rows(f"{name_of(column)} IS NOT NULL"))
    if vectors < VECTORS_MIN:
        return "no vectors yet" if not vectors else f"{vectors} vectors of at least {VECTORS_MIN}"
    directed = directed_vectors(table, column, most=VECTORS_MIN)
    if directed < VECTORS_MIN:
        told = "all of its vectors are zero" if not directed else f"{directed} vectors that are not zero"
        return f"{told}; it takes {VECTORS_MIN} that have a direction"
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
    known: dict[str, str] = {}
    taken = {b.name for b in built}
    for want in declared(t):
        found = _matching(want, built)
        if found is None:
            missing = _missing(table, replace(want, name=_free(want.name, taken)), layout)
            (pending if isinstance(missing, PendingIndex) else indexes).append(missing)  # type: ignore[arg-type]
            continue
        known[found.name] = want.property
    for one in built:
        of, why = known.get(one.name, one.column), anew.get(one.name)
        if why is None:
            try:
                indexes += _extended(table, one, of, layout, whole.get(one.name), absorb=absorb)
                continue
            except StorageError:
                why = UNREADABLE
        made, waits = _rebuilt(table, one, of, layout, why=why)
        indexes.append(made)
        pending += [waits] if waits is not None and one.name in known else []
    return tuple(indexes), tuple(pending)


def _free(name: str, taken: Collection[str]) -> str:
    """A name that no other index has: one may be left from a property that was renamed, or be somebody else's."""
    return next(n for n in (name, *(f"{name}_{i}" for i in range(2, len(taken) + 3))) if n not in taken)


def _matching(want: DeclaredIndex, built: Sequence[BuiltIndex]) -> BuiltIndex | None:
    return next((b for b in built if b.column == want.column and b.kind.startswith(want.kind)), None)


def _extended(
    table: LanceDataset, built: BuiltIndex, of: str, layout: Layout, whole: str | None, *, absorb: bool
) -> list[IndexPlan]:
    """The plan of an index that exists, if it needs one."""
    found = plan_index(built, layout, property=of, whole=whole, absorb=absorb)
    if found is None or not built.kind.startswith("IVF"):
        return [] if found is None else [found]
    trained = trained_partitions(table, built.name)
    rows = sum(layout.rows.values())
    if outgrown(trained, rows) and absorb:
        found = plan_index(built, layout, property=of, whole=f"it has outgrown its {trained} partitions")
        assert found is not None
        trained = partitions(rows)
        if shares_centroids(built.kind):
            return [_with(found, vectors=rows)]
    if shares_centroids(built.kind):
        return [_with(found, centroids_of=built.name)]
    return [_with(found, partitions=trained)]


def _with(found: IndexPlan, **options: Any) -> IndexPlan:
    return replace(found, options={**found.options, **options})


def _missing(table: LanceDataset, want: DeclaredIndex, layout: Layout) -> IndexPlan | PendingIndex:
    if want.kind != "IVF":
        return plan_new(layout, property=want.property, column=want.column, name=want.name, kind=want.kind)
    vectors = _vectors_in(table, want.column)
    if isinstance(vectors, str):
        return PendingIndex(want.property, want.kind, vectors)
    kind = vector_kind(vectors, want.column)
    made = plan_new(layout, property=want.property, column=want.column, name=want.name, kind=kind)
    return replace(made, options={"vectors": vectors})


def coverage_of(
    t: EntityType, built: Sequence[BuiltIndex], rows: dict[int, int], pending: Sequence[PendingIndex]
) -> float:
    """The share of rows that the declared indices cover, all of them together, but for those that can't be built yet.

    1 for an empty table.
    """
    wants = [w for w in declared(t) if not any(p.property == w.property and p.kind.startswith(w.kind) for p in pending)]
    every = sum(rows.values()) * len(wants)
    covered = 0
    for want in wants:
        found = _matching(want, built)
        covered += 0 if found is None else sum(rows.get(n, 0) for n in found.covered)
    return 1.0 if not every else covered / every
