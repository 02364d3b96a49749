"""One operation while it holds the ticket of one epoch: check, plan, effect, publish, release.

Whatever happens here, the epoch gets decided: by this turn, or, if it can't, by whoever comes next. After any error or
doubt the outcome is asked for, never inferred. Committed: acknowledged. Aborted: the door tries again under a new
epoch. Undecided: settled, forward or back, and asked for again.
"""

from __future__ import annotations

import time
from contextlib import ExitStack, suppress
from typing import TYPE_CHECKING, Any

from omnigraph.commit import effects
from omnigraph.commit.advisory_lock import AdvisoryLock
from omnigraph.commit.operation import Operation, Prepared, Successor, View
from omnigraph.commit.plan import Plan
from omnigraph.commit.publication import abort_record, commit_record, publish, with_checksums
from omnigraph.commit.recovery import settle
from omnigraph.commit.request import Aborted, Busy, Outcome, Request, require_commit
from omnigraph.errors import BranchNotFound, OmnigraphError, RecoveryPending, StaleView, StorageError, UncoveredDrift
from omnigraph.storage.concurrency import map_threads
from omnigraph.storage.durability import NotDurable
from omnigraph.storage.layout import RECOVERY
from omnigraph.storage.manifest.records import Pin, Record
from omnigraph.storage.manifest.table import SwapLost

if TYPE_CHECKING:
    from omnigraph.commit.committer import Committer

ATTEMPTS_MAX = 4
DISCARDS_MAX = 4
"""How often under one ticket work is thrown away because its files are gone."""
SETTLE_MAX = 8
ASK_MOST_S, ASK_LOCAL_MOST_S = 8.0, 2.0
"""How long a writer that is in doubt goes on asking a store that fails."""


