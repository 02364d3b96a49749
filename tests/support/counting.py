"""A watcher that counts."""

from __future__ import annotations


class Counting:
    """A watcher that keeps what it was told."""

    def __init__(self) -> None:
        self.engines: list[tuple[str, str]] = []
        self.stages: list[tuple[str, int]] = []
        self.last: tuple[int, int, int] = (0, 0, 0)

    def engine(self, name: str, reason: str) -> None:
        self.engines.append((name, reason))

    def stage(self, name: str, *, tasks: int) -> None:
        self.stages.append((name, tasks))

    def advance(self, *, tasks: int, rows: int, size_bytes: int) -> None:
        self.last = (tasks, rows, size_bytes)
