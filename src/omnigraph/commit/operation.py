"""Operations, the views that they read and the work that they prepare, as values; the committer commits them.

An operation is a pure function from a view to prepared work: it reads one snapshot, writes files that no version
refers to, and returns uncommitted transactions. It may be prepared again on a newer view after other writers
committed; then the first prepared work is garbage without effect.

Cleanup removes files without a reference, and a process may be stopped for any time between writing and publishing
such files. So under the lock, on every attempt, the committer checks which tables lost files (`Prepared.lost`):

1. a cleanup announces its files, then swaps `refs` in the manifest, then lists undecided locks; it keeps the
   unreferenced files of their tables. A lock is created before `refs` is read here. So either the cleanup sees the
   lock, or `refs` changed since the work began and the announcement, or its effect, is seen here
2. work is used as long as its lease was renewed without a gap; without a lease for as long as a lease lasts. An
   announcement of a crashed cleanup may be withdrawn a day later: prepared work of that age is never used

The only clock is CLOCK_BOOTTIME of this process. Lost work is prepared again, with new files.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from omnigraph.errors import UnknownType
from omnigraph.language.schema.model import EntityType, Schema
from omnigraph.storage.lance import edits
from omnigraph.storage.lance import tables as tables_of
from omnigraph.storage.lance.rewrites.fold import FOLD_AT, fold_work, small_fragments
from omnigraph.storage.lance.tables import Tables
from omnigraph.storage.manifest.records import Head, Pin
from omnigraph.storage.manifest.table import Manifest
from omnigraph.storage.objects import leases
from omnigraph.storage.objects.store import all_exist

if TYPE_CHECKING:
    import pyarrow as pa
    from lance import LanceDataset, Transaction

CHECK_FILES_AFTER_S = 60
"""On an object store, where the check costs a request per file: the files of work older than this are checked even if
no cleanup has run since."""
UNLEASED_MAX_S = leases.LEASE_S
"""How long work without a lease may be used."""
REMEMBERED_IDS_MAX = 64
FORK_TRIES_MAX = 3
PREPARED_MAX_S = 3 * 24 * 3600
"""Work older than this is prepared again: cleanup may remove unreferenced files after seven days."""


@dataclass(frozen=True)
class View:
    """One coherent snapshot of a branch: its head, all its pins, its schema, and readers for every table."""

    head: Head
    pins: Mapping[str, Pin]
    manifest: Manifest
    tables: Tables
    refs: str | None = None
    """The manifest's `refs` at this view or later: every cleanup changes it. None if it was not read."""
    rows_by_id: dict[tuple[str, tuple[str, ...]], pa.Table] = field(default_factory=dict, compare=False, repr=False)
    """Cache of small look-ups by id on this view: a write repeats the same look-up."""
    read_at_s: float = field(default_factory=lambda: time.clock_gettime(time.CLOCK_BOOTTIME), compare=False)

    @cached_property
    def schema(self) -> Schema:
        return self.manifest.schema(self.head.schema)

    @cached_property
    def table_keys(self) -> dict[str, str]:
        """Table keys by type id, without building the schema."""
        body = self.manifest.schema_body(self.head.schema)
        nodes = {t["id"]: f"node:{t['name']}" for t in body["nodes"]}
        return nodes | {t["id"]: f"edge:{t['name']}" for t in body["edges"]}

    def type(self, name: str) -> EntityType:
        entity_type: EntityType | None = self.schema.node.get(name) or self.schema.edge.get(name)
        if entity_type is None:
            raise UnknownType(kind="node or edge", type_name=name)
        return entity_type

    def open(self, t: EntityType) -> LanceDataset:
        return self.tables.open(self.pins[t.id], table_key=t.key)

    def find(self, t: EntityType, column: str, values: pa.Array, columns: Sequence[str]) -> pa.Table:
        if column != "id" or len(values) > REMEMBERED_IDS_MAX:
            return tables_of.find(self.open(t), t, column, values, columns)
        key = (t.id, tuple(values.to_pylist()))
        rows = self.rows_by_id.get(key)
        if rows is None or not set(columns) <= set(rows.column_names):
            rows = self.rows_by_id[key] = tables_of.find(self.open(t), t, column, values, columns)
        return rows.select([*columns, *tables_of.ROW_COLUMNS])

    def rows_by_row_id(self, t: EntityType, row_ids: pa.Array, columns: Sequence[str]) -> pa.Table:
        return tables_of.take(self.open(t), t, row_ids, columns)

    def count(self, t: EntityType) -> int:
        with tables_of.reading(self.open(t), t):
            return int(self.open(t).count_rows())

    def scan(self, t: EntityType, columns: Sequence[str]) -> pa.RecordBatchReader:
        return tables_of.scan(self.open(t), t, columns)

    def at(self, commit: str) -> View:
        """The state of another commit, read with the same table handles."""
        if commit == self.head.commit:
            return self
        record = self.manifest.record(commit)
        return View(
            head=replace(self.head, commit=commit, schema=record.schema),
            pins=self.manifest.pins_at(commit),
            manifest=self.manifest,
            tables=self.tables,
            refs=self.refs,
        )

    def owns(self, pin: Pin) -> bool:
        return pin.owned_by(self.head.incarnation, is_main=self.head.is_main)


