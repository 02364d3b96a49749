"""Control objects under `__recovery`: advisory locks, claims, plans and heartbeats, as small JSON objects.

`create` is create-only and returns whether this call created the object, even if the store's response was lost: every
object carries a nonce, and "already exists" with the caller's own nonce means that this call created it.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import orjson

from omnigraph.errors import StorageError, SymlinkInGraph
from omnigraph.storage.layout import RECOVERY, Location
from omnigraph.storage.objects.conditional_put import require_hard_links
from omnigraph.storage.objects.json_objects import JsonObjects
from omnigraph.storage.objects.store import StoredFile


class ControlObjects(JsonObjects):
    """The objects below `<graph>/__recovery`. Names are relative to it."""

    def __init__(self, location: Location) -> None:
        super().__init__(location, RECOVERY)

    def create(self, name: str, body: dict[str, Any]) -> bool:
        """Create `name` unless it exists. True if this call created it; `body` must carry a unique `nonce`."""
        try:
            self._store.create(name, orjson.dumps(body))
            return True
        except SymlinkInGraph:
            raise
        except (FileExistsError, StorageError) as error:
            existing = self.read(name)
            if existing is not None:
                return bool(existing.get("nonce") == body["nonce"])
            if isinstance(error, FileExistsError):
                return False  # another writer's object, swept since: its epoch is decided
            if self._store.location.is_local:
                # The graph may have been copied to a file system that has none.
                require_hard_links(self._store.location)
            raise

    def entries(self, subfolder: str = "") -> list[StoredFile]:
        """The objects below `__recovery`, or below one folder of it, by name."""
        return self._list(subfolder)

    def sync(self, names: Iterable[str]) -> None:
        """Sync objects. Only a few need it: most may be lost in a power loss."""
        self._store.sync(names)

    def delete(self, names: Iterable[str]) -> None:
        """Delete these objects; missing ones are ignored."""
        self._store.delete(names)

    def forget_folder(self, folder: str) -> None:
        """Remove an empty local folder, so that a graph at rest has nothing under `__recovery`."""
        self._store.remove_empty_folder(folder)
