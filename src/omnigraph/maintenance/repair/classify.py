"""Classify the drift of one table by the Lance transactions between its pin and HEAD.

clean                 nothing above the pin, or only leftover versions, which the next writer restores over
verified_maintenance  every operation is one that changes no row: fragment ids reserved, fragments rewritten, indices
                      created, extended or dropped; and the rows are the same
suspicious            an operation changed rows, columns or settings, or may have: Append, Delete, Update, Merge,
                      Project, Restore, Overwrite, DataReplacement. UpdateConfig is here as well: it changes no row,
                      but it can make Lance collect versions, or change what a column's metadata means
unverifiable          a transaction is missing or has no name; or the pinned version or all versions are missing

`force` publishes suspicious and unverifiable drift, but never

* a HEAD whose columns are not the table's, or whose ids may be null: no reader could use it
* a HEAD below the pin: its version numbers would have two meanings
* stamped versions among the drift: an aborted operation would become visible
* a HEAD that needs files which are missing or truncated, index files included: queries and writes that use the index
  fail. Lance's own compaction of a fork causes that: it writes indices where the fork does not read them

All of it can be discarded, as long as the pinned version exists.

`judge` reads histories and metadata; `examined` checks files, and the rows of rewritten fragments before and after,
which maintenance must have kept.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal

from omnigraph.commit.operation import View
from omnigraph.errors import GraphMoved, OmnigraphError, StorageError, VersionReclaimed
from omnigraph.language.schema.model import EntityType
from omnigraph.maintenance.drift import UNREADABLE, Drift, drift_of
from omnigraph.maintenance.optimize.indices import damaged
from omnigraph.maintenance.repair.changes import same_rows
from omnigraph.storage.lance import lance_api
from omnigraph.storage.lance.foreign_version import unusable_file
from omnigraph.storage.lance.indices import built_indices
from omnigraph.storage.lance.tables import storage_schema
from omnigraph.storage.lance.transactions import UNKNOWN, steps_above
from omnigraph.storage.manifest.records import Pin

if TYPE_CHECKING:
    import pyarrow as pa
    from lance import LanceDataset

Classification = Literal["clean", "verified_maintenance", "suspicious", "unverifiable"]
MAINTENANCE = frozenset({"ReserveFragments", "Rewrite", "CreateIndex"})
CHANGED_ROWS = "rows, or their row ids, were changed, by maintenance alone"


@dataclass(frozen=True)
class Judged:
    """One table. `newest` is its HEAD, `pinned` its pinned version; None if they can't be opened or need not be."""

    table: str
    table_key: str
    pin: Pin
    head_version: int
    classification: Classification
    operations: tuple[str, ...] = ()
    error: str | None = None
    may_publish: bool = False
    may_discard: bool = False
    newest: LanceDataset | None = None
    pinned: LanceDataset | None = None

    @property
    def head(self) -> LanceDataset:
        assert self.newest is not None, "a clean table has nothing to publish"
        return self.newest

    @property
    def comparable(self) -> bool:
        """Whether the rows of pin and HEAD can be compared."""
        return self.newest is not None and self.pinned is not None


def judge(view: View, type_id: str) -> Judged:
    """StorageError if the store fails: then nothing is known, and nothing may be published."""
    pin, key = view.pins[type_id], view.table_keys[type_id]
    try:
        drift = _drift(view, type_id)
        if drift is None:
            return Judged(type_id, key, pin, _head_version(view, pin), "clean")
        start = Judged(type_id, key, pin, drift.head_version, "unverifiable", operations=drift.operations)
        return _judged(view, drift, start)
    except lance_api.TableMissing:
        return Judged(type_id, key, pin, 0, "unverifiable", error=f"no version of it is there, in {pin.path}")


def judge_anyway(view: View, type_id: str) -> Judged:
    """For a preview: a failure on one table is recorded in its row, and the others are judged."""
    try:
        return judge(view, type_id)
    except GraphMoved:
        raise
    except OmnigraphError as error:
        pin = view.pins[type_id]
        return Judged(type_id, view.table_keys[type_id], pin, pin.version, "unverifiable", error=error.message)


def examined(view: View, judged: Judged) -> Judged:
    """What may be published by its history, judged by its files and rows as well. StorageError as for `judge`."""
    if not judged.may_publish:
        return judged
    with lance_api.reading(f"looking at the files of {judged.table_key}"):
        unusable = unusable_file(view.tables.location, judged.pin, judged.head, old=judged.pinned)
        unusable = unusable or _unusable_indices(view, judged)
    if unusable is not None:
        return replace(judged, may_publish=False, error=unusable)
    if judged.classification != "verified_maintenance" or judged.pinned is None:
        return judged
    if same_rows(judged.pinned, judged.head, view.schema.by_id[judged.table]):
        return judged
    return replace(judged, classification="suspicious", error=CHANGED_ROWS)


