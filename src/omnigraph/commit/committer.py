"""The door: every change of the graph passes here, one decided epoch of one branch at a time.

1. prepare   on one snapshot, without a ticket: the operation validates, writes files, builds transactions
2. ticket    create-only, for epoch head + 1; whoever finds it taken waits, or settles what a dead owner left
3. check     under the ticket: is what was read or is to be written still what it was, are all files that were written
             for it there to stay (`Prepared.lost`)? if not, prepare again, here; and again on every attempt
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
import threading
import time
from collections.abc import Iterable, Mapping
from contextlib import AbstractContextManager, ExitStack
from dataclasses import replace

from omnigraph.commit import effects, owner
from omnigraph.commit.advisory_lock import AdvisoryLock, AdvisoryLocks, lease_s
from omnigraph.commit.attempt import Attempt
from omnigraph.commit.backoff import Backoff, write_timeout_s
from omnigraph.commit.operation import LeasesPins, Operation, Prepared, View
from omnigraph.commit.phases import Observer, silent
from omnigraph.commit.recovery import settle
from omnigraph.commit.request import Aborted, Busy, Outcome, Refusals, Request, require_commit
from omnigraph.errors import StorageError, UncoveredDrift, VersionReclaimed, WriterBusy
from omnigraph.legacy.intents import discard_settled
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

TURNS_OUTSIDE = 3
"""How often long work is prepared without the ticket before it is prepared under it."""
SWEEP_EVERY = 64
SETTLING_MAX = 3
SETTLING_PAUSE_S = 0.2


class Committer:
    """One graph's door. Threads of one process take turns; processes take tickets."""

    def __init__(self, manifest: Manifest, *, observer: Observer = silent) -> None:
        self.manifest = manifest
        self.tables = Tables(manifest.location)
        self.locks = AdvisoryLocks(ControlObjects(manifest.location))
        self.observe = observer
        self.mutex = threading.RLock()
        self._operations = 0
        self.contended = False
        self.strays: dict[str, frozenset[int]] = {}
        """Versions by table that this handle has made without a stamp, and too late: see `effect.Stray`."""

    # ---- views -------------------------------------------------------------------------------------------------------

    def view(self, branch: str) -> View:
        return self.view_on(branch, {})

    def view_on(self, branch: str, bases: Mapping[str, Pin]) -> View:
        """The branch's newest state, with other versions of some tables as the ones to build on."""
        head = self.manifest.head(branch)
        refs = self.manifest.known_refs()
        pins = {**self.manifest.pins(head), **bases}
        return View(head=head, pins=pins, manifest=self.manifest, tables=self.tables, refs=refs)

    def view_at(self, branch: str, commit: str) -> View:
        """The state of any commit, as the branch `branch` would have seen it."""
        return self.view(branch).at(commit)

    # ---- the way through ---------------------------------------------------------------------------------------------

    def run(self, operation: Operation, request: Request) -> Outcome:
        """Bring one operation through: acknowledged exactly once, or an error and no effect."""
        lease_s(), fsync_enabled()  # what they are set to is refused before anything is done
        with self.mutex, ExitStack() as held:
            require_current(self.manifest, observe=self.observe)
            self._sweep_sometimes()
            deadline = time.monotonic() + write_timeout_s()
            prepared: Prepared | None = None
            refusals = Refusals()
            for turn in itertools.count():
                view = self.view(request.branch)
                repeated = self._done_before(view, request)
                if repeated is not None:
                    return repeated
                require_commit(view, request)
                if prepared is None and not (operation.quick and self.contended):
                    try:
                        prepared = self.prepare(operation, view, held)
                    except VersionReclaimed:
                        self._require_moved(view)
                        continue
                    if prepared.is_empty:
                        return Outcome(None, prepared.result)
                try:
                    outcome = self._under_lock(operation, request, view, prepared, held, deadline, turn)
                    pack_if_due(self.manifest)
                    return outcome
                except Aborted as aborted:
                    self._restore_strays(operation, request, held, deadline)
                    refusals.add(aborted.refusal, doing=f"committing {operation.kind}")
                    prepared = None
                except VersionReclaimed:
                    self._require_moved(view)
                    prepared = None
                except Busy:
                    pass
                if time.monotonic() > deadline:
                    raise WriterBusy(branch=request.branch, waited_s=write_timeout_s())
            raise AssertionError("unreachable")

    def _require_moved(self, view: View) -> None:
        """Raise the error at hand, unless others committed since `view` was read: then a cleanup may have removed the
        versions of that view, and the operation is prepared on a newer one.
        """
        if self.manifest.head(view.head.branch).commit == view.head.commit:
            raise

    def prepare(self, operation: Operation, view: View, held: ExitStack) -> Prepared:
        """Long work holds a lease on what it reads and on the files that it writes, and an operation that reads other
        versions than those of its view one on these (`LeasesPins`), until it is published or prepared again: then
        `held` holds the new one. Other short work does without: see `Prepared.lost`.
        """
        self.observe("prepare")
        pins = tuple(operation.leased_pins(view)) if isinstance(operation, LeasesPins) else ()
        lease: leases.Held | None = None
        if pins or not operation.quick:
            newer = ExitStack()
            lease = newer.enter_context(self._leased(view, pins, prepares=not operation.quick))
            held.close()
            held.enter_context(newer)
        with lance_api.reading(f"preparing {operation.kind}"):
            prepared = operation.prepare(view)
        return prepared if prepared.lease is not None else replace(prepared, lease=lease)

    def _leased(self, view: View, pins: Iterable[Pin], *, prepares: bool) -> AbstractContextManager[leases.Held]:
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
        held: ExitStack,
        deadline: float,
        turn: int,
    ) -> Outcome:
        if prepared is not None:
            self._require_no_drift(view, {t: view.pins[t] for t in prepared.healed if t in view.pins})
        scope = operation.scope(view) | set(prepared.tables if prepared else ())
        self.observe("lock")
        epoch = view.head.epoch + 1
        lock = self.locks.take(view.head.incarnation, epoch, tables=tuple(sorted(scope)), kind=operation.kind)
        if lock is None:
            self.contended = True
            self.wait(request.branch, view.head.incarnation, epoch, deadline)
            raise Busy
        attempt = Attempt(self, operation, request, lock, held, patient=turn >= TURNS_OUTSIDE)
        try:
            return attempt.through(prepared)
        finally:
            self.locks.rest(lock)

    def _restore_strays(self, operation: Operation, request: Request, held: ExitStack, deadline: float) -> None:
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
                Attempt(self, operation, request, lock, held, patient=False).restore_strays()
            finally:
                self.locks.rest(lock)

    def _require_no_drift(self, view: View, pins: Mapping[str, Pin]) -> None:
        """Refuse drift before a ticket is taken, unless somebody is at work: what lies above a pin may be theirs.

        It is looked at again under the ticket.
        """
        try:
            effects.require_no_drift(view, pins)
        except UncoveredDrift:
            # The ticket first: it goes only after the head has moved, so a head that has not moved by then never will.
            if self.locks.holder(view.head.incarnation, view.head.epoch + 1) is not None:
                return
            head = self.manifest.head(view.head.branch)
            if (head.incarnation, head.epoch) == (view.head.incarnation, view.head.epoch):
                raise

    def _done_before(self, view: View, request: Request) -> Outcome | None:
        if request.operation_id is None:
            return None
        record = operation_of(self.manifest, view.head, request.operation_id)
        return None if record is None else Outcome(record, record.summary, repeated=True)

    def _sweep_sometimes(self) -> None:
        if self._operations % SWEEP_EVERY == 0:
            self.sweep()
        self._operations += 1

    def sweep(self) -> None:
        """Delete control objects of decided epochs, whoever left them."""
        loose = self.locks.sweep(lambda: {h.incarnation: h.epoch for h in self.manifest.heads().values()})
        discard_settled(self.locks.objects, loose)

    # ---- waiting and settling ----------------------------------------------------------------------------------------

    def wait(self, branch: str, incarnation: str, epoch: int, deadline: float) -> None:
        """Return when the epoch is decided; claim and settle it as soon as its holder is dead.

        A store that fails at that is tried again, SETTLING_MAX times in all: then the caller is told what it says.
        """
        pause = Backoff(local=self.manifest.location.is_local)
        failed = 0
        while time.monotonic() < deadline:
            head = self.manifest.head(branch)
            if head.epoch >= epoch or head.incarnation != incarnation:
                return
            held = self.locks.holder(incarnation, epoch)
            if held is None:
                return
            lock, dead = held
            may_settle = dead or self.locks.is_own(lock)
            try:
                if not may_settle or not self._take_over(branch, lock):
                    pause()
            except StorageError:
                failed += 1  # the claim stays; whoever comes next, perhaps this very call, settles the epoch
                if failed == SETTLING_MAX:
                    raise
                time.sleep(SETTLING_PAUSE_S * failed)

    def _take_over(self, branch: str, below: AdvisoryLock) -> bool:
        """Settle an epoch whose holder is dead, or which this handle holds and could not settle before."""
        self.observe("claim")
        claim = below if self.locks.is_own(below) else self.locks.claim(below)
        if claim is None:
            return False
        try:
            view = self.view(branch)
            settled = settle(self.manifest, self.locks, view, claim, observe=self.observe, reason="its writer died")
        except effects.EffectMissed as missed:
            if missed.is_lost_race:
                return False
            raise StorageError(doing="settling what a dead writer left", detail=str(missed)) from missed
        finally:
            self.locks.rest(claim)
        self.sweep()
        return settled is not None
