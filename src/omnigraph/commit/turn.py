"""One operation while it holds the ticket of one epoch: check, plan, effect, publish, release.

Whatever happens here, the epoch gets decided: by this turn, or, if it can't, by whoever comes next. After any error or
doubt the outcome is asked for, never inferred. Committed: acknowledged. Aborted: the door tries again under a new
epoch. Undecided: settled, forward or back, and asked for again.
"""

from __future__ import annotations

import time
from contextlib import ExitStack, suppress
from typing import TYPE_CHECKING, Any

from omnigraph.commit import effect
from omnigraph.commit.plan import Plan
from omnigraph.commit.publish import abort_record, commit_record, publish, with_checksums
from omnigraph.commit.recover import settle
from omnigraph.commit.request import Aborted, Busy, Outcome, Request, require_commit
from omnigraph.commit.stage import Operation, Prepared, Successor, View
from omnigraph.commit.ticket import Ticket
from omnigraph.errors import BranchNotFound, OmnigraphError, RecoveryPending, StaleView, StorageError, UncoveredDrift
from omnigraph.storage.durable import NotDurable
from omnigraph.storage.layout import RECOVERY
from omnigraph.storage.manifest import SwapLost
from omnigraph.storage.records import Pin, Record
from omnigraph.storage.together import together

if TYPE_CHECKING:
    from omnigraph.commit.door import Door

ATTEMPTS_MAX = 4
DISCARDS_MAX = 4
"""How often under one ticket work is thrown away because its files are gone."""
SETTLE_MAX = 8
ASK_MOST_S, ASK_LOCAL_MOST_S = 8.0, 2.0
"""How long a writer that is in doubt goes on asking a store that fails."""


