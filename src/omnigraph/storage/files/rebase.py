"""Rewriting base paths in the files of versions, in place.

A version's file never changes otherwise, and readers open it whenever they like. So it is replaced as a whole:

* on a local disk the new file is written and synced beside it, under a name that Lance and cleanup know as
  half-written, and renamed over it. A hard link of the old file elsewhere keeps the old bytes
* in a bucket it is one put on the condition that the object is still the one that was read

A file that was removed or replaced meanwhile is not changed: False. A crash leaves the old file or the new one.
"""

from __future__ import annotations

import os
import secrets
from contextlib import suppress
from dataclasses import dataclass

from omnigraph.errors import StorageError
from omnigraph.storage import durability
from omnigraph.storage.files.base_paths import below_table, recorded_root
from omnigraph.storage.files.version_file import NotUnderstood, VersionFile, parse_version, with_bases
from omnigraph.storage.layout import Location
from omnigraph.storage.objects.client import store_errors
from omnigraph.storage.objects.store import ObjectStore

MARK = b"LANC"


@dataclass(frozen=True)
class StoredVersion:
    """The file of a version as it was read: its path relative to the graph, and what identifies it."""

    path: str
    raw: bytes
    etag: str = ""
    modified_ns: int = 0
    inode: int = 0

    @property
    def is_whole(self) -> bool:
        """False for a truncated version, which was never published and is never opened."""
        return self.raw.endswith(MARK)

    def parsed(self) -> VersionFile:
        try:
            return parse_version(self.raw)
        except NotUnderstood as error:
            raise _not_understood(self.path, error) from error


def read_version(location: Location, path: str) -> StoredVersion | None:
    """The file of a version; None if it does not exist."""
    try:
        if location.is_local:
            with store_errors(f"reading {path}", keep_missing=True), open(location.join(path), "rb") as file:
                stat = os.fstat(file.fileno())
                return StoredVersion(path, file.read(), modified_ns=stat.st_mtime_ns, inode=stat.st_ino)
        raw, etag = ObjectStore(location).get_tagged(path)
        return StoredVersion(path, raw, etag=etag)
    except FileNotFoundError:
        return None


def rebased(version: StoredVersion, table: str, *, root: str, only: str | None = None) -> bytes:
    """The same version of the table in the folder `table`, with its base paths below the graph address `root`.

    With `only`, base paths that were written for another address than that one stay.
    """

    def renamed(base: str) -> str:
        below = below_table(base, table)
        if below is None or (only is not None and recorded_root(base, table) != only):
            return base
        return f"{root}/{table}/{below}".rstrip("/")

    try:
        return with_bases(version.raw, renamed)
    except NotUnderstood as error:
        raise _not_understood(version.path, error) from error


def replace_version(location: Location, version: StoredVersion, raw: bytes) -> bool:
    """Put other bytes in the place of a version's file; False if it is not the file any more that was read."""
    if not location.is_local:
        return _replace_remote(location, version, raw)
    with store_errors(f"rewriting {version.path}"):
        return _replace_local(location, version, raw)


def _replace_local(location: Location, version: StoredVersion, raw: bytes) -> bool:
    path = location.join(version.path)
    half_written = os.path.join(os.path.dirname(path), f".tmp_rebase_{secrets.token_hex(8)}")
    try:
        with open(half_written, "xb") as file:
            file.write(raw)
        # The age of a version is the time of its file, and cleanup goes by it.
        os.utime(half_written, ns=(version.modified_ns, version.modified_ns))
        durability.sync_files([half_written])
        durability.require_size(half_written, len(raw))
        if not os.path.exists(path) or os.stat(path).st_ino != version.inode:
            return False
        os.replace(half_written, path)
    finally:
        with suppress(FileNotFoundError):
            os.unlink(half_written)
    durability.sync_files([path])
    return True


def _replace_remote(location: Location, version: StoredVersion, raw: bytes) -> bool:
    store = ObjectStore(location)
    if store.replace(version.path, raw, etag=version.etag, doing=f"rewriting {version.path}"):
        return True
    # Or this put had succeeded, its response was lost, and the client repeated it.
    now = read_version(location, version.path)
    return now is not None and now.raw == raw


def _not_understood(path: str, error: NotUnderstood) -> StorageError:
    return StorageError(doing=f"reading {path}", detail=f"this omnigraph does not know what is in it: {error}")
