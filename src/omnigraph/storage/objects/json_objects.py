"""Small JSON objects of one folder of the graph, and the store's own clock.

Unlike advisory locks they may be overwritten, and their age counts: `modified_s` is the store's time of the last write,
which is the same for every process, whatever its own clock shows.
"""

from __future__ import annotations

import os
import secrets
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any

import orjson

from omnigraph.errors import StorageError
from omnigraph.storage.layout import CLEANUP, Location
from omnigraph.storage.objects import nofollow
from omnigraph.storage.objects.control_objects import open_store

PUT_TRIES_MAX = 10
PROBE = "probe-"
PROBE_MAX_S = 60.0
"""A probe exists for milliseconds: an older one was left by a crashed process."""


@dataclass(frozen=True)
class Note:
    """One listed object: its name, the store's time of its last write, and a mark that changes with every write."""

    name: str
    modified_s: float
    mark: str


class Control:
    """The objects below `<graph>/<folder>`."""

    def __init__(self, location: Location, folder: str) -> None:
        self._location = location
        self._folder = folder
        self._opened: Any = None

    @property
    def _store(self) -> Any:
        nofollow.require_path(self._location, self._folder)
        if self._opened is None:
            self._opened = open_store(self._location, self._folder)
        return self._opened

    def put(self, name: str, body: dict[str, Any]) -> None:
        import obstore

        raw = orjson.dumps(body)
        with self._store_errors("writing", name):
            for attempt in range(1, PUT_TRIES_MAX + 1):
                try:
                    obstore.put(self._store, name, raw, mode="overwrite")
                    return
                except FileNotFoundError:
                    # Another process has just removed the empty folder.
                    self._opened = None
                    if attempt == PUT_TRIES_MAX:
                        raise

    def read(self, name: str) -> dict[str, Any] | None:
        """The object's JSON; None if it does not exist; {} if it is not a JSON object."""
        import obstore

        with self._store_errors("reading", name):
            try:
                if self._location.is_local:
                    raw = nofollow.read(self._location, f"{self._folder}/{name}")
                else:
                    raw = bytes(obstore.get(self._store, name).bytes())
            except FileNotFoundError:
                return None
        try:
            body = orjson.loads(raw)
        except orjson.JSONDecodeError:
            return {}
        return body if isinstance(body, dict) else {}

    def notes(self) -> list[Note]:
        """The objects, by name. Listing creates no folder."""
        if self._location.is_local:
            with self._store_errors("listing", ""):
                return sorted(self._list_local(), key=lambda n: n.name)
        import obstore

        with self._store_errors("listing", ""):
            objects = [o for page in obstore.list(self._store) for o in page]
        return [
            Note(o["path"], o["last_modified"].timestamp(), f"{o['e_tag']}|{o['last_modified'].isoformat()}")
            for o in objects
        ]

    def _list_local(self) -> Iterator[Note]:
        for path, status in nofollow.files(self._location, self._folder, links=[]):
            if "/" not in path:
                yield Note(path, status.st_mtime, f"{status.st_mtime_ns}|{status.st_ino}|{status.st_size}")

    def modified_s(self, name: str) -> float:
        import obstore

        with self._store_errors("looking at", name):
            if self._location.is_local:
                return os.lstat(self._location.join(self._folder, name)).st_mtime
            return float(obstore.head(self._store, name)["last_modified"].timestamp())

    def delete(self, names: Iterable[str]) -> None:
        """Delete these objects, and the local folder if it is empty then; missing ones are ignored."""
        for name in names:
            with self._store_errors("deleting", name), suppress(FileNotFoundError):
                if self._location.is_local:
                    nofollow.unlink(self._location, f"{self._folder}/{name}")
                else:
                    import obstore

                    obstore.delete(self._store, name)
        if self._location.is_local:
            with suppress(OSError):  # not empty, or missing; a link is not a folder, and stays
                os.rmdir(self._location.join(self._folder))
            self._opened = None

    @contextmanager
    def _store_errors(self, doing: str, name: str) -> Iterator[None]:
        from obstore.exceptions import BaseError

        try:
            yield
        except (BaseError, OSError) as error:
            path = f"{self._folder}/{name}" if name else self._folder
            raise StorageError(doing=f"{doing} {path}", detail=str(error)) from error


def store_time_s(location: Location) -> float:
    """The store's current time, from a probe object that is written and deleted."""
    control = Control(location, CLEANUP)
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
    control = Control(location, CLEANUP)
    notes = control.notes()
    old_probes = {n.name for n in notes if n.name.startswith(PROBE) and now_s - n.modified_s > PROBE_MAX_S}
    control.delete(old_probes)
    return {n.name for n in notes} - old_probes
