"""Remove files of the graph in the given order: missing ones are ignored, and a crash leaves the rest.

No link is followed (`nofollow`): a path that goes through one is refused.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from contextlib import suppress
from itertools import groupby

from omnigraph.errors import StorageError
from omnigraph.storage import durability
from omnigraph.storage.layout import Location
from omnigraph.storage.objects import nofollow
from omnigraph.storage.objects.control_objects import open_store

DELETE_KEYS_MAX = 1000
"""How many keys one request to S3 deletes."""


def remove(location: Location, folder: str, paths: Sequence[str]) -> None:
    """Delete files below `<graph>/<folder>`: one after the other on a disk, in runs of a request each on S3."""
    if not paths:
        return
    if location.is_local:
        for inner, group in groupby(paths, key=lambda path: path.rpartition("/")[0]):
            _remove_local(location, f"{folder}/{inner}", [path.rpartition("/")[2] for path in group])
        return
    import obstore
    from obstore.exceptions import BaseError

    store = open_store(location, folder)
    for start in range(0, len(paths), DELETE_KEYS_MAX):
        try:
            obstore.delete(store, list(paths[start : start + DELETE_KEYS_MAX]))
        except FileNotFoundError:
            continue
        except (BaseError, OSError) as error:
            raise StorageError(doing=f"removing files of {folder}", detail=str(error)) from error


def _remove_local(location: Location, folder: str, names: Sequence[str]) -> None:
    try:
        with nofollow.opened(location, folder) as folder_fd:
            for name in names:
                with suppress(FileNotFoundError):
                    os.unlink(name, dir_fd=folder_fd)
    except FileNotFoundError:
        return
    except OSError as error:
        raise StorageError(doing=f"removing files of {folder}", detail=str(error)) from error


def remove_folders(location: Location, folders: Iterable[str]) -> None:
    """Remove local folders that are empty, with the empty folders in them."""
    if not location.is_local:
        return
    for folder in folders:
        nofollow.remove_empty(location, folder)


def sync_removal(location: Location, line: str) -> None:
    """Sync the removal of versions before the files that they refer to are removed."""
    if not location.is_local or not durability.fsync_enabled():
        return
    try:
        with nofollow.opened(location, f"{line}/_versions") as folder:
            os.fsync(folder)
    except FileNotFoundError:
        return  # the whole version line was removed
    except OSError as error:
        raise StorageError(doing=f"removing versions of {line}", detail=str(error)) from error
