"""What an acknowledged commit needs on a local disk: files whole, and on the platter, before the next step relies on
them.

Lance calls fsync nowhere, and it can report success after the last write of a file failed (a full disk, an I/O error).
So the door asks here, in this order:

1. before an effect: every new data and deletion file has the size or the closing mark it must have, gets its checksum
   (`storage/files/checksums.py`), and is synced with its folder
2. after an effect: the table's new manifest, which gets a checksum too, its transaction file, and their folders
3. after a publish: the same of the graph's manifest

On S3 a request that was answered is durable, and everything here does nothing. `OMNIGRAPH_FSYNC=off` skips the
syncing, not the checks.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from omnigraph.config import environment
from omnigraph.errors import StorageError
from omnigraph.storage.files import checksums

_ARROW_MARK = b"ARROW1"
_LANCE_MARK = b"LANC"


class NotDurable(StorageError):
    """A sync failed. What it was to secure must not be relied on, and trying again proves nothing."""


def fsync_enabled() -> bool:
    return environment.switch("OMNIGRAPH_FSYNC", default=True)


def sync_files(paths: Iterable[str]) -> None:
    """Sync files, the folders they lie in and the folders of these, which may be new themselves.

    A file that is missing is an error: something relied on it.
    """
    if not fsync_enabled():
        return
    folders: set[str] = set()
    for path in paths:
        _sync(path)
        folder = os.path.dirname(path)
        folders.update((folder, os.path.dirname(folder)))
    for folder in folders:
        _sync(folder)


def sync_folder(path: str) -> None:
    """Sync the names in a folder."""
    if fsync_enabled():
        _sync(path)


def sync_tree(root: str, *, above: int = 1) -> None:
    """Sync everything below a folder and the folder's own name: for what was created as a whole.

    `above` counts the folders above it that hold a new name: 2 if the one that it lies in may be new as well.
    """
    if not fsync_enabled():
        return
    for folder, _, names in os.walk(root):
        for name in names:
            _sync(os.path.join(folder, name))
        _sync(folder)
    for _ in range(above):
        root = os.path.dirname(root)
        _sync(root)


def _sync(path: str) -> None:
    try:
        handle = os.open(path, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
    except FileNotFoundError as error:
        # Removed, not unsynced: by a cleanup, after another process rolled this writer back.
        raise StorageError(doing=f"making {path} durable", detail=str(error)) from error
    except OSError as error:
        raise NotDurable(doing=f"making {path} durable", detail=str(error)) from error


def new_files(root: str, fragments: Sequence[dict[str, Any]]) -> list[str]:
    """Check the files that these fragments (as JSON) add to the local table in folder `root`, and return their
    paths.
    """
    found: list[str] = []
    for fragment in fragments:
        for file in fragment["files"]:
            path = os.path.join(root, "data", file["path"])
            require_size(path, file["file_size_bytes"])
            found.append(path)
            found.extend(_sidecars(path))
        deletion = fragment.get("deletion_file")
        if deletion:
            path = deletion_path(root, fragment["id"], deletion)
            _check_mark(path)
            found.append(path)
    return found


def secure_files(root: str, fragments: Sequence[dict[str, Any]]) -> None:
    """Check, sum and sync the files that these fragments (as JSON) add to the local table in folder `root`."""
    paths = new_files(root, fragments)
    checksums.note(paths)
    sync_files(paths)


def secure_folder(folder: str) -> None:
    """The same of a folder of a local table that was made as a whole: an index."""
    checksums.note_folder(folder)
    sync_tree(folder, above=2)


def deletion_path(root: str, fragment_id: int, deletion: dict[str, Any]) -> str:
    suffix = "arrow" if str(deletion["file_type"]).lower().startswith("array") else "bin"
    name = f"{fragment_id}-{deletion['read_version']}-{deletion['id']}.{suffix}"
    return os.path.join(root, "_deletions", name)


def _sidecars(data_file: str) -> list[str]:
    """Large blobs lie in files of their own beside the data file, in a folder of its name."""
    folder = Path(data_file).with_suffix("")
    return [str(p) for p in folder.iterdir() if p.is_file()] if folder.is_dir() else []


def require_size(path: str, size: int | None) -> None:
    """A file that is not as long as it must be was cut short by a failing disk."""
    try:
        actual = os.stat(path).st_size
    except OSError as error:
        raise StorageError(doing=f"checking {path}", detail=str(error)) from error
    if size is not None and actual != size:
        raise StorageError(doing=f"writing {path}", detail=f"{actual} bytes are there, {size} were written")


def require_closed(path: str) -> None:
    """A file of Lance's own format ends in its mark; one that does not was cut short."""
    if closed_size(path) is None:
        raise StorageError(doing=f"writing {path}", detail="the file is cut short")


def closed_size(path: str) -> int | None:
    """The size of a file that ends as Lance ends its files; None if it does not. Few calls: it is asked of many."""
    try:
        file = os.open(path, os.O_RDONLY)
        try:
            size = os.fstat(file).st_size
            mark = os.pread(file, len(_LANCE_MARK), max(0, size - len(_LANCE_MARK)))
        finally:
            os.close(file)
    except OSError as error:
        raise StorageError(doing=f"checking {path}", detail=str(error)) from error
    return size if mark == _LANCE_MARK else None


def _check_mark(path: str) -> None:
    """A deletion file has no recorded size; the Arrow form ends in a mark, and no form is empty."""
    try:
        with open(path, "rb") as file:
            raw = file.read()
    except OSError as error:
        raise StorageError(doing=f"checking {path}", detail=str(error)) from error
    if not raw or (path.endswith(".arrow") and not raw.endswith(_ARROW_MARK)):
        raise StorageError(doing=f"writing {path}", detail="the file is cut short")


def manifest_path(table: str, version: int) -> str:
    """The file of one version of the table in folder `table`: Lance counts names down, so that the newest sorts
    first.
    """
    return os.path.join(table, "_versions", f"{2**64 - 1 - version:020}.manifest")


def commit_files(table: str, version: int, *, read_version: int, transaction_uuid: str) -> list[str]:
    """The files that make a version real: its manifest and, where Lance wrote one, its transaction."""
    transaction = os.path.join(table, "_transactions", f"{read_version}-{transaction_uuid}.txn")
    found = [manifest_path(table, version)]
    if os.path.exists(transaction):
        found.append(transaction)
    return found
