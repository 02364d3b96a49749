"""How a benchmark says what it found: the claim, the bar, the figure, met or missed."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True)
class Result:
    claim: str
    ratio: float
    bar: float
    at_most: bool
    detail: str

    @property
    def met(self) -> bool:
        return self.ratio <= self.bar if self.at_most else self.ratio >= self.bar

    def __str__(self) -> str:
        sign = "≤" if self.at_most else "≥"
        verdict = "met" if self.met else "MISSED"
        return f"{verdict:>6}  {self.ratio:6.2f} {sign} {self.bar:<5g} {self.claim}\n        {self.detail}"


def median_ms(call: Callable[[int], object], *, count: int, first: int = 0) -> float:
    """The median duration of `count` calls, in milliseconds. Each gets its own number."""
    taken = []
    for i in range(first, first + count):
        started = time.perf_counter()
        call(i)
        taken.append((time.perf_counter() - started) * 1000)
    return statistics.median(taken)
