"""What an operation reads and what it wants to change, as values: the door does the rest.

An operation is a pure function from a view to prepared work: it reads one snapshot, writes files that nobody refers
to, and returns uncommitted transactions. It may be asked again on a newer view, because others wrote meanwhile; then
its first work is garbage and nothing else.

Files that nobody refers to yet are what cleanup removes, and a process may be stopped for any time between writing and
publishing them. So under the ticket, on every attempt, the door asks which tables have lost files (`Prepared.lost`):

1. a cleanup announces its files, then swaps `refs` in the manifest, then looks for undecided tickets; it leaves the
   unreferenced files of their tables alone. A ticket is created before `refs` is read here. So either the cleanup sees
   the ticket, or `refs` has changed since the work was begun and the announcement, or its effect, is seen here
2. work is used as long as its lease has held without a gap; without a lease for as long as a lease lasts. An
   announcement may be withdrawn as that of a dead cleanup a day later: nothing that old is still used

No clock but CLOCK_BOOTTIME of this process is asked. What is lost is prepared again, with new files.
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
from omnigraph.storage.lance.fold import FOLD_AT, fold_work, small_fragments
from omnigraph.storage.lance.tables import Tables
from omnigraph.storage.manifest.records import Head, Pin
from omnigraph.storage.manifest.table import Manifest
from omnigraph.storage.objects import leases
from omnigraph.storage.objects.control_objects import all_exist

if TYPE_CHECKING:
    import pyarrow as pa
    from lance import LanceDataset, Transaction

CHECK_FILES_AFTER_S = 60
"""On an object store, where a look costs a request per file: work that was begun longer ago than this is looked at even
if no cleanup has run since."""
UNLEASED_MAX_S = leases.LEASE_S
"""For how long work without a lease is used."""
REMEMBERED_IDS_MAX = 64
FORK_TRIES_MAX = 3
PREPARED_MOST_S = 3 * 24 * 3600
"""Work older than this is prepared again: cleanup may remove unreferenced files after seven days."""


@dataclass(frozen=True)
class View:
    """One coherent snapshot of a branch: its head, all its pins, its schema, and readers for every table."""

    head: Head
    pins: Mapping[str, Pin]
    manifest: Manifest
    tables: Tables
    refs: str | None = None
    """What the manifest's `refs` was, or something newer: every cleanup changes it. None if it was not read."""
    found: dict[tuple[str, tuple[str, ...]], pa.Table] = field(default_factory=dict, compare=False, repr=False)
    """Small look-ups by id that were made on this view: a write asks the same thing more than once."""
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
        found: EntityType | None = self.schema.node.get(name) or self.schema.edge.get(name)
        if found is None:
            raise UnknownType(kind="node or edge", type_name=name)
        return found

    def open(self, t: EntityType) -> LanceDataset:
        return self.tables.open(self.pins[t.id], table_key=t.key)

    def find(self, t: EntityType, column: str, values: pa.Array, columns: Sequence[str]) -> pa.Table:
        if column != "id" or len(values) > REMEMBERED_IDS_MAX:
            return tables_of.find(self.open(t), t, column, values, columns)
        key = (t.id, tuple(values.to_pylist()))
        known = self.found.get(key)
        if known is None or not set(columns) <= set(known.column_names):
            known = self.found[key] = tables_of.find(self.open(t), t, column, values, columns)
        return known.select([*columns, *tables_of.ROW_COLUMNS])

    def rows_by_row_id(self, t: EntityType, row_ids: pa.Array, columns: Sequence[str]) -> pa.Table:
        return tables_of.take(self.open(t), t, row_ids, columns)

    def count(self, t: EntityType) -> int:
        with tables_of.reading(self.open(t), t):
            return int(self.open(t).count_rows())

    def scan(self, t: EntityType, columns: Sequence[str]) -> pa.RecordBatchReader:
        return tables_of.scan(self.open(t), t, columns)

    def at(self, commit: str) -> View:
        """The state of another commit, read through the same handles."""
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
    """A metadata-only step that can be built only on the result of the steps before it.

    `files` are the new files that it will refer to, relative to the graph: they are written already.
    """

    build: Callable[[LanceDataset], Transaction]
    files: tuple[str, ...]


