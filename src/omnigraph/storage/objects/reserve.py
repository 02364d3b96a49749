"""The reserve: disk space that a local graph allocates for cleanup and recovery.

Both write before they free space: cleanup a probe, an announcement and a version of the manifest, recovery versions of
tables and of the manifest. On a full disk neither could begin. So `<graph>/__reserve` has allocated blocks without
content:

1. keep      `init`, and every `cleanup`, `optimize`, `recover` and `clone` that ends, creates the file if it is missing
             or too small. Nothing fails because of it: without room there is no reserve until the next run has room
2. release   an operation that runs out of space (ENOSPC, EDQUOT) inside `spending` unlinks the file and starts again
3. keep      once more, at the end

The blocks are allocated and not only promised by a length: copies of a folder and some file systems make files with
holes, which count as too small. A file in place is never written to, it is replaced: it could be a hard link.

Several processes may keep and release at the same time. A release that another process's keep undoes is repeated, a few
times. Another writer may take the released space: then the command fails as on any full disk. A crash leaves no
reserve, or one that is too small. An object store has none.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable
from contextlib import suppress
from typing import TypeVar

from omnigraph.errors import StorageError, SymlinkInGraph
from omnigraph.storage.layout import RESERVE, Location
from omnigraph.storage.objects import nofollow

SIZE_MIN_BYTES, SIZE_MAX_BYTES = 1 << 20, 32 << 20
"""A cleanup of a graph of ten tables writes about 30 KiB, in blocks of 4 KiB."""
SIZE_SMALLEST_BYTES = 1 << 17
"""The smallest useful reserve, if there is no room for more: after a recovery on a disk that is still full."""
RELEASES_MAX = 3
_CHUNK_BYTES = 1 << 16
_BLOCK_BYTES = 512
_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC

T = TypeVar("T")


def keep(location: Location, *, size_bytes: int = SIZE_MIN_BYTES) -> None:
    """Create the reserve, or replace one that has fewer bytes. Does nothing if there is no room, or no permission."""
    if not location.is_local:
        return
    size_bytes = min(max(size_bytes, SIZE_MIN_BYTES), SIZE_MAX_BYTES)
    with suppress(OSError, SymlinkInGraph), nofollow.opened(location, "") as folder:
        if _allocated_bytes(folder) >= size_bytes:
            return
        with suppress(FileNotFoundError):
            _unlink(folder)
        file = os.open(RESERVE, _NEW, 0o666, dir_fd=folder)
        try:
            if not _allocate_at_most(file, size_bytes):
                os.unlink(RESERVE, dir_fd=folder)
        finally:
            os.close(file)


def release(location: Location) -> bool:
    """Free the reserved space. False if there was none."""
    if not location.is_local:
        return False
    try:
        with nofollow.opened(location, "") as folder:
            size_bytes = _allocated_bytes(folder)
            _unlink(folder)
    except (OSError, SymlinkInGraph):
        return False
    return size_bytes > 0


def spending(location: Location, work: Callable[[], T]) -> T:
    """The result of `work`. If the disk is full, the reserve is released and `work` called again: it must allow that.

    The caller keeps a new reserve afterwards.
    """
    for _ in range(RELEASES_MAX):
        try:
            return work()
        except StorageError as error:
            if not is_full(error) or not release(location):
                raise
    return work()


def is_full(error: BaseException) -> bool:
    """Whether this is the error of a disk without space, or of a quota that is used up."""
    return isinstance(error, StorageError) and error.fields.get("reason") == "disk_full"


def _unlink(folder: int) -> None:
    """Remove the file. A link or a folder in its place stays: that is up to the user."""
    if not stat.S_ISREG(os.lstat(RESERVE, dir_fd=folder).st_mode):
        raise FileExistsError(RESERVE)
    os.unlink(RESERVE, dir_fd=folder)


def _allocated_bytes(folder: int) -> int:
    try:
        status = os.lstat(RESERVE, dir_fd=folder)
    except FileNotFoundError:
        return 0
    return min(status.st_size, status.st_blocks * _BLOCK_BYTES)


def _allocate_at_most(file: int, size_bytes: int) -> bool:
    """Whether so many bytes could be allocated, or at least a part of them."""
    for part_bytes in range(size_bytes, SIZE_SMALLEST_BYTES - 1, -SIZE_SMALLEST_BYTES):
        try:
            _allocate(file, part_bytes)
        except OSError:
            os.ftruncate(file, 0)
        else:
            return True
    return False


def _allocate(file: int, size_bytes: int) -> None:
    if hasattr(os, "posix_fallocate"):
        os.posix_fallocate(file, 0, size_bytes)
        if os.fstat(file).st_blocks * _BLOCK_BYTES >= size_bytes:
            return
    # Bytes that a file system which compresses, or only checks for free space, has to store.
    for start in range(0, size_bytes, _CHUNK_BYTES):
        os.pwrite(file, os.urandom(min(_CHUNK_BYTES, size_bytes - start)), start)
