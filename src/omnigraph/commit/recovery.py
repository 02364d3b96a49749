"""Recovery: decide an undecided epoch by rolling it forward or back. The record in the manifest is the decision.

1. read           is the epoch decided? then return its record
2. roll forward   a plan whose effects are all present, each exactly once, directly above its base version: publish the
                  planned commit
3. roll back      otherwise: commit a stamped Restore on every table of the lock that the branch owns (it makes Lance
                  refuse late commits of a stale writer), then publish the abort with the restored versions as pins

Forks and new tables need no Restore: their names are unique, and nothing refers to them. A table with uncovered
drift stays as it is: only `repair` may change it. A crash at any point leaves the epoch undecided, and the next
process recovers it the same way.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import replace

from omnigraph.commit.advisory_lock import AdvisoryLock, AdvisoryLocks
from omnigraph.commit.effects import StaleWriter, has_landed, is_declared, restore, sync_effects
from omnigraph.commit.operation import View
from omnigraph.commit.phases import Observer
from omnigraph.commit.plan import Plan
from omnigraph.commit.publication import abort_record, publish
from omnigraph.commit.stamp import Stamp
from omnigraph.config.logs import log_event
from omnigraph.errors import UncoveredDrift
from omnigraph.storage.files import truncated_versions
from omnigraph.storage.lance import lance_api
from omnigraph.storage.manifest.records import RECOVERY_ACTOR, RESET, Pin, Record
from omnigraph.storage.manifest.table import Manifest, SwapLost

logger = logging.getLogger(__name__)


def recover_epoch(
    manifest: Manifest,
    locks: AdvisoryLocks,
    view: View,
    lock: AdvisoryLock,
    *,
    observe: Observer,
    reason: str,
    may_forward: bool = True,
) -> Record | None:
    """Decide the epoch of the lock and return the record of the decision, or None if another process interfered (then
    read the outcome again). Raises EffectMissed if a Restore did not land.

    `may_forward` is False for an owner whose own effects could not be synced.
    """
    observe("recover")
    head = view.head
    if head.epoch >= lock.epoch or head.incarnation != lock.incarnation:
        return manifest.outcome(lock.incarnation, lock.epoch)
    try:
        plans = [Plan.read(body) for body in locks.plans(lock)]
        for plan in plans if may_forward else ():
            if plan is None or not plan.follows(head) or not manifest.has_schema(plan.record.schema):
                continue
            if has_landed(view.tables, plan, lock):
                return _roll_forward(manifest, view, lock, plan, observe=observe, reason=reason)
        declared = [(t, p.unstamped) for plan in plans if plan is not None for t, p in plan.tables.items()]
        return _roll_back(manifest, view, lock, observe=observe, reason=reason, declared=dict(declared))
    except (SwapLost, StaleWriter) as error:
        _log(logging.DEBUG, "recovery superseded by another process", view, lock, reason=str(error))
        return None


def _roll_forward(
    manifest: Manifest, view: View, lock: AdvisoryLock, plan: Plan, *, observe: Observer, reason: str
) -> Record:
    record = plan.record
    if lock.claimant > 0:
        note = {"outcome": "rolled_forward", "kind": lock.kind, "operation": lock.nonce, "by": RECOVERY_ACTOR}
        record = replace(record, recovery=note)
    sync_effects(view.tables, plan.tables.values(), manifest.checksums(record))
    observe("decide")
    publish(manifest, view.tables, view.head, record)
    _log(_level(lock), "rolled forward", view, lock, reason=reason)
    return record


def _roll_back(
    manifest: Manifest,
    view: View,
    lock: AdvisoryLock,
    *,
    observe: Observer,
    reason: str,
    declared: Mapping[str, Sequence[str]],
) -> Record:
    restored: dict[str, Pin] = {}
    # A lock that can't be read does not name the tables that its owner wrote: then all of them are fenced.
    # A reset that names no tables moves none.
    tables = lock.tables or (() if lock.kind == RESET else tuple(view.pins))
    for table in sorted(tables):
        pin = view.pins.get(table)
        if pin is None or not view.owns(pin):
            continue
        try:
            restored[table] = _fence(view, pin, lock, observe=observe, declared=declared.get(table, ()))
        except UncoveredDrift:
            continue
    record = abort_record(view.head, lock, pins=view.pins, restored=restored, reason=reason)
    observe("decide")
    publish(manifest, view.tables, view.head, record)
    _log(_level(lock), "rolled back", view, lock, reason=reason)
    return record


def _level(lock: AdvisoryLock) -> int:
    """Recovery of another writer's epoch is a warning; an owner that resolves its own epoch may have lost a race."""
    return logging.WARNING if lock.claimant > 0 else logging.INFO


def _log(level: int, event: str, view: View, lock: AdvisoryLock, *, reason: str) -> None:
    log_event(
        logger,
        level,
        event,
        graph=view.manifest.location.uri,
        branch=view.head.branch,
        epoch=lock.epoch,
        table=lock.tables,
        kind=lock.kind,
        operation=lock.nonce,
        reason=reason,
    )


def _fence(view: View, pin: Pin, lock: AdvisoryLock, *, observe: Observer, declared: Sequence[str]) -> Pin:
    _move_truncated_aside(view, pin, lock, declared)
    newest = view.tables.newest(pin)
    for version, text in lance_api.stamps_above(newest, pin.version):
        stamp = Stamp.parse(text)
        if stamp is None and is_declared(newest, version, declared):
            continue
        if stamp is None:
            raise UncoveredDrift(
                table_key=view.table_keys.get(pin.table, pin.table),
                branch=view.head.branch,
                manifest_version=pin.version,
                lance_head_version=version,
            )
        if stamp.epoch > lock.epoch:
            raise StaleWriter(str(stamp))
    return restore(view, pin, lock, attempt=0, newest_version=newest.version, observe=observe)


def _move_truncated_aside(view: View, pin: Pin, lock: AdvisoryLock, declared: Sequence[str]) -> None:
    """Move aside versions that a power loss truncated, and the versions of the same Lance call above them."""
    location, uri = view.tables.location, view.tables.location.join(pin.path)

    def are_orphans(versions: list[int]) -> bool:
        # A gap below them is data loss only while the epoch is undecided; later, cleanup may have removed versions.
        if view.manifest.head(view.head.branch).epoch >= lock.epoch:
            raise StaleWriter(f"epoch {lock.epoch} is decided")
        return all(is_declared(lance_api.open_table(location, uri, version=v), v, declared) for v in versions)

    truncated_versions.move_aside(location, uri, above=pin.version, orphans=are_orphans)
