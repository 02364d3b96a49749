"""Durability of acknowledged commits on a local disk: files are complete and synced before the next step relies on
them.

Lance never calls fsync, and it can report success after the last write of a file failed (a full disk, an I/O error).
So the committer does this, in this order:

1. before an effect: every new data and deletion file has the size or the closing mark it must have, gets its checksum
   (`storage/files/checksums.py`), and is synced with its folder
2. after an effect: the table's new manifest, which gets a checksum too, its transaction file, and their folders
3. after a publication: the same for the graph's manifest

On S3 a successful request is durable, and this module does nothing. `OMNIGRAPH_FSYNC=off` skips the syncs, not the
checks.
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
    """A sync failed. The data must not be relied on, and a second sync proves nothing."""


def fsync_enabled() -> bool:
    return environment.switch("OMNIGRAPH_FSYNC", default=True)


def sync_files(paths: Iterable[str]) -> None:
    """Sync files, their folders and the parents of these, which may be new themselves.

    A missing file is an error: a version refers to it.
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
    """Sync everything below a new folder and the folder's own name.

    `above` is the number of parent folders with a new entry: 2 if the direct parent may be new as well.
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
        # Removed by a cleanup, after another process rolled this writer back; not a failed sync.
        raise StorageError(doing=f"making {path} durable", detail=str(error)) from error
    except OSError as error:
        raise NotDurable(doing=f"making {path} durable", detail=str(error)) from error


def new_files(root: str, fragments: Sequence[dict[str, Any]]) -> list[str]:
    """Check the files that these fragments (as JSON) add to the local table in folder `root`, and return their
    paths.
    """
    paths: list[str] = []
    for fragment in fragments:
        for file in fragment["files"]:
            path = os.path.join(root, "data", file["path"])
            require_size(path, file["file_size_bytes"])
            paths.append(path)
            paths.extend(_sidecars(path))
        deletion = fragment.get("deletion_file")
        if deletion:
            path = deletion_path(root, fragment["id"], deletion)
            _check_mark(path)
            paths.append(path)
    return paths


def sync_fragments(root: str, fragments: Sequence[dict[str, Any]]) -> None:
    """Check, checksum and sync the files that these fragments (as JSON) add to the local table in folder `root`."""
    paths = new_files(root, fragments)
    checksums.note(paths)
    sync_files(paths)


def sync_index_folder(folder: str) -> None:
    """Checksum and sync a new index folder of a local table."""
    checksums.note_folder(folder)
    sync_tree(folder, above=2)


def deletion_path(root: str, fragment_id: int, deletion: dict[str, Any]) -> str:
    suffix = "arrow" if str(deletion["file_type"]).lower().startswith("array") else "bin"
    name = f"{fragment_id}-{deletion['read_version']}-{deletion['id']}.{suffix}"
    return os.path.join(root, "_deletions", name)


def _sidecars(data_file: str) -> list[str]:
    """The files of large blobs: they are beside the data file, in a folder of its name."""
    folder = Path(data_file).with_suffix("")
    return [str(p) for p in folder.iterdir() if p.is_file()] if folder.is_dir() else []


def require_size(path: str, size: int | None) -> None:
    """Raise StorageError if the file has another size: a failing disk truncated it."""
    try:
        actual = os.stat(path).st_size
    except OSError as error:
        raise StorageError(doing=f"checking {path}", detail=str(error)) from error
    if size is not None and actual != size:
        raise StorageError(doing=f"writing {path}", detail=f"{actual} bytes are there, {size} were written")


def require_closed(path: str) -> None:
    """Raise StorageError if a file of Lance's format does not end in its mark: it is truncated."""
    if closed_size(path) is None:
        raise StorageError(doing=f"writing {path}", detail="the file is cut short")


def closed_size(path: str) -> int | None:
    """The size of a file that ends in Lance's mark; None if it does not. Uses few system calls."""
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
    """Check a deletion file, which has no recorded size: the Arrow form ends in a mark, and no form is empty."""
    try:
        with open(path, "rb") as file:
            raw = file.read()
    except OSError as error:
        raise StorageError(doing=f"checking {path}", detail=str(error)) from error
    if not raw or (path.endswith(".arrow") and not raw.endswith(_ARROW_MARK)):
        raise StorageError(doing=f"writing {path}", detail="the file is cut short")


def manifest_path(table: str, version: int) -> str:
    """The file of one version of the table in folder `table`. Lance numbers the names downwards, so that the newest
    sorts first.
    """
    return os.path.join(table, "_versions", f"{2**64 - 1 - version:020}.manifest")


def commit_files(table: str, version: int, *, read_version: int, transaction_uuid: str) -> list[str]:
    """The files of a commit: the manifest of the version and, where Lance wrote one, its transaction."""
    transaction = os.path.join(table, "_transactions", f"{read_version}-{transaction_uuid}.txn")
    files = [manifest_path(table, version)]
    if os.path.exists(transaction):
        files.append(transaction)
    return files
