"""Small JSON objects of one folder of the graph, and the store's own clock.

They may be overwritten, and their age counts: `modified_s` is the store's time of the last write, which is the same for
every process, whatever its own clock shows.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Iterable
from typing import Any

import orjson

from omnigraph.errors import StorageError
from omnigraph.storage.layout import CLEANUP, Location
from omnigraph.storage.objects.store import ObjectStore, StoredFile

PROBE = "probe-"
PROBE_MAX_S = 60.0
"""A probe exists for milliseconds: an older one was left by a crashed process."""


class JsonObjects:
    """The objects below `<graph>/<folder>`."""

    def __init__(self, location: Location, folder: str) -> None:
        self._store = ObjectStore(location, folder)

    def put(self, name: str, body: dict[str, Any]) -> None:
        self._store.put(name, orjson.dumps(body))

    def read(self, name: str) -> dict[str, Any] | None:
        """The object's JSON; None if it does not exist; {} if it is not a JSON object (truncated, or foreign)."""
        try:
            body = orjson.loads(self._store.get(name))
        except FileNotFoundError:
            return None
        except orjson.JSONDecodeError:
            return {}
        return body if isinstance(body, dict) else {}

    def entries(self) -> list[StoredFile]:
        """The objects directly in the folder, by name. Listing creates no folder."""
        return [file for file in self._list("") if "/" not in file.path]

    def _list(self, subfolder: str) -> list[StoredFile]:
        return sorted(self._store.list_files(subfolder, links=[]), key=lambda file: file.path)

    def modified_s(self, name: str) -> float:
        try:
            return self._store.head(name).modified_s
        except FileNotFoundError as error:
            raise StorageError(doing=f"looking at {self._store.path(name)}", detail=str(error)) from error

    def delete(self, names: Iterable[str]) -> None:
        """Delete these objects, and the local folder if it is empty then; missing ones are ignored."""
        self._store.delete(names)
        self._store.remove_empty_folder()


def store_time_s(location: Location) -> float:
    """The store's current time, from a probe object that is written and deleted."""
    control = JsonObjects(location, CLEANUP)
    probe = f"{PROBE}{secrets.token_hex(6)}"
    control.put(probe, {})
    try:
        return control.modified_s(probe)
    finally:
        control.delete([probe])


def earlier_time_s(location: Location) -> float:
    """The earlier of the store's time and this machine's: a clock that is ahead does not make objects look old."""
    return min(store_time_s(location), time.time())


def forget_probes(location: Location, *, now_s: float) -> set[str]:
    """Delete the probes of crashed processes; returns the names of the other objects."""
    control = JsonObjects(location, CLEANUP)
    entries = control.entries()
    old_probes = {e.path for e in entries if e.path.startswith(PROBE) and now_s - e.modified_s > PROBE_MAX_S}
    control.delete(old_probes)
    return {e.path for e in entries} - old_probes
