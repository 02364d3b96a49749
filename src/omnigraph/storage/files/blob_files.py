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
    wanted: dict[str, set[str]] = {}
    for fragment in table.get_fragments():
        for file in fragment.metadata.to_json()["files"]:
            root = bases.get(file.get("base_id"), pin.path)
            with form.reading(f"a version of {pin.path}"):
                wanted.setdefault(posixpath.join(root, "data"), set()).add(form.file_name(file["path"]))
    found: dict[str, int] = {}
    for folder, files in wanted.items():
        sizes = _local(location.join(folder), files) if location.is_local else _remote(location, folder)
        found |= {path: sizes[name] for path in files if (name := _folder(path)) in sizes}
    return found


def in_listing(files: Iterable[tuple[str, int]]) -> dict[str, int]:
    """The same by data file, out of a listing (path, size) of a table's whole folder."""
    found: dict[str, int] = {}
    for path, size in files:
        if path.endswith(SUFFIX):
            name = posixpath.basename(posixpath.dirname(path)) + ".lance"
            found[name] = found.get(name, 0) + size
    return found


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
    found: dict[str, int] = {}
    for name in map(_folder, files):
        try:
            found[name] = sum(
                entry.stat(follow_symlinks=False).st_size for entry in os.scandir(os.path.join(data, name))
            )
        except (FileNotFoundError, NotADirectoryError):
            continue  # no large blob is in this file
        except OSError as error:
            raise StorageError(doing=f"listing {data}", detail=str(error)) from error
    return found


def _remote(location: Location, folder: str) -> dict[str, int]:
    import obstore
    from obstore.exceptions import BaseError

    from omnigraph.storage.objects.control_objects import open_store

    found: dict[str, int] = {}
    try:
        for batch in obstore.list(open_store(location, folder)):
            for entry in batch:
                name, _, rest = entry["path"].partition("/")
                if rest:
                    found[name] = found.get(name, 0) + entry["size"]
    except (BaseError, OSError) as error:
        raise StorageError(doing=f"listing {folder}", detail=str(error)) from error
    return found
