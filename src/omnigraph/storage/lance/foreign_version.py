"""Checks and syncs a version of another Lance client before it is published.

The committer checks and syncs its own files. Another Lance client does neither. So every data and deletion file that
the version before did not have must exist inside of the graph and have the recorded size; on a local disk these files,
the files of new indices and the version's own manifest are synced.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from omnigraph.errors import StorageError
from omnigraph.storage import durability
from omnigraph.storage.files import checksums
from omnigraph.storage.files.deletion_files import require_deletions
from omnigraph.storage.lance.transactions import fragments_json
from omnigraph.storage.layout import Location
from omnigraph.storage.manifest.records import Pin
from omnigraph.storage.objects.store import ObjectStore

if TYPE_CHECKING:
    from lance import LanceDataset


@dataclass(frozen=True)
class _File:
    """A file of a version: base id, the name below that base, and its size. Lance notes none of a deletion file."""

    base_id: int | None
    name: str
    size: int | None


def unusable_file(location: Location, pin: Pin, new: LanceDataset, *, old: LanceDataset | None) -> str | None:
    """The first file that the new version needs and that can't be used, and what is wrong with it; None if all is well.

    `pin` names the line that both versions are of.
    """
    needed: list[tuple[str, int | None]] = []
    for file in _new_files(new, old):
        root = _root(location, pin, new, file.base_id)
        if root is None:
            return f"{file.name}, which its newest version needs, lies outside of the graph"
        needed.append((f"{root}/{file.name}", file.size))
    actual_sizes = ObjectStore(location).sizes(path for path, _ in needed)
    for (path, size), actual in zip(needed, actual_sizes, strict=True):
        if actual is None:
            return f"{path}, which its newest version needs, is missing"
        if actual == 0 or (size and actual != size):
            of = f" of {size:,}" if size else ""
            return f"{path}, which its newest version needs, is not whole: it has {actual:,}{of} bytes"
    try:
        require_deletions(location, location.join(pin.path), new)
    except StorageError as error:
        return f"a deletion file that its newest version needs can't be used: {error.fields['detail']}"
    return None


def sync_version(location: Location, pin: Pin, new: LanceDataset, *, old: LanceDataset | None) -> None:
    """Sync what the new version added, on a local disk. Nothing of it is missing."""
    if not location.is_local:
        return
    paths = [location.join(f"{_root(location, pin, new, f.base_id)}/{f.name}") for f in _new_files(new, old)]
    paths += _new_index_files(location.join(pin.path), new, old)
    paths.append(durability.manifest_path(location.join(pin.path), int(new.version)))
    checksums.note(paths)
    durability.sync_files(paths)


def _new_files(new: LanceDataset, old: LanceDataset | None) -> list[_File]:
    """Data and deletion files that only the new version has."""
    old_files = set() if old is None else {file for f in fragments_json(old) for file in _files(f)}
    new_files = {file for fragment in fragments_json(new) for file in _files(fragment)}
    return sorted(new_files - old_files, key=lambda file: file.name)


def _files(fragment: dict[str, Any]) -> set[_File]:
    files = {_File(f.get("base_id"), f"data/{f['path']}", f.get("file_size_bytes")) for f in fragment["files"]}
    deletion = fragment.get("deletion_file")
    if deletion:
        files.add(_File(deletion.get("base_id"), durability.deletion_path("", fragment["id"], deletion), None))
    return files


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
    old_folders = set() if old is None else _index_folders(old)
    paths: list[str] = []
    for name in _index_folders(new) - old_folders:
        path = os.path.join(folder, "_indices", name)
        if os.path.isdir(path):  # an index of the root table is seen from a fork and lies there
            paths.extend(os.path.join(path, file) for file in os.listdir(path))
    return paths


def _index_folders(table: LanceDataset) -> set[str]:
    return {str(segment.uuid) for index in table.describe_indices() for segment in index.segments}
