"""What lies in a folder of the graph: names, sizes and times, by one listing. Nothing is opened, nothing is written."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass

from omnigraph.errors import StorageError
from omnigraph.storage.layout import Location
from omnigraph.storage.objects import open_store


@dataclass(frozen=True)
class StoredFile:
    """`path` is relative to the listed folder; `modified_s` is the store's time of its last change."""

    path: str
    size: int
    modified_s: float


def listed(location: Location, folder: str) -> list[StoredFile]:
    """Every file below `<graph>/<folder>`, in no particular order; none if there is no such folder."""
    return list(files_below(location, folder))


def files_below(location: Location, folder: str) -> Iterator[StoredFile]:
    """The same, one after the other, for whoever may stop early."""
    return _local(location.join(folder)) if location.is_local else _remote(location, folder)


def _local(root: str) -> Iterator[StoredFile]:
    pending = [""]
    while pending:
        below = pending.pop()
        try:
            entries = list(os.scandir(os.path.join(root, below)))
        except (FileNotFoundError, NotADirectoryError):
            continue  # removed while it was being listed
        except OSError as error:
            raise StorageError(doing=f"listing {root}", detail=str(error)) from error
        for entry in entries:
            name = f"{below}/{entry.name}" if below else entry.name
            try:
                if entry.is_dir(follow_symlinks=False):
                    pending.append(name)
                    continue
                stat = entry.stat(follow_symlinks=False)
            except FileNotFoundError:
                continue
            yield StoredFile(name, stat.st_size, stat.st_mtime)


def _remote(location: Location, folder: str) -> Iterator[StoredFile]:
    import obstore
    from obstore.exceptions import BaseError

    try:
        for batch in obstore.list(open_store(location, folder)):
            for entry in batch:
                yield StoredFile(entry["path"], entry["size"], entry["last_modified"].timestamp())
    except (BaseError, OSError) as error:
        raise StorageError(doing=f"listing {folder}", detail=str(error)) from error


def folders(location: Location, folder: str) -> list[str]:
    """Names of the folders directly below `<graph>/<folder>`, sorted."""
    return children(location, folder)[1]


def children(location: Location, folder: str) -> tuple[list[str], list[str]]:
    """Names of the files and of the folders directly below `<graph>/<folder>`, each sorted."""
    if location.is_local:
        root = location.join(folder)
        try:
            entries = [(entry.name, entry.is_dir(follow_symlinks=False)) for entry in os.scandir(root)]
        except (FileNotFoundError, NotADirectoryError):
            return [], []
        except OSError as error:
            raise StorageError(doing=f"listing {root}", detail=str(error)) from error
        return sorted(n for n, is_folder in entries if not is_folder), sorted(
            n for n, is_folder in entries if is_folder
        )
    import obstore
    from obstore.exceptions import BaseError

    try:
        found = obstore.list_with_delimiter(open_store(location, folder))
    except (BaseError, OSError) as error:
        raise StorageError(doing=f"listing {folder}", detail=str(error)) from error
    files = sorted(entry["path"].rpartition("/")[2] for entry in found["objects"])
    return [f for f in files if f], sorted(prefix.rstrip("/").rpartition("/")[2] for prefix in found["common_prefixes"])
