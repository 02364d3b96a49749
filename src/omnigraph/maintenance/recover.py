"""Recover: list undecided operations, and decide those of crashed writers.

1. list     advisory locks of epochs that no head has reached, and in a graph of an older format its intents
2. decide   each whose writer is provably gone, as any writer would: roll forward if all effects are present, else back
3. wait     for writers that may be alive; after a heartbeat stood still for a lease the writer counts as crashed: 2

Keeps: what an operation did is visible as a whole or not at all, and its outcome stays on record, with a commit by the
actor `omnigraph:recovery` where tables had to be restored. A crash leaves the epoch undecided; the next recovery
decides it. `pending` writes nothing.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any, Literal

from omnigraph.commit.advisory_lock import AdvisoryLock, epoch_of, lock_name
from omnigraph.commit.committer import Committer
from omnigraph.errors import BranchNotFound, RecoveryPending, StorageError, WriterActive
from omnigraph.legacy.intents import read_intents
from omnigraph.legacy.migrate import require_current
from omnigraph.storage.layout import RECOVERY
from omnigraph.storage.manifest.table import FORMAT
from omnigraph.storage.objects import reserve

LOOK_EVERY_S = 0.05
RECOVERY_MIN_S = 30.0
"""For how long at least recovery of a crashed writer's operation is retried while the store fails."""

Outcome = Literal["rolled_forward", "rolled_back", "committed"]


@dataclass(frozen=True)
class Pending:
    """An operation that is not decided. `alive`: its writer is not known to have crashed."""

    branch: str
    incarnation: str
    epoch: int
    kind: str
    operation: str
    alive: bool

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True)
class DecidedEpoch:
    """An operation that was pending and is decided now. `committed`: its own writer finished it."""

    branch: str
    epoch: int
    kind: str
    operation: str
    outcome: Outcome
    commit: str | None

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True)
class RecoverResult:
    """`pending` are the operations of live writers that did not finish during the wait."""

    settled: tuple[DecidedEpoch, ...]
    pending: tuple[Pending, ...]
    waited_s: float

    @property
    def ok(self) -> bool:
        """Whether every operation is decided."""
        return not self.pending

    def to_json(self) -> dict[str, Any]:
        return {
            "ok": self.ok,
            "settled": [s.to_json() for s in self.settled],
            "pending": [p.to_json() for p in self.pending],
            "waited_s": self.waited_s,
        }


def pending(committer: Committer) -> list[Pending]:
    """Every undecided operation of every branch, by branch and epoch."""
    if committer.manifest.format() < FORMAT:
        return [
            Pending(i.branch, "", 0, i.kind, i.operation, alive=False) for i in read_intents(committer.locks.objects)
        ]
    return sorted(_undecided(committer), key=lambda p: (p.branch, p.epoch))


def _of_branch(operations: list[Pending], branch: str | None) -> list[Pending]:
    return [p for p in operations if branch is None or p.branch == branch]


def require_recovered(committer: Committer, branch: str, *, verb: str, wait_s: float) -> None:
    """Refuse while an operation of the branch is undecided, after a short wait for a live writer.

    WriterActive if a writer may be alive, RecoveryPending if the operation of a crashed writer is undecided. Recovers
    nothing.
    """
    deadline = time.monotonic() + wait_s
    while True:
        operations = _of_branch(pending(committer), branch)
        if not operations:
            return
        if not operations[0].alive or time.monotonic() > deadline:
            break
        time.sleep(LOOK_EVERY_S)
    first = operations[0]
    if first.alive:
        raise WriterActive(verb=verb, branch=branch, kind=first.kind, operation_id=first.operation)
    raise RecoveryPending(
        branch=branch,
        operation_id=first.operation,
        detail=f"that belongs to recovery, not to a preview of {verb}.",
        path=f"{RECOVERY}/{lock_name(first.incarnation, first.epoch, 0)}",
    )


def undecided(committer: Committer) -> Iterator[tuple[str, AdvisoryLock, bool]]:
    """(branch, advisory lock, whether it may be claimed) of every operation that no head has reached."""
    # Listed before the heads are read: what no head has reached then was undecided when it was listed.
    listed = {(e.path.partition("/")[0], epoch_of(e.path)) for e in committer.locks.objects.entries() if "/" in e.path}
    heads = {head.incarnation: head for head in committer.manifest.heads().values()}
    for incarnation, epoch in listed:
        head = heads.get(incarnation)
        if head is None or epoch is None or epoch <= head.epoch:
            continue
        holder = committer.locks.holder(incarnation, epoch)
        if holder is not None:
            yield head.branch, *holder


def _undecided(committer: Committer) -> Iterator[Pending]:
    for branch, lock, dead in undecided(committer):
        alive = not dead and not committer.locks.is_own(lock)
        yield Pending(branch, lock.incarnation, lock.epoch, lock.kind, lock.nonce, alive)


def recover(committer: Committer, *, wait_s: float, branch: str | None = None) -> RecoverResult:
    """Recover operations of crashed writers; wait up to `wait_s` for live ones to finish or to count as crashed.

    On all branches, or on one. A failure of the store on one branch is raised after the others. On a full disk it uses
    the reserve.
    """
    location = committer.manifest.location
    try:
        return reserve.spending(location, lambda: _recover(committer, wait_s=wait_s, branch=branch))
    finally:
        reserve.keep(location)


def _recover(committer: Committer, *, wait_s: float, branch: str | None) -> RecoverResult:
    started = time.monotonic()
    failed: StorageError | None = None
    with committer.mutex:
        require_current(committer.manifest, observe=committer.observe)
        operations = _of_branch(pending(committer), branch)
        for operation in operations:
            deadline = started + wait_s
            if not operation.alive:
                deadline = max(deadline, time.monotonic() + RECOVERY_MIN_S)
            try:
                committer.wait(operation.branch, operation.incarnation, operation.epoch, deadline)
            except BranchNotFound:
                continue  # deleted meanwhile, and its epochs with it
            except StorageError as error:
                failed = failed or error
        if failed is not None:
            raise failed
        committer.sweep()
        decided = tuple(s for p in operations for s in _decided(committer, p))
        return RecoverResult(decided, tuple(_of_branch(pending(committer), branch)), time.monotonic() - started)


def _decided(committer: Committer, was: Pending) -> Iterator[DecidedEpoch]:
    record = committer.manifest.outcome(was.incarnation, was.epoch)
    if record is not None:
        outcome = (record.recovery or {}).get("outcome", "committed")
        yield DecidedEpoch(was.branch, was.epoch, was.kind, was.operation, outcome, record.commit)
