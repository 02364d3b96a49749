"""The cache of data derived from table versions: columns, orders of ids, adjacency, texts, vectors. Keys name exact
versions, so no entry is ever stale; above a budget the least recently used entries are dropped.

Keys begin with (folder of the table or fork, version): row ids alone are ambiguous, since a fork assigns the same ones
as the table that it was created from.
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
    """Values by key, with their sizes. Threads may share it; a value that two threads miss is computed twice."""

    def __init__(self, max_bytes: int | None = None) -> None:
        self.max_bytes = budget_bytes() if max_bytes is None else max_bytes
        self.bytes = 0
        self._lock = threading.Lock()
        self._entries: OrderedDict[Hashable, tuple[object, int]] = OrderedDict()

    def get(self, key: Hashable) -> object | None:
        with self._lock:
            entry = self._entries.get(key)
            if entry is None:
                return None
            self._entries.move_to_end(key)
            return entry[0]

    def put(self, key: Hashable, value: object, size: int) -> None:
        """Store the value, unless it alone exceeds the budget."""
        with self._lock:
            old_entry = self._entries.pop(key, None)
            self.bytes -= old_entry[1] if old_entry else 0
            if size > self.max_bytes:
                return
            self._entries[key] = (value, size)
            self.bytes += size
            while self.bytes > self.max_bytes:
                _, (_, dropped_bytes) = self._entries.popitem(last=False)
                self.bytes -= dropped_bytes

    def get_or_make(self, key: Hashable, make: Callable[[], tuple[T, int]]) -> T:
        cached = self.get(key)
        if cached is not None:
            return cast("T", cached)
        value, size = make()
        self.put(key, value, size)
        return value

    def keys(self) -> Iterator[Hashable]:
        with self._lock:
            return iter(list(self._entries))

    def clear(self) -> None:
        with self._lock:
            self._entries.clear()
            self.bytes = 0