def _unusable_indices(view: View, judged: Judged) -> str | None:
    """Indices that HEAD has and the pin has not, with files that can't be used; and what can be done."""
    old = [] if judged.pinned is None else built_indices(judged.pinned)
    old_segments = {s.uuid for index in old for s in index.segments}
    new = [
        replace(index, segments=tuple(s for s in index.segments if s.uuid not in old_segments))
        for index in built_indices(judged.head)
    ]
    damages = damaged(view.tables.location, judged.pin, judged.head, new)
    if not damages:
        return None
    remedy = "drop them with a Lance client and repair again" + (", or discard the drift" if judged.may_discard else "")
    text = ", ".join(f"{name} ({why})" for name, why in sorted(damages.items()))
    return f"indices of its newest version can't be used: {text}; {remedy}"


def _head_version(view: View, pin: Pin) -> int:
    return view.tables.newest_version(pin) if view.owns(pin) else pin.version


def _drift(view: View, type_id: str) -> Drift | None:
    try:
        return drift_of(view, type_id)
    except VersionReclaimed:
        pin = view.pins[type_id]
        if not view.owns(pin):
            raise
        newest = view.tables.newest(pin)
        steps = tuple(steps_above(newest, pin.version))
        names = tuple(step.operation or UNREADABLE for step in steps)
        return Drift(type_id, view.table_keys[type_id], pin, int(newest.version), names, steps)
    except StorageError as error:
        if lance_api.is_missing(error):
            view.tables.newest(view.pins[type_id])  # TableMissing if nothing of the line exists any more
        raise


def _judged(view: View, drift: Drift, start: Judged) -> Judged:
    t = view.schema.by_id[drift.table]
    newest = view.tables.newest(drift.pin)
    if newest.version != drift.head_version:
        newest = newest.checkout_version(drift.head_version)
    judged = replace(start, newest=newest, pinned=_pinned(view, drift, t), classification=_classified(drift))
    judged = replace(judged, error=_why(drift), may_discard=judged.pinned is not None)
    if judged.pinned is None:
        judged = replace(
            judged, classification="unverifiable", error=f"the published version {drift.pin.version} no longer exists"
        )
    if drift.head_version <= drift.pin.version:
        return judged
    if drift.has_stamped:
        error = "leftovers of an aborted operation are among the drift: it can be discarded, not published"
        return replace(judged, classification=_at_least_suspicious(judged), error=error)
    expected = storage_schema(t) if judged.pinned is None else judged.pinned.schema
    wrong = _wrong_columns(newest, expected)
    if wrong is not None:
        judged = replace(judged, pinned=None)
    wrong = wrong or _wrong_nulls(newest, expected)
    if wrong is not None:
        error = f"{wrong}: it can be discarded, not published"
        return replace(judged, classification=_at_least_suspicious(judged), error=error)
    return _counted(replace(judged, may_publish=True), drift)


def _at_least_suspicious(judged: Judged) -> Classification:
    return "unverifiable" if judged.classification == "unverifiable" else "suspicious"


def _classified(drift: Drift) -> Classification:
    if any(name in (UNREADABLE, UNKNOWN) for name in drift.operations):
        return "unverifiable"
    return "verified_maintenance" if set(drift.operations) <= MAINTENANCE else "suspicious"


def _why(drift: Drift) -> str | None:
    return next((step.error for step in drift.steps if step.error is not None), None)


def _pinned(view: View, drift: Drift, t: EntityType) -> LanceDataset | None:
    try:
        return view.open(t)
    except VersionReclaimed:
        return None


def _counted(judged: Judged, drift: Drift) -> Judged:
    """Maintenance keeps every row: if the count changed, the recorded maintenance was something else."""
    if judged.classification != "verified_maintenance" or judged.newest is None or judged.pinned is None:
        return judged
    with lance_api.reading(f"counting the rows of {drift.pin.path}"):
        before, after = judged.pinned.count_rows(), judged.newest.count_rows()
    if before == after:
        return judged
    return replace(judged, classification="suspicious", error=f"{before:,} rows became {after:,}, by maintenance alone")


def _wrong_columns(newest: LanceDataset, expected: pa.Schema) -> str | None:
    """How the columns of HEAD differ from those of the table, as text."""
    has = {f.name: f.type for f in newest.schema}
    needs = {f.name: f.type for f in expected}
    if has == needs:
        return None
    missing, more = sorted(needs.keys() - has.keys()), sorted(has.keys() - needs.keys())
    if missing or more:
        parts = [f"{word} {', '.join(names)}" for word, names in (("without", missing), ("with", more)) if names]
        return f"its columns are not those of the schema ({', '.join(parts)})"
    other = sorted(name for name in needs if has[name] != needs[name])
    return f"its columns have not the types of the schema ({', '.join(other)})"


def _wrong_nulls(newest: LanceDataset, expected: pa.Schema) -> str | None:
    """Which columns, of those that identify rows and join them, may be null in HEAD alone. Rows can be compared."""
    loose = [f.name for f in expected if not f.nullable and newest.schema.field(f.name).nullable]
    return f"its columns may be null where a row needs a value ({', '.join(loose)})" if loose else None
