"""What lies in a folder of the graph: names, sizes and times, by one listing. Nothing is opened, nothing is written."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from omnigraph.errors import StorageError
from omnigraph.storage.layout import Location
from omnigraph.storage.objects import nofollow
from omnigraph.storage.objects.control_objects import open_store


@dataclass(frozen=True)
class StoredFile:
    """`path` is relative to the listed folder; `modified_s` is the store's time of its last change."""

    path: str
    size: int
    modified_s: float


def listed(location: Location, folder: str, *, links: list[str] | None = None) -> list[StoredFile]:
    """Every file below `<graph>/<folder>`, in no particular order; none if there is no such folder.

    A symbolic link is SymlinkInGraph, or is added to `links`, by its path below the folder, and left out.
    """
    return list(files_below(location, folder, links=links))


def files_below(location: Location, folder: str, *, links: list[str] | None = None) -> Iterator[StoredFile]:
    """The same as an iterator, for callers that may stop early."""
    return _local(location, folder, links) if location.is_local else _remote(location, folder)


def _local(location: Location, folder: str, links: list[str] | None) -> Iterator[StoredFile]:
    try:
        for path, status in nofollow.files(location, folder, links=links):
            yield StoredFile(path, status.st_size, status.st_mtime)
    except OSError as error:
        raise StorageError(doing=f"listing {folder}", detail=str(error)) from error


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


def links(location: Location, folder: str) -> list[str]:
    """Names of the symbolic links directly below `<graph>/<folder>`, sorted. A bucket has none."""
    return _local_children(location, folder).links if location.is_local else []


def _local_children(location: Location, folder: str) -> nofollow.Children:
    try:
        return nofollow.children(location, folder)
    except OSError as error:
        raise StorageError(doing=f"listing {folder}", detail=str(error)) from error


def children(location: Location, folder: str) -> tuple[list[str], list[str]]:
    """Names of the files and of the folders directly below `<graph>/<folder>`, each sorted. A link is a file."""
    if location.is_local:
        names = _local_children(location, folder)
        return sorted([*names.files, *names.links]), names.folders
    import obstore
    from obstore.exceptions import BaseError

    try:
        listed = obstore.list_with_delimiter(open_store(location, folder))
    except (BaseError, OSError) as error:
        raise StorageError(doing=f"listing {folder}", detail=str(error)) from error
    files = sorted(entry["path"].rpartition("/")[2] for entry in listed["objects"])
    return [f for f in files if f], sorted(
        prefix.rstrip("/").rpartition("/")[2] for prefix in listed["common_prefixes"]
    )
