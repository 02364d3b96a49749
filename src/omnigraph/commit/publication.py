"""Publish: the one compare-and-swap that makes an operation visible, or records that it was given up.

Every epoch ends here, in a commit or an abort, also when nothing happened yet. When the head's `recent` list is full
its records are appended as rows first, so that they can be found at any time: in a head, or in a row.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from omnigraph.commit.advisory_lock import AdvisoryLock
from omnigraph.commit.operation import Prepared, Successor, View
from omnigraph.storage.files import checksums
from omnigraph.storage.lance.tables import Tables
from omnigraph.storage.manifest.config import SUSPICIOUS_S
from omnigraph.storage.manifest.records import RECOVERY_ACTOR, RESET, Delta, Head, Pin, Record, apply_delta
from omnigraph.storage.manifest.table import FULL_EVERY, RECENT_MAX, REFS, Manifest, SwapLost
from omnigraph.storage.ulids import new_ulid


def commit_record(
    view: View,
    prepared: Prepared,
    lock: AdvisoryLock,
    *,
    kind: str,
    actor: str | None,
    operation_id: str | None,
    restored: Mapping[str, Pin],
) -> Record:
    """The record of what `prepared` will have done, once it is published over the head of `view`.

    `restored` are tables whose leftovers this operation has restored over: they are published with it.
    """
    delta: dict[str, Pin | None] = {**restored, **{t: work.result for t, work in prepared.tables.items()}}
    delta.update(dict.fromkeys(prepared.dropped))
    head = view.head
    if prepared.successor is not None:
        return _reset_record(view, prepared, prepared.successor, lock, delta=delta, actor=actor)
    return _record(
        head,
        lock,
        pins=view.pins,
        delta=delta,
        commit=new_ulid(),
        kind=kind,
        actor=actor,
        schema=prepared.schema[0] if prepared.schema else head.schema,
        operation_id=operation_id,
        summary=prepared.summary,
        merged_parent=prepared.merged_parent,
    )


def _reset_record(
    view: View, prepared: Prepared, successor: Successor, lock: AdvisoryLock, *, delta: Delta, actor: str | None
) -> Record:
    """The first record of a new incarnation. Its parent is the commit that the branch is reset to, its epoch the next
    one of the incarnation that it replaces: so every stamp of that one is older than those of the new one.
    """
    full = successor.base is None or successor.depth + 1 >= FULL_EVERY
    return Record(
        branch=view.head.branch,
        incarnation=successor.incarnation,
        epoch=lock.epoch,
        commit=new_ulid(),
        parent=successor.commit,
        kind=RESET,
        actor=actor,
        created_at_us=time.time_ns() // 1000,
        schema=view.manifest.record(successor.commit).schema,
        delta=delta,
        snapshot=apply_delta(successor.pins, delta) if full else None,
        depth=0 if full else successor.depth + 1,
        nonce=lock.nonce,
        summary=prepared.summary,
        based_on=view.head.version,
    )


def abort_record(
    head: Head, lock: AdvisoryLock, *, pins: Mapping[str, Pin], restored: Mapping[str, Pin], reason: str
) -> Record:
    """An epoch that is given up: a graph commit by the recovery actor if tables had to be restored, a bare note if
    not.
    """
    moved = bool(restored)
    return _record(
        head,
        lock,
        pins=pins,
        delta=dict(restored),
        commit=new_ulid() if moved else None,
        kind="recovery" if moved else "abort",
        actor=RECOVERY_ACTOR if moved else None,
        schema=head.schema,
        operation_id=None,
        summary=None,
        recovery={"outcome": "rolled_back", "kind": lock.kind, "operation": lock.nonce, "reason": reason},
    )


def _record(
    head: Head,
    lock: AdvisoryLock,
    *,
    pins: Mapping[str, Pin],
    delta: Delta,
    commit: str | None,
    **rest: Any,
) -> Record:
    full = commit is not None and head.depth + 1 >= FULL_EVERY
    return Record(
        branch=head.branch,
        incarnation=head.incarnation,
        epoch=lock.epoch,
        commit=commit,
        parent=head.commit,
        created_at_us=time.time_ns() // 1000,
        delta=delta,
        snapshot=apply_delta(pins, delta) if full else None,
        depth=0 if full else head.depth + (commit is not None),
        nonce=lock.nonce,
        based_on=head.version,
        **rest,
    )


def with_checksums(manifest: Manifest, record: Record) -> tuple[Record, dict[str, int]]:
    """The record with the checksums that are noted of its tables; of many files, they become a row of the manifest."""
    noted = checksums.noted(manifest.location.uri, record.delta)
    if not noted:
        return record, noted
    packed = checksums.merge(record.checksums, checksums.pack(noted))
    if checksums.count(packed) <= checksums.INLINE_MAX:
        return replace(record, checksums=packed), noted
    record = replace(record, checksums="", checksum_row=manifest.append_checksums(packed))
    checksums.published(manifest.location.uri, noted)
    return record, {}


def publish(manifest: Manifest, tables: Tables, head: Head, record: Record, successor: Successor | None = None) -> Head:
    """Move the head over this record. SwapLost if somebody else decided, or nobody knows.

    A `successor` replaces the branch's incarnation with the same swap, and rewrites `refs`: what branches are made
    from, and what cleanup keeps, changes with it.
    """
    record = _measured(tables, record)
    if record.epoch != head.epoch + 1:
        raise SwapLost(f"epoch {record.epoch} does not follow {head.epoch}")
    is_full = len(head.recent) >= RECENT_MAX or successor is not None
    if is_full:
        manifest.append_records(head.recent)
        manifest.fold()
    record, noted = with_checksums(manifest, record)
    recent = (record,) if is_full else (*head.recent, record)
    new = replace(_moved(head, record, successor), recent=recent)
    started = time.clock_gettime(time.CLOCK_BOOTTIME)
    moved = manifest.swap(head, new, more=None if successor is None else {REFS: secrets.token_hex(6)})
    assert moved is not None
    checksums.published(manifest.location.uri, noted)
    if time.clock_gettime(time.CLOCK_BOOTTIME) - started > SUSPICIOUS_S:
        _require_succession(manifest, head, moved)
    return moved


def _moved(head: Head, record: Record, successor: Successor | None) -> Head:
    """The head with the state of this record, without its `recent` records."""
    moved = replace(head, epoch=record.epoch, schema=record.schema, depth=record.depth)
    if successor is not None:
        assert record.commit is not None
        return replace(
            moved,
            incarnation=record.incarnation,
            commit=record.commit,
            parent=record.parent,
            pins=record.delta if successor.base is not None else dict(record.snapshot or {}),
            base=successor.base,
            made_from=successor.made_from,
            reset_to=successor.commit,
        )
    pins: Delta = {**head.pins, **record.delta}
    if head.base is None:
        pins = apply_delta({}, pins)
    return replace(
        moved,
        commit=record.commit or head.commit,
        parent=head.commit if record.commit else head.parent,
        pins=pins,
    )


def _measured(tables: Tables, record: Record) -> Record:
    """The record with the rows and fragments of every version that it publishes, for listings."""
    delta = {t: None if p is None else tables.measured(p) for t, p in record.delta.items()}
    snapshot = record.snapshot
    if snapshot is not None:
        snapshot = {t: delta.get(t) or p for t, p in snapshot.items()}
    return replace(record, delta=delta, snapshot=snapshot)


def _require_succession(manifest: Manifest, old: Head, moved: Head) -> None:
    """Lance sees conflicts only through versions that still exist. If mine buried a newer head, put that one back."""
    before = manifest.head_at(old.branch, moved.version - 1)
    if before is None or (before.incarnation, before.epoch) == (old.incarnation, old.epoch):
        return
    manifest.swap(moved, replace(before, version=moved.version))
    raise SwapLost(f"epoch {moved.epoch} of {old.branch} was decided long ago")
