"""Effects: stamped Lance commits on their base versions, and how versions above a pin are treated.

Each version above a pin, oldest first, carries one of these:

* a stamp of a decided epoch, or of a lost lock of this same epoch: a leftover version; restore over it
* a stamp of a later epoch, or a Restore of this epoch by a claimant: this writer is stale; stop and read the outcome
* no stamp, but an operation that the plan of this epoch declared because Lance accepts no stamp for it: as if stamped
* no stamp of omnigraph: uncovered drift, which only `repair` may change

Lance accepts a Restore over any version. So the restored version becomes the base of the operation that restores, and
is published with it.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence, Set
from typing import Any

from omnigraph.commit.advisory_lock import AdvisoryLock
from omnigraph.commit.operation import LaterStep, Prepared, TableWork, View
from omnigraph.commit.phases import Observer
from omnigraph.commit.plan import Plan, PlannedTable
from omnigraph.commit.stamp import Stamp
from omnigraph.config.logs import log_event
from omnigraph.errors import StorageError, UncoveredDrift, VersionReclaimed
from omnigraph.storage import durability
from omnigraph.storage.concurrency import map_threads
from omnigraph.storage.files import checksums, truncated_versions
from omnigraph.storage.files.checksums import Packed
from omnigraph.storage.lance import lance_api
from omnigraph.storage.lance.edits import fragment_files, restoring
from omnigraph.storage.lance.indices import sync_reuse_index
from omnigraph.storage.lance.tables import Tables
from omnigraph.storage.lance.transactions import step_at, steps_above
from omnigraph.storage.manifest.records import Pin

logger = logging.getLogger(__name__)


class StaleWriter(Exception):
    """A process with a newer claim has taken over this epoch: this writer's lock is void. Read the outcome."""


class EffectMissed(Exception):
    """An effect did not land directly above its base version, or it is unknown whether it did."""

    @property
    def is_lost_race(self) -> bool:
        """Whether a concurrent commit is the cause, and not the store."""
        return self.__cause__ is None or isinstance(self.__cause__, lance_api.conflicts())

    @property
    def refusal(self) -> str | None:
        """Lance's error text, unless a lost race is the cause."""
        return None if self.is_lost_race else str(self)


class Stray(EffectMissed):
    """A commit by Lance itself, without a stamp, landed above an unplanned version: only its writer can identify it."""

    def __init__(self, table: str, versions: frozenset[int], text: str) -> None:
        super().__init__(text)
        self.table = table
        self.versions = versions


def require_no_drift(view: View, pins: Mapping[str, Pin]) -> None:
    """Raise UncoveredDrift for tables that changed outside of the commit protocol, before the operation writes."""

    def check_pin(pin: Pin) -> None:
        if view.owns(pin) and view.tables.newest_version(pin) > pin.version:
            for version, text in lance_api.stamps_above(view.tables.newest(pin), pin.version):
                if Stamp.parse(text) is None:
                    raise _drift(view, pin, version)

    map_threads(check_pin, list(pins.values()))


def _drift(view: View, pin: Pin, version: int) -> UncoveredDrift:
    entity_type = view.schema.by_id.get(pin.table)
    return UncoveredDrift(
        table_key=entity_type.key if entity_type else pin.table,
        branch=view.head.branch,
        manifest_version=pin.version,
        lance_head_version=max(version, view.tables.newest_version(pin)),
    )


