"""The door: every change of the graph passes here, one decided epoch of one branch at a time.

1. prepare   on one snapshot, without a ticket: the operation validates, writes files, builds transactions
2. ticket    create-only, for epoch head + 1; whoever finds it taken waits, or settles what a dead owner left
3. check     under the ticket: is what was read or is to be written still what it was? if not, prepare again, here
4. plan      an immutable object: the commit to be, and per table the base and the number of steps
5. effect    stamped Lance commits, each exactly one version above the last
6. publish   one compare-and-swap of the branch's head
7. release   delete the ticket and the plan

After any error or doubt the outcome of the epoch is asked for, never inferred; if it is undecided it is settled,
forward or back. A crash before 5 leaves unreferenced files, in 5 versions above the pins that nobody reads and the
next writer settles, after 6 a commit that happened.
"""

from __future__ import annotations

import itertools
import os
import random
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from omnigraph.commit import effect
from omnigraph.commit.intents import discard_settled
from omnigraph.commit.migrate import require_current
from omnigraph.commit.observe import Observer, silent
from omnigraph.commit.publish import abort_record, commit_record, publish
from omnigraph.commit.recover import settle
from omnigraph.commit.stage import Operation, Prepared, View
from omnigraph.commit.ticket import Ticket, Tickets
from omnigraph.errors import (
    BranchNotFound,
    OmnigraphError,
    PreconditionFailed,
    RecoveryPending,
    StaleView,
    StorageError,
    WriterBusy,
)
from omnigraph.storage import lancefs
from omnigraph.storage.durable import NotDurable
from omnigraph.storage.manifest import Manifest, SwapLost
from omnigraph.storage.objects import ControlObjects
from omnigraph.storage.records import Pin, Record
from omnigraph.storage.table import Tables

ATTEMPTS_MOST = 4
TURNS_OUTSIDE = 3
"""How often long work is prepared without the ticket before it is prepared under it."""
SWEEP_EVERY = 64
SETTLE_MOST = 8
ASK_MOST_S, ASK_LOCAL_MOST_S = 8.0, 2.0
"""How long a writer that is in doubt goes on asking a store that fails."""


def write_timeout_s() -> float:
    return float(os.environ.get("OMNIGRAPH_WRITE_TIMEOUT", "120"))


@dataclass(frozen=True)
class Request:
    """Who asks, and under which condition."""

    branch: str
    actor: str | None = None
    if_commit: str | None = None
    operation_id: str | None = None


@dataclass(frozen=True)
class Outcome:
    """`record` is None if there was nothing to change. `repeated` says that this operation id had been done before."""

    record: Record | None
    result: Any = None
    repeated: bool = False


class Aborted(Exception):
    """The epoch is decided and my operation is not in it: try again under a new one."""


class Busy(Exception):
    """Another writer went first. What was prepared may still hold."""


