"""What a long job tells while it runs. The pipeline calls a Watcher; the CLI draws, a program may count or ignore."""

from __future__ import annotations

from typing import Protocol


class Watcher(Protocol):
    """Called from the thread that runs the job, never from a worker."""

    def engine(self, name: str, reason: str) -> None:
        """Which engine runs the job, and why; once, before the first stage."""

    def stage(self, name: str, *, tasks: int) -> None:
        """A stage of so many tasks begins; the one before it is over."""

    def advance(self, *, tasks: int, rows: int, size_bytes: int) -> None:
        """How far the stage is by now: totals, not differences."""


class Silent:
    """Nobody watches."""

    def engine(self, name: str, reason: str) -> None:
        return

    def stage(self, name: str, *, tasks: int) -> None:
        return

    def advance(self, *, tasks: int, rows: int, size_bytes: int) -> None:
        return
