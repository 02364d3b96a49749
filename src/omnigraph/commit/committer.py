"""The committer: every change of the graph passes through it, one decided epoch of one branch at a time.

1. prepare   on one snapshot, without the lock: the operation validates, writes files, builds transactions
2. lock      the create-only advisory lock of epoch head + 1; if another writer holds it, wait, or recover the epoch of
             a crashed writer
3. check     under the lock: are the tables that were read or will be written unchanged, and will all prepared files
             stay (`Prepared.lost`)? if not, prepare again, under the lock; on every attempt
4. plan      an immutable object: the commit to be, and per table the base version and the number of effects
5. effect    stamped Lance commits, each exactly one version above the last
6. publish   one compare-and-swap of the branch's head
7. release   delete the lock and the plan

After any error or doubt the outcome of the epoch is read from the manifest, never inferred; an undecided epoch is
rolled forward or back. A crash before 5 leaves unreferenced files; a crash in 5 leaves versions above the pins, which
no reader uses and the next writer recovers; a crash after 6 leaves a complete commit.
"""

from __future__ import annotations

import itertools
import logging
import threading
import time
from collections.abc import Iterable, Mapping
from contextlib import AbstractContextManager, ExitStack
from dataclasses import replace

from omnigraph.commit import effects, owner
from omnigraph.commit.advisory_lock import AdvisoryLock, AdvisoryLocks, lease_s
from omnigraph.commit.attempt import Attempt
from omnigraph.commit.backoff import write_timeout_s, writer_backoff
from omnigraph.commit.operation import LeasesPins, Operation, Prepared, View
from omnigraph.commit.phases import Observer, silent
from omnigraph.commit.recovery import recover_epoch
from omnigraph.commit.request import Aborted, Busy, Outcome, Refusals, Request, require_commit
from omnigraph.config.backoff import Backoff
from omnigraph.config.logs import log_event
from omnigraph.errors import StorageError, UncoveredDrift, VersionReclaimed, WriterBusy
from omnigraph.legacy.intents import delete_recovered
from omnigraph.legacy.migrate import require_current
from omnigraph.storage.durability import fsync_enabled
from omnigraph.storage.lance import lance_api
from omnigraph.storage.lance.tables import Tables
from omnigraph.storage.manifest.incarnations import operation_of
from omnigraph.storage.manifest.packed_heads import pack_if_due
from omnigraph.storage.manifest.records import Pin
from omnigraph.storage.manifest.table import Manifest
from omnigraph.storage.objects import leases
from omnigraph.storage.objects.control_objects import ControlObjects

logger = logging.getLogger(__name__)

UNLOCKED_PREPARATIONS_MAX = 3
"""How often long work is prepared without the lock before it is prepared under it."""
SWEEP_EVERY = 64
RECOVERIES_MAX = 3
RECOVERY_PAUSE_S = 0.2


