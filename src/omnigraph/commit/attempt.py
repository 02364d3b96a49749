"""One operation while it holds the advisory lock of one epoch: check, plan, effect, publish, release.

The epoch is always decided: by this attempt or, if it can't, by the next writer. After any error or doubt the outcome
is read from the manifest, never inferred. Committed: acknowledged. Aborted: the committer tries again under a new
epoch. Undecided: recovered (rolled forward or back), then read again.
"""

from __future__ import annotations

import logging
import time
from contextlib import ExitStack, suppress
from typing import TYPE_CHECKING, Any

from omnigraph.commit import effects
from omnigraph.commit.advisory_lock import AdvisoryLock
from omnigraph.commit.operation import Operation, Prepared, Successor, View
from omnigraph.commit.plan import Plan
from omnigraph.commit.publication import abort_record, commit_record, publish, with_checksums
from omnigraph.commit.recovery import recover_epoch
from omnigraph.commit.request import Aborted, Busy, Outcome, Request, require_commit
from omnigraph.config.backoff import Backoff
from omnigraph.config.logs import log_event
from omnigraph.errors import BranchNotFound, OmnigraphError, RecoveryPending, StaleView, StorageError, UncoveredDrift
from omnigraph.storage.concurrency import map_threads
from omnigraph.storage.durability import NotDurable
from omnigraph.storage.layout import RECOVERY
from omnigraph.storage.manifest.records import Pin, Record
from omnigraph.storage.manifest.table import SwapLost

if TYPE_CHECKING:
    from omnigraph.commit.committer import Committer

logger = logging.getLogger(__name__)

ATTEMPTS_MAX = 4
DISCARDS_MAX = 4
"""How often prepared work is discarded under one lock because its files were removed."""
RESOLVE_ROUNDS_MAX = 8
RESOLVE_MAX_S, RESOLVE_LOCAL_MAX_S = 8.0, 2.0
"""How long a writer that does not know its outcome repeats reads on a failing store."""


