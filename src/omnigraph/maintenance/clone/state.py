"""The manifest of a clone of one state: one commit on main, as `init` makes it, with the state's schema and pins."""

from __future__ import annotations

import secrets
import time
from collections.abc import Iterable
from dataclasses import replace
from typing import TYPE_CHECKING

from omnigraph.commit.actor import checked_actor
from omnigraph.maintenance.clone.plan import CopiedFile
from omnigraph.maintenance.verify.history import check_manifest
from omnigraph.maintenance.verify.scope import FrozenManifest
from omnigraph.storage.files.checksums import Packed, pack
from omnigraph.storage.layout import Location
from omnigraph.storage.manifest.create import publish_manifest
from omnigraph.storage.manifest.records import MAIN, Head, Record
from omnigraph.storage.manifest.table import Manifest, fresh_incarnation
from omnigraph.storage.ulids import new_ulid

if TYPE_CHECKING:
    from omnigraph.graph.snapshot import Snapshot


def carried_checksums(manifest: Manifest, files: Iterable[CopiedFile]) -> Packed:
    """The recorded checksums of copied files, under the paths that these have in the clone."""
    still = FrozenManifest(manifest.location)
    recorded = check_manifest(still, []).checksums
    return "".join(pack({file.target: crc}) for file in files for crc in recorded.expected(file.source))


def publish_state(target: Location, snapshot: Snapshot, *, actor: str | None, checksums: Packed) -> None:
    """GraphExists if another process was first."""
    view = snapshot.view
    measured = (p if p.rows is not None else view.tables.measured(p) for p in view.pins.values())
    pins = {pin.table: replace(pin, fork=None) for pin in measured}
    schema_id = f"s{secrets.token_hex(8)}"
    incarnation, commit = fresh_incarnation(), new_ulid()
    record = Record(
        branch=MAIN,
        incarnation=incarnation,
        epoch=0,
        commit=commit,
        parent=None,
        kind="clone",
        actor=checked_actor(actor),
        created_at_us=time.time_ns() // 1000,
        schema=schema_id,
        delta=pins,
        snapshot=pins,
        summary={
            "cloned_from": {"uri": view.manifest.location.uri, "branch": snapshot.branch, "commit": snapshot.commit}
        },
    )
    head = Head(branch=MAIN, commit=commit, epoch=0, incarnation=incarnation, schema=schema_id, pins=pins)
    publish_manifest(
        target,
        head=head,
        record=record,
        schema=view.schema,
        stable_row_ids=view.manifest.stable_row_ids(),
        checksums=checksums,
    )
