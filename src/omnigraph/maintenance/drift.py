"""Drift: versions above a pin that no operation of the committer explains.

A version above a table's pin with a stamp is the effect of an operation: of a running or a crashed writer, or a
leftover version of a decided one, which the next writer restores over. The same holds if the plan of the operation in
progress declares it, because Lance takes no stamp for it. Without either it is drift: another Lance client wrote it.
Readers never see it, writers refuse the table, and only `repair` publishes or discards it.

A branch is responsible only for the lines that it owns: its own forks, on main the root tables. Nothing is written.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from omnigraph.commit.advisory_lock import AdvisoryLocks
from omnigraph.commit.operation import View
from omnigraph.commit.plan import Plan
from omnigraph.commit.stamp import Stamp
from omnigraph.errors import StorageError, VersionReclaimed
from omnigraph.storage.lance import lance_api
from omnigraph.storage.lance.transactions import Step, steps_above
from omnigraph.storage.manifest.records import Pin
from omnigraph.storage.objects.control_objects import ControlObjects

if TYPE_CHECKING:
    from lance import LanceDataset

UNREADABLE = "unreadable"
"""Takes the place of the operation of a version whose transaction is missing or can't be read."""


@dataclass(frozen=True)
class Drift:
    """One table whose newest version no operation of the committer explains.

    `operations` are the names of Lance's operations between pin and HEAD, one per version, oldest first.
    """

    table: str
    table_key: str
    pin: Pin
    head_version: int
    operations: tuple[str, ...]
    steps: tuple[Step, ...] = ()

    @property
    def has_stamped(self) -> bool:
        """Whether leftover versions of a decided operation lie between the pin and HEAD as well."""
        return any(Stamp.parse(step.stamp) is not None for step in self.steps)


def drift_of(view: View, type_id: str) -> Drift | None:
    """The drift of one table of the branch; None if it has none, or if the branch does not own the table's line."""
    pin = view.pins[type_id]
    if not view.owns(pin) or _newest_version(view, type_id) == pin.version:
        return None
    newest = view.tables.newest(pin)
    steps = tuple(steps_above(newest, pin.version))
    bare = [step for step in steps if Stamp.parse(step.stamp) is None]
    if not bare or {step.operation for step in bare} <= _declared(view, type_id):
        return None
    head = view.manifest.head(view.head.branch)
    if (head.incarnation, head.epoch) != (view.head.incarnation, view.head.epoch):
        # The operation in progress may have been published since the view was read, and its plan removed.
        newer = replace(view, head=head, pins=view.manifest.pins(head))
        return drift_of(newer, type_id) if type_id in newer.pins else None
    return Drift(
        table=type_id,
        table_key=view.table_keys[type_id],
        pin=pin,
        head_version=int(newest.version),
        operations=tuple(step.operation or UNREADABLE for step in steps),
        steps=steps,
    )


def _declared(view: View, type_id: str) -> set[str | None]:
    """The operations without a stamp that the plans of the epoch in progress, if any, declare for this table.

    With them None, for one of their versions that a power loss removed.
    """
    locks = AdvisoryLocks(ControlObjects(view.manifest.location))
    holder = locks.holder(view.head.incarnation, view.head.epoch + 1)
    plans = map(Plan.read, locks.plans(holder[0])) if holder is not None else ()
    operations: set[str | None] = {
        name for plan in plans if plan and type_id in plan.tables for name in plan.tables[type_id].unstamped
    }
    return operations | {None} if operations else operations


def _newest_version(view: View, type_id: str) -> int:
    """By a listing: cleanup of a foreign client can leave a gap above the pin, where a quick probe stops."""
    pin, table = view.pins[type_id], published(view, type_id)
    try:
        with lance_api.reading(f"looking for versions of {pin.path}"):
            return int(table.latest_version)
    except StorageError:
        return view.tables.newest_version(pin)  # which ignores truncated versions


def published(view: View, type_id: str) -> LanceDataset:
    """The version that the branch publishes.

    VersionMissing if it is lost; VersionReclaimed if the branch has moved since, and cleanup removed the version.
    """
    pin = view.pins[type_id]
    try:
        return view.tables.open(pin)
    except VersionReclaimed as error:
        raise type(error)(table_key=view.table_keys[type_id], version=pin.version) from error


def drifts(view: View) -> list[Drift]:
    """The drift of every table of the branch that has some, in the order of their keys."""
    drifts_found = (drift_of(view, type_id) for type_id in view.pins)
    return sorted((d for d in drifts_found if d is not None), key=lambda d: d.table_key)
