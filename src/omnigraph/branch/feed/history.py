"""The commits behind a cursor, oldest first, and the states between which a change feed computes its steps.

Epochs of one branch incarnation are decided in order, so the records after a commit of the branch itself are read
forward, a run at a time: a consumer that is far behind and reads a few commits per call does not read the whole history
each time. Where the cursor is at a commit that the branch was created from, the history is walked backward.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property

from omnigraph.commit.operation import View
from omnigraph.errors import CommitNotFound, FeedBranchReplaced
from omnigraph.graph.commits import reachable
from omnigraph.language.schema.identity import counterpart
from omnigraph.language.schema.model import EntityType
from omnigraph.language.schema.plan.difference import TypePair, matched_types, type_steps
from omnigraph.language.schema.plan.steps import Step
from omnigraph.storage.lance.tables import Tables
from omnigraph.storage.manifest.records import Head, Pin, Record, apply_delta
from omnigraph.storage.manifest.table import Manifest

RUN_EPOCHS = 256
CONTENT_PRESERVING = frozenset({"optimize", "recovery"})
"""Kinds of commits that move tables and change no row: a recovery commit restores the versions that were pinned."""


def records_after(manifest: Manifest, head: Head, commit: str | None) -> Iterator[Record]:
    """The commits of a branch after one of its commits along first parents, up to its head, oldest first."""
    epoch = -1
    if commit is not None:
        try:
            record = manifest.record(commit)
        except CommitNotFound as error:
            raise FeedBranchReplaced(commit=commit, branch=head.branch) from error
        epoch = record.epoch if record.incarnation == head.incarnation else -1
    if epoch > head.epoch:
        raise FeedBranchReplaced(commit=commit, branch=head.branch)
    if epoch >= 0 or (commit is None and head.made_from is None):
        yield from _forward(manifest, head, commit, epoch)
    else:
        yield from _backward(manifest, head, commit)


def _forward(manifest: Manifest, head: Head, commit: str | None, epoch: int) -> Iterator[Record]:
    for first in range(epoch + 1, head.epoch + 1, RUN_EPOCHS):
        for record in manifest.records(head.incarnation, first, min(first + RUN_EPOCHS - 1, head.epoch)):
            if record.commit is None:
                continue  # an abort without effects
            if record.parent != commit:
                raise FeedBranchReplaced(commit=commit, branch=head.branch)
            commit = record.commit
            yield record


def _backward(manifest: Manifest, head: Head, commit: str | None) -> Iterator[Record]:
    records: list[Record] = []
    for record in reachable(manifest, head.branch):
        if record.commit == commit:
            break
        records.append(record)
    else:
        if commit is not None:
            raise FeedBranchReplaced(commit=commit, branch=head.branch)
    yield from reversed(records)


@dataclass(frozen=True)
class State:
    """What a branch held at one commit. `commit` None is the state before the first commit: no rows."""

    commit: str | None
    schema: str
    pins: dict[str, Pin]

    @staticmethod
    def at(manifest: Manifest, commit: str) -> State:
        return State(commit, manifest.record(commit).schema, manifest.pins_at(commit))

    def after(self, record: Record) -> State:
        pins = dict(record.snapshot) if record.snapshot is not None else apply_delta(self.pins, record.delta)
        return State(record.commit, record.schema, pins)

    def is_same_content(self, record: Record) -> bool:
        """Whether a commit on this state changed neither rows nor the schema, by its record alone."""
        return record.schema == self.schema and (record.kind in CONTENT_PRESERVING or not record.delta)


@dataclass(frozen=True)
class Interval:
    """Two states of a branch and what differs between them by their pins and schemas. Opens no table."""

    manifest: Manifest
    tables: Tables
    head: Head
    old: State
    new: State
    types: tuple[EntityType, ...] | None
    """Only these types; all if None."""

    @cached_property
    def views(self) -> tuple[View, View]:
        old, new = (
            View(
                head=replace(self.head, commit=state.commit or "", schema=state.schema),
                pins={table: pin for table, pin in state.pins.items() if pin.rows != 0},
                manifest=self.manifest,
                tables=self.tables,
            )
            for state in (self.old, self.new)
        )
        return old, new

    @cached_property
    def pairs(self) -> list[TypePair]:
        """The chosen types in both states: nodes before edges, then by name."""
        old, new = (view.schema for view in self.views)
        if self.old.schema == self.new.schema:
            types = sorted(new.types(), key=lambda t: (t.kind == "edge", t.name, t.id))
            pairs: list[TypePair] = [(t, t) for t in types if _pin(self.old, t) != _pin(self.new, t)]
        else:
            pairs = matched_types(old, new)
        return [pair for pair in pairs if self._is_chosen(pair)]

    def _is_chosen(self, pair: TypePair) -> bool:
        if self.types is None:
            return True
        schemas = (self.views[0].schema, self.views[1].schema)
        ids = {t.id for t in pair if t is not None}
        return any((same := counterpart(t, s)) is not None and same.id in ids for t in self.types for s in schemas)

    @cached_property
    def moved(self) -> list[tuple[str, Pin | None, Pin | None]]:
        """Per type whose table differs its id and its pin in both states."""
        moved = []
        for before, after in self.pairs:
            t = after or before
            assert t is not None
            old, new = _pin(self.old, before), _pin(self.new, after)
            if old != new:
                moved.append((t.id, old, new))
        return moved

    @property
    def old_pins(self) -> list[Pin]:
        return [old for _, old, _ in self.moved if old is not None]

    @property
    def pins(self) -> list[Pin]:
        return [*self.old_pins, *(new for _, _, new in self.moved if new is not None)]

    @property
    def table_keys(self) -> dict[str, str]:
        return self.views[0].table_keys | self.views[1].table_keys

    @cached_property
    def schema_steps(self) -> tuple[Step, ...]:
        if self.old.schema == self.new.schema:
            return ()
        return tuple(step for before, after in self.pairs for step in type_steps(before, after))


def _pin(state: State, t: EntityType | None) -> Pin | None:
    """The version to read; None for a table that is known to have no rows, which may be removed as well."""
    pin = None if t is None else state.pins.get(t.id)
    return None if pin is None or pin.rows == 0 else pin
