"""Repair: publish or discard what moved a table without the door.

1. settle   nothing undecided may be on the branch: a living writer is refused for, what a dead one left is settled
            first, and a preview, which writes nothing, refuses for both
2. judge    each table that the branch owns, by the Lance transactions between its pin and HEAD, and, if it may be
            published, by the files and rows that it rests on (repair_judge.py)
3. show     a preview stops here; for drift that is not verified it compares the rows of pin and HEAD
4. publish  through the door, all tables of the run in one graph commit by `omnigraph:repair`:
            verified drift, and with `force` the rest: HEAD becomes the pin. No data moves
            with `discard`: a stamped Restore of the pin over the drift, which becomes the pin

Keeps: what is published is exactly the version that was judged; what a stranger adds meanwhile is the next run's drift.
Versions with a stamp of ours are never published: they are leftovers, which the next writer restores over. One table
that is refused does not stop the others; a store that fails stops the run before anything is published. A crash before
the plan is written leaves the drift as it was, one after it is settled forward by the next writer; where a discard was
cut short between tables the drift is still there, with a Restore above it, and can be discarded again.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from omnigraph.commit.committer import Committer
from omnigraph.commit.operation import Prepared, TableWork, View
from omnigraph.commit.request import Outcome, Request
from omnigraph.errors import OmnigraphError, UsageError
from omnigraph.graph.results import CommitInfo
from omnigraph.maintenance.recover import recover, require_settled
from omnigraph.maintenance.repair.changes import RowChanges, row_changes
from omnigraph.maintenance.repair.classify import Judged, examined, judge, judge_anyway
from omnigraph.maintenance.selection import choose_tables, table_names
from omnigraph.storage.lance import lance_api
from omnigraph.storage.lance.foreign_version import secure_version
from omnigraph.storage.manifest.records import Pin

REPAIR_ACTOR = "omnigraph:repair"
PATIENCE_S = 2.0
"""How long a living writer is waited for before it is refused for: most are done sooner."""

Action = Literal[
    "none", "would_publish", "would_refuse", "would_discard", "published", "refused", "forced", "discarded"
]


@dataclass(frozen=True)
class TableRepair:
    """What was found at one table and what was done. `changes` is there in a preview of drift that is not verified.

    `may_publish` and `may_discard` say what `force` and `discard` could do with it; they are no part of the JSON.
    """

    table_key: str
    classification: str
    action: Action
    manifest_version: int
    lance_head_version: int
    operations: tuple[str, ...]
    error: str | None = None
    changes: RowChanges | None = None
    may_publish: bool = False
    may_discard: bool = False

    def to_json(self) -> dict[str, Any]:
        told = {name: value for name, value in self.__dict__.items() if not name.startswith("may_")}
        body = {**told, "operations": list(self.operations)}
        return {**body, "changes": None if self.changes is None else self.changes.to_json()}


@dataclass(frozen=True)
class RepairResult:
    """One entry per table, in the order of their keys. `commit` is None if no table was published."""

    branch: str
    confirmed: bool
    tables: tuple[TableRepair, ...]
    commit: CommitInfo | None

    @property
    def refused(self) -> bool:
        """Whether a table was to be repaired and was not."""
        return any(t.action == "refused" for t in self.tables)

    def to_json(self) -> dict[str, Any]:
        return {
            "branch": self.branch,
            "confirmed": self.confirmed,
            "tables": [t.to_json() for t in self.tables],
            "commit": None if self.commit is None else self.commit.to_json(),
        }


def repair(
    committer: Committer,
    *,
    branch: str,
    confirm: bool = False,
    force: bool = False,
    discard: bool = False,
    tables: Sequence[str] | None = None,
) -> RepairResult:
    """See the drift of a branch's tables, all or those named; with `confirm`, publish or discard it."""
    if force and discard:
        raise UsageError(detail="force publishes drift and discard takes it away: choose one of them.")
    way = _Way(force=force, discard=discard, names=table_names(tables))
    with committer.mutex:
        if not confirm:
            require_settled(committer, branch, verb="repair", wait_s=PATIENCE_S)
            return RepairResult(branch, False, _previewed(committer.view(branch), way), None)
        recover(committer, wait_s=PATIENCE_S, branch=branch)
        require_settled(committer, branch, verb="repair", wait_s=0.0)
        outcome = committer.run(_Repair(way), Request(branch=branch, actor=REPAIR_ACTOR))
        return _done(committer, branch, outcome)


def _done(committer: Committer, branch: str, outcome: Outcome) -> RepairResult:
    commit = None if outcome.record is None else CommitInfo.of(outcome.record)
    return RepairResult(branch, True, tuple(outcome.result), commit)


