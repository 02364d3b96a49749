"""A file that appears under its name when it is complete: written beside, synced, and moved into place.

The temporary file has an unpredictable name, is created exclusively without following links, and is readable by its
owner only: in a folder that others may write to, no other user can put a link or a file in its place. When it is
moved into place it gets the permissions of the file that it replaces, or those of the process's umask; a private file
stays its owner's. A link under the name itself is replaced and not followed.

A crash leaves a hidden file that ends in `.part`. A pipe or a device (`/dev/stdout`) is written to as it is.
"""

from __future__ import annotations

import os
import stat
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import IO


@contextmanager
def placed(path: str, *, private: bool = False) -> Iterator[IO[bytes]]:
    """A file to write; it becomes `path` when the block ends well, and is removed if not. OSError if that fails."""
    if _is_stream(path):
        with open(path, "wb") as stream:
            yield stream
        return
    folder, name = os.path.split(path)
    handle, partial = tempfile.mkstemp(dir=folder or ".", prefix=f".{name[:64]}.", suffix=".part")
    try:
        with os.fdopen(handle, "wb", closefd=False) as file:
            yield file
            if not file.closed:
                file.flush()
        if not private:
            os.fchmod(handle, _mode_of(path))
        os.fsync(handle)
        os.replace(partial, path)
    finally:
        with suppress(OSError):
            os.close(handle)
        with suppress(FileNotFoundError):
            os.unlink(partial)


def _is_stream(path: str) -> bool:
    """Whether a pipe, a device or a socket is there, also through a link such as `/dev/stdout`."""
    try:
        mode = os.stat(path).st_mode
    except OSError:
        return False
    return not stat.S_ISREG(mode) and not stat.S_ISDIR(mode)


def _mode_of(path: str) -> int:
    """The permissions for the file: those of the regular file that it replaces, or what the umask leaves."""
    try:
        status = os.lstat(path)
    except OSError:
        return 0o666 & ~_umask()
    return stat.S_IMODE(status.st_mode) if stat.S_ISREG(status.st_mode) else 0o666 & ~_umask()


def _umask() -> int:
    """Read where it can be read: to set it, if only for a moment, changes it for every thread."""
    with suppress(OSError, StopIteration, ValueError), open("/proc/self/status") as file:
        return int(next(line for line in file if line.startswith("Umask:")).split()[1], 8)
    mask = os.umask(0o077)
    os.umask(mask)
    return mask