@dataclass(frozen=True)
class Unstamped:
    """A call of Lance that commits by itself and takes no stamp. Its plan declares the operations it will be known by.

    `run` gives the version that it has made, `files` are as those of a LaterStep.
    """

    operations: tuple[str, ...]
    run: Callable[[LanceDataset], LanceDataset]
    files: tuple[str, ...]


@dataclass(frozen=True)
class TableWork:
    """Steps on one table: where they go (`pin`, with the base version), and what was read there (`source`).

    `later` come after `steps`, `last` after all others. `adopts`: the base lies on uncovered drift, which is what the
    operation is about; so that is neither refused nor restored over.
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
        """The operations of the last steps, if these bear no stamp."""
        return self.last.operations if self.last else ()

    @property
    def step_count(self) -> int:
        return len(self.steps) + len(self.later) + len(self.unstamped)

    @property
    def result(self) -> Pin:
        return self.pin.at(self.pin.version + self.step_count)

    @property
    def files(self) -> list[str]:
        """Every file that has to be there when this is committed and that no published version needs, relative to the
        graph; and the base version's own, which of a new fork or table nobody else needs either.
        """
        found = edits.line_files(self.pin)
        for tx in self.steps:
            found += edits.written_files(self.pin, tx, self.handle)
        for step in self.later:
            found += step.files
        return [*found, *(self.last.files if self.last else ())]


@dataclass(frozen=True)
class Successor:
    """A new incarnation that takes the branch over, at a commit of the past: what a reset publishes.

    `pins` are all pins of that commit, `depth` is its record's. `base` and `made_from` are those of the new head.
    """

    incarnation: str
    commit: str
    pins: Mapping[str, Pin]
    depth: int
    base: str | None
    made_from: tuple[str, str] | None


@dataclass(frozen=True)
class Prepared:
    """The whole of what one operation wants to change, and what must still hold for it to be right."""

    view: View
    tables: Mapping[str, TableWork] = field(default_factory=dict)
    dropped: frozenset[str] = frozenset()
    reads: frozenset[str] = frozenset()
    schema: tuple[str, Schema] | None = None
    summary: Mapping[str, Any] | None = None
    result: Any = None
    merged_parent: str | None = None
    """A commit whose history becomes part of the branch's: the second parent of the commit to be."""
    begun_on: View | None = None
    """The view that was read before the first of its files was written, if that was another one than `view`."""
    lease: leases.Held | None = None
    """What covers its files since then."""
    discard: Callable[[Set[str]], None] = lambda _: None
    """Told which tables have lost files: an operation that keeps files for its next preparation forgets them."""
    successor: Successor | None = None

    @property
    def healed(self) -> list[str]:
        """The tables that have to stand at their pins before the work on them begins."""
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
        """Whether everything that was read or is about to be written is, in `view`, what it was."""
        if view.head.schema != self.view.head.schema or view.head.incarnation != self.view.head.incarnation:
            return False
        if self.successor is not None and (view.head.commit, view.refs) != (self.view.head.commit, self.view.refs):
            return False  # a branch may have been made from it since, or a cleanup be about to remove what it goes to
        touched = self.reads | self.dropped | {t for t, work in self.tables.items() if work.source is not None}
        return all(self.view.pins.get(t) == view.pins.get(t) for t in touched)

    def lost(self, view: View, *, again: bool) -> frozenset[str]:
        """The tables whose prepared files are gone, going, or can't be relied on any more.

        `view` was read under a ticket. `again`: it is not the first attempt under it.
        """
        begun = self.begun_on or self.view
        age_s = time.clock_gettime(time.CLOCK_BOOTTIME) - begun.read_at_s
        covered = self.lease.is_unbroken if self.lease is not None else age_s <= UNLEASED_MAX_S
        if not covered or age_s > PREPARED_MOST_S:
            return frozenset(self.tables)
        location = self.view.tables.location
        untouched = view.refs is not None and view.refs == begun.refs
        if untouched and not (location.is_local or again or age_s > CHECK_FILES_AFTER_S):
            return frozenset()
        # First the announcements: one that is not there has been withdrawn after its files had gone, or is made later,
        # and then its cleanup sees the ticket.
        going = leases.announced_files(location)
        files = {table: work.files for table, work in self.tables.items()}
        # A cleanup that announces what a head pins has read the heads before: it reads them again, and leaves it alone.
        published = view.manifest.pins(view.head)
        bases = {t: edits.line_files(work.pin) for t, work in self.tables.items() if published.get(t) == work.pin}
        gone = {table for table, names in files.items() if not going.isdisjoint(set(names) - set(bases.get(table, ())))}
        return frozenset(gone | {table for table, names in files.items() if not all_exist(location, names)})


