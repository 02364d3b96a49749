"""Publication: the compare-and-swap of the head that makes an operation visible, or records its abort.

Every epoch ends here, in a commit or an abort, also if it has no effects. When the head's `recent` list is full, its
records are first appended as rows, so that every record is always in a head or in a row.
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
    """The commit record of `prepared`, to be published over the head of `view`.

    `restored` are tables whose leftover versions this operation restored over: they are published with it.
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
    """The first record of a new incarnation. Its parent is the commit that the branch is reset to. Its epoch follows
    that of the incarnation that it replaces, so every stamp of the old incarnation has a lower epoch.
    """
    has_snapshot = successor.base is None or successor.depth + 1 >= FULL_EVERY
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
        snapshot=apply_delta(successor.pins, delta) if has_snapshot else None,
        depth=0 if has_snapshot else successor.depth + 1,
        nonce=lock.nonce,
        summary=prepared.summary,
        based_on=view.head.version,
    )


def abort_record(
    head: Head, lock: AdvisoryLock, *, pins: Mapping[str, Pin], restored: Mapping[str, Pin], reason: str
) -> Record:
    """The record of an abort: a graph commit by the recovery actor if tables were restored, else a note without a
    commit.
    """
    has_restores = bool(restored)
    return _record(
        head,
        lock,
        pins=pins,
        delta=dict(restored),
        commit=new_ulid() if has_restores else None,
        kind="recovery" if has_restores else "abort",
        actor=RECOVERY_ACTOR if has_restores else None,
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
    **fields: Any,
) -> Record:
    has_snapshot = commit is not None and head.depth + 1 >= FULL_EVERY
    return Record(
        branch=head.branch,
        incarnation=head.incarnation,
        epoch=lock.epoch,
        commit=commit,
        parent=head.commit,
        created_at_us=time.time_ns() // 1000,
        delta=delta,
        snapshot=apply_delta(pins, delta) if has_snapshot else None,
        depth=0 if has_snapshot else head.depth + (commit is not None),
        nonce=lock.nonce,
        based_on=head.version,
        **fields,
    )


def with_checksums(manifest: Manifest, record: Record) -> tuple[Record, dict[str, int]]:
    """The record with the checksums noted for its tables; those of many files go into a row of the manifest."""
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
    """Publish the record by a compare-and-swap of the head. Raises SwapLost if another process decided the epoch, or
    if the result is unknown.

    A `successor` replaces the branch's incarnation with the same swap, and rewrites `refs`, because the starting points
    of branches and the versions that cleanup keeps change with it.
    """
    record = _with_measures(tables, record)
    if record.epoch != head.epoch + 1:
        raise SwapLost(f"epoch {record.epoch} does not follow {head.epoch}")
    is_full = len(head.recent) >= RECENT_MAX or successor is not None
    if is_full:
        manifest.append_records(head.recent)
        manifest.fold()
    record, noted = with_checksums(manifest, record)
    recent = (record,) if is_full else (*head.recent, record)
    new_head = replace(_head_after(head, record, successor), recent=recent)
    started = time.clock_gettime(time.CLOCK_BOOTTIME)
    published_head = manifest.swap(head, new_head, more=None if successor is None else {REFS: secrets.token_hex(6)})
    assert published_head is not None
    checksums.published(manifest.location.uri, noted)
    if time.clock_gettime(time.CLOCK_BOOTTIME) - started > SUSPICIOUS_S:
        _require_succession(manifest, head, published_head)
    return published_head


def _head_after(head: Head, record: Record, successor: Successor | None) -> Head:
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


def _with_measures(tables: Tables, record: Record) -> Record:
    """The record with the row and fragment counts of every version that it publishes, for listings."""
    delta = {t: None if p is None else tables.measured(p) for t, p in record.delta.items()}
    snapshot = record.snapshot
    if snapshot is not None:
        snapshot = {t: delta.get(t) or p for t, p in snapshot.items()}
    return replace(record, delta=delta, snapshot=snapshot)


def _require_succession(manifest: Manifest, old: Head, moved: Head) -> None:
    """Swap a newer head back if this swap replaced it: Lance detects conflicts only with versions that still exist."""
    before = manifest.head_at(old.branch, moved.version - 1)
    if before is None or (before.incarnation, before.epoch) == (old.incarnation, old.epoch):
        return
    manifest.swap(moved, replace(before, version=moved.version))
    raise SwapLost(f"epoch {moved.epoch} of {old.branch} was decided long ago")
