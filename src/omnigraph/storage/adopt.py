"""What a version that a stranger made needs before it may be published: its new files are there, and on the platter.

The door checks and syncs what it writes itself. A Lance client that is not ours does neither, so this looks after it:
every data and deletion file that the version before did not have must exist inside of the graph; on a local disk they,
the files of new indices and the version's own manifest are synced.
"""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Any

from omnigraph.errors import StorageError
from omnigraph.storage import durable
from omnigraph.storage.history import fragments_json
from omnigraph.storage.layout import Location
from omnigraph.storage.objects import all_exist
from omnigraph.storage.records import Pin

if TYPE_CHECKING:
    from lance import LanceDataset


def secure_version(location: Location, pin: Pin, new: LanceDataset, *, old: LanceDataset | None) -> None:
    """`pin` names the line that both versions are of. StorageError if the new version can't be relied on."""
    files = _new_files(location, pin, new, old)
    if not all_exist(location, files):
        missing = next(f for f in files if not all_exist(location, [f]))
        raise StorageError(doing=f"looking for the files of {pin.path}", detail=f"{missing} is missing")
    if location.is_local:
        paths = [location.join(f) for f in files]
        paths += _new_index_files(location.join(pin.path), new, old)
        durable.sync_files([*paths, durable.manifest_path(location.join(pin.path), int(new.version))])


def _new_files(location: Location, pin: Pin, new: LanceDataset, old: LanceDataset | None) -> list[str]:
    known = set() if old is None else {key for f in fragments_json(old) for key in _keys(f)}
    found: list[str] = []
    for fragment in fragments_json(new):
        for key in _keys(fragment) - known:
            kind, base_id, name = json.loads(key)
            found.append(f"{_root(location, pin, new, base_id)}/{kind}/{name}")
    return found


def _keys(fragment: dict[str, Any]) -> set[str]:
    """The fragment's files as texts: kind, base and name of each."""
    found = {json.dumps(["data", file.get("base_id"), file["path"]]) for file in fragment["files"]}
    deletion = fragment.get("deletion_file")
    if deletion:
        name = os.path.basename(durable.deletion_path("", fragment["id"], deletion))
        found.add(json.dumps(["_deletions", deletion.get("base_id"), name]))
    return found


def _root(location: Location, pin: Pin, table: LanceDataset, base_id: int | None) -> str:
    """The folder that a base stands for, relative to the graph."""
    if base_id is None:
        return pin.path
    inside = f"{location.uri}/"
    for base in table.base_paths().values():
        path = str(base.path).rstrip("/")
        if base.id == base_id and path.startswith(inside):
            return path.removeprefix(inside)
    raise StorageError(doing=f"looking for the files of {pin.path}", detail="they lie outside of the graph")


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