class Attempt:
    """One operation, one ticket. `held` holds the lease of its work. `patient`: work that is not quick may be prepared
    again under the ticket.
    """

    def __init__(
        self,
        committer: Committer,
        operation: Operation,
        request: Request,
        lock: AdvisoryLock,
        held: ExitStack,
        *,
        patient: bool,
    ) -> None:
        self.may_prepare = operation.quick or patient
        self.committer = committer
        self.operation = operation
        self.request = request
        self.lock = lock
        self.held = held
        self.discards = 0
        self.restored: dict[str, Pin] = {}
        self.attempts = 0
        self.result: Any = None
        self.successor: Successor | None = None

    def through(self, prepared: Prepared | None) -> Outcome:
        """Check, plan, effect, publish, release; on any failure make sure that the epoch gets decided."""
        committer, lock = self.committer, self.lock
        try:
            committer.observe("check")
            head = committer.manifest.head(self.request.branch)
            if head.epoch >= lock.epoch or head.incarnation != lock.incarnation:
                self._release()
                raise Busy
            outcome = self._attempts(prepared)
        except (SwapLost, effects.EffectMissed, effects.StaleWriter, StorageError) as trouble:
            return self._ask(trouble)
        except (Busy, Aborted):
            raise
        except OmnigraphError:
            self._give_up()
            raise
        except BaseException:
            # Interrupted, or a bug of ours: either way the epoch must not stay open behind our back.
            self._ask_quietly()
            raise
        self._release()
        return outcome

    def _attempts(self, prepared: Prepared | None) -> Outcome:
        committer = self.committer
        committer.contended = False
        while self.attempts < ATTEMPTS_MAX:
            view = self._healed_view(prepared)
            require_commit(view, self.request)
            if prepared is None or self.attempts or not self._may_use(prepared, view):
                committer.contended = prepared is not None and self.attempts == 0
                prepared = self._prepare_again(view)
                if prepared.is_empty:
                    self._give_up()
                    return Outcome(None, prepared.result)
                if self._has_leftovers(view, prepared):
                    continue
                if self._discards(prepared, view):
                    prepared = None
                    continue
            self.attempts += 1
            try:
                return self._attempt(view, prepared, self.attempts - 1)
            except effects.EffectMissed:
                if self.attempts >= ATTEMPTS_MAX:
                    raise
        raise effects.EffectMissed("no attempt landed")

    def _may_use(self, prepared: Prepared, view: View) -> bool:
        return prepared.holds_on(view) and not self._discards(prepared, view)

    def _discards(self, prepared: Prepared, view: View) -> bool:
        """Throw away what has lost files: what is prepared next is made of new ones."""
        lost = prepared.lost(view, again=self.attempts > 0)
        if not lost:
            return False
        prepared.discard(lost)
        self.discards += 1
        if self.discards > DISCARDS_MAX:
            keys = ", ".join(sorted(view.table_keys.get(t, t) for t in lost))
            raise StorageError(doing=f"committing to {keys}", detail="files are removed as soon as they are written")
        return True

    def _prepare_again(self, view: View) -> Prepared:
        if not self.may_prepare:
            self._give_up()
            raise Aborted
        prepared = self.committer.prepare(self.operation, view, self.held)
        written = {t for t, work in prepared.tables.items() if work.source is not None}
        if not written <= set(self.lock.tables):
            # The ticket says which tables to fence if I die: others need a ticket that names them.
            self._give_up()
            raise Aborted
        return prepared

    def _attempt(self, view: View, prepared: Prepared, attempt: int) -> Outcome:
        committer, lock, request = self.committer, self.lock, self.request
        self.result = prepared.result
        self.successor = prepared.successor
        own = (work.source is None or view.owns(work.pin) for work in prepared.tables.values())
        assert all(own), "a branch writes to lines of its own"
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
            raise effects.StaleWriter(f"the plan of epoch {lock.epoch} is another's")
        if any(planned.unstamped for planned in plan.tables.values()):
            committer.locks.secure(lock, attempt)
        try:
            effects.run_effects(prepared, lock, attempt=attempt, observe=committer.observe)
        except effects.Stray as stray:
            committer.strays[stray.table] = committer.strays.get(stray.table, frozenset()) | stray.versions
            raise
        committer.observe("publish")
        publish(committer.manifest, committer.tables, view.head, record, prepared.successor)
        committer.observe("acknowledge")
        return Outcome(record, prepared.result)

    def _healed_view(self, prepared: Prepared | None) -> View:
        """The newest view of the branch, with leftovers above the pins of the tables to be written restored over."""
        committer = self.committer
        view = committer.view_on(self.request.branch, self.restored)
        if view.head.epoch >= self.lock.epoch or view.head.incarnation != self.lock.incarnation:
            raise effects.StaleWriter(f"epoch {self.lock.epoch} is decided")
        for pin in map_threads(lambda t: self._healed(view, t, prepared), self._known(view, prepared)):
            if pin != view.pins[pin.table]:
                self.restored[pin.table] = pin
        return committer.view_on(self.request.branch, self.restored) if self.restored else view

    def _healed(self, view: View, table: str, prepared: Prepared | None) -> Pin:
        left = prepared.tables[table].unstamped if prepared and self.attempts else ()
        return effects.heal(
            view, table, self.lock, attempt=self.attempts, observe=self.committer.observe, declared=left
        )

    def _known(self, view: View, prepared: Prepared | None) -> list[str]:
        """The tables to be written that the branch has already."""
        return [table for table in prepared.healed if table in view.pins] if prepared else []

    def _has_leftovers(self, view: View, prepared: Prepared) -> bool:
        """Whether a table that only this preparation names has leftovers above its pin."""
        pins = [view.pins[t] for t in self._known(view, prepared)]
        return any(view.owns(pin) and view.tables.newest_version(pin) > pin.version for pin in pins)

    def restore_strays(self) -> None:
        """Restore over what this process made without a stamp and too late, and decide the epoch with that."""
        try:
            view = self.committer.view_on(self.request.branch, {})
            if view.head.epoch < self.lock.epoch and view.head.incarnation == self.lock.incarnation:
                for table in self.lock.tables:
                    strays = self.committer.strays.pop(table, frozenset())
                    pin = effects.heal(view, table, self.lock, attempt=0, observe=self.committer.observe, strays=strays)
                    if pin != view.pins[table]:
                        self.restored[table] = pin
            self._give_up()
        except (UncoveredDrift, BranchNotFound):
            self._give_up()
        except (effects.StaleWriter, effects.EffectMissed, StorageError) as trouble:
            with suppress(Aborted):
                self._ask(trouble)

    def _give_up(self) -> None:
        """Nothing of mine is anywhere: decide the epoch as an abort, so that no zombie can use it."""
        try:
            view = self.committer.view_on(self.request.branch, self.restored)
            if view.head.incarnation == self.lock.incarnation and view.head.epoch < self.lock.epoch:
                record = abort_record(view.head, self.lock, pins=view.pins, restored=self.restored, reason="given up")
                publish(self.committer.manifest, self.committer.tables, view.head, record)
        except BranchNotFound:
            pass  # the branch was deleted meanwhile, and its epochs with it
        except (SwapLost, StorageError):
            return  # decided by somebody else, or unknown: the ticket stays, and the next writer settles it
        self._release()

    def _ask(self, trouble: Exception) -> Outcome:
        """I do not know how far I came. Look the outcome up; settle it if it is undecided; believe the answer."""
        first = trouble
        patience = time.monotonic() + (ASK_LOCAL_MOST_S if self.committer.manifest.location.is_local else ASK_MOST_S)
        for turn in range(SETTLE_MAX):
            if turn > 1 and time.monotonic() > patience:
                break
            try:
                decided = self._decided()
                record = decided or self._settle(trouble)
            except StorageError as error:
                trouble = trouble if isinstance(trouble, StorageError) else error
                time.sleep(min(2.0, 0.05 * 2**turn))
                continue
            if record is None:
                continue
            self._release()
            if isinstance(trouble, NotDurable) and not record.is_rolled_forward:
                raise trouble  # perhaps visible, but not safe from a power loss: that is not acknowledged
            if record.commit is not None and record.nonce == self.lock.nonce and record.kind == self.operation.kind:
                return Outcome(record, self.result)
            if isinstance(first, StorageError) and decided is None:
                raise first
            if isinstance(first, StorageError):
                # Rolled back by another process, whose cleanup may have caused the error. A store that fails again and
                # again is reported after a few equal refusals.
                raise Aborted(str(first))
            # Failures while asking do not make a lost race the store's refusal.
            raise Aborted(first.refusal if isinstance(first, effects.EffectMissed) else None)
        if isinstance(trouble, StorageError):
            raise trouble
        raise RecoveryPending(
            branch=self.request.branch,
            operation_id=self.lock.nonce,
            detail=str(trouble),
            path=f"{RECOVERY}/{self.lock.name}",
        )

    def _ask_quietly(self) -> None:
        try:
            self._ask(effects.EffectMissed("interrupted"))
        except (OmnigraphError, Aborted):
            return  # interrupted: the user sees that, and whatever is left is settled by the next writer

    def _decided(self) -> Record | None:
        head = self.committer.manifest.head(self.request.branch)
        if head.incarnation != self.lock.incarnation:
            return self._decided_before()
        if head.epoch < self.lock.epoch:
            return None
        record = self.committer.manifest.outcome(self.lock.incarnation, self.lock.epoch)
        if record is None:
            raise StaleView(detail=f"the outcome of epoch {self.lock.epoch} is not on record.")
        return record

    def _decided_before(self) -> Record:
        """The outcome, if another incarnation has taken the branch over: by a reset, perhaps my own, or because it was
        deleted and made again. All that was decided until then is on record, and nothing can be decided any more.
        """
        ends = [self.lock.incarnation, *([self.successor.incarnation] if self.successor else [])]
        for incarnation in ends:
            record = self.committer.manifest.outcome(incarnation, self.lock.epoch)
            if record is not None:
                return record
        self._release()
        raise Aborted

    def _settle(self, trouble: Exception) -> Record | None:
        committer = self.committer
        held = committer.locks.holder(self.lock.incarnation, self.lock.epoch)
        if held is not None and held[0].claimant > self.lock.claimant:
            committer.wait(self.request.branch, self.lock.incarnation, self.lock.epoch, time.monotonic() + 60)
            return None
        view = committer.view_on(self.request.branch, {})
        try:
            return settle(
                committer.manifest,
                committer.locks,
                view,
                self.lock,
                observe=committer.observe,
                reason=str(trouble),
                may_forward=not isinstance(trouble, NotDurable),
            )
        except effects.EffectMissed:
            return None  # ask again

    def _release(self) -> None:
        self.committer.observe("release")
        self.committer.locks.release(self.lock, attempts=self.attempts)
