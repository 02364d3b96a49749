"""Pauses between attempts: they grow up to a limit, with jitter, so that processes do not repeat at the same time."""

from __future__ import annotations

import random
import time
from collections.abc import Callable


class Backoff:
    """Call it to sleep before the next attempt.

    The pauses grow from `first_s` by the factor `growth` up to `max_s`; each is multiplied by a random number between
    1 - `jitter` and 1 + `jitter`, which `uniform` draws.
    """

    def __init__(
        self,
        *,
        first_s: float,
        max_s: float,
        growth: float = 2.0,
        jitter: float = 0.5,
        uniform: Callable[[float, float], float] = random.uniform,
    ) -> None:
        self._next_s, self._max_s, self._growth = min(first_s, max_s), max_s, growth
        self._jitter, self._uniform = jitter, uniform

    def __call__(self) -> None:
        time.sleep(self.next_s())

    def next_s(self) -> float:
        """The next pause, for a caller that waits by itself."""
        pause_s = self._next_s * self._uniform(1 - self._jitter, 1 + self._jitter)
        self._next_s = min(self._max_s, self._next_s * self._growth)
        return pause_s


def store_backoff() -> Backoff:
    """For a task that repeats its work because the store failed."""
    return Backoff(first_s=0.2, max_s=2.0)
