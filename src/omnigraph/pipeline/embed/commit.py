"""The operations of embed: publish staged vectors on the current state of the branch.

`PublishVectors.prepare`, on any view:

1. locate   a staged part is valid if its fragment still has the file that the texts were read from: its rows are
            where they were, except those that others replaced, which are deleted there
2. rescue   other parts (their rows were compacted away): rows of fragments that are new since then are scanned, and
            those whose text has the digest of a staged vector get it; no request is made
3. write    one file per fragment with its new vectors, kept for the next preparation as long as the fragment's files
            are the same and the file itself exists
4. commit   one exchange of column files per property, as steps of the table's work
"""

from __future__ import annotations

from collections.abc import Sequence, Set
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from omnigraph.commit.operation import LaterStep, Prepared, TableWork, View, work_on
from omnigraph.pipeline.embed import tasks as work
from omnigraph.pipeline.embed.plan import Unit
from omnigraph.storage.lance.embedding_marks import MARK_TYPE
from omnigraph.storage.lance.rewrites import reshape
from omnigraph.storage.lance.rewrites.column_files import ColumnFile, base_of, exchange
from omnigraph.storage.manifest.records import Pin
from omnigraph.storage.objects.leases import HeldLease
from omnigraph.tasks.runner import Runner
from omnigraph.tasks.staging import Staging

if TYPE_CHECKING:
    from lance import LanceDataset

WRITE_ROWS = 50_000
"""How many new vectors one task writes, at least one fragment."""
Base = tuple[str | None, ...]


@dataclass(frozen=True)
class Part:
    """A staged file: vectors of rows of one fragment, read from one file of texts."""

    fragment: int
    name: str
    rows: int
    cleared: int
    source_file: str | None


@dataclass
class Batch:
    """The staged vectors of one property. `spare` are parts whose rows have moved; their vectors may still be used."""

    unit: Unit
    surveyed: dict[int, str | None]
    """The surveyed fragments, and the file of texts that each had."""
    deletions: dict[int, Any]
    parts: list[Part]
    spare: list[str] = field(default_factory=list)
    files: dict[tuple[int, Base, tuple[str, ...]], ColumnFile] = field(default_factory=dict)


@dataclass(eq=False)
class AddMarks:
    """Add the hidden mark columns to tables that were created without them."""

    units: Sequence[Unit]
    kind: str = "embed"
    quick: bool = True

    def scope(self, view: View) -> frozenset[str]:
        return frozenset(u.type_id for u in self.units if u.type_id in view.pins)

    def prepare(self, view: View) -> Prepared:
        tables: dict[str, TableWork] = {}
        for type_id in sorted(self.scope(view)):
            t = view.schema.by_id[type_id]
            missing = sorted({u.mark for u in self.units if u.type_id == type_id} - set(view.open(t).schema.names))
            if missing:
                pin, handle, _ = work_on(view, t)
                tables[type_id] = TableWork(
                    pin=pin, source=view.pins[type_id], steps=(), later=(_adding(missing),), handle=handle
                )
        return Prepared(view=view, tables=tables, summary={"embedded": {}})


def _adding(names: Sequence[str]) -> LaterStep:
    return LaterStep(lambda table: reshape.add_nullable(table, [pa.field(n, MARK_TYPE) for n in names]), files=())


