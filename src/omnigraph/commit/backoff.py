"""Waiting for other writers: growing pauses with jitter, up to the write timeout."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator

from omnigraph.config import environment
from omnigraph.errors import WriterBusy


def write_timeout_s() -> float:
    return environment.seconds("OMNIGRAPH_WRITE_TIMEOUT", 120.0, minimum=0.001)


class Backoff:
    """Sleep between two attempts: short at first, longer later, with jitter."""

    def __init__(self, *, local: bool) -> None:
        self._next_s, self._max_s = (0.001, 0.01) if local else (0.02, 0.25)

    def __call__(self) -> None:
        time.sleep(self._next_s * random.uniform(0.5, 1.5))
        self._next_s = min(self._max_s, self._next_s * 1.5)


def attempts(subject: str, *, local: bool) -> Iterator[int]:
    """Count the attempts at a compare-and-swap that other writers may win, with a pause before each but the first.

    Raises WriterBusy, which names `subject`, once the write timeout is over.
    """
    started_s, timeout_s = time.monotonic(), write_timeout_s()
    pause, attempt = Backoff(local=local), 0
    while True:
        yield attempt
        waited_s = time.monotonic() - started_s
        if waited_s > timeout_s:
            raise WriterBusy(branch=subject, waited_s=waited_s)
        pause()
        attempt += 1