class Operation(Protocol):
    """Something that wants through the door."""

    @property
    def kind(self) -> str: ...

    @property
    def quick(self) -> bool:
        """Whether preparing takes milliseconds, so that it may happen while others wait for the ticket."""
        ...

    def scope(self, view: View) -> frozenset[str]:
        """Every table that a preparation may write: what has to be fenced if its owner dies."""
        ...

    def prepare(self, view: View) -> Prepared:
        """Pure with respect to the graph. Raises the typed error that the user shall see."""
        ...


@runtime_checkable
class LeasesPins(Protocol):
    """An operation that reads, or adopts files from, versions that are not those of its view: of another branch, or of
    the past. Nothing else keeps cleanup from removing these before the new version that refers to their files is
    published.
    """

    def leased_pins(self, view: View) -> Iterable[Pin]:
        """These versions, from the manifest alone. They are leased, and known to be there, before each preparation and
        until its outcome is decided. Versions of tables that the operation leaves as they are need no lease.
        """
        ...


def work_on(view: View, t: EntityType) -> tuple[Pin, LanceDataset, edits.Editor]:
    """Where this branch may write the table: in place if the branch owns its line, else on a new fork of it."""
    pin = view.pins[t.id]
    handle = view.tables.open(pin, table_key=t.key)
    if not view.owns(pin):
        pin, handle = fork_for(view, pin, handle)
    return pin, handle, edits.Editor(view.tables.location, pin, handle, t)


def fork_for(view: View, pin: Pin, handle: LanceDataset) -> tuple[Pin, LanceDataset]:
    """A fork of a table for this branch, under a name that was never used."""
    for turn in range(1, FORK_TRIES_MAX + 1):
        name = f"{view.head.incarnation}-{view.head.epoch + 1}-{secrets.token_hex(4)}"
        try:
            return edits.fork_table(view.tables.location, pin, handle, name=name)
        except edits.ForkTaken:
            if turn == FORK_TRIES_MAX:
                raise
    raise AssertionError("unreachable")


def fold_step(view: View, pin: Pin, handle: LanceDataset, *, touched: Set[int]) -> tuple[LaterStep, ...]:
    """A Rewrite of the small fragments that earlier writes left, once they have piled up.

    It leaves out the fragments that the operation itself touches, so that it commutes with the operation's own steps;
    and on a branch those that the fork has inherited: every branch would copy them.
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
    """Ids of the fragments of the version that the branch's line of this table was forked from. A fork goes on
    counting where that ended, so an id means the same fragment on both.
    """
    if view.head.base is None:
        return set()
    start = view.manifest.pins_at(view.head.base).get(pin.table)
    if start is None or start.root != pin.root:
        return set()
    return {f.fragment_id for f in view.tables.open(start).get_fragments()}
