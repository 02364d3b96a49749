"""Effects: stamped Lance commits on exact bases, and what to do with what lies above a pin.

Reading the versions above a pin, oldest first:

* a stamp of an epoch that is decided, or of a ticket of this same epoch that was lost: a leftover, restored over
* a stamp of a later epoch, or a Restore of this one by a claimant: I am the zombie, stop and ask
* no stamp, but an operation that the plan of this epoch declared, because Lance takes no stamp for it: as if stamped
* no stamp of ours: uncovered drift, which only `repair` may touch

A Restore lands over anything. So the restored version becomes the base of the operation that does it, and is
published with it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence, Set
from typing import Any

from omnigraph.commit.advisory_lock import AdvisoryLock
from omnigraph.commit.operation import LaterStep, Prepared, TableWork, View
from omnigraph.commit.phases import Observer
from omnigraph.commit.plan import Plan, PlannedTable
from omnigraph.commit.stamp import Stamp
from omnigraph.errors import StorageError, UncoveredDrift, VersionReclaimed
from omnigraph.storage import durability
from omnigraph.storage.concurrency import map_threads
from omnigraph.storage.files import checksums, truncated_versions
from omnigraph.storage.files.checksums import Packed
from omnigraph.storage.lance import lance_api
from omnigraph.storage.lance.edits import fragment_files, restoring
from omnigraph.storage.lance.indices import secure_reuse
from omnigraph.storage.lance.tables import Tables
from omnigraph.storage.lance.transactions import step_at, steps_above
from omnigraph.storage.manifest.records import Pin


class StaleWriter(Exception):
    """Somebody with a newer claim is at work here: whatever I hold is void. Ask for the outcome."""


class EffectMissed(Exception):
    """A step did not land directly above its base, or it is not known whether it did."""

    @property
    def is_lost_race(self) -> bool:
        """Whether another commit was in the way, and not the store."""
        return self.__cause__ is None or isinstance(self.__cause__, lance_api.conflicts())

    @property
    def refusal(self) -> str | None:
        """What Lance said, unless a lost race explains it."""
        return None if self.is_lost_race else str(self)


class Stray(EffectMissed):
    """Lance's own commit, which takes no stamp, landed where it was not planned: only who made it knows whose it is."""

    def __init__(self, table: str, versions: frozenset[int], text: str) -> None:
        super().__init__(text)
        self.table = table
        self.versions = versions


def require_no_drift(view: View, pins: Mapping[str, Pin]) -> None:
    """Refuse tables that moved without the door, before anything is written for this operation."""

    def look(pin: Pin) -> None:
        if view.owns(pin) and view.tables.newest_version(pin) > pin.version:
            for version, text in lance_api.stamps_above(view.tables.newest(pin), pin.version):
                if Stamp.parse(text) is None:
                    raise _drift(view, pin, version)

    map_threads(look, list(pins.values()))


def _drift(view: View, pin: Pin, version: int) -> UncoveredDrift:
    known = view.schema.by_id.get(pin.table)
    return UncoveredDrift(
        table_key=known.key if known else pin.table,
        branch=view.head.branch,
        manifest_version=pin.version,
        lance_head_version=max(version, view.tables.newest_version(pin)),
    )


def heal(
    view: View,
    table: str,
    lock: AdvisoryLock,
    *,
    attempt: int,
    observe: Observer,
    declared: Sequence[str] = (),
    strays: Set[int] = frozenset(),
) -> Pin:
    """The version to build on: the pin, or a Restore of it when leftovers lie above it.

    `declared` are operations without a stamp that an earlier attempt under this ticket may have left, `strays` versions
    without a stamp that this process is known to have made.
    """
    pin = view.pins[table]
    if not view.owns(pin) or view.tables.newest_version(pin) == pin.version:
        return pin
    tables = view.tables
    truncated_versions.move_aside(tables.location, tables.location.join(pin.path), above=pin.version)
    newest = tables.newest(pin)
    above = lance_api.stamps_above(newest, pin.version)
    if not above:
        return pin
    for version, text in above:
        stamp = Stamp.parse(text)
        if stamp is None and (version in strays or is_declared(newest, version, declared)):
            continue
        if stamp is None:
            raise _drift(view, pin, version)
        mine = stamp.epoch == lock.epoch and stamp.nonce == lock.nonce
        if stamp.epoch > lock.epoch or (mine and stamp.is_restore and stamp.step != f"r{lock.claimant}"):
            raise StaleWriter(str(stamp))
    return restore(view, pin, lock, attempt=attempt, newest_version=newest.version, observe=observe)


