"""The mark of an unfinished clone: `__clone/source.json`, from before its first file until after its last one.

An address with a mark and without a manifest is not a graph yet: `open` and `init` refuse it with CloneUnfinished, and
a clone of the same source continues there. A clone renews its mark, so that a second clone, which would write other
files to the same address, is refused while the first is running: it continues only if the first has failed, is provably
gone, or has not renewed its mark for ALIVE_S by the store's clock.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any

from omnigraph.errors import CloneUnfinished, StorageError
from omnigraph.storage.layout import CLONE, Location
from omnigraph.storage.objects.json_objects import JsonObjects, store_time_s

ALIVE_S, RENEWED_EVERY_S = 600.0, 60.0
_NAME = "source.json"
_active: set[str] = set()
"""Addresses to which this process is cloning."""


def unfinished(location: Location) -> CloneUnfinished | None:
    """The error for an address at which a clone was begun; None if there is no mark."""
    mark = _read(location)
    return None if mark is None else CloneUnfinished(uri=location.uri, source=mark.get("source", "?"), detail="")


def _read(location: Location) -> dict[str, Any] | None:
    control = JsonObjects(location, CLONE)
    if not any(entry.path == _NAME for entry in control.entries()):  # listing creates no folder
        return None
    return control.read(_NAME)


@contextmanager
def marked(
    location: Location, source: str, *, owner: Mapping[str, Any], is_gone: Callable[[Mapping[str, Any] | None], bool]
) -> Iterator[None]:
    """Hold the mark while the block runs. If the block fails, the mark stays for the next clone."""
    _require_free(location, source, owner, is_gone)
    control = JsonObjects(location, CLONE)
    body = {"source": source, "owner": dict(owner)}
    control.put(_NAME, body)
    _active.add(location.uri)
    stopped = threading.Event()

    def renewing() -> None:
        while not stopped.wait(RENEWED_EVERY_S):
            with suppress(StorageError):  # the next renewal comes in time
                control.put(_NAME, body)

    thread = threading.Thread(target=renewing, name="omnigraph-clone", daemon=True)
    thread.start()
    try:
        yield
    except BaseException:
        stopped.set()
        thread.join()
        _active.discard(location.uri)
        with suppress(StorageError):  # then the next clone waits until the mark is old
            control.put(_NAME, {"source": source})
        raise
    stopped.set()
    thread.join()
    _active.discard(location.uri)
    control.delete([_NAME])


def _require_free(
    location: Location,
    source: str,
    owner: Mapping[str, Any],
    is_gone: Callable[[Mapping[str, Any] | None], bool],
) -> None:
    mark = _read(location)
    if mark is None:
        return
    if mark.get("source") != source:
        raise CloneUnfinished(uri=location.uri, source=mark.get("source", "?"), detail="")
    holder = mark.get("owner")
    if holder is None or is_gone(holder) or (holder == dict(owner) and location.uri not in _active):
        return
    if store_time_s(location) - JsonObjects(location, CLONE).modified_s(_NAME) < ALIVE_S:
        raise CloneUnfinished(uri=location.uri, source=source, detail=": another process is at work on it")
