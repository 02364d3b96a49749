"""Large blobs: they lie beside the data file that holds their column, in a folder of its name, and no version names
them one by one. Their sizes are found by listing.
"""

from __future__ import annotations

import os
import posixpath
from collections.abc import Iterable
from typing import TYPE_CHECKING

from omnigraph.errors import StorageError
from omnigraph.language import identifiers as form
from omnigraph.storage.layout import Location
from omnigraph.storage.manifest.records import Pin
from omnigraph.storage.objects.store import ObjectStore

if TYPE_CHECKING:
    from lance import LanceDataset

SUFFIX = ".blob"
_EXTENSION = "lance.blob"


def blob_bytes(location: Location, pin: Pin, table: LanceDataset) -> dict[str, int]:
    """Bytes beside each data file of this version that has some, by the file's path. Lists nothing for a table that
    has no blobs.
    """
    if not _has_blobs(table):
        return {}
    bases = {base.id: _below(pin, base.path) for base in table.base_paths().values()}
    files_by_folder: dict[str, set[str]] = {}
    for fragment in table.get_fragments():
        for file in fragment.metadata.to_json()["files"]:
            root = bases.get(file.get("base_id"), pin.path)
            with form.reading(f"a version of {pin.path}"):
                files_by_folder.setdefault(posixpath.join(root, "data"), set()).add(form.file_name(file["path"]))
    sizes_by_file: dict[str, int] = {}
    for folder, files in files_by_folder.items():
        sizes = _local(location.join(folder), files) if location.is_local else _remote(location, folder)
        sizes_by_file |= {path: sizes[name] for path in files if (name := _folder(path)) in sizes}
    return sizes_by_file


def in_listing(files: Iterable[tuple[str, int]]) -> dict[str, int]:
    """The same by data file, out of a listing (path, size) of a table's whole folder."""
    sizes: dict[str, int] = {}
    for path, size in files:
        if path.endswith(SUFFIX):
            name = posixpath.basename(posixpath.dirname(path)) + ".lance"
            sizes[name] = sizes.get(name, 0) + size
    return sizes


def _has_blobs(table: LanceDataset) -> bool:
    for field in table.schema:
        kind = getattr(field.type, "extension_name", "") or (field.metadata or {}).get(b"ARROW:extension:name", b"")
        if _EXTENSION in str(kind) or b"lance-encoding:blob" in (field.metadata or {}):
            return True
    return False


def _below(pin: Pin, base: str) -> str:
    """A base path of Lance as a path in the graph: all of them lie in the table's folder."""
    return pin.root + base.rstrip("/").rpartition(pin.root)[2]


def _folder(path: str) -> str:
    return path.removesuffix(".lance")


def _local(data: str, files: Iterable[str]) -> dict[str, int]:
    sizes: dict[str, int] = {}
    for name in map(_folder, files):
        try:
            sizes[name] = sum(
                entry.stat(follow_symlinks=False).st_size for entry in os.scandir(os.path.join(data, name))
            )
        except (FileNotFoundError, NotADirectoryError):
            continue  # no large blob is in this file
        except OSError as error:
            raise StorageError(doing=f"listing {data}", detail=str(error)) from error
    return sizes


def _remote(location: Location, folder: str) -> dict[str, int]:
    sizes: dict[str, int] = {}
    for file in ObjectStore(location, folder).iter_files():
        name, _, inner_path = file.path.partition("/")
        if inner_path:
            sizes[name] = sizes.get(name, 0) + file.size
    return sizes
