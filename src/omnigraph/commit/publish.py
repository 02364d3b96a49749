"""Publish: the one compare-and-swap that makes an operation visible, or records that it was given up.

Every epoch ends here, in a commit or an abort, also when nothing happened yet. When the head's `recent` list is full
its records are appended as rows first, so that they can be found at any time: in a head, or in a row.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from omnigraph.commit.stage import Prepared, View
from omnigraph.commit.ticket import Ticket
from omnigraph.storage import checksums
from omnigraph.storage.manifest import FULL_EVERY, RECENT_MOST, Manifest, SwapLost
from omnigraph.storage.records import RECOVERY_ACTOR, Delta, Head, Pin, Record, apply_delta
from omnigraph.storage.table import Tables

SUSPICIOUS_S = 60.0
"""A swap that took longer may have been stopped for days; then its place in history is looked at again."""


def new_commit_id() -> str:
    from ulid import ULID  # reads its own version from its metadata, 20 ms that a reader need not pay

    return str(ULID())


def commit_record(
    view: View,
    prepared: Prepared,
    ticket: Ticket,
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
    return _record(
        head,
        ticket,
        pins=view.pins,
        delta=delta,
        commit=new_commit_id(),
        kind=kind,
        actor=actor,
        schema=prepared.schema[0] if prepared.schema else head.schema,
        operation_id=operation_id,
        summary=prepared.summary,
    )


def abort_record(
    head: Head, ticket: Ticket, *, pins: Mapping[str, Pin], restored: Mapping[str, Pin], reason: str
) -> Record:
    """An epoch that is given up: a graph commit by the recovery actor if tables had to be restored, a bare note if
    not.
    """
    moved = bool(restored)
    return _record(
        head,
        ticket,
        pins=pins,
        delta=dict(restored),
        commit=new_commit_id() if moved else None,
        kind="recovery" if moved else "abort",
        actor=RECOVERY_ACTOR if moved else None,
        schema=head.schema,
        operation_id=None,
        summary=None,
        recovery={"outcome": "rolled_back", "kind": ticket.kind, "operation": ticket.nonce, "reason": reason},
    )


def _record(
    head: Head,
    ticket: Ticket,
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
        epoch=ticket.epoch,
        commit=commit,
        parent=head.commit,
        created_at_us=time.time_ns() // 1000,
        delta=delta,
        snapshot=apply_delta(pins, delta) if full else None,
        depth=0 if full else head.depth + (commit is not None),
        nonce=ticket.nonce,
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


def publish(manifest: Manifest, tables: Tables, head: Head, record: Record) -> Head:
    """Move the head over this record. SwapLost if somebody else decided, or nobody knows."""
    record = _measured(tables, record)
    if record.epoch != head.epoch + 1:
        raise SwapLost(f"epoch {record.epoch} does not follow {head.epoch}")
    is_full = len(head.recent) >= RECENT_MOST
    if is_full:
        manifest.append_records(head.recent)
        manifest.fold()
    record, noted = with_checksums(manifest, record)
    recent = (record,) if is_full else (*head.recent, record)
    pins = {**head.pins, **record.delta}
    if head.base is None:
        pins = dict(apply_delta({}, pins))
    new = replace(
        head,
        commit=record.commit or head.commit,
        parent=head.commit if record.commit else head.parent,
        epoch=record.epoch,
        schema=record.schema,
        pins=pins,
        recent=recent,
        depth=record.depth,
    )
    started = time.clock_gettime(time.CLOCK_BOOTTIME)
    moved = manifest.swap(head, new)
    assert moved is not None
    checksums.published(manifest.location.uri, noted)
    if time.clock_gettime(time.CLOCK_BOOTTIME) - started > SUSPICIOUS_S:
        _require_succession(manifest, head, moved)
    return moved


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
    if before is None or before.epoch == old.epoch:
        return
    manifest.swap(moved, replace(before, version=moved.version))
    raise SwapLost(f"epoch {moved.epoch} of {old.branch} was decided long ago")