@dataclass(frozen=True)
class _Way:
    """What is to be done with which tables."""

    force: bool
    discard: bool
    names: tuple[str, ...] | None

    def chosen(self, view: View) -> list[str]:
        """Type ids in the order of their table keys. UnknownType for a name that the branch has not."""
        keys = {type_id: view.table_keys[type_id] for type_id in view.pins}
        return choose_tables(keys, self.names)

    def may(self, judged: Judged) -> bool:
        """Whether this table's drift may be published, or discarded, as told."""
        if self.discard:
            return judged.may_discard
        return judged.may_publish and (self.force or judged.classification == "verified_maintenance")


def _row(judged: Judged, action: Action) -> TableRepair:
    return TableRepair(
        table_key=judged.table_key,
        classification=judged.classification,
        action=action,
        manifest_version=judged.pin.version,
        lance_head_version=judged.head_version,
        operations=judged.operations,
        # Why it could not be published is no news of a table that was taken back.
        error=None if action == "discarded" else judged.error,
        may_publish=judged.may_publish,
        may_discard=judged.may_discard,
    )


# ---- preview ---------------------------------------------------------------------------------------------------------


def _previewed(view: View, way: _Way) -> tuple[TableRepair, ...]:
    return tuple(_preview(view, way, judge_anyway(view, type_id)) for type_id in way.chosen(view))


def _preview(view: View, way: _Way, judged: Judged) -> TableRepair:
    if judged.classification == "clean":
        return _row(judged, "none")
    if not way.discard:
        try:
            judged = examined(view, judged)
        except OmnigraphError as error:
            judged = replace(judged, classification="unverifiable", may_publish=False, error=error.message)
    allowed: Action = "would_discard" if way.discard else "would_publish"
    row = _row(judged, allowed if way.may(judged) else "would_refuse")
    if judged.classification == "verified_maintenance" or not judged.comparable:
        return row
    t = view.schema.by_id[judged.table]
    try:
        return replace(row, changes=row_changes(view.open(t), judged.head, t))
    except OmnigraphError as error:
        return replace(row, error=row.error or error.message)


# ---- publish ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Repair:
    """The operation. Its result are the rows of all tables, whether there is something to commit or not."""

    way: _Way
    kind: str = "repair"
    quick: bool = True
    seen: dict[tuple[Pin, int], Judged] = field(default_factory=dict, compare=False)

    def scope(self, view: View) -> frozenset[str]:
        """Tables that stand at their pins, or are refused, are not touched, and so need no fence if this dies."""
        return frozenset(t for t in self.way.chosen(view) if self.way.may(judge(view, t)))

    def prepare(self, view: View) -> Prepared:
        rows: list[TableRepair] = []
        works: dict[str, TableWork] = {}
        for type_id in self.way.chosen(view):
            row, work = self._table(view, self._judged(view, type_id))
            rows.append(row)
            if work is not None:
                works[type_id] = work
        return Prepared(view=view, tables=works, summary={"tables": _summary(rows)}, result=rows)

    def _judged(self, view: View, type_id: str) -> Judged:
        """What is thrown away need not be read. What was read once is what it was, however often this is prepared."""
        found = judge(view, type_id)
        if self.way.discard or not self.way.may(found):
            return found
        key = (found.pin, found.head_version)
        if key not in self.seen:
            self.seen[key] = examined(view, found)
        return self.seen[key]

    def _table(self, view: View, judged: Judged) -> tuple[TableRepair, TableWork | None]:
        if judged.classification == "clean":
            return _row(judged, "none"), None
        if not self.way.may(judged):
            return _row(judged, "refused"), None
        if self.way.discard:
            return _row(judged, "discarded"), _discarded(view, judged)
        done: Action = "published" if judged.classification == "verified_maintenance" else "forced"
        return _row(judged, done), _adopted(view, judged)


def _summary(rows: Sequence[TableRepair]) -> dict[str, Any]:
    return {
        row.table_key: {
            "action": row.action,
            "classification": row.classification,
            "from": row.manifest_version,
            "to": row.lance_head_version,
        }
        for row in rows
        if row.action in ("published", "forced", "discarded")
    }


def _adopted(view: View, judged: Judged) -> TableWork:
    """HEAD as the pin: no step, the version is there already."""
    secure_version(view.tables.location, judged.pin, judged.head, old=judged.pinned)
    pin = judged.pin.at(judged.head_version)
    return TableWork(pin=pin, source=judged.pin, steps=(), handle=judged.head, publishes_drift=True)


def _discarded(view: View, judged: Judged) -> TableWork:
    """The pinned version once more, above the drift. It lands over anything, so what it makes is published."""
    base = judged.pin.at(judged.head_version)
    operation = lance_api.operations().Restore(judged.pin.version)
    tx = lance_api.transaction(operation, read_version=judged.head_version)
    return TableWork(pin=base, source=judged.pin, steps=(tx,), handle=judged.head, publishes_drift=True)