@dataclass(frozen=True)
class LaterStep:
    """A metadata-only effect that can be built only on the result of the effects before it.

    `files` are the new files that it will refer to, relative to the graph. They are already written.
    """

    build: Callable[[LanceDataset], Transaction]
    files: tuple[str, ...]


@dataclass(frozen=True)
class Unstamped:
    """A call of Lance that commits by itself and accepts no stamp. Its plan declares the operations that identify it.

    `run` returns the version that it made, `files` are like those of a LaterStep.
    """

    operations: tuple[str, ...]
    run: Callable[[LanceDataset], LanceDataset]
    files: tuple[str, ...]


@dataclass(frozen=True)
class TableWork:
    """The effects on one table: `pin` has the base version, `source` is the pin that was read.

    `later` follow `steps`, `last` follows all others. `publishes_drift`: the base version is uncovered drift, which the
    operation publishes; so the drift is neither refused nor restored over.
    """

    pin: Pin
    source: Pin | None
    steps: tuple[Transaction, ...]
    handle: LanceDataset
    later: tuple[LaterStep, ...] = ()
    publishes_drift: bool = False
    last: Unstamped | None = None

    @property
    def unstamped(self) -> tuple[str, ...]:
        """The operations of the last effects, if these carry no stamp."""
        return self.last.operations if self.last else ()

    @property
    def step_count(self) -> int:
        return len(self.steps) + len(self.later) + len(self.unstamped)

    @property
    def result(self) -> Pin:
        return self.pin.at(self.pin.version + self.step_count)

    @property
    def files(self) -> list[str]:
        """Every file that the commit of this work needs and no published version refers to, relative to the graph. This
        includes the files of the base version, which for a new fork or table is not published either.
        """
        names = edits.line_files(self.pin)
        for tx in self.steps:
            names += edits.written_files(self.pin, tx, self.handle)
        for step in self.later:
            names += step.files
        return [*names, *(self.last.files if self.last else ())]


@dataclass(frozen=True)
class Successor:
    """A new incarnation of the branch at an earlier commit: what a reset publishes.

    `pins` are all pins of that commit, `depth` is that of its record. `base` and `made_from` are those of the new head.
    """

    incarnation: str
    commit: str
    pins: Mapping[str, Pin]
    depth: int
    base: str | None
    made_from: tuple[str, str] | None


@dataclass(frozen=True)
class Prepared:
    """All changes of one operation, and the conditions under which they are still valid."""

    view: View
    tables: Mapping[str, TableWork] = field(default_factory=dict)
    dropped: frozenset[str] = frozenset()
    reads: frozenset[str] = frozenset()
    schema: tuple[str, Schema] | None = None
    summary: Mapping[str, Any] | None = None
    result: Any = None
    merged_parent: str | None = None
    """A commit whose history becomes part of the branch: the second parent of the new commit."""
    begun_on: View | None = None
    """The view that was read before the first of the files was written, if it is not `view`."""
    lease: leases.HeldLease | None = None
    """The lease that has covered the files since then."""
    discard: Callable[[Set[str]], None] = lambda _: None
    """Called with the tables that lost files: an operation that keeps files for its next preparation drops them."""
    successor: Successor | None = None

    @property
    def tables_at_pin(self) -> list[str]:
        """The tables whose newest version must be the pin before their effects begin."""
        return [t for t, work in self.tables.items() if not work.publishes_drift]

    @property
    def is_empty(self) -> bool:
        return (
            not self.tables
            and not self.dropped
            and self.schema is None
            and self.merged_parent is None
            and self.successor is None
        )

    def holds_on(self, view: View) -> bool:
        """Whether every table that was read or will be written is unchanged in `view`."""
        if view.head.schema != self.view.head.schema or view.head.incarnation != self.view.head.incarnation:
            return False
        if self.successor is not None and (view.head.commit, view.refs) != (self.view.head.commit, self.view.refs):
            return False  # since then a branch may have been created from it, or a cleanup may remove its versions
        touched = self.reads | self.dropped | {t for t, work in self.tables.items() if work.source is not None}
        return all(self.view.pins.get(t) == view.pins.get(t) for t in touched)

    def lost(self, view: View, *, again: bool) -> frozenset[str]:
        """The tables whose prepared files were removed, are announced for removal, or are too old to rely on.

        `view` was read under the lock. `again`: this is not the first attempt under it.
        """
        begun = self.begun_on or self.view
        age_s = time.clock_gettime(time.CLOCK_BOOTTIME) - begun.read_at_s
        is_covered = self.lease.is_unbroken if self.lease is not None else age_s <= UNLEASED_MAX_S
        if not is_covered or age_s > PREPARED_MAX_S:
            return frozenset(self.tables)
        location = self.view.tables.location
        refs_unchanged = view.refs is not None and view.refs == begun.refs
        if refs_unchanged and not (location.is_local or again or age_s > CHECK_FILES_AFTER_S):
            return frozenset()
        # Read the announcements before the files: a missing announcement was withdrawn after its files were removed, or
        # is made later, and then its cleanup sees the lock.
        announced = leases.announced_files(location)
        files = {table: work.files for table, work in self.tables.items()}
        # A cleanup that announces what a head pins read the heads earlier: it reads them again, and keeps these.
        published = view.manifest.pins(view.head)
        bases = {t: edits.line_files(work.pin) for t, work in self.tables.items() if published.get(t) == work.pin}
        own = {table: set(names) - set(bases.get(table, ())) for table, names in files.items()}
        announced_tables = {table for table, names in own.items() if not announced.isdisjoint(names)}
        return frozenset(announced_tables | {table for table, names in files.items() if not all_exist(location, names)})


