"""Run a function on many items in threads, where that helps.

Requests to a bucket wait for the network, and many can wait at once. On a local disk Python's threads only contend with
each other: a file that takes microseconds to read would wait milliseconds for its thread.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from omnigraph.config import environment
from omnigraph.storage.layout import Location

In = TypeVar("In")
Out = TypeVar("Out")


def default_concurrency() -> int:
    return environment.integer("OMNIGRAPH_MAINTENANCE_CONCURRENCY", 8, minimum=1, maximum=4096)


def map_threads(
    location: Location, call: Callable[[In], Out], items: Sequence[In], *, at_once: int | None = None
) -> Iterator[Out]:
    """The results, in the order of the items."""
    if location.is_local or len(items) < 2:
        yield from map(call, items)
        return
    with ThreadPoolExecutor(at_once or default_concurrency(), thread_name_prefix="omnigraph-upkeep") as pool:
        yield from pool.map(call, items)
