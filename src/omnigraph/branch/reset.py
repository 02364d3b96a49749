"""Reset a branch: it is set to another commit, any of the past, and continues from there.

An operation of the committer (`commit/committer.py`); the swap that publishes it replaces the branch's incarnation:

1. prepare   refuse a branch that others were made from, or whose forks they read; find the commit; its versions are
             there and no cleanup has announced one (`availability`)
2. lock      the next epoch of the old incarnation: a running writer finishes first, a crashed one is recovered
3. effect    only on main, which owns the root lines of tables: a stamped Restore of each version that differs
4. publish   the old head's records become rows; then one swap sets `head:<name>` to a new incarnation and rewrites
             `refs`. Its first record is of the kind `reset`: its parent is the target commit, its epoch follows
             that of the old head

Why a new incarnation: what was committed after that commit is no longer part of the branch's history, and histories are
stored as "all epochs of an incarnation up to one". Why the epoch continues: every stamp of the old incarnation is then
older than every one of the new, so that above a pin of a root line the next writer treats them as leftovers, and a late
writer of the old incarnation detects that it is stale.

Why Restore on main: the newest version of a line is found by counting upwards from a pin. Between the version of an
old commit and the newest one a cleanup may have removed some. So pins go to the top of their lines.

Writers at work lose: their swap expects the old head, their lock is of a replaced incarnation. They prepare
again on the new state. What they had committed before the reset is acknowledged: it has a commit record.

A crash before 4 leaves an undecided epoch, which the next writer rolls back: only its owner publishes
a reset. After 4 it has happened. The old head is readable as long as cleanup keeps its versions: what a branch loses by
a reset counts as superseded at that moment.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from omnigraph.branch.availability import require_available
from omnigraph.branch.create import origin_of
from omnigraph.branch.delete import require_unused
from omnigraph.branch.revisions import resolve
from omnigraph.commit.operation import Prepared, Successor, TableWork, View
from omnigraph.errors import CommitNotOnMain
from omnigraph.storage.lance.edits import restoring
from omnigraph.storage.manifest.records import RESET, Pin, Record
from omnigraph.storage.manifest.table import fresh_incarnation


@dataclass(frozen=True)
class Reset:
    """The operation. `to` is a revision; a time is looked up in the history of the branch itself."""

    to: str
    kind: str = RESET
    quick: bool = True

    def scope(self, view: View) -> frozenset[str]:
        if not view.head.is_main:
            return frozenset()
        return frozenset(_restores(view, view.manifest.pins_at(self._commit(view))))

    def prepare(self, view: View) -> Prepared:
        manifest, head = view.manifest, view.head
        heads = manifest.heads()
        commit = self._commit(view)
        if commit == head.commit:
            return Prepared(view=view)
        require_unused(head, heads, action="reset")
        require_available(manifest, commit, heads)
        record, pins = manifest.record(commit), manifest.pins_at(commit)
        if head.is_main:
            _require_on_main(record, pins)
        is_own = record.incarnation == head.incarnation
        roots = {pin.root for pin in pins.values()}
        return Prepared(
            view=view,
            tables=_restores(view, pins) if head.is_main else {},
            dropped=frozenset(t for t, pin in view.pins.items() if t not in pins and pin.root not in roots),
            summary={"from": head.commit, "to": commit, "replaced": head.incarnation},
            successor=Successor(
                incarnation=fresh_incarnation(),
                commit=commit,
                pins=pins,
                depth=record.depth,
                base=None if head.is_main else commit,
                made_from=head.made_from if head.is_main or is_own else origin_of(self.to, record, heads),
            ),
        )

    def _commit(self, view: View) -> str:
        return resolve(view.manifest, self.to, branch=view.head.branch)


def _require_on_main(record: Record, pins: Mapping[str, Pin]) -> None:
    if any(pin.fork is not None for pin in pins.values()):
        raise CommitNotOnMain(commit=record.commit, branch=record.branch)


def _restores(view: View, pins: Mapping[str, Pin]) -> dict[str, TableWork]:
    """A Restore for every table whose line is at another version than the commit's."""
    works = {}
    for table, target in pins.items():
        current = view.pins.get(table)
        if current is not None and current.path == target.path:
            if current.version != target.version:
                step = restoring(target.version, read_version=current.version)
                works[table] = TableWork(current, current, (step,), view.tables.open(current))
            continue
        newest = view.tables.newest(target)  # of a type that was dropped since: its line may have gone on
        if newest.version != target.version:
            step = restoring(target.version, read_version=newest.version)
            works[table] = TableWork(target.at(newest.version), None, (step,), newest)
    return works
