"""Map a function over many tables with threads.

A table costs some milliseconds of a disk or some round trips to a store, whatever its size; a write of a hundred types
would pay them one after the other while it holds the advisory lock. Lance, the disk and the network work outside of
Python's global lock. A few items are processed in sequence: threads would cost more than they gain.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

In = TypeVar("In")
Out = TypeVar("Out")

MANY = 8
AT_ONCE = max(8, 2 * (os.cpu_count() or 1))


def map_threads(call: Callable[[In], Out], items: Sequence[In], *, many: int = MANY) -> list[Out]:
    """The results in the order of the items. The first error is raised after all running calls have ended."""
    if len(items) < many:
        return [call(item) for item in items]
    pool = ThreadPoolExecutor(min(AT_ONCE, len(items)), thread_name_prefix="omnigraph-together")
    try:
        return list(pool.map(call, items))
    finally:
        pool.shutdown(wait=True, cancel_futures=True)