@dataclass(eq=False)
class PublishVectors:
    batches: Sequence[Batch]
    runner: Runner
    staging: Staging
    everything: bool
    lease: HeldLease | None = None
    """Taken before anything was written; None: the committer's own lease covers what `prepare` writes."""
    kind: str = "embed"
    quick: bool = False
    begun_on: View | None = None
    """The view on which the first of the files was written that are kept."""

    def scope(self, view: View) -> frozenset[str]:
        return frozenset(b.unit.type_id for b in self.batches if b.unit.type_id in view.pins)

    def prepare(self, view: View) -> Prepared:
        self.begun_on = self.begun_on or view
        tables: dict[str, TableWork] = {}
        embedded: dict[str, int] = {}
        cleared: dict[str, int] = {}
        for type_id in sorted(self.scope(view)):
            named = [(b, b.unit.named_as(view.schema)) for b in self.batches if b.unit.type_id == type_id]
            units = [(b, unit) for b, unit in named if unit is not None]
            table = view.open(view.schema.by_id[type_id])
            for batch, unit in units:
                self._locate_parts(batch, unit, view.pins[type_id], table)
            units = [(b, unit) for b, unit in units if b.parts]
            if not units:
                continue
            tables[type_id] = self._work(view, type_id, units)
            for batch, unit in units:
                counts = self._counts(batch, table)
                for totals, count in zip((embedded, cleared), counts, strict=True):
                    if count:
                        totals[unit.table_key] = totals.get(unit.table_key, 0) + count
        models = {b.unit.column: b.unit.choice.model for b in self.batches}
        counts_by_table = {"embedded": embedded, "cleared": cleared}
        return Prepared(
            view=view,
            tables=tables,
            summary={**counts_by_table, "models": models},
            result=counts_by_table,
            begun_on=self.begun_on,
            lease=self.lease,
            discard=self._discard,
        )

    def _discard(self, tables: Set[str]) -> None:
        for batch in self.batches:
            if batch.unit.type_id in tables:
                batch.files.clear()
        if not any(batch.files for batch in self.batches):
            self.begun_on = self.lease = None

    def _locate_parts(self, batch: Batch, unit: Unit, pin: Pin, table: LanceDataset) -> None:
        """Steps 1 and 2: afterwards every part of the batch is valid in this version."""
        source_files = {
            f.fragment_id: (base_of(table, f.fragment_id, [unit.source]) or (None,))[0] for f in _fragments(table)
        }
        moved = [p for p in batch.parts if source_files.get(p.fragment, "") != p.source_file]
        if not moved:
            return
        batch.parts = [p for p in batch.parts if p not in moved]
        batch.spare += [p.name for p in moved]
        located = {p.fragment for p in batch.parts}
        new_fragments = [
            n for n, file in source_files.items() if n not in located and batch.surveyed.get(n, "") != file
        ]
        tasks = [
            {
                **work.table_address(self.staging.location, pin),
                "unit": unit.to_json(),
                "staging": self.staging.to_json(),
                "everything": self.everything,
                "chunks": [[number, 0, table.get_fragment(number).count_rows()]],
                "interval_s": 0.0,
                "known": batch.spare,
                "only_known": True,
            }
            for number in new_fragments
        ]
        for result in self.runner.run(work.embed_chunks, tasks, stage="finding moved rows"):
            batch.parts += [Part(**p) for p in result["parts"]]

    def _work(self, view: View, type_id: str, units: Sequence[tuple[Batch, Unit]]) -> TableWork:
        """Steps 3 and 4, on the line of the table that this branch may write."""
        pin, handle, _ = work_on(view, view.schema.by_id[type_id])
        later = [_exchanging(pin, self._files(batch, unit, pin, handle)) for batch, unit in units]
        return TableWork(pin=pin, source=view.pins[type_id], steps=(), later=tuple(later), handle=handle)

    def _files(self, batch: Batch, unit: Unit, pin: Pin, table: LanceDataset) -> list[ColumnFile]:
        by_fragment: dict[int, list[Part]] = {}
        for part in batch.parts:
            by_fragment.setdefault(part.fragment, []).append(part)
        keys: dict[int, tuple[int, Base, tuple[str, ...]]] = {}
        for number, parts in by_fragment.items():
            base = base_of(table, number, [unit.source, unit.vector, unit.mark])
            assert base is not None
            keys[number] = (number, base, tuple(p.name for p in parts))
        missing = [n for n in by_fragment if keys[n] not in batch.files]
        tasks = [
            {
                **work.table_address(self.staging.location, pin),
                "unit": unit.to_json(),
                "staging": self.staging.to_json(),
                "fragments": [[n, list(keys[n][2])] for n in group],
            }
            for group in _grouped(missing, {n: sum(p.rows for p in parts) for n, parts in by_fragment.items()})
        ]
        for result in self.runner.run(work.write_files, tasks, stage="writing vectors"):
            for body in result["files"]:
                column_file = ColumnFile.of(body)
                batch.files[keys[column_file.fragment]] = column_file
        return [batch.files[key] for key in keys.values()]

    def _counts(self, batch: Batch, table: LanceDataset) -> tuple[int, int]:
        """Rows that get a vector and rows that lose theirs, without those that others have deleted since."""
        embedded = cleared = 0
        for part in batch.parts:
            deletion = table.get_fragment(part.fragment).metadata.to_json().get("deletion_file")
            if batch.deletions.get(part.fragment, "none") == deletion:
                embedded, cleared = embedded + part.rows, cleared + part.cleared
                continue
            staged = self.staging.get_table(part.name, ["_rowaddr", "mark"])
            alive = staged.filter(pa.array(work.live_rows(table, part.fragment, staged["_rowaddr"])))
            embedded += alive.num_rows - alive["mark"].null_count
            cleared += alive["mark"].null_count
        return embedded, cleared


def _fragments(table: LanceDataset) -> Sequence[Any]:
    return list(table.get_fragments())


def _exchanging(pin: Pin, files: Sequence[ColumnFile]) -> LaterStep:
    written = tuple(f"{pin.root}/data/{file.file['path']}" for file in files)
    return LaterStep(lambda table: exchange(pin, table, files), files=written)


def _grouped(numbers: Sequence[int], rows: dict[int, int]) -> list[list[int]]:
    groups: list[list[int]] = []
    size = 0
    for number in numbers:
        if not groups or size + rows[number] > WRITE_ROWS:
            groups.append([])
            size = 0
        groups[-1].append(number)
        size += rows[number]
    return groups
