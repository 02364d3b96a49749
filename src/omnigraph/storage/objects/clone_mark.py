"""The mark of a clone in the making: `__clone/source.json`, from before its first file until after its last one.

An address with a mark and without a manifest is no graph yet: opening it and `init` refuse it with CloneUnfinished, and
a clone of the same source goes on there. A clone renews its mark, so that a second one, which would write other files
to the same address, is refused while the first is at work: it goes on only where the first has failed, is known to be
gone, or has not renewed its mark for ALIVE_S by the store's clock.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any

from omnigraph.errors import CloneUnfinished, StorageError
from omnigraph.storage.layout import CLONE, Location
from omnigraph.storage.objects.json_objects import Control, store_time_s

ALIVE_S, RENEWED_EVERY_S = 600.0, 60.0
_NAME = "source.json"
_at_work: set[str] = set()
"""Addresses that this process makes clones at."""


def unfinished(location: Location) -> CloneUnfinished | None:
    """The error for an address at which a clone was begun; None if there is no mark."""
    mark = _read(location)
    return None if mark is None else CloneUnfinished(uri=location.uri, source=mark.get("source", "?"), detail="")


def _read(location: Location) -> dict[str, Any] | None:
    control = Control(location, CLONE)
    if not any(note.name == _NAME for note in control.notes()):  # looking makes no folder
        return None
    return control.read(_NAME)


@contextmanager
def marked(
    location: Location, source: str, *, owner: Mapping[str, Any], is_gone: Callable[[Mapping[str, Any] | None], bool]
) -> Iterator[None]:
    """Hold the mark while the block runs. If the block fails it stays, for whoever goes on."""
    _require_free(location, source, owner, is_gone)
    control = Control(location, CLONE)
    body = {"source": source, "owner": dict(owner)}
    control.put(_NAME, body)
    _at_work.add(location.uri)
    done = threading.Event()

    def renewing() -> None:
        while not done.wait(RENEWED_EVERY_S):
            with suppress(StorageError):  # the next renewal comes in time
                control.put(_NAME, body)

    thread = threading.Thread(target=renewing, name="omnigraph-clone", daemon=True)
    thread.start()
    try:
        yield
    except BaseException:
        done.set()
        thread.join()
        _at_work.discard(location.uri)
        with suppress(StorageError):  # then the next one waits until it is old
            control.put(_NAME, {"source": source})
        raise
    done.set()
    thread.join()
    _at_work.discard(location.uri)
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
    if holder is None or is_gone(holder) or (holder == dict(owner) and location.uri not in _at_work):
        return
    if store_time_s(location) - Control(location, CLONE).modified_s(_NAME) < ALIVE_S:
        raise CloneUnfinished(uri=location.uri, source=source, detail=": another process is at work on it")