def is_declared(table: Any, version: int, declared: Sequence[str]) -> bool:
    """Whether an operation that a plan has declared made this version."""
    return bool(declared) and step_at(table, version).operation in declared


def restore(view: View, pin: Pin, lock: AdvisoryLock, *, attempt: int, newest_version: int, observe: Observer) -> Pin:
    """Commit a stamped Restore of the pin; the pin of the restored version."""
    observe("restore")
    tables = view.tables
    stamp = Stamp(lock.incarnation, lock.epoch, attempt, pin.table, f"r{lock.claimant}", lock.nonce)
    tx = restoring(pin.version, read_version=pin.version)
    tx.transaction_properties = {lance_api.STAMP: str(stamp)}
    done = _commit(tables, tables.location.join(pin.path), tx)
    for version in range(newest_version + 1, done.version):
        if Stamp.parse(lance_api.stamp_of(done, version)) is None:
            raise _drift(view, pin, version)
    restored = pin.at(done.version)
    tables.keep(restored, done)
    return restored


def require_no_later_claim(view: View, prepared: Prepared, lock: AdvisoryLock) -> None:
    """What counts for adopted drift as for any other table: a stamp of a later epoch makes me the zombie."""
    for table, work in prepared.tables.items():
        if work.publishes_drift and table in view.pins:
            for step in steps_above(work.handle, view.pins[table].version):
                stamp = Stamp.parse(step.stamp)
                if stamp is not None and stamp.epoch > lock.epoch:
                    raise StaleWriter(str(stamp))


def run_effects(prepared: Prepared, lock: AdvisoryLock, *, attempt: int, observe: Observer) -> None:
    """Commit every step of every table. EffectMissed unless each landed exactly where it was planned.

    What bears no stamp is begun only while the epoch is undecided: the Restore that makes Lance refuse a late one may
    have been collected since, and nobody else would know whose it is. Who is stopped inside of that call knows what it
    has made, and restores over it (`Stray`).

    Tables do not depend on each other, and of many each would wait for its own syncs or requests: then several are
    committed at once. None is still at it when this returns or raises.
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
            done = work.last.run(handle)
    except StorageError:
        raise
    except (OSError, ValueError, RuntimeError) as error:
        raise EffectMissed(str(error)) from error
    steps = list(steps_above(done, before))
    found = tuple(step.operation for step in steps)
    if found != work.last.operations:
        ours = (s.version for s in steps if s.stamp is None and s.operation in work.last.operations)
        raise Stray(work.pin.table, frozenset(ours), f"{work.last.operations} became {found}")
    if tables.location.is_local:
        uri = tables.location.join(work.pin.path)
        versions = [durability.manifest_path(uri, v) for v in range(before + 1, done.version + 1)]
        checksums.note(versions)
        durability.sync_files(versions)
        secure_reuse(tables.location, work.pin, done)
    return done


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


def landed(tables: Tables, plan: Plan, lock: AdvisoryLock) -> bool:
    """Whether every table holds exactly the planned steps directly above its base.

    Steps without a stamp never count: only who ran them knows whether all that Lance wrote in that call was synced.
    """
    if any(planned.unstamped for planned in plan.tables.values()):
        return False
    for table, planned in plan.tables.items():
        try:
            newest = tables.newest(planned.pin)
            if planned.steps == 0:
                tables.open(planned.pin)  # adopted as it is: it must still be there
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


def secure_effects(tables: Tables, effects: Iterable[PlannedTable], known: Packed) -> None:
    """Sync the files of another's effects before publishing them: its owner may have died before it did.

    What the plan has no checksum of, because it was written after it, gets one; `known` are those that it has.
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
        old = {f.fragment_id: fragment_files(location, pin, base, f, with_data=False) for f in base.get_fragments()}
        files = [
            (path, path in old.get(fragment.fragment_id, ()))
            for fragment in newest.get_fragments()
            for path in fragment_files(location, pin, newest, fragment, with_data=fragment.fragment_id not in old)
        ]
        durability.sync_files([*versions, *(path for path, _ in files)])
        new = {path.removeprefix(f"{location.uri}/"): path for path in versions[1:]}
        new |= {path.removeprefix(f"{location.uri}/"): path for path, is_old in files if not is_old}
        checksums.note(new[path] for path in new.keys() - checksums.paths_in(known, new))