class Attempt:
    """One operation under one advisory lock. `lease_stack` holds the lease of its prepared work. `patient`: work that
    is not quick may be prepared again under the lock.
    """

    def __init__(
        self,
        committer: Committer,
        operation: Operation,
        request: Request,
        lock: AdvisoryLock,
        lease_stack: ExitStack,
        *,
        patient: bool,
    ) -> None:
        self.may_prepare = operation.quick or patient
        self.committer = committer
        self.operation = operation
        self.request = request
        self.lock = lock
        self.lease_stack = lease_stack
        self.discards = 0
        self.restored: dict[str, Pin] = {}
        self.attempts = 0
        self.result: Any = None
        self.successor: Successor | None = None

    def run(self, prepared: Prepared | None) -> Outcome:
        """Check, plan, effect, publish, release; after any failure, decide the epoch."""
        committer, lock = self.committer, self.lock
        try:
            committer.observe("check")
            head = committer.manifest.head(self.request.branch)
            if head.epoch >= lock.epoch or head.incarnation != lock.incarnation:
                self._release()
                raise Busy
            outcome = self._attempts(prepared)
        except (SwapLost, effects.EffectMissed, effects.StaleWriter, StorageError) as failure:
            event = "compare-and-swap lost" if isinstance(failure, SwapLost) else "attempt failed"
            self._log(logging.INFO, event, failure)
            return self._resolve_outcome(failure)
        except (Busy, Aborted):
            raise
        except OmnigraphError:
            self._abort()
            raise
        except BaseException:
            # Interrupted, or a bug: in both cases the epoch must not stay undecided.
            self._resolve_quietly()
            raise
        self._release()
        return outcome

    def _attempts(self, prepared: Prepared | None) -> Outcome:
        committer = self.committer
        committer.contended = False
        while self.attempts < ATTEMPTS_MAX:
            view = self._restored_view(prepared)
            require_commit(view, self.request)
            if prepared is None or self.attempts or not self._is_usable(prepared, view):
                if prepared is not None and not self.attempts and not prepared.holds_on(view):
                    self._log_conflict(prepared, view)
                committer.contended = prepared is not None and self.attempts == 0
                prepared = self._prepare_under_lock(view)
                if prepared.is_empty:
                    self._abort()
                    return Outcome(None, prepared.result)
                if self._has_leftovers(view, prepared):
                    continue
                if self._discard_lost(prepared, view):
                    prepared = None
                    continue
            self.attempts += 1
            try:
                return self._attempt(view, prepared, self.attempts - 1)
            except effects.EffectMissed as missed:
                if self.attempts >= ATTEMPTS_MAX:
                    raise
                self._log(logging.INFO, "attempt retried", missed)
        raise effects.EffectMissed("no attempt landed")

    def _is_usable(self, prepared: Prepared, view: View) -> bool:
        return prepared.holds_on(view) and not self._discard_lost(prepared, view)

    def _discard_lost(self, prepared: Prepared, view: View) -> bool:
        """Discard prepared work that lost files, and return whether there was any: the next one writes new files."""
        lost = prepared.lost(view, again=self.attempts > 0)
        if not lost:
            return False
        prepared.discard(lost)
        self.discards += 1
        if self.discards > DISCARDS_MAX:
            keys = ", ".join(sorted(view.table_keys.get(t, t) for t in lost))
            raise StorageError(doing=f"committing to {keys}", detail="files are removed as soon as they are written")
        return True

    def _prepare_under_lock(self, view: View) -> Prepared:
        if not self.may_prepare:
            self._abort()
            raise Aborted
        prepared = self.committer.prepare(self.operation, view, self.lease_stack)
        written = {t for t, work in prepared.tables.items() if work.source is not None}
        if not written <= set(self.lock.tables):
            # The lock names the tables to fence after a crash: other tables need a lock that names them.
            self._abort()
            raise Aborted
        return prepared

    def _attempt(self, view: View, prepared: Prepared, attempt: int) -> Outcome:
        committer, lock, request = self.committer, self.lock, self.request
        self.result = prepared.result
        self.successor = prepared.successor
        own = (work.source is None or view.owns(work.pin) for work in prepared.tables.values())
        assert all(own), "a branch writes only to its own version lines"
        effects.require_no_later_claim(view, prepared, lock)
        if prepared.schema is not None:
            committer.manifest.append_schema(*prepared.schema)
        record = commit_record(
            view,
            prepared,
            lock,
            kind=self.operation.kind,
            actor=request.actor,
            operation_id=request.operation_id,
            restored=self.restored,
        )
        record, _ = with_checksums(committer.manifest, record)
        committer.observe("plan")
        plan = Plan.of(attempt, prepared.tables, record)
        if not committer.locks.write_plan(lock, attempt, plan.to_json()):
            raise effects.StaleWriter(f"the plan of epoch {lock.epoch} was written by another operation")
        if any(planned.unstamped for planned in plan.tables.values()):
            committer.locks.sync(lock, attempt)
        try:
            effects.run_effects(prepared, lock, attempt=attempt, observe=committer.observe)
        except effects.Stray as stray:
            committer.strays[stray.table] = committer.strays.get(stray.table, frozenset()) | stray.versions
            raise
        committer.observe("publish")
        publish(committer.manifest, committer.tables, view.head, record, prepared.successor)
        committer.observe("acknowledge")
        return Outcome(record, prepared.result)

    def _restored_view(self, prepared: Prepared | None) -> View:
        """The newest view of the branch, after Restores over leftover versions of the tables to be written."""
        committer = self.committer
        view = committer.view_on(self.request.branch, self.restored)
        if view.head.epoch >= self.lock.epoch or view.head.incarnation != self.lock.incarnation:
            raise effects.StaleWriter(f"epoch {self.lock.epoch} is decided")
        for pin in map_threads(lambda t: self._restored_pin(view, t, prepared), self._existing_tables(view, prepared)):
            if pin != view.pins[pin.table]:
                self.restored[pin.table] = pin
        return committer.view_on(self.request.branch, self.restored) if self.restored else view

    def _restored_pin(self, view: View, table: str, prepared: Prepared | None) -> Pin:
        declared = prepared.tables[table].unstamped if prepared and self.attempts else ()
        return effects.restore_leftovers(
            view, table, self.lock, attempt=self.attempts, observe=self.committer.observe, declared=declared
        )

    def _existing_tables(self, view: View, prepared: Prepared | None) -> list[str]:
        """The tables to be written that already exist on the branch."""
        return [table for table in prepared.tables_at_pin if table in view.pins] if prepared else []

    def _has_leftovers(self, view: View, prepared: Prepared) -> bool:
        """Whether a table that only this preparation names has leftover versions above its pin."""
        pins = [view.pins[t] for t in self._existing_tables(view, prepared)]
        return any(view.owns(pin) and view.tables.newest_version(pin) > pin.version for pin in pins)

    def restore_strays(self) -> None:
        """Restore over versions that this process committed late and without a stamp, and decide the epoch so."""
        try:
            view = self.committer.view_on(self.request.branch, {})
            if view.head.epoch < self.lock.epoch and view.head.incarnation == self.lock.incarnation:
                for table in self.lock.tables:
                    strays = self.committer.strays.pop(table, frozenset())
                    pin = effects.restore_leftovers(
                        view, table, self.lock, attempt=0, observe=self.committer.observe, strays=strays
                    )
                    if pin != view.pins[table]:
                        self.restored[table] = pin
            self._abort()
        except (UncoveredDrift, BranchNotFound):
            self._abort()
        except (effects.StaleWriter, effects.EffectMissed, StorageError) as failure:
            with suppress(Aborted):
                self._resolve_outcome(failure)

    def _abort(self) -> None:
        """No effect was committed: decide the epoch as an abort, so that no stale writer can use it."""
        try:
            view = self.committer.view_on(self.request.branch, self.restored)
            if view.head.incarnation == self.lock.incarnation and view.head.epoch < self.lock.epoch:
                record = abort_record(view.head, self.lock, pins=view.pins, restored=self.restored, reason="aborted")
                publish(self.committer.manifest, self.committer.tables, view.head, record)
        except BranchNotFound:
            pass  # the branch was deleted, and its epochs with it
        except (SwapLost, StorageError):
            return  # decided by another process, or unknown: the lock stays, and the next writer recovers the epoch
        self._release()

    def _resolve_outcome(self, failure: Exception) -> Outcome:
        """The outcome after a failure: read the record of the epoch; if there is none, recover the epoch and repeat."""
        first_failure = failure
        deadline = time.monotonic() + (
            RESOLVE_LOCAL_MAX_S if self.committer.manifest.location.is_local else RESOLVE_MAX_S
        )
        pause = Backoff(first_s=0.05, max_s=2.0)
        for round_number in range(RESOLVE_ROUNDS_MAX):
            if round_number > 1 and time.monotonic() > deadline:
                break
            try:
                decided = self._decided()
                record = decided or self._recover(failure)
            except StorageError as error:
                failure = failure if isinstance(failure, StorageError) else error
                pause()
                continue
            if record is None:
                continue
            self._release()
            if isinstance(failure, NotDurable) and not record.is_rolled_forward:
                raise failure  # perhaps visible, but not synced: not acknowledged
            if record.commit is not None and record.nonce == self.lock.nonce and record.kind == self.operation.kind:
                return Outcome(record, self.result)
            if isinstance(first_failure, StorageError) and decided is None:
                raise first_failure
            if isinstance(first_failure, StorageError):
                # Rolled back by another process, whose cleanup may have caused the error. A store that keeps failing is
                # reported after REFUSALS_MAX equal refusals.
                raise Aborted(str(first_failure))
            # A lost race stays a lost race, also if the store failed while the outcome was read.
            raise Aborted(first_failure.refusal if isinstance(first_failure, effects.EffectMissed) else None)
        if isinstance(failure, StorageError):
            raise failure
        raise RecoveryPending(
            branch=self.request.branch,
            operation_id=self.lock.nonce,
            detail=str(failure),
            path=f"{RECOVERY}/{self.lock.name}",
        )

    def _resolve_quietly(self) -> None:
        try:
            self._resolve_outcome(effects.EffectMissed("interrupted"))
        except (OmnigraphError, Aborted):
            return  # the caller sees the interruption; the next writer recovers the epoch

    def _decided(self) -> Record | None:
        head = self.committer.manifest.head(self.request.branch)
        if head.incarnation != self.lock.incarnation:
            return self._decided_in_old_incarnation()
        if head.epoch < self.lock.epoch:
            return None
        record = self.committer.manifest.outcome(self.lock.incarnation, self.lock.epoch)
        if record is None:
            raise StaleView(detail=f"the manifest has no record of epoch {self.lock.epoch}.")
        return record

    def _decided_in_old_incarnation(self) -> Record:
        """The outcome if the branch has another incarnation now: by a reset (perhaps this operation), or because the
        branch was deleted and created again. The records up to then exist, and the old incarnation gets no new ones.
        """
        incarnations = [self.lock.incarnation, *([self.successor.incarnation] if self.successor else [])]
        for incarnation in incarnations:
            record = self.committer.manifest.outcome(incarnation, self.lock.epoch)
            if record is not None:
                return record
        self._release()
        raise Aborted

    def _recover(self, failure: Exception) -> Record | None:
        committer = self.committer
        holder = committer.locks.holder(self.lock.incarnation, self.lock.epoch)
        if holder is not None and holder[0].claimant > self.lock.claimant:
            committer.wait(self.request.branch, self.lock.incarnation, self.lock.epoch, time.monotonic() + 60)
            return None
        view = committer.view_on(self.request.branch, {})
        try:
            return recover_epoch(
                committer.manifest,
                committer.locks,
                view,
                self.lock,
                observe=committer.observe,
                reason=str(failure),
                may_forward=not isinstance(failure, NotDurable),
            )
        except effects.EffectMissed:
            return None  # read the outcome again

    def _log_conflict(self, prepared: Prepared, view: View) -> None:
        """Other writers changed what the operation read or writes; `table` names the tables, none for a schema."""
        touched = {*prepared.reads, *prepared.tables, *prepared.dropped}
        changed = tuple(sorted(t for t in touched if prepared.view.pins.get(t) != view.pins.get(t)))
        log_event(
            logger,
            logging.INFO,
            "conflict, operation prepared again",
            graph=self.committer.manifest.location.uri,
            branch=self.request.branch,
            epoch=self.lock.epoch,
            table=changed or None,
            kind=self.operation.kind,
            attempt=self.attempts,
        )

    def _log(self, level: int, event: str, failure: Exception) -> None:
        log_event(
            logger,
            level,
            event,
            graph=self.committer.manifest.location.uri,
            branch=self.request.branch,
            epoch=self.lock.epoch,
            table=self.lock.tables,
            kind=self.operation.kind,
            attempt=self.attempts,
            reason=f"{type(failure).__name__}: {failure}",
        )

    def _release(self) -> None:
        self.committer.observe("release")
        self.committer.locks.release(self.lock, attempts=self.attempts)