class Door:
    """One graph's door. Threads of one process take turns; processes take tickets."""

    def __init__(self, manifest: Manifest, *, observer: Observer = silent) -> None:
        self.manifest = manifest
        self.tables = Tables(manifest.location)
        self.tickets = Tickets(ControlObjects(manifest.location))
        self.observe = observer
        self.lock = threading.RLock()
        self._operations = 0
        self._crowded = False

    # ---- views -------------------------------------------------------------------------------------------------------

    def view(self, branch: str) -> View:
        return self._view_of(branch, {})

    def _view_of(self, branch: str, bases: Mapping[str, Pin]) -> View:
        head = self.manifest.head(branch)
        return View(head=head, pins={**self.manifest.pins(head), **bases}, manifest=self.manifest, tables=self.tables)

    def view_at(self, branch: str, commit: str) -> View:
        """The state of any commit, as the branch `branch` would have seen it."""
        head = self.manifest.head(branch)
        if head.commit == commit:
            return self.view(branch)
        record = self.manifest.record(commit)
        return View(
            head=replace(head, commit=commit, schema=record.schema),
            pins=self.manifest.pins_at(commit),
            manifest=self.manifest,
            tables=self.tables,
        )

    # ---- the way through ---------------------------------------------------------------------------------------------

    def run(self, operation: Operation, request: Request) -> Outcome:
        """Bring one operation through: acknowledged exactly once, or an error and no effect."""
        with self.lock:
            require_current(self.manifest, observe=self.observe)
            self._sweep_sometimes()
            deadline = time.monotonic() + write_timeout_s()
            prepared: Prepared | None = None
            for turn in itertools.count():
                view = self.view(request.branch)
                repeated = self._done_before(view, request)
                if repeated is not None:
                    return repeated
                _require_commit(view, request)
                if prepared is None and not (operation.quick and self._crowded):
                    prepared = self.prepare(operation, view)
                    if prepared.is_empty:
                        return Outcome(None, prepared.result)
                try:
                    return self._under_ticket(operation, request, view, prepared, deadline, turn)
                except Aborted:
                    prepared = None
                except Busy:
                    pass
                if time.monotonic() > deadline:
                    raise WriterBusy(branch=request.branch, waited_s=write_timeout_s())
            raise AssertionError("unreachable")

    def prepare(self, operation: Operation, view: View) -> Prepared:
        self.observe("prepare")
        with lancefs.reading(f"preparing {operation.kind}"):
            return operation.prepare(view)

    def _under_ticket(
        self,
        operation: Operation,
        request: Request,
        view: View,
        prepared: Prepared | None,
        deadline: float,
        turn: int,
    ) -> Outcome:
        if prepared is not None:
            effect.require_no_drift(view, {t: view.pins[t] for t in prepared.tables if t in view.pins})
        scope = operation.scope(view) | set(prepared.tables if prepared else ())
        self.observe("ticket")
        epoch = view.head.epoch + 1
        ticket = self.tickets.take(view.head.incarnation, epoch, tables=tuple(sorted(scope)), kind=operation.kind)
        if ticket is None:
            self._crowded = True
            self.wait(request.branch, view.head.incarnation, epoch, deadline)
            raise Busy
        run = _Run(self, operation, request, ticket, patient=turn >= TURNS_OUTSIDE)
        try:
            return run.through(prepared)
        finally:
            self.tickets.rest(ticket)

    def _done_before(self, view: View, request: Request) -> Outcome | None:
        if request.operation_id is None:
            return None
        record = self.manifest.operation(view.head.incarnation, request.operation_id)
        return None if record is None else Outcome(record, record.summary, repeated=True)

    def _sweep_sometimes(self) -> None:
        if self._operations % SWEEP_EVERY == 0:
            self.sweep()
        self._operations += 1

    def sweep(self) -> None:
        """Delete control objects of decided epochs, whoever left them."""
        loose = self.tickets.sweep(lambda: {h.incarnation: h.epoch for h in self.manifest.heads().values()})
        discard_settled(self.tickets.objects, loose)

    # ---- waiting and settling ----------------------------------------------------------------------------------------

    def wait(self, branch: str, incarnation: str, epoch: int, deadline: float) -> None:
        """Return when the epoch is decided; claim and settle it as soon as its holder is dead."""
        pause = _Pause(local=self.manifest.location.is_local)
        while time.monotonic() < deadline:
            head = self.manifest.head(branch)
            if head.epoch >= epoch or head.incarnation != incarnation:
                return
            held = self.tickets.holder(incarnation, epoch)
            if held is None:
                return
            ticket, dead = held
            may_settle = dead or self.tickets.is_own(ticket)
            if not may_settle or not self._take_over(branch, ticket):
                pause()

    def _take_over(self, branch: str, below: Ticket) -> bool:
        """Settle an epoch whose holder is dead, or which this handle holds and could not settle before."""
        self.observe("claim")
        claim = below if self.tickets.is_own(below) else self.tickets.claim(below)
        if claim is None:
            return False
        try:
            view = self.view(branch)
            settled = settle(self.manifest, self.tickets, view, claim, observe=self.observe, reason="its writer died")
        except StorageError:
            return False  # the claim stays; whoever comes next, perhaps this very call, settles the epoch
        finally:
            self.tickets.rest(claim)
        self.sweep()
        return settled is not None


