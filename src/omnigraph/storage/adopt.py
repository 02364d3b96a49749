"""What a version that a stranger made needs before it may be published: its new files are there, and on the platter.

The door checks and syncs what it writes itself. A Lance client that is not ours does neither, so this looks after it:
every data and deletion file that the version before did not have must exist inside of the graph; on a local disk they,
the files of new indices and the version's own manifest are synced.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from omnigraph.storage import durable
from omnigraph.storage.history import fragments_json
from omnigraph.storage.layout import Location
from omnigraph.storage.objects import all_exist
from omnigraph.storage.records import Pin

if TYPE_CHECKING:
    from lance import LanceDataset


def missing_files(
    location: Location, pin: Pin, new: LanceDataset, *, old: LanceDataset | None
) -> tuple[str, str] | None:
    """The first file that the new version needs and that can't be had, and what is wrong with it; None if all is well.

    `pin` names the line that both versions are of.
    """
    for base, name in _new_files(new, old):
        root = _root(location, pin, new, base)
        if root is None:
            return name, "lies outside of the graph"
        if not all_exist(location, [f"{root}/{name}"]):
            return f"{root}/{name}", "is missing"
    return None


def secure_version(location: Location, pin: Pin, new: LanceDataset, *, old: LanceDataset | None) -> None:
    """Sync what the new version added, on a local disk. Nothing of it is missing."""
    if not location.is_local:
        return
    paths = [location.join(f"{_root(location, pin, new, base)}/{name}") for base, name in _new_files(new, old)]
    paths += _new_index_files(location.join(pin.path), new, old)
    durable.sync_files([*paths, durable.manifest_path(location.join(pin.path), int(new.version))])


def _new_files(new: LanceDataset, old: LanceDataset | None) -> list[tuple[int | None, str]]:
    """Data and deletion files that only the new version has: base id, and the name below that base."""
    known = set() if old is None else {file for f in fragments_json(old) for file in _files(f)}
    found = {file for fragment in fragments_json(new) for file in _files(fragment)}
    return sorted(found - known, key=str)


def _files(fragment: dict[str, Any]) -> set[tuple[int | None, str]]:
    found = {(file.get("base_id"), f"data/{file['path']}") for file in fragment["files"]}
    deletion = fragment.get("deletion_file")
    if deletion:
        found.add((deletion.get("base_id"), durable.deletion_path("", fragment["id"], deletion)))
    return found


def _root(location: Location, pin: Pin, table: LanceDataset, base_id: int | None) -> str | None:
    """The folder that a base stands for, relative to the graph; None if it is none of the graph's."""
    if base_id is None:
        return pin.path
    inside = f"{location.uri}/"
    for base in table.base_paths().values():
        path = str(base.path).rstrip("/")
        if base.id == base_id and path.startswith(inside):
            return path.removeprefix(inside)
    return None


def _new_index_files(folder: str, new: LanceDataset, old: LanceDataset | None) -> list[str]:
    known = set() if old is None else _index_folders(old)
    found: list[str] = []
    for name in _index_folders(new) - known:
        path = os.path.join(folder, "_indices", name)
        if os.path.isdir(path):  # an index of the root table is seen from a fork and lies there
            found.extend(os.path.join(path, file) for file in os.listdir(path))
    return found


def _index_folders(table: LanceDataset) -> set[str]:
    return {str(segment.uuid) for index in table.describe_indices() for segment in index.segments}
