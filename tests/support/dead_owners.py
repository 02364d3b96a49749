"""Owners of advisory locks that have ended, and writers that come between two readings."""

from __future__ import annotations

from typing import Any

from omnigraph.commit import owner


def gone() -> dict[str, Any]:
    """An owner that was a process of this machine and is none any more."""
    return {**owner.myself(), "start": "1"}


class Meanwhile:
    """A watcher that does something when a stage begins."""

    def __init__(self, stage: str, work: Any) -> None:
        self._stage, self._work = stage, work

    def engine(self, name: str, reason: str) -> None:
        return

    def stage(self, name: str, *, tasks: int) -> None:
        if name == self._stage:
            self._work()

    def advance(self, *, tasks: int, rows: int, size_bytes: int) -> None:
        return
