"""Read what may be damaged. Damaged bytes make Lance, Arrow and numpy fail with any class of error: the error is
reported for what was read, and stops nothing else.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

from omnigraph.config.backoff import store_backoff
from omnigraph.errors import OmnigraphError, StorageError
from omnigraph.storage.lance import lance_api
from omnigraph.storage.layout import Location

TRIES_REMOTE = 3
T = TypeVar("T")


@contextmanager
def reading(doing: str) -> Iterator[None]:
    """Turn any failure into StorageError; that of a missing version remains TableMissing."""
    try:
        with lance_api.reading(doing):
            yield
    except (OmnigraphError, lance_api.TableMissing, MemoryError):
        raise
    except Exception as error:
        raise StorageError(doing=doing, detail=f"{type(error).__name__}: {error}") from error


def read(location: Location, doing: str, work: Callable[[], T]) -> T:
    """The result of `work`, which may be called again: a remote store can fail for a moment."""
    pause = store_backoff()
    for _ in range(1, TRIES_REMOTE):
        try:
            with reading(doing):
                return work()
        except StorageError:
            if location.is_local:
                raise
            pause()
    with reading(doing):
        return work()


def reason(error: StorageError) -> str:
    """The first line of the store's message."""
    lines = str(error.fields.get("detail", error)).strip().splitlines()
    return lines[0][:300] if lines else "no reason is known"