class Operation(Protocol):
    """A change of the graph, as a function from a view to prepared work."""

    @property
    def kind(self) -> str: ...

    @property
    def quick(self) -> bool:
        """Whether preparing takes milliseconds, so that it may happen while other writers wait for the lock."""
        ...

    def scope(self, view: View) -> frozenset[str]:
        """Every table that a preparation may write: recovery fences these if the writer crashes."""
        ...

    def prepare(self, view: View) -> Prepared:
        """Return the prepared work without changing the graph. Raises the typed error for the user."""
        ...


@runtime_checkable
class LeasesPins(Protocol):
    """An operation that reads, or adopts files from, versions other than those of its view: of another branch, or
    older ones. Only its lease keeps cleanup from removing these before the version that refers to their files is
    published.
    """

    def leased_pins(self, view: View) -> Iterable[Pin]:
        """These versions, from the manifest alone. They are leased, and checked to exist, before each preparation and
        until its outcome is decided. Versions of tables that the operation does not change need no lease.
        """
        ...


def work_on(view: View, t: EntityType) -> tuple[Pin, LanceDataset, edits.Editor]:
    """The pin, handle and editor for writing the table: in place if the branch owns its version line, else on a new
    fork.
    """
    pin = view.pins[t.id]
    handle = view.tables.open(pin, table_key=t.key)
    if not view.owns(pin):
        pin, handle = fork_for(view, pin, handle)
    return pin, handle, edits.Editor(view.tables.location, pin, handle, t)


def fork_for(view: View, pin: Pin, handle: LanceDataset) -> tuple[Pin, LanceDataset]:
    """A fork of a table for this branch, under a name that was never used."""
    for attempt in range(1, FORK_TRIES_MAX + 1):
        name = f"{view.head.incarnation}-{view.head.epoch + 1}-{secrets.token_hex(4)}"
        try:
            return edits.fork_table(view.tables.location, pin, handle, name=name)
        except edits.ForkTaken:
            if attempt == FORK_TRIES_MAX:
                raise
    raise AssertionError("unreachable")


def fold_step(view: View, pin: Pin, handle: LanceDataset, *, touched: Set[int]) -> tuple[LaterStep, ...]:
    """A Rewrite of the small fragments of earlier writes, once there are FOLD_AT of them.

    It excludes the fragments that the operation itself changes, so that it commutes with the operation's own effects,
    and on a branch the inherited fragments of the fork: every branch would copy them.
    """
    small = set(small_fragments(handle)) - touched
    if len(small) < FOLD_AT:
        return ()
    inherited = _inherited_fragments(view, pin)
    if len(small - inherited) < FOLD_AT:
        return ()
    fold = fold_work(view.tables.location, handle, leave=touched | inherited)
    return () if fold is None else (LaterStep(fold.commit_on, tuple(f"{pin.path}/data/{f}" for f in fold.files)),)


def _inherited_fragments(view: View, pin: Pin) -> set[int]:
    """Ids of the fragments of the version from which the branch forked this table. A fork continues the fragment ids of
    its source, so an id means the same fragment on both.
    """
    if view.head.base is None:
        return set()
    fork_point = view.manifest.pins_at(view.head.base).get(pin.table)
    if fork_point is None or fork_point.root != pin.root:
        return set()
    return {f.fragment_id for f in view.tables.open(fork_point).get_fragments()}