class Committer:
    """The committer of one graph. A mutex orders the threads of a process, advisory locks the processes."""

    def __init__(self, manifest: Manifest, *, observer: Observer = silent) -> None:
        self.manifest = manifest
        self.tables = Tables(manifest.location)
        self.locks = AdvisoryLocks(ControlObjects(manifest.location))
        self.observe = observer
        self.mutex = threading.RLock()
        self._operations = 0
        self.contended = False
        self.strays: dict[str, frozenset[int]] = {}
        """Versions by table that this handle committed without a stamp and too late: see `effects.Stray`."""

    # ---- views -------------------------------------------------------------------------------------------------------

    def view(self, branch: str) -> View:
        return self.view_on(branch, {})

    def view_on(self, branch: str, bases: Mapping[str, Pin]) -> View:
        """The branch's newest state, with `bases` in place of the pins of some tables."""
        head = self.manifest.head(branch)
        refs = self.manifest.known_refs()
        pins = {**self.manifest.pins(head), **bases}
        return View(head=head, pins=pins, manifest=self.manifest, tables=self.tables, refs=refs)

    def view_at(self, branch: str, commit: str) -> View:
        """The state of any commit, seen from the branch `branch`."""
        return self.view(branch).at(commit)

    # ---- one operation -----------------------------------------------------------------------------------------------

    def run(self, operation: Operation, request: Request) -> Outcome:
        """Commit one operation: acknowledged exactly once, or an error and no effect."""
        lease_s(), fsync_enabled()  # refuse invalid settings before any work
        with self.mutex, ExitStack() as lease_stack:
            require_current(self.manifest, observe=self.observe)
            self._sweep_sometimes()
            deadline = time.monotonic() + write_timeout_s()
            prepared: Prepared | None = None
            refusals = Refusals()
            for tries in itertools.count():
                view = self.view(request.branch)
                repeated = self._repeated_outcome(view, request)
                if repeated is not None:
                    return repeated
                require_commit(view, request)
                if prepared is None and not (operation.quick and self.contended):
                    try:
                        prepared = self.prepare(operation, view, lease_stack)
                    except VersionReclaimed:
                        self._reraise_unless_moved(view)
                        continue
                    if prepared.is_empty:
                        return Outcome(None, prepared.result)
                try:
                    outcome = self._under_lock(operation, request, view, prepared, lease_stack, deadline, tries)
                    pack_if_due(self.manifest)
                    return outcome
                except Aborted as aborted:
                    self._log_retry(logging.INFO, "operation retried after an abort", view, operation, aborted.refusal)
                    self._restore_strays(operation, request, lease_stack, deadline)
                    refusals.add(aborted.refusal, doing=f"committing {operation.kind}")
                    prepared = None
                except VersionReclaimed as error:
                    self._reraise_unless_moved(view)
                    self._log_retry(logging.INFO, "operation retried on a newer view", view, operation, str(error))
                    prepared = None
                except Busy:
                    self._log_retry(logging.DEBUG, "operation retried after another writer", view, operation)
                if time.monotonic() > deadline:
                    raise WriterBusy(branch=request.branch, waited_s=write_timeout_s())
            raise AssertionError("unreachable")

    def _log_retry(self, level: int, event: str, view: View, operation: Operation, reason: str | None = None) -> None:
        head, graph = view.head, self.manifest.location.uri
        fields = {"branch": head.branch, "epoch": head.epoch + 1, "kind": operation.kind, "reason": reason}
        log_event(logger, level, event, graph=graph, **fields)

    def _reraise_unless_moved(self, view: View) -> None:
        """Re-raise the current error unless another writer committed since `view` was read: then a cleanup may have
        removed the versions of that view, and the operation is prepared on a newer one.
        """
        if self.manifest.head(view.head.branch).commit == view.head.commit:
            raise

    def prepare(self, operation: Operation, view: View, lease_stack: ExitStack) -> Prepared:
        """Prepare the operation on `view`, with a lease where it needs one.

        Long work holds a lease on what it reads and on the files that it writes. An operation that reads versions
        other than those of its view holds a lease on these (`LeasesPins`). A lease lasts until the work is published
        or prepared again; then `lease_stack` holds the new one. Other short work needs none: see `Prepared.lost`.
        """
        self.observe("prepare")
        pins = tuple(operation.leased_pins(view)) if isinstance(operation, LeasesPins) else ()
        lease: leases.HeldLease | None = None
        if pins or not operation.quick:
            new_stack = ExitStack()
            lease = new_stack.enter_context(self._leased(view, pins, prepares=not operation.quick))
            lease_stack.close()
            lease_stack.enter_context(new_stack)
        with lance_api.reading(f"preparing {operation.kind}"):
            prepared = operation.prepare(view)
        return prepared if prepared.lease is not None else replace(prepared, lease=lease)

    def _leased(self, view: View, pins: Iterable[Pin], *, prepares: bool) -> AbstractContextManager[leases.HeldLease]:
        return leases.hold(
            self.manifest.location,
            {*pins, *(view.pins.values() if prepares else ())},
            owner=owner.myself(),
            is_gone=owner.is_gone,
            branch=view.head.branch,
            commit=view.head.commit,
            prepares=prepares,
            live_pins=self.manifest.live_pins,
            table_keys=view.table_keys,
        )

    def _under_lock(
        self,
        operation: Operation,
        request: Request,
        view: View,
        prepared: Prepared | None,
        lease_stack: ExitStack,
        deadline: float,
        tries: int,
    ) -> Outcome:
        if prepared is not None:
            self._require_no_drift(view, {t: view.pins[t] for t in prepared.tables_at_pin if t in view.pins})
        scope = operation.scope(view) | set(prepared.tables if prepared else ())
        self.observe("lock")
        epoch = view.head.epoch + 1
        lock = self.locks.take(view.head.incarnation, epoch, tables=tuple(sorted(scope)), kind=operation.kind)
        if lock is None:
            self.contended = True
            self.wait(request.branch, view.head.incarnation, epoch, deadline)
            raise Busy
        attempt = Attempt(self, operation, request, lock, lease_stack, patient=tries >= UNLOCKED_PREPARATIONS_MAX)
        try:
            return attempt.run(prepared)
        finally:
            self.locks.stop_renewing(lock)

    def _restore_strays(self, operation: Operation, request: Request, lease_stack: ExitStack, deadline: float) -> None:
        while self.strays and time.monotonic() < deadline:
            view = self.view(request.branch)
            tables = tuple(t for t in sorted(self.strays) if t in view.pins and view.owns(view.pins[t]))
            if not tables:
                return
            lock = self.locks.take(view.head.incarnation, view.head.epoch + 1, tables=tables, kind=operation.kind)
            if lock is None:
                self.wait(request.branch, view.head.incarnation, view.head.epoch + 1, deadline)
                continue
            try:
                Attempt(self, operation, request, lock, lease_stack, patient=False).restore_strays()
            finally:
                self.locks.stop_renewing(lock)

    def _require_no_drift(self, view: View, pins: Mapping[str, Pin]) -> None:
        """Refuse drift before a lock is taken, unless another writer holds it: then versions above a pin may be its
        effects. The check is repeated under the lock.
        """
        try:
            effects.require_no_drift(view, pins)
        except UncoveredDrift:
            # Read the lock before the head: a writer deletes its lock only after it moved the head. So without a lock
            # and with the same head, no writer is active.
            if self.locks.holder(view.head.incarnation, view.head.epoch + 1) is not None:
                return
            head = self.manifest.head(view.head.branch)
            if (head.incarnation, head.epoch) == (view.head.incarnation, view.head.epoch):
                raise

    def _repeated_outcome(self, view: View, request: Request) -> Outcome | None:
        if request.operation_id is None:
            return None
        record = operation_of(self.manifest, view.head, request.operation_id)
        return None if record is None else Outcome(record, record.summary, repeated=True)

    def _sweep_sometimes(self) -> None:
        if self._operations % SWEEP_EVERY == 0:
            self.sweep()
        self._operations += 1

    def sweep(self) -> None:
        """Delete the control objects of decided epochs, of any process."""
        loose = self.locks.sweep(lambda: {h.incarnation: h.epoch for h in self.manifest.heads().values()})
        delete_recovered(self.locks.objects, loose)

    # ---- waiting and recovery ----------------------------------------------------------------------------------------

    def wait(self, branch: str, incarnation: str, epoch: int, deadline: float) -> None:
        """Return when the epoch is decided; claim and recover it as soon as its holder is known to have crashed.

        Raises the store's error after RECOVERIES_MAX failed recoveries.
        """
        pause = writer_backoff(local=self.manifest.location.is_local)
        store_pause = Backoff(first_s=RECOVERY_PAUSE_S, max_s=RECOVERIES_MAX * RECOVERY_PAUSE_S)
        failures = 0
        while time.monotonic() < deadline:
            head = self.manifest.head(branch)
            if head.epoch >= epoch or head.incarnation != incarnation:
                return
            holder = self.locks.holder(incarnation, epoch)
            if holder is None:
                return
            lock, is_crashed = holder
            may_recover = is_crashed or self.locks.is_own(lock)
            try:
                if not may_recover or not self._claim_and_recover(branch, lock):
                    pause()
            except StorageError:
                failures += 1  # the claim stays; the next caller, or the next round here, recovers the epoch
                if failures == RECOVERIES_MAX:
                    raise
                store_pause()

    def _claim_and_recover(self, branch: str, current: AdvisoryLock) -> bool:
        """Recover an epoch whose holder crashed, or which this handle holds and could not recover before."""
        self.observe("claim")
        claim = current if self.locks.is_own(current) else self.locks.claim(current)
        if claim is None:
            return False
        log_event(
            logger,
            logging.WARNING,
            "epoch claimed",
            graph=self.manifest.location.uri,
            branch=branch,
            epoch=claim.epoch,
            table=claim.tables,
            kind=claim.kind,
            claimant=claim.claimant,
        )
        try:
            view = self.view(branch)
            record = recover_epoch(
                self.manifest, self.locks, view, claim, observe=self.observe, reason="its writer crashed"
            )
        except effects.EffectMissed as missed:
            if missed.is_lost_race:
                return False
            raise StorageError(doing="recovering the epoch of a crashed writer", detail=str(missed)) from missed
        finally:
            self.locks.stop_renewing(claim)
        self.sweep()
        return record is not None
