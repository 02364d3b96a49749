"""Removing files of the graph, in the order given: what is gone already is fine, and a crash leaves the rest.

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

AT_ONCE = 1000
"""How many keys one request to S3 deletes at the most."""


def remove(location: Location, folder: str, paths: Sequence[str]) -> None:
    """Delete files below `<graph>/<folder>`: one after the other on a disk, in runs of a request each on S3."""
    if not paths:
        return
    if location.is_local:
        for inner, group in groupby(paths, key=lambda path: path.rpartition("/")[0]):
            _remove_here(location, f"{folder}/{inner}", [path.rpartition("/")[2] for path in group])
        return
    import obstore
    from obstore.exceptions import BaseError

    store = open_store(location, folder)
    for start in range(0, len(paths), AT_ONCE):
        try:
            obstore.delete(store, list(paths[start : start + AT_ONCE]))
        except FileNotFoundError:
            continue
        except (BaseError, OSError) as error:
            raise StorageError(doing=f"removing files of {folder}", detail=str(error)) from error


def _remove_here(location: Location, folder: str, names: Sequence[str]) -> None:
    try:
        with nofollow.opened(location, folder) as at:
            for name in names:
                with suppress(FileNotFoundError):
                    os.unlink(name, dir_fd=at)
    except FileNotFoundError:
        return
    except OSError as error:
        raise StorageError(doing=f"removing files of {folder}", detail=str(error)) from error


def remove_folders(location: Location, folders: Iterable[str]) -> None:
    """Remove local folders that are empty by now, with the empty ones in them."""
    if not location.is_local:
        return
    for folder in folders:
        nofollow.remove_empty(location, folder)


def secure_removal(location: Location, line: str) -> None:
    """Make the removal of versions durable before that of what they referred to."""
    if not location.is_local or not durability.fsync_enabled():
        return
    try:
        with nofollow.opened(location, f"{line}/_versions") as folder:
            os.fsync(folder)
    except FileNotFoundError:
        return  # all of the line is gone
    except OSError as error:
        raise StorageError(doing=f"removing versions of {line}", detail=str(error)) from error
