"""The phases of the commit protocol, reported to an observer.

Progress displays use them, and so do the tests that kill or stop a process at a named phase. An observer is called
with the phase's name before the phase begins; its exceptions propagate.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

Observer = Callable[[str], None]

PHASES: Final = (
    "migrate",  # before each step of a format migration
    "prepare",  # before heavy work on a snapshot
    "lock",  # before the advisory lock is created
    "check",  # the lock is held; before comparing the prepared work with the newest state
    "plan",  # before the plan is written
    "effect",  # before each Lance commit on a table
    "publish",  # all effects have landed; before the compare-and-swap of the head
    "acknowledge",  # published and durable; before the call returns
    "release",  # before the lock and the plan are deleted
    "claim",  # before the epoch of another writer is claimed
    "recover",  # the claim is held; before the epoch is decided
    "restore",  # before each Restore of a rollback or of leftovers
    "decide",  # before an abort or a rolled-forward commit is published
)


def silent(_: str) -> None:
    """The observer that does nothing."""