class Turn:
    """One operation, one ticket. `held` holds the lease of its work. `patient`: work that is not quick may be prepared
    again under the ticket.
    """

    def __init__(
        self, door: Door, operation: Operation, request: Request, ticket: Ticket, held: ExitStack, *, patient: bool
    ) -> None:
        self.may_prepare = operation.quick or patient
        self.door = door
        self.operation = operation
        self.request = request
        self.ticket = ticket
        self.held = held
        self.discards = 0
        self.restored: dict[str, Pin] = {}
        self.attempts = 0
        self.result: Any = None
        self.successor: Successor | None = None

    def through(self, prepared: Prepared | None) -> Outcome:
        """Check, plan, effect, publish, release; on any failure make sure that the epoch gets decided."""
        door, ticket = self.door, self.ticket
        try:
            door.observe("check")
            head = door.manifest.head(self.request.branch)
            if head.epoch >= ticket.epoch or head.incarnation != ticket.incarnation:
                self._release()
                raise Busy
            outcome = self._attempts(prepared)
        except (SwapLost, effect.EffectMissed, effect.Zombie, StorageError) as trouble:
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
        door = self.door
        door.crowded = False
        while self.attempts < ATTEMPTS_MAX:
            view = self._healed_view(prepared)
            require_commit(view, self.request)
            if prepared is None or self.attempts or not self._may_use(prepared, view):
                door.crowded = prepared is not None and self.attempts == 0
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
            except effect.EffectMissed:
                if self.attempts >= ATTEMPTS_MAX:
                    raise
        raise effect.EffectMissed("no attempt landed")

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
        prepared = self.door.prepare(self.operation, view, self.held)
        written = {t for t, work in prepared.tables.items() if work.source is not None}
        if not written <= set(self.ticket.tables):
            # The ticket says which tables to fence if I die: others need a ticket that names them.
            self._give_up()
            raise Aborted
        return prepared

    def _attempt(self, view: View, prepared: Prepared, attempt: int) -> Outcome:
        door, ticket, request = self.door, self.ticket, self.request
        self.result = prepared.result
        self.successor = prepared.successor
        own = (work.source is None or view.owns(work.pin) for work in prepared.tables.values())
        assert all(own), "a branch writes to lines of its own"
        effect.require_no_later_claim(view, prepared, ticket)
        if prepared.schema is not None:
            door.manifest.append_schema(*prepared.schema)
        record = commit_record(
            view,
            prepared,
            ticket,
            kind=self.operation.kind,
            actor=request.actor,
            operation_id=request.operation_id,
            restored=self.restored,
        )
        record, _ = with_checksums(door.manifest, record)
        door.observe("plan")
        plan = Plan.of(attempt, prepared.tables, record)
        if not door.tickets.write_plan(ticket, attempt, plan.to_json()):
            raise effect.Zombie(f"the plan of epoch {ticket.epoch} is another's")
        if any(planned.unstamped for planned in plan.tables.values()):
            door.tickets.secure(ticket, attempt)
        try:
            effect.run_effects(prepared, ticket, attempt=attempt, observe=door.observe)
        except effect.Stray as stray:
            door.strays[stray.table] = door.strays.get(stray.table, frozenset()) | stray.versions
            raise
        door.observe("publish")
        publish(door.manifest, door.tables, view.head, record, prepared.successor)
        door.observe("acknowledge")
        return Outcome(record, prepared.result)

    def _healed_view(self, prepared: Prepared | None) -> View:
        """The newest view of the branch, with leftovers above the pins of the tables to be written restored over."""
        door = self.door
        view = door.view_on(self.request.branch, self.restored)
        if view.head.epoch >= self.ticket.epoch or view.head.incarnation != self.ticket.incarnation:
            raise effect.Zombie(f"epoch {self.ticket.epoch} is decided")
        for pin in together(lambda t: self._healed(view, t, prepared), self._known(view, prepared)):
            if pin != view.pins[pin.table]:
                self.restored[pin.table] = pin
        return door.view_on(self.request.branch, self.restored) if self.restored else view

    def _healed(self, view: View, table: str, prepared: Prepared | None) -> Pin:
        left = prepared.tables[table].unstamped if prepared and self.attempts else ()
        return effect.heal(view, table, self.ticket, attempt=self.attempts, observe=self.door.observe, declared=left)

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
            view = self.door.view_on(self.request.branch, {})
            if view.head.epoch < self.ticket.epoch and view.head.incarnation == self.ticket.incarnation:
                for table in self.ticket.tables:
                    strays = self.door.strays.pop(table, frozenset())
                    pin = effect.heal(view, table, self.ticket, attempt=0, observe=self.door.observe, strays=strays)
                    if pin != view.pins[table]:
                        self.restored[table] = pin
            self._give_up()
        except (UncoveredDrift, BranchNotFound):
            self._give_up()
        except (effect.Zombie, effect.EffectMissed, StorageError) as trouble:
            with suppress(Aborted):
                self._ask(trouble)

    def _give_up(self) -> None:
        """Nothing of mine is anywhere: decide the epoch as an abort, so that no zombie can use it."""
        try:
            view = self.door.view_on(self.request.branch, self.restored)
            if view.head.incarnation == self.ticket.incarnation and view.head.epoch < self.ticket.epoch:
                record = abort_record(view.head, self.ticket, pins=view.pins, restored=self.restored, reason="given up")
                publish(self.door.manifest, self.door.tables, view.head, record)
        except BranchNotFound:
            pass  # the branch was deleted meanwhile, and its epochs with it
        except (SwapLost, StorageError):
            return  # decided by somebody else, or unknown: the ticket stays, and the next writer settles it
        self._release()

    def _ask(self, trouble: Exception) -> Outcome:
        """I do not know how far I came. Look the outcome up; settle it if it is undecided; believe the answer."""
        first = trouble
        patience = time.monotonic() + (ASK_LOCAL_MOST_S if self.door.manifest.location.is_local else ASK_MOST_S)
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
            if record.commit is not None and record.nonce == self.ticket.nonce and record.kind == self.operation.kind:
                return Outcome(record, self.result)
            if isinstance(first, StorageError) and decided is None:
                raise first
            if isinstance(first, StorageError):
                # Rolled back by another process, whose cleanup may have caused the error. A store that fails again and
                # again is reported after a few equal refusals.
                raise Aborted(str(first))
            # Failures while asking do not make a lost race the store's refusal.
            raise Aborted(first.refusal if isinstance(first, effect.EffectMissed) else None)
        if isinstance(trouble, StorageError):
            raise trouble
        raise RecoveryPending(
            branch=self.request.branch,
            operation_id=self.ticket.nonce,
            detail=str(trouble),
            path=f"{RECOVERY}/{self.ticket.name}",
        )

    def _ask_quietly(self) -> None:
        try:
            self._ask(effect.EffectMissed("interrupted"))
        except (OmnigraphError, Aborted):
            return  # interrupted: the user sees that, and whatever is left is settled by the next writer

    def _decided(self) -> Record | None:
        head = self.door.manifest.head(self.request.branch)
        if head.incarnation != self.ticket.incarnation:
            return self._decided_before()
        if head.epoch < self.ticket.epoch:
            return None
        record = self.door.manifest.outcome(self.ticket.incarnation, self.ticket.epoch)
        if record is None:
            raise StaleView(detail=f"the outcome of epoch {self.ticket.epoch} is not on record.")
        return record

    def _decided_before(self) -> Record:
        """The outcome, if another incarnation has taken the branch over: by a reset, perhaps my own, or because it was
        deleted and made again. All that was decided until then is on record, and nothing can be decided any more.
        """
        ends = [self.ticket.incarnation, *([self.successor.incarnation] if self.successor else [])]
        for incarnation in ends:
            record = self.door.manifest.outcome(incarnation, self.ticket.epoch)
            if record is not None:
                return record
        self._release()
        raise Aborted

    def _settle(self, trouble: Exception) -> Record | None:
        door = self.door
        held = door.tickets.holder(self.ticket.incarnation, self.ticket.epoch)
        if held is not None and held[0].claimant > self.ticket.claimant:
            door.wait(self.request.branch, self.ticket.incarnation, self.ticket.epoch, time.monotonic() + 60)
            return None
        view = door.view_on(self.request.branch, {})
        try:
            return settle(
                door.manifest,
                door.tickets,
                view,
                self.ticket,
                observe=door.observe,
                reason=str(trouble),
                may_forward=not isinstance(trouble, NotDurable),
            )
        except effect.EffectMissed:
            return None  # ask again

    def _release(self) -> None:
        self.door.observe("release")
        self.door.tickets.release(self.ticket, attempts=self.attempts)
