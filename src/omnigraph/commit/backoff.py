"""Waiting for other writers, up to the write timeout."""

from __future__ import annotations

import time
from collections.abc import Iterator

from omnigraph.config import environment
from omnigraph.config.backoff import Backoff
from omnigraph.errors import WriterBusy


def write_timeout_s() -> float:
    return environment.seconds("OMNIGRAPH_WRITE_TIMEOUT", 120.0, minimum=0.001)


def writer_backoff(*, local: bool) -> Backoff:
    """The pauses of a writer that waits for another one."""
    first_s, max_s = (0.001, 0.01) if local else (0.02, 0.25)
    return Backoff(first_s=first_s, max_s=max_s, growth=1.5)


def attempts(subject: str, *, local: bool) -> Iterator[int]:
    """Count the attempts at a compare-and-swap that other writers may win, with a pause before each but the first.

    Raises WriterBusy, which names `subject`, once the write timeout is over.
    """
    started_s, timeout_s = time.monotonic(), write_timeout_s()
    pause, attempt = writer_backoff(local=local), 0
    while True:
        yield attempt
        waited_s = time.monotonic() - started_s
        if waited_s > timeout_s:
            raise WriterBusy(branch=subject, waited_s=waited_s)
        pause()
        attempt += 1
