"""Progress of a long job. The pipeline calls a Watcher; the CLI shows it, a program may count or ignore it."""

from __future__ import annotations

from typing import Protocol


class Watcher(Protocol):
    """Called from the thread that runs the job, never from a worker."""

    def engine(self, name: str, reason: str) -> None:
        """Which engine runs the job, and why; once, before the first stage."""

    def stage(self, name: str, *, tasks: int) -> None:
        """A stage with this many tasks begins; the previous one has ended."""

    def advance(self, *, tasks: int, rows: int, size_bytes: int) -> None:
        """The progress of the stage so far: totals, not differences."""


class SilentWatcher:
    """A watcher that ignores everything."""

    def engine(self, name: str, reason: str) -> None:
        return

    def stage(self, name: str, *, tasks: int) -> None:
        return

    def advance(self, *, tasks: int, rows: int, size_bytes: int) -> None:
        return