class _Run:
    """One operation while it holds the ticket of one epoch."""

    def __init__(self, door: Door, operation: Operation, request: Request, ticket: Ticket, *, patient: bool) -> None:
        self.may_prepare = operation.quick or patient
        self.door = door
        self.operation = operation
        self.request = request
        self.ticket = ticket
        self.restored: dict[str, Pin] = {}
        self.attempts = 0
        self.result: Any = None

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
        door._crowded = False
        while self.attempts < ATTEMPTS_MOST:
            view = self._healed_view(prepared)
            _require_commit(view, self.request)
            if prepared is None or self.attempts or not prepared.holds_on(view):
                door._crowded = prepared is not None and self.attempts == 0
                prepared = self._prepare_again(view)
                if prepared.is_empty:
                    self._give_up()
                    return Outcome(None, prepared.result)
                if self._has_leftovers(view, prepared):
                    continue
            self.attempts += 1
            try:
                return self._attempt(view, prepared, self.attempts - 1)
            except effect.EffectMissed:
                if self.attempts >= ATTEMPTS_MOST:
                    raise
        raise effect.EffectMissed("no attempt landed")

    def _prepare_again(self, view: View) -> Prepared:
        if not self.may_prepare:
            self._give_up()
            raise Aborted
        prepared = self.door.prepare(self.operation, view)
        written = {t for t, work in prepared.tables.items() if work.source is not None}
        if not written <= set(self.ticket.tables):
            # The ticket says which tables to fence if I die: others need a ticket that names them.
            self._give_up()
            raise Aborted
        return prepared

    def _attempt(self, view: View, prepared: Prepared, attempt: int) -> Outcome:
        door, ticket, request = self.door, self.ticket, self.request
        self.result = prepared.result
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
        door.observe("plan")
        body = {"attempt": attempt, "tables": effect.plan_tables(prepared.tables), "record": record.to_json()}
        if not door.tickets.write_plan(ticket, attempt, body):
            raise effect.Zombie(f"the plan of epoch {ticket.epoch} is another's")
        effect.run_effects(prepared, ticket, attempt=attempt, observe=door.observe)
        door.observe("publish")
        publish(door.manifest, door.tables, view.head, record)
        door.observe("acknowledge")
        return Outcome(record, prepared.result)

    def _healed_view(self, prepared: Prepared | None) -> View:
        """The newest view of the branch, with leftovers above the pins of the tables to be written restored over."""
        door = self.door
        view = door._view_of(self.request.branch, self.restored)
        if view.head.epoch >= self.ticket.epoch or view.head.incarnation != self.ticket.incarnation:
            raise effect.Zombie(f"epoch {self.ticket.epoch} is decided")
        for table in prepared.tables if prepared else ():
            if table in view.pins:
                pin = effect.heal(view, table, self.ticket, attempt=self.attempts, observe=door.observe)
                if pin != view.pins[table]:
                    self.restored[table] = pin
        return door._view_of(self.request.branch, self.restored) if self.restored else view

    def _has_leftovers(self, view: View, prepared: Prepared) -> bool:
        """Whether a table that only this preparation names has leftovers above its pin."""
        return any(
            view.owns(view.pins[t]) and view.tables.newest_version(view.pins[t]) > view.pins[t].version
            for t in prepared.tables
            if t in view.pins
        )

    def _give_up(self) -> None:
        """Nothing of mine is anywhere: decide the epoch as an abort, so that no zombie can use it."""
        try:
            view = self.door._view_of(self.request.branch, self.restored)
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
        patience = time.monotonic() + (ASK_LOCAL_MOST_S if self.door.manifest.location.is_local else ASK_MOST_S)
        for turn in range(SETTLE_MOST):
            if turn > 1 and time.monotonic() > patience:
                break
            try:
                record = self._decided() or self._settle(trouble)
            except StorageError as error:
                trouble = trouble if isinstance(trouble, StorageError) else error
                time.sleep(min(2.0, 0.05 * 2**turn))
                continue
            if record is None:
                continue
            self._release()
            if isinstance(trouble, NotDurable):
                raise trouble  # perhaps visible, but not safe from a power loss: that is not acknowledged
            if record.commit is not None and record.nonce == self.ticket.nonce and record.kind == self.operation.kind:
                return Outcome(record, self.result)
            if isinstance(trouble, StorageError):
                raise trouble
            raise Aborted
        if isinstance(trouble, StorageError):
            raise trouble
        raise RecoveryPending(
            branch=self.request.branch,
            operation_id=self.ticket.nonce,
            detail=str(trouble),
            path=self.ticket.name,
        )

    def _ask_quietly(self) -> None:
        try:
            self._ask(effect.EffectMissed("interrupted"))
        except (OmnigraphError, Aborted):
            return  # interrupted: the user sees that, and whatever is left is settled by the next writer

    def _decided(self) -> Record | None:
        head = self.door.manifest.head(self.request.branch)
        if head.incarnation != self.ticket.incarnation:
            raise BranchNotFound(branch=self.request.branch)
        if head.epoch < self.ticket.epoch:
            return None
        record = self.door.manifest.outcome(self.ticket.incarnation, self.ticket.epoch)
        if record is None:
            raise StaleView(detail=f"the outcome of epoch {self.ticket.epoch} is not on record.")
        return record

    def _settle(self, trouble: Exception) -> Record | None:
        door = self.door
        held = door.tickets.holder(self.ticket.incarnation, self.ticket.epoch)
        if held is not None and held[0].claimant > self.ticket.claimant:
            door.wait(self.request.branch, self.ticket.incarnation, self.ticket.epoch, time.monotonic() + 60)
            return None
        view = door._view_of(self.request.branch, {})
        return settle(
            door.manifest,
            door.tickets,
            view,
            self.ticket,
            observe=door.observe,
            reason=str(trouble),
            may_forward=not isinstance(trouble, NotDurable),
        )

    def _release(self) -> None:
        self.door.observe("release")
        self.door.tickets.release(self.ticket, attempts=self.attempts)


class _Pause:
    """Sleep between looks: short at first, longer later, never in step with other waiters."""

    def __init__(self, *, local: bool) -> None:
        self._next_s, self._most_s = (0.001, 0.01) if local else (0.02, 0.25)

    def __call__(self) -> None:
        time.sleep(self._next_s * random.uniform(0.5, 1.5))
        self._next_s = min(self._most_s, self._next_s * 1.5)


def _require_commit(view: View, request: Request) -> None:
    if request.if_commit is not None and view.head.commit != request.if_commit:
        raise PreconditionFailed(expected=request.if_commit, actual=view.head.commit, branch=request.branch)
