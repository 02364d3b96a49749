"""Removing files of the graph, in the order given: what is gone already is fine, and a crash leaves the rest."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from contextlib import suppress

from omnigraph.errors import StorageError
from omnigraph.storage import durable
from omnigraph.storage.layout import Location
from omnigraph.storage.objects import open_store

AT_ONCE = 1000
"""How many keys one request to S3 deletes at the most."""


def remove(location: Location, folder: str, paths: Sequence[str]) -> None:
    """Delete files below `<graph>/<folder>`: one after the other on a disk, in runs of a request each on S3."""
    if not paths:
        return
    if location.is_local:
        root = location.join(folder)
        for path in paths:
            try:
                os.unlink(f"{root}/{path}")
            except FileNotFoundError:
                continue
            except OSError as error:
                raise StorageError(doing=f"removing {folder}/{path}", detail=str(error)) from error
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


def remove_folders(location: Location, folders: Iterable[str]) -> None:
    """Remove local folders that are empty by now, with the empty ones in them."""
    if not location.is_local:
        return
    for folder in folders:
        for below, _, _ in os.walk(location.join(folder), topdown=False):
            with suppress(OSError):  # not empty: somebody has put something there
                os.rmdir(below)


def secure_removal(location: Location, line: str) -> None:
    """Make the removal of versions durable before that of what they referred to."""
    if not location.is_local or not durable.fsync_enabled():
        return
    try:
        folder = os.open(location.join(line, "_versions"), os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)
    except FileNotFoundError:
        return  # all of the line is gone
    except OSError as error:
        raise StorageError(doing=f"removing versions of {line}", detail=str(error)) from error