def restore_leftovers(
    view: View,
    table: str,
    lock: AdvisoryLock,
    *,
    attempt: int,
    observe: Observer,
    declared: Sequence[str] = (),
    strays: Set[int] = frozenset(),
) -> Pin:
    """The base version of the table: its pin, or a Restore of the pin if leftover versions lie above it.

    `declared` are operations without a stamp that an earlier attempt under this lock may have left, `strays` versions
    without a stamp that this process committed.
    """
    pin = view.pins[table]
    if not view.owns(pin) or view.tables.newest_version(pin) == pin.version:
        return pin
    tables = view.tables
    truncated_versions.move_aside(tables.location, tables.location.join(pin.path), above=pin.version)
    newest = tables.newest(pin)
    stamps = lance_api.stamps_above(newest, pin.version)
    if not stamps:
        return pin
    for version, text in stamps:
        stamp = Stamp.parse(text)
        if stamp is None and (version in strays or is_declared(newest, version, declared)):
            continue
        if stamp is None:
            raise _drift(view, pin, version)
        is_own = stamp.epoch == lock.epoch and stamp.nonce == lock.nonce
        if stamp.epoch > lock.epoch or (is_own and stamp.is_restore and stamp.step != f"r{lock.claimant}"):
            raise StaleWriter(str(stamp))
    restored = restore(view, pin, lock, attempt=attempt, newest_version=newest.version, observe=observe)
    log_event(
        logger,
        logging.INFO,
        "leftover versions restored",
        graph=tables.location.uri,
        branch=view.head.branch,
        epoch=lock.epoch,
        table=table,
        versions=[version for version, _ in stamps],
        restored_to=pin.version,
        version=restored.version,
    )
    return restored


def is_declared(table: Any, version: int, declared: Sequence[str]) -> bool:
    """Whether this version was made by an operation that a plan declared."""
    return bool(declared) and step_at(table, version).operation in declared


def restore(view: View, pin: Pin, lock: AdvisoryLock, *, attempt: int, newest_version: int, observe: Observer) -> Pin:
    """Commit a stamped Restore of the pin and return the pin of the restored version."""
    observe("restore")
    tables = view.tables
    stamp = Stamp(lock.incarnation, lock.epoch, attempt, pin.table, f"r{lock.claimant}", lock.nonce)
    tx = restoring(pin.version, read_version=pin.version)
    tx.transaction_properties = {lance_api.STAMP: str(stamp)}
    restored_table = _commit(tables, tables.location.join(pin.path), tx)
    for version in range(newest_version + 1, restored_table.version):
        if Stamp.parse(lance_api.stamp_of(restored_table, version)) is None:
            raise _drift(view, pin, version)
    restored = pin.at(restored_table.version)
    tables.keep(restored, restored_table)
    return restored


def require_no_later_claim(view: View, prepared: Prepared, lock: AdvisoryLock) -> None:
    """Raise StaleWriter if drift that is to be published carries a stamp of a later epoch, as for any other table."""
    for table, work in prepared.tables.items():
        if work.publishes_drift and table in view.pins:
            for step in steps_above(work.handle, view.pins[table].version):
                stamp = Stamp.parse(step.stamp)
                if stamp is not None and stamp.epoch > lock.epoch:
                    raise StaleWriter(str(stamp))


def run_effects(prepared: Prepared, lock: AdvisoryLock, *, attempt: int, observe: Observer) -> None:
    """Commit every effect of every table. Raises EffectMissed unless each landed exactly above its planned base.

    An effect without a stamp begins only while the epoch is undecided: the Restore that makes Lance refuse a late one
    may have been collected since, and no other process could identify its version. A writer that is stopped inside
    that call knows which versions it made, and restores over them (`Stray`).

    Tables are independent, so several are committed at once. No commit is still running when this returns or raises.
    """
    tables = prepared.view.tables

    def run(item: tuple[str, TableWork]) -> None:
        table, work = item
        handle = work.handle
        for step, prepared_step in enumerate((*work.steps, *work.later)):
            observe("effect")
            with lance_api.reading(f"preparing a step on {work.pin.path}"):
                tx = prepared_step.build(handle) if isinstance(prepared_step, LaterStep) else prepared_step
            stamp = Stamp(lock.incarnation, lock.epoch, attempt, table, str(step), lock.nonce)
            tx.transaction_properties = {lance_api.STAMP: str(stamp)}
            handle = _commit(tables, handle, tx)
            if handle.version != work.pin.version + step + 1:
                raise EffectMissed(f"{stamp} landed at {handle.version}")
        if work.last is not None:
            observe("effect")
            head = prepared.view.manifest.head(prepared.view.head.branch)
            if (head.incarnation, head.epoch) != (lock.incarnation, lock.epoch - 1):
                raise StaleWriter(f"epoch {lock.epoch} is decided")
            handle = _run_unstamped(tables, work, handle)
        tables.keep(work.result, handle)

    map_threads(run, sorted(prepared.tables.items()))


