"""After a hard drop: remove the versions that still hold the dropped data. Irreversible, and asked for as such.

* a dropped type: its table goes, unless a branch still pins a version of it
* a dropped property: versions of the table below the lowest one that any branch pins

Commits from before the drop can then no longer be read: VersionReclaimed. What another branch still holds stays, and
is told. A crash, or a store that fails, leaves old versions for cleanup; nothing that a branch reads is ever touched.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Mapping

from omnigraph.commit.door import Door
from omnigraph.commit.stage import View
from omnigraph.errors import StorageError
from omnigraph.language.schema.plan import SchemaPlan
from omnigraph.language.schema.steps import DropProperty, DropType
from omnigraph.storage import lancefs
from omnigraph.storage.layout import Location
from omnigraph.storage.objects import open_store
from omnigraph.storage.records import Pin
from omnigraph.write.evolve import hard_drops


def reclaim(door: Door, before: View, plan: SchemaPlan) -> dict[str, list[str]]:
    """The branches that still hold what was dropped, by its name: node:Person, or node:Person.age."""
    drops = hard_drops(plan)
    if not drops:
        return {}
    location = door.manifest.location
    pins = {head.branch: door.manifest.pins(head) for head in door.manifest.heads().values()}
    live = [pin for found in pins.values() for pin in found.values()]
    held = _held(door, before, plan, pins)
    for type_id, whole in drops.items():
        pin = before.pins[type_id]
        if whole:
            if not any(p.root == pin.root for p in live):
                _remove_folder(location, pin.root)
        else:
            _remove_versions(location, [p for p in live if p.root == pin.root])
    return held


def _held(door: Door, before: View, plan: SchemaPlan, pins: Mapping[str, Mapping[str, Pin]]) -> dict[str, list[str]]:
    schemas = {head.branch: door.manifest.schema(head.schema) for head in door.manifest.heads().values()}
    found: dict[str, list[str]] = {}
    for step in plan.steps:
        if not isinstance(step, DropType | DropProperty) or step.mode != "hard" or not step.type_id:
            continue
        old = before.schema.by_id[step.type_id]
        name = old.key if isinstance(step, DropType) else f"{old.key}.{step.property_name}"
        for branch in sorted(pins):
            pin, t = pins[branch].get(old.id), schemas[branch].by_id.get(old.id)
            if pin is None or t is None or pin.root != before.pins[old.id].root:
                continue
            if isinstance(step, DropType) or any(p.id == step.property_id for p in t.properties):
                found.setdefault(name, []).append(branch)
    return found


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
