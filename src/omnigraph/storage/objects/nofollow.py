"""Folders and files of a local graph, without following symbolic links below its root.

The root is the user's own path and may be reached through links: `layout.locate` resolves them. Below it a link is
never followed. Every part of a path is opened on its own, relative to the folder above it and with O_NOFOLLOW, so a
folder that is replaced by a link while it is being listed or emptied is refused, and not entered.

* `require_layout`  no layout name (`__manifest`, `nodes`, …) is a link: asked when a graph is opened and before a write
* `require_table`   no part of a table's path, and no folder in which Lance keeps its files, is a link: asked whenever a
                    table is opened or committed to
* `opened`, `files`, `children`, `read`, `remove_tree`  what lists, reads and removes

A link raises SymlinkInGraph, or is collected for the caller where the rest is still listed. A link is never removed:
that is up to the user. An object store has no links, and none of this applies to it.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from typing import NamedTuple

from omnigraph.errors import StorageError, SymlinkInGraph
from omnigraph.storage.layout import CACHE, LAYOUT_NAMES, Location

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC
_LANCE_FOLDERS = (
    *("_versions", "data", "_deletions", "_indices", "_transactions", "tree"),
    *("_refs", "_refs/branches", "_refs/tags"),
)


class Children(NamedTuple):
    """Names directly in a folder, each sorted."""

    files: list[str]
    folders: list[str]
    links: list[str]

    @property
    def files_and_links(self) -> list[str]:
        return sorted([*self.files, *self.links])


# ---- refusing --------------------------------------------------------------------------------------------------------


def require_layout(location: Location) -> None:
    """SymlinkInGraph if a layout name of a local graph is a link."""
    if location.is_local:
        for name in (*LAYOUT_NAMES, CACHE):
            _require_no_link(location.join(name))


def require_table(location: Location, uri: str) -> None:
    """SymlinkInGraph if the folder of a table of this graph is reached through a link, or one of Lance's folders in
    it is one.
    """
    if location.is_local and uri.startswith(f"{location.uri}/"):
        require_path(location, uri[len(location.uri) + 1 :])
        for name in _LANCE_FOLDERS:
            _require_no_link(f"{uri}/{name}")


def require_path(location: Location, path: str) -> None:
    """SymlinkInGraph if a part of a path, named relative to the graph, is a link."""
    if location.is_local:
        prefix = location.uri
        for part in _parts(path):
            prefix = f"{prefix}/{part}"
            _require_no_link(prefix)


def _require_no_link(path: str) -> None:
    try:
        mode = os.lstat(path).st_mode
    except OSError:
        return  # missing, or not accessible: opening it will fail
    if stat.S_ISLNK(mode):
        raise SymlinkInGraph(path=path)


def _parts(path: str) -> list[str]:
    parts = [part for part in path.split("/") if part and part != "."]
    if ".." in parts:
        raise StorageError(doing=f"looking at {path}", detail="the path leaves the graph")
    return parts


# ---- listing and reading ---------------------------------------------------------------------------------------------


@contextmanager
def opened(location: Location, folder: str) -> Iterator[int]:
    """A descriptor of `<graph>/<folder>`. FileNotFoundError or NotADirectoryError if there is no such folder."""
    path = location.uri
    folder_fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        for part in _parts(folder):
            path = f"{path}/{part}"
            child_fd = _open(part, _FOLDER, folder_fd, path)
            os.close(folder_fd)
            folder_fd = child_fd
        yield folder_fd
    finally:
        os.close(folder_fd)


def _open(name: str, flags: int, folder_fd: int, path: str) -> int:
    try:
        return os.open(name, flags, dir_fd=folder_fd)
    except OSError:
        # Of a link Linux says ENOTDIR or ELOOP, depending on the flags; other systems EMLINK or EFTYPE.
        if _is_link(name, folder_fd):
            raise SymlinkInGraph(path=path) from None
        raise


def _is_link(name: str, folder_fd: int) -> bool:
    try:
        return stat.S_ISLNK(os.lstat(name, dir_fd=folder_fd).st_mode)
    except OSError:
        return False


def files(location: Location, folder: str, *, links: list[str] | None = None) -> Iterator[tuple[str, os.stat_result]]:
    """(path below the folder, stat) of every file below `<graph>/<folder>`, in no particular order.

    None if there is no such folder. A link is SymlinkInGraph, or is added to `links` by its path below the folder.
    """
    pending = [""]
    while pending:
        subfolder = pending.pop()
        try:
            with opened(location, f"{folder}/{subfolder}") as folder_fd, os.scandir(folder_fd) as entries:
                listing = [(entry.name, _status(entry)) for entry in entries]
        except (FileNotFoundError, NotADirectoryError):
            continue  # removed while it was being listed
        for name, status in listing:
            path = f"{subfolder}/{name}" if subfolder else name
            if status is None:
                continue
            if stat.S_ISDIR(status.st_mode):
                pending.append(path)
            elif not stat.S_ISLNK(status.st_mode):
                yield path, status
            elif links is None:
                raise SymlinkInGraph(path=location.join(folder, path))
            else:
                links.append(path)


def _status(entry: os.DirEntry[str]) -> os.stat_result | None:
    try:
        return entry.stat(follow_symlinks=False)
    except FileNotFoundError:
        return None


def children(location: Location, folder: str) -> Children:
    """The names directly below `<graph>/<folder>`; empty if there is no such folder."""
    names_by_kind = Children([], [], [])
    try:
        with opened(location, folder) as folder_fd, os.scandir(folder_fd) as entries:
            for entry in entries:
                kind = 2 if entry.is_symlink() else 1 if entry.is_dir(follow_symlinks=False) else 0
                names_by_kind[kind].append(entry.name)
    except (FileNotFoundError, NotADirectoryError):
        return Children([], [], [])
    for names in names_by_kind:
        names.sort()
    return names_by_kind


def read(location: Location, path: str, *, start: int = 0, size: int = -1) -> bytes:
    """A file of the graph, or `size` bytes of it. FileNotFoundError if there is none."""
    folder, _, name = path.rpartition("/")
    with opened(location, folder) as folder_fd:

        def opener(file_name: str, _: int) -> int:
            return _open(file_name, _FILE, folder_fd, location.join(path))

        with open(name, "rb", opener=opener) as file:
            file.seek(start)
            return file.read(size)


# ---- removing --------------------------------------------------------------------------------------------------------


def unlink(location: Location, path: str) -> None:
    """Remove one file of the graph. FileNotFoundError if there is none."""
    folder, _, name = path.rpartition("/")
    with opened(location, folder) as folder_fd:
        os.unlink(name, dir_fd=folder_fd)


def remove_empty(location: Location, folder: str) -> None:
    """Remove a folder that is empty, with the empty folders in it. What is not empty stays."""
    with suppress(OSError, SymlinkInGraph):
        for name in children(location, folder).folders:
            remove_empty(location, f"{folder}/{name}")
        parent, _, name = folder.rpartition("/")
        with opened(location, parent) as folder_fd:
            os.rmdir(name, dir_fd=folder_fd)


def remove_empty_folders(location: Location, folders: Iterable[str]) -> None:
    """Remove folders of a local graph that are empty, with the empty folders in them."""
    if location.is_local:
        for folder in folders:
            remove_empty(location, folder)


def remove_tree(location: Location, folder: str) -> None:
    """Remove a folder with all files in it, as far as that works. Links stay, and with them the folders they lie in."""
    with suppress(OSError, SymlinkInGraph):
        for path, _ in list(files(location, folder, links=[])):
            with suppress(OSError, SymlinkInGraph):
                unlink(location, f"{folder}/{path}")
        remove_empty(location, folder)