def _run_unstamped(tables: Tables, work: TableWork, handle: Any) -> Any:
    assert work.last is not None
    before = handle.version
    try:
        with lance_api.no_panic(f"committing to {work.pin.path}"):
            committed = work.last.run(handle)
    except StorageError:
        raise
    except (OSError, ValueError, RuntimeError) as error:
        raise EffectMissed(str(error)) from error
    steps = list(steps_above(committed, before))
    operations = tuple(step.operation for step in steps)
    if operations != work.last.operations:
        own_versions = (s.version for s in steps if s.stamp is None and s.operation in work.last.operations)
        raise Stray(work.pin.table, frozenset(own_versions), f"{work.last.operations} became {operations}")
    if tables.location.is_local:
        uri = tables.location.join(work.pin.path)
        versions = [durability.manifest_path(uri, v) for v in range(before + 1, committed.version + 1)]
        checksums.note(versions)
        durability.sync_files(versions)
        sync_reuse_index(tables.location, work.pin, committed)
    return committed


def _commit(tables: Tables, target: Any, tx: Any) -> Any:
    try:
        return lance_api.commit(tables.location, target, tx)
    except StorageError as error:
        if not lance_api.is_panic(error):
            raise
        # At some commits that came too late Lance panics, instead of saying so. Whether it is that will be seen.
        raise EffectMissed(str(error.fields["detail"])) from error
    except (OSError, ValueError, RuntimeError) as error:
        raise EffectMissed(str(error)) from error


def has_landed(tables: Tables, plan: Plan, lock: AdvisoryLock) -> bool:
    """Whether every table has exactly the planned effects directly above its base version.

    False for a plan with effects without a stamp: only their writer knows whether all files of that call were synced.
    """
    if any(planned.unstamped for planned in plan.tables.values()):
        return False
    for table, planned in plan.tables.items():
        try:
            newest = tables.newest(planned.pin)
            if planned.steps == 0:
                tables.open(planned.pin)  # published as it is: it must still exist
        except (lance_api.TableMissing, VersionReclaimed):
            return False
        for step in range(planned.steps):
            version = planned.pin.version + step + 1
            if version > newest.version:
                return False
            expected = Stamp(lock.incarnation, lock.epoch, plan.attempt, table, str(step), lock.nonce)
            if lance_api.stamp_of(newest, version) != str(expected):
                return False
    return True


def sync_effects(tables: Tables, effects: Iterable[PlannedTable], noted_checksums: Packed) -> None:
    """Sync the files of another writer's effects before publishing them: it may have crashed before its own sync.

    Files that were written after the plan have no checksum there and get one; `noted_checksums` are those of the plan.
    """
    location = tables.location
    if not location.is_local:
        return
    for planned in effects:
        pin = planned.pin
        last = pin.at(pin.version + planned.steps)
        uri = location.join(pin.path)
        versions = [durability.manifest_path(uri, version) for version in range(pin.version, last.version + 1)]
        newest, base = tables.open(last), tables.open(pin)
        old_files = {
            f.fragment_id: fragment_files(location, pin, base, f, with_data=False) for f in base.get_fragments()
        }
        files = [
            (path, path in old_files.get(fragment.fragment_id, ()))
            for fragment in newest.get_fragments()
            for path in fragment_files(location, pin, newest, fragment, with_data=fragment.fragment_id not in old_files)
        ]
        durability.sync_files([*versions, *(path for path, _ in files)])
        new_paths = {path.removeprefix(f"{location.uri}/"): path for path in versions[1:]}
        new_paths |= {path.removeprefix(f"{location.uri}/"): path for path, is_old in files if not is_old}
        checksums.note(new_paths[path] for path in new_paths.keys() - checksums.paths_in(noted_checksums, new_paths))
