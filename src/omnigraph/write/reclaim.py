"""After a hard drop: remove the versions that still hold the dropped data. Irreversible, and asked for as such.

* a dropped type: its table goes, unless a branch still pins a version of it
* a dropped property: versions of the table below the lowest one that any branch pins

Commits from before the drop can then no longer be read: VersionReclaimed. A crash, or a store that fails, leaves old
versions for cleanup; nothing that a branch reads is ever touched.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterable

from omnigraph.commit.door import Door
from omnigraph.commit.stage import View
from omnigraph.errors import StorageError
from omnigraph.language.schema.plan import SchemaPlan
from omnigraph.storage import lancefs
from omnigraph.storage.layout import Location
from omnigraph.storage.objects import open_store
from omnigraph.storage.records import Pin
from omnigraph.write.evolve import hard_drops


def reclaim(door: Door, before: View, plan: SchemaPlan) -> None:
    drops = hard_drops(plan)
    if not drops:
        return
    location = door.manifest.location
    live = [pin for head in door.manifest.heads().values() for pin in door.manifest.pins(head).values()]
    for type_id, whole in drops.items():
        pin = before.pins[type_id]
        if whole:
            if not any(p.root == pin.root for p in live):
                _remove_folder(location, pin.root)
        else:
            _remove_versions(location, [p for p in live if p.root == pin.root])


def _remove_versions(location: Location, pins: Iterable[Pin]) -> None:
    by_line: dict[str, list[Pin]] = {}
    for pin in pins:
        by_line.setdefault(pin.path, []).append(pin)
    for path, live in by_line.items():
        table = lancefs.open_table(location, location.join(path))
        lowest = min(pin.version for pin in live)
        old = [v["version"] for v in table.versions() if v["version"] < lowest]
        if old:
            try:
                table.cleanup_old_versions(versions=old)
            except (OSError, ValueError) as error:
                raise StorageError(doing=f"removing old versions of {path}", detail=str(error)) from error


def _remove_folder(location: Location, folder: str) -> None:
    if location.is_local:
        shutil.rmtree(location.join(folder), ignore_errors=True)
        return
    import obstore

    store = open_store(location, folder)
    for page in obstore.list(store):
        obstore.delete(store, [o["path"] for o in page])
