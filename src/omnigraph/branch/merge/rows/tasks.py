"""The row work of a large merge, cut into tasks: what the driver sends, and what it makes of the results.

The driver matches rows by fragments, addresses and ids (`type_merge`). Whatever reads or writes whole rows of more than
`bytes_min` goes to tasks, each of which works on one chunk of rows (`task_work`):

1. compare   which rows that the source wrote again differ from the base in a value
2. decide    entities that both sides changed, by the truth table: conflicts, counts, and the columns that rules look at
3. write     rows that are copied, and the entities of 2, decided again, as uncommitted fragments

No task keeps anything for another one: images are read again in 3. So a plan writes nothing, and a crash leaves
uncommitted files, as that of any other merge.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.branch.diff.states import row_width_bytes
from omnigraph.branch.merge.model import Conflict, MergeOptions
from omnigraph.branch.merge.rows.changes import DecidedRows, DeferredRows, TargetRows
from omnigraph.branch.merge.rows.task_work import compare_rows, decide_rows, write_rows
from omnigraph.errors import Violation
from omnigraph.language.schema.model import EntityType
from omnigraph.language.schema.serial import type_to_json
from omnigraph.storage.array_text import packed_text, table_of_text, unpacked_text
from omnigraph.storage.diff.table_version import TableVersion
from omnigraph.storage.lance.edits import ROWS_PER_FRAGMENT
from omnigraph.storage.lance.rewrites.rewrite import fragment_from_json
from omnigraph.storage.layout import Location
from omnigraph.storage.manifest.records import Pin
from omnigraph.write.delta import flat

if TYPE_CHECKING:
    from lance import FragmentMetadata, LanceDataset

CHUNK_BYTES = 8 << 20
"""About how many bytes of rows of one state are read at once; a task holds up to three states and a result."""
FRAGMENT_BYTES = 64 << 20
"""A task that writes goes from chunk to chunk, up to this many bytes, and makes one fragment of them."""

Task = dict[str, Any]
TaskFunction = Callable[[Any], Any]
"""A function of a module, which workers import by its name."""


class TaskRunner(Protocol):
    """What runs tasks, here or on other machines."""

    def run(self, function: TaskFunction, tasks: Sequence[Mapping[str, Any]], *, stage: str) -> list[Any]: ...


@dataclass(frozen=True, eq=False)
class RowTasks:
    """Where row work runs that is too large to be done at once in this process."""

    runner: Callable[[int], TaskRunner]
    """The runner for this many bytes of work."""
    bytes_min: int
    """Less is done in this process."""
    _mutex: threading.Lock = field(default_factory=threading.Lock)

    def run(self, function: TaskFunction, tasks: Sequence[Task], *, stage: str, work_bytes: int) -> list[Any]:
        # Types are merged several at once: their tasks one type after the other, so that memory does not add up.
        with self._mutex:
            return self.runner(work_bytes).run(function, tasks, stage=stage)


def chunks(count: int, t: EntityType) -> Iterator[slice]:
    """Rows of a type, as many at once as a task may hold."""
    rows = max(1, CHUNK_BYTES // row_width_bytes(t))
    for start in range(0, count, rows):
        yield slice(start, min(start + rows, count))


def stored(version: TableVersion | None) -> Task | None:
    """A pinned version, as a task opens it."""
    if version is None:
        return None
    return {"table": version.pin.table, "pin": version.pin.to_json(), "type": type_to_json(version.type)}


# ---- comparing -------------------------------------------------------------------------------------------------------


def changed_rows(
    tasks: RowTasks,
    t: EntityType,
    columns: list[str],
    base: tuple[TableVersion, np.ndarray],
    theirs: tuple[TableVersion, np.ndarray],
) -> np.ndarray:
    """Which rows differ in a value between two versions, row by row at the same positions."""
    (old, old_addresses), (new, new_addresses) = base, theirs
    common: Task = {"location": asdict(new.location), "type": type_to_json(t), "columns": columns}
    common |= {"base": stored(old), "theirs": stored(new)}
    bodies = [
        {**common, "at": {"base": packed_text(old_addresses[part]), "theirs": packed_text(new_addresses[part])}}
        for part in chunks(len(new_addresses), t)
    ]
    size = 2 * len(new_addresses) * row_width_bytes(t)
    results = tasks.run(compare_rows, bodies, stage=f"comparing {t.key}", work_bytes=size)
    is_changed = np.zeros(len(new_addresses), dtype=bool)
    for part, result in zip(chunks(len(new_addresses), t), results, strict=True):
        is_changed[part.start + unpacked_text(result["changed"]).astype(np.int64)] = True
    return is_changed


# ---- deciding --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Side:
    """Where entities lie in one state: addresses, valid where `exists` is set."""

    addresses: np.ndarray
    exists: np.ndarray

    @staticmethod
    def of(count: int, positions: np.ndarray, addresses: np.ndarray) -> Side:
        exists, filled = np.zeros(count, dtype=bool), np.zeros(count, np.uint64)
        exists[positions], filled[positions] = True, addresses
        return Side(filled, exists)

    def packed(self, part: slice) -> str:
        return packed_text(self.addresses[part][self.exists[part]])


@dataclass(frozen=True, eq=False)
class ContendedPositions:
    """Positions of contended entities among the rows that the source added (inserts, then updates) and removed (the
    same updates, then deletes).
    """

    in_theirs: np.ndarray
    in_base: np.ndarray
    update_count: int

    def __len__(self) -> int:
        return len(self.in_theirs) + len(self.in_base) - self.update_count

    def ids(self, added: pa.Table, removed: pa.Table) -> pa.Array:
        """Inserts, updates, deletes."""
        positions = (self.in_theirs, self.in_base[self.update_count :])
        columns = (flat(rows["id"]).cast(pa.string()) for rows in (added, removed))
        return pa.concat_arrays([c.take(pa.array(p)) for c, p in zip(columns, positions, strict=True)])

    def sides(self, ids: pa.Array, added: pa.Table, removed: pa.Table, ours: pa.Table | None) -> dict[str, Side]:
        """Where the entities lie. `ours` are rows of the target with these ids."""
        count, base_count = len(ids), len(self.in_base)
        theirs = Side.of(count, np.arange(len(self.in_theirs)), addresses_of(added)[self.in_theirs])
        base = Side.of(count, np.arange(count - base_count, count), addresses_of(removed)[self.in_base])
        if ours is None:
            return {"theirs": theirs, "base": base, "ours": Side.of(count, np.arange(0), np.empty(0, np.uint64))}
        positions = pc.index_in(flat(ours["id"]).cast(pa.string()), value_set=ids)
        target = Side.of(count, np.asarray(positions).astype(np.int64), addresses_of(ours))
        return {"theirs": theirs, "base": base, "ours": target}


def addresses_of(rows: pa.Table) -> np.ndarray:
    return np.asarray(rows["_rowaddr"].to_numpy())


@dataclass(frozen=True, eq=False)
class Contended:
    """The states of one type, and how to decide on its entities."""

    location: Location
    type: EntityType
    columns: list[str]
    options: MergeOptions
    theirs: TableVersion
    ours: TableVersion | None

    def body(self) -> Task:
        return {
            "location": asdict(self.location),
            "type": type_to_json(self.type),
            "columns": self.columns,
            "strategy": self.options.strategy,
            "grain": self.options.grain,
            "theirs": stored(self.theirs),
            "ours": stored(self.ours),
        }

    def at_places(self, base: TableVersion | None, sides: Mapping[str, Side]) -> list[Task]:
        """Tasks for entities whose rows are known. Those that the source has come first."""
        common = {**self.body(), "base": stored(base)}
        count = len(sides["theirs"].addresses)
        return [
            {**common, "at": {name: side.packed(part) for name, side in sides.items()}}
            for part in chunks(count, self.type)
        ]

    def by_ids(self, branch: str, base_commits: Sequence[str], ids: pa.Array) -> list[Task]:
        """Tasks for entities that are looked up in every state, several bases among them."""
        common = {**self.body(), "branch": branch, "base_commits": list(base_commits)}
        parts = chunks(len(ids), self.type)
        return [{**common, "ids": ids[part.start : part.stop].to_pylist()} for part in parts]


@dataclass(frozen=True, eq=False)
class DecidedByTasks:
    rows: DeferredRows
    deleted: TargetRows
    conflicts: tuple[Conflict, ...]


def decide_in_tasks(
    tasks: RowTasks, t: EntityType, bodies: Sequence[Task], count: int, *, goes_first: bool
) -> DecidedByTasks:
    """Decide on `count` entities, in the order of the tasks."""
    size = 3 * count * row_width_bytes(t)
    results = tasks.run(decide_rows, bodies, stage=f"merging {t.key}", work_bytes=size)
    decided = [_decided(results, name) for name in ("copied", "replaced")]
    violations = [
        ((rank, sort_of_image), Violation(**body)) for r in results for rank, sort_of_image, body in r["violations"]
    ]
    replaced_rows, deleted = (TargetRows.concat([_target_rows(r[n]) for r in results]) for n in ("targets", "deleted"))
    counts = tuple((int(r["copied"]["count"]), int(r["replaced"]["count"])) for r in results)
    rows = DeferredRows(
        tuple(bodies), counts, decided[0], decided[1], replaced_rows, tuple(violations), goes_first=goes_first
    )
    return DecidedByTasks(rows, deleted, tuple(_conflict(c) for r in results for c in r["conflicts"]))


def _decided(results: Sequence[Mapping[str, Any]], name: str) -> DecidedRows:
    rows = [table_of_text(result[name]["rows"]) for result in results]
    is_taken = [np.arange(r.num_rows) < result[name]["taken"] for r, result in zip(rows, results, strict=True)]
    return DecidedRows(pa.concat_tables(rows), np.concatenate(is_taken))


def _target_rows(body: Mapping[str, Any]) -> TargetRows:
    ids = table_of_text(body["ids"])["id"].combine_chunks()
    return TargetRows(ids, unpacked_text(body["addresses"]), unpacked_text(body["row_ids"]))


def _conflict(body: Mapping[str, Any]) -> Conflict:
    return Conflict(**{**body, "properties": tuple(body["properties"])})


# ---- writing ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Written:
    """Uncommitted fragments of new rows, and of new images of existing rows."""

    new: list[FragmentMetadata]
    images: list[FragmentMetadata]
    row_count: int


@dataclass(frozen=True, eq=False)
class Destination:
    """The version of the target's table that fragments are written for; it may be a detached one."""

    location: Location
    pin: Pin
    table: LanceDataset
    type: EntityType
    columns: list[str]

    def copies(self, theirs: TableVersion, addresses: np.ndarray, row_ids: np.ndarray | None) -> list[Task]:
        """Tasks that copy rows of the source: as new rows, or as images of the rows with these row ids."""
        common = {"location": asdict(self.location), "type": type_to_json(self.type), "columns": self.columns}
        bodies, counts = [], []
        for part in chunks(len(addresses), self.type):
            ids = None if row_ids is None else packed_text(row_ids[part])
            at = {"addresses": packed_text(addresses[part]), "row_ids": ids}
            bodies.append({**common, "theirs": stored(theirs), **at})
            counts.append(part.stop - part.start)
        return self._grouped("copied" if row_ids is None else "replaced", bodies, counts)

    def decided(self, deferred: DeferredRows) -> list[Task]:
        """Tasks that write what others decided: new rows and new images apart, as fragments of their own."""
        tasks = []
        for sort_of_rows, counts in zip(("copied", "replaced"), zip(*deferred.counts, strict=True), strict=True):
            filled = [(body, count) for body, count in zip(deferred.tasks, counts, strict=True) if count]
            tasks += self._grouped(sort_of_rows, [body for body, _ in filled], [count for _, count in filled])
        return tasks

    def _grouped(self, sort_of_rows: str, bodies: Sequence[Task], counts: Sequence[int]) -> list[Task]:
        """One task for as many chunks as make a fragment."""
        rows_max = max(1, min(ROWS_PER_FRAGMENT, FRAGMENT_BYTES // row_width_bytes(self.type)))
        groups: list[list[Task]] = []
        size = rows_max
        for body, count in zip(bodies, counts, strict=True):
            if size + count > rows_max:
                groups.append([])
                size = 0
            groups[-1].append(body)
            size += count
        return [{**self._body(), "rows": sort_of_rows, "chunks": group} for group in groups]

    def write(self, tasks: RowTasks, bodies: Sequence[Task], row_count: int) -> Written:
        size = row_count * row_width_bytes(self.type)
        results = tasks.run(write_rows, bodies, stage=f"writing {self.type.key}", work_bytes=size)
        written = Written([], [], sum(r["rows_done"] for r in results))
        for body, result in zip(bodies, results, strict=True):
            fragments = written.new if body["rows"] == "copied" else written.images
            fragments += [fragment_from_json(f) for f in result["fragments"]]
        return written

    def _body(self) -> Task:
        place = {"table": self.pin.table, "pin": self.pin.to_json(), "version": int(self.table.version)}
        return {"location": asdict(self.location), "type": type_to_json(self.type), "into": place}
