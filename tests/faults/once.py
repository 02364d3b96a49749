"""Values that are worked out once, by whichever thread needs them first."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Generic, TypeVar

T = TypeVar("T")


class Once(Generic[T]):
    """A table of values by name. Different names are worked out at the same time, one name only once."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._locks: dict[str, threading.Lock] = {}
        self._values: dict[str, T] = {}

    def get(self, name: str, make: Callable[[], T]) -> T:
        with self._lock:
            mutex = self._locks.setdefault(name, threading.Lock())
        with mutex:
            if name not in self._values:
                self._values[name] = make()
            return self._values[name]
