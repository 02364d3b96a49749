"""Repair: publish or discard drift.

1. recover  no operation on the branch may be undecided: repair refuses while a writer is alive, and recovers the
            operation of a crashed one first; a preview, which writes nothing, refuses for both
2. judge    each table that the branch owns, by the Lance transactions between its pin and HEAD, and, if it may be
            published, by the files and rows that it needs (classify.py)
3. show     a preview stops here; for drift that is not verified it compares the rows of pin and HEAD
4. publish  through the committer, all tables of the run in one graph commit by `omnigraph:repair`:
            verified drift, and with `force` the rest: HEAD becomes the pin. No data moves
            with `discard`: a stamped Restore of the pin over the drift becomes the pin

Keeps: what is published is exactly the version that was judged; what a foreign client adds meanwhile is drift for the
next run. Stamped versions are never published: they are leftover versions, which the next writer restores over. One
refused table does not stop the others; a failing store stops the run before anything is published. A crash before the
plan is written leaves the drift as it was, one after it is rolled forward by the next writer; if a discard stopped
between tables the drift is still there, with a Restore above it, and can be discarded again.
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
from omnigraph.maintenance.recover import recover, require_recovered
from omnigraph.maintenance.repair.changes import RowChanges, row_changes
from omnigraph.maintenance.repair.classify import Judged, examined, judge, judge_anyway
from omnigraph.maintenance.selection import choose_tables, table_names
from omnigraph.storage.lance import lance_api
from omnigraph.storage.lance.foreign_version import sync_version
from omnigraph.storage.manifest.records import Pin

REPAIR_ACTOR = "omnigraph:repair"
WRITER_WAIT_S = 2.0
"""How long repair waits for a live writer before it refuses."""

Action = Literal[
    "none", "would_publish", "would_refuse", "would_discard", "published", "refused", "forced", "discarded"
]


@dataclass(frozen=True)
class TableRepair:
    """The drift of one table and what was done. `changes` is there in a preview of drift that is not verified.

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
        fields = {name: value for name, value in self.__dict__.items() if not name.startswith("may_")}
        body = {**fields, "operations": list(self.operations)}
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
        """Whether a table should have been repaired and was not."""
        return any(t.action == "refused" for t in self.tables)

    @property
    def ok(self) -> bool:
        """Whether no table was refused."""
        return not self.refused

    def to_json(self) -> dict[str, Any]:
        return {
            "ok": self.ok,
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
    """Show the drift of a branch's tables, all or those named; with `confirm`, publish or discard it."""
    if force and discard:
        raise UsageError(detail="force publishes drift and discard takes it away: choose one of them.")
    choice = _Choice(force=force, discard=discard, names=table_names(tables))
    with committer.mutex:
        if not confirm:
            require_recovered(committer, branch, verb="repair", wait_s=WRITER_WAIT_S)
            return RepairResult(branch, False, _previewed(committer.view(branch), choice), None)
        recover(committer, wait_s=WRITER_WAIT_S, branch=branch)
        require_recovered(committer, branch, verb="repair", wait_s=0.0)
        outcome = committer.run(_Repair(choice), Request(branch=branch, actor=REPAIR_ACTOR))
        return _result(committer, branch, outcome)


def _result(committer: Committer, branch: str, outcome: Outcome) -> RepairResult:
    commit = None if outcome.record is None else CommitInfo.of(outcome.record)
    return RepairResult(branch, True, tuple(outcome.result), commit)


@dataclass(frozen=True)
class _Choice:
    """The options: what is done with which tables."""

    force: bool
    discard: bool
    names: tuple[str, ...] | None

    def chosen(self, view: View) -> list[str]:
        """Type ids in the order of their table keys. UnknownType for a name that the branch does not have."""
        keys = {type_id: view.table_keys[type_id] for type_id in view.pins}
        return choose_tables(keys, self.names)

    def may(self, judged: Judged) -> bool:
        """Whether this table's drift may be published, or discarded, with these options."""
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
        # Why it could not be published is irrelevant once the drift is discarded.
        error=None if action == "discarded" else judged.error,
        may_publish=judged.may_publish,
        may_discard=judged.may_discard,
    )


# ---- preview ---------------------------------------------------------------------------------------------------------


def _previewed(view: View, choice: _Choice) -> tuple[TableRepair, ...]:
    return tuple(_preview(view, choice, judge_anyway(view, type_id)) for type_id in choice.chosen(view))


def _preview(view: View, choice: _Choice, judged: Judged) -> TableRepair:
    if judged.classification == "clean":
        return _row(judged, "none")
    if not choice.discard:
        try:
            judged = examined(view, judged)
        except OmnigraphError as error:
            judged = replace(judged, classification="unverifiable", may_publish=False, error=error.message)
    allowed: Action = "would_discard" if choice.discard else "would_publish"
    row = _row(judged, allowed if choice.may(judged) else "would_refuse")
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
    """The operation. Its result has a row per table, whether there is something to commit or not."""

    choice: _Choice
    kind: str = "repair"
    quick: bool = True
    seen: dict[tuple[Pin, int], Judged] = field(default_factory=dict, compare=False)

    def scope(self, view: View) -> frozenset[str]:
        """Tables at their pins, and refused ones, are not changed, and so need no fencing after a crash."""
        return frozenset(t for t in self.choice.chosen(view) if self.choice.may(judge(view, t)))

    def prepare(self, view: View) -> Prepared:
        rows: list[TableRepair] = []
        works: dict[str, TableWork] = {}
        for type_id in self.choice.chosen(view):
            row, work = self._table(view, self._judged(view, type_id))
            rows.append(row)
            if work is not None:
                works[type_id] = work
        return Prepared(view=view, tables=works, summary={"tables": _summary(rows)}, result=rows)

    def _judged(self, view: View, type_id: str) -> Judged:
        """Discarded drift need not be read. Results are cached per pin and version, however often this is prepared."""
        judged = judge(view, type_id)
        if self.choice.discard or not self.choice.may(judged):
            return judged
        key = (judged.pin, judged.head_version)
        if key not in self.seen:
            self.seen[key] = examined(view, judged)
        return self.seen[key]

    def _table(self, view: View, judged: Judged) -> tuple[TableRepair, TableWork | None]:
        if judged.classification == "clean":
            return _row(judged, "none"), None
        if not self.choice.may(judged):
            return _row(judged, "refused"), None
        if self.choice.discard:
            return _row(judged, "discarded"), _discarded(view, judged)
        action: Action = "published" if judged.classification == "verified_maintenance" else "forced"
        return _row(judged, action), _adopted(view, judged)


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
    """HEAD as the pin: no effect, the version exists already."""
    sync_version(view.tables.location, judged.pin, judged.head, old=judged.pinned)
    pin = judged.pin.at(judged.head_version)
    return TableWork(pin=pin, source=judged.pin, steps=(), handle=judged.head, publishes_drift=True)


def _discarded(view: View, judged: Judged) -> TableWork:
    """A Restore of the pinned version above the drift. It succeeds over any version, so its result is published."""
    base = judged.pin.at(judged.head_version)
    operation = lance_api.operations().Restore(judged.pin.version)
    tx = lance_api.transaction(operation, read_version=judged.head_version)
    return TableWork(pin=base, source=judged.pin, steps=(tx,), handle=judged.head, publishes_drift=True)
