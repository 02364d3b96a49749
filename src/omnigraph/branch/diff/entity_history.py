"""Every version of one entity on a branch, newest first.

1. walk      the first parents of the branch. Only commits whose record moves the entity's table count
2. look up   the entity by id at the newest pin
3. skip      commits that can't have written the image: with stable row ids a row has the version of its table that
             wrote it, so the walk goes straight to the commit that published that version. Where the entity does not
             exist, commits that deleted no row of the table are skipped
4. compare   the image with the one before that commit. Equal images are no version: compaction, folds, rewrites

So the cost follows the changes of the entity, and the commits that deleted rows while it did not exist. With address
row ids every commit that moved the table is looked at. A state that cleanup has removed ends the history: `collected`
names the newest commit whose state, or the state before it, could not be read.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from omnigraph.branch.diff.change_rows import DELETE, INSERT, UPDATE, ChangeShape, change_rows, image_columns
from omnigraph.branch.merge.model import json_image
from omnigraph.commit.operation import View
from omnigraph.errors import VersionReclaimed
from omnigraph.graph.commits import reachable
from omnigraph.graph.results import CommitInfo
from omnigraph.language.schema.model import EntityType
from omnigraph.storage.diff.table_version import ROW_VERSION, TableVersion
from omnigraph.storage.lance.tables import name_of
from omnigraph.storage.manifest.records import Pin, Record
from omnigraph.storage.manifest.table import quote


@dataclass(frozen=True)
class EntityVersion:
    """What one commit did to an entity. `operation` is None if the state before the commit is collected."""

    commit: CommitInfo
    operation: str | None
    changed: tuple[str, ...]
    image: dict[str, Any] | None
    """As the commit left it; None if it was deleted."""

    def to_json(self) -> dict[str, Any]:
        return {
            "commit": self.commit.id,
            "actor": self.commit.actor,
            "created_at": self.commit.created_at.isoformat(timespec="microseconds"),
            "kind": self.commit.kind,
            "operation": self.operation,
            "changed": list(self.changed),
            "image": json_image(self.image),
        }


@dataclass(frozen=True)
class EntityHistory:
    table_key: str
    id: str
    branch: str
    versions: tuple[EntityVersion, ...]
    collected: str | None = None
    """The commit at which the history ends because older states are collected; None if it is complete."""

    def to_json(self) -> dict[str, Any]:
        return {
            "table_key": self.table_key,
            "id": self.id,
            "branch": self.branch,
            "versions": [version.to_json() for version in self.versions],
            "collected": self.collected,
        }


@dataclass(frozen=True, eq=False)
class _State:
    """The table of the type after a commit that moved it; `pin` None once the type does not exist."""

    record: Record
    pin: Pin | None
    type: EntityType | None


@dataclass(frozen=True, eq=False)
class _Row:
    rows: pa.Table
    """One image, or none."""
    type: EntityType | None = None
    written_in: int | None = None
    """The table version that wrote it, with stable row ids."""

    @property
    def exists(self) -> bool:
        return bool(self.rows.num_rows)


def entity_history(view: View, t: EntityType, entity_id: str, *, branch: str) -> EntityHistory:
    walk = _Walk(view, t, entity_id)
    versions = tuple(walk.versions(branch))
    return EntityHistory(t.key, entity_id, branch, versions, walk.collected)


class _Walk:
    def __init__(self, view: View, t: EntityType, entity_id: str) -> None:
        self.view = view
        self.type = t
        self.id = entity_id
        self.collected: str | None = None

    def versions(self, branch: str) -> Iterator[EntityVersion]:
        states = self._states(branch)
        state = next(states, None)
        if state is None:
            return
        row = self._row(state)
        while row is not None and state is not None:
            before = next(states, None)
            while before is not None and self._is_written_before(before, row):
                state, before = before, next(states, None)
            while before is not None and not row.exists and _deleted_nothing(state, before, self.type.key):
                state, before = before, next(states, None)
            if row.exists and row.type != state.type:  # the image as that commit's schema has it, if it is still there
                row = self._row(state) or row
            older = _Row(_no_image()) if before is None else self._row(before)
            if older is None:
                if row.exists:
                    yield self._version(state, None, row)
                return
            if row.exists or older.exists:
                yield from self._changes(state, before, row, older)
            state, row = before, older

    def _states(self, branch: str) -> Iterator[_State]:
        for record in reachable(self.view.manifest, branch):
            if self.type.id in record.delta:
                schema = self.view.manifest.schema(record.schema)
                yield _State(record, record.delta[self.type.id], schema.by_id.get(self.type.id))

    def _is_written_before(self, before: _State, row: _Row) -> bool:
        """Whether the same row was there already. Versions of a line and of the line it was forked from are numbered
        on, so the version that wrote the row is in the older state if its number is.
        """
        return row.written_in is not None and before.pin is not None and before.pin.version >= row.written_in

    def _row(self, state: _State) -> _Row | None:
        """The entity in a state; None if the state is collected."""
        if state.pin is None or state.type is None:
            return _Row(_no_image())
        try:
            version = TableVersion.open(self.view.tables, state.pin, state.type)
            columns = image_columns(state.type)
            where = f"{name_of('id')} = {quote(self.id)}"
            rows = pa.concat_tables([version.row_schema(columns).empty_table(), *version.scan(columns, where=where)])
        except VersionReclaimed:
            assert state.record.commit is not None
            self.collected = self.collected or state.record.commit
            return None
        written = rows[ROW_VERSION][0].as_py() if version.has_stable_row_ids and rows.num_rows else None
        return _Row(rows.select(columns), state.type, written)

    def _changes(self, state: _State, before: _State | None, row: _Row, older: _Row) -> Iterator[EntityVersion]:
        kind = INSERT if not older.exists else UPDATE if row.exists else DELETE
        shape = ChangeShape(older.type or (before.type if before else None), row.type or state.type)
        changes = change_rows(shape, np.array([kind]), *(r.rows if r.exists else None for r in (older, row)))
        for change in changes.to_pylist():
            yield self._version(state, change["operation"], row, tuple(change["changed"]))

    def _version(self, state: _State, operation: str | None, row: _Row, changed: tuple[str, ...] = ()) -> EntityVersion:
        image = row.rows.to_pylist()[0] if row.exists else None
        return EntityVersion(CommitInfo.of(state.record), operation, changed, image)


def _no_image() -> pa.Table:
    return pa.table({"id": pa.array([], pa.string())})


def _deleted_nothing(state: _State, before: _State, table_key: str) -> bool:
    """Whether the commit's own counts, and the numbers of rows, say that it deleted no row of the table."""
    counts = state.record.summary or {}
    if state.pin is None or before.pin is None or state.pin.rows is None or before.pin.rows is None:
        return False
    if state.record.kind != "optimize" and "deleted" not in counts:
        return False
    inserted, deleted = (counts.get(part, {}).get(table_key, 0) for part in ("inserted", "deleted"))
    return bool(deleted == 0 and state.pin.rows - before.pin.rows == inserted)
