"""Where an operation stands inside the door, told to whoever wants to know.

Progress displays use it, and so do the tests that kill or stop a process at a named phase. An observer is called
with the phase's name before the phase begins; what it raises goes through.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

Observer = Callable[[str], None]

PHASES: Final = (
    "migrate",  # before each step of a format migration
    "prepare",  # before heavy work on a snapshot
    "lock",  # before the ticket is created
    "check",  # the ticket is held; before comparing what was read with what is
    "plan",  # before the plan is written
    "effect",  # before each Lance commit on a table
    "publish",  # all effects are there; before the compare-and-swap of the head
    "acknowledge",  # published and durable; before the caller knows
    "release",  # before the ticket and the plan are deleted
    "claim",  # before another's epoch is claimed
    "recover",  # the claim is held; before its outcome is decided
    "restore",  # before each Restore of a rollback or of leftovers
    "decide",  # before an abort or a rolled-forward commit is published
)


def silent(_: str) -> None:
    """The observer that sees nothing."""
