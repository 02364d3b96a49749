"""What is kept from one query to the next: columns, orders of ids, adjacency, texts, vectors. All derived from exact
versions of tables, so nothing here is ever out of date; it is dropped, least recently used first, above a budget.

Keys begin with (folder of the table or fork, version): row ids alone say nothing, since a fork hands out the same ones
as the table that it came from.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterator
from typing import TypeVar, cast

from omnigraph.config import environment

DEFAULT_BYTES = 1 << 30
VARIABLE = "OMNIGRAPH_QUERY_CACHE_BYTES"
T = TypeVar("T")


def budget_bytes() -> int:
    return environment.integer(VARIABLE, DEFAULT_BYTES, minimum=0)


class Cache:
    """Values by key, with their sizes. Threads may share it; a value that two of them miss is made twice."""

    def __init__(self, most_bytes: int | None = None) -> None:
        self.most_bytes = budget_bytes() if most_bytes is None else most_bytes
        self.bytes = 0
        self._lock = threading.Lock()
        self._held: OrderedDict[Hashable, tuple[object, int]] = OrderedDict()

    def get(self, key: Hashable) -> object | None:
        with self._lock:
            found = self._held.get(key)
            if found is None:
                return None
            self._held.move_to_end(key)
            return found[0]

    def put(self, key: Hashable, value: object, size: int) -> None:
        """Keep the value, unless it alone is more than the budget."""
        with self._lock:
            before = self._held.pop(key, None)
            self.bytes -= before[1] if before else 0
            if size > self.most_bytes:
                return
            self._held[key] = (value, size)
            self.bytes += size
            while self.bytes > self.most_bytes:
                _, (_, gone) = self._held.popitem(last=False)
                self.bytes -= gone

    def made(self, key: Hashable, make: Callable[[], tuple[T, int]]) -> T:
        found = self.get(key)
        if found is not None:
            return cast("T", found)
        value, size = make()
        self.put(key, value, size)
        return value

    def keys(self) -> Iterator[Hashable]:
        with self._lock:
            return iter(list(self._held))

    def clear(self) -> None:
        with self._lock:
            self._held.clear()
            self.bytes = 0
