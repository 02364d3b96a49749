"""The object store: all objects below `<graph>/<prefix>`, on a local disk or in a bucket of S3, through one interface.

This package is the only one that knows the client of the store, obstore (`client.py`). Names are relative to the
prefix, with `/` between their parts.

* **Whole objects.** An object appears under its name when it is complete. A put replaces the object; `create` never
  does: it is `If-None-Match: *` on S3 and a hard link on a disk. `replace` writes over one version of the object only.
* **Unknown outcomes.** A put whose response is lost may have succeeded: StorageError says nothing about that. A caller
  for which it matters reads the object back (`control_objects.create`).
* **Local fast paths.** Listing, reading and deleting use the file system directly, ten times cheaper than the client.
  They follow no symbolic link and create no folder (`nofollow`). A put refuses a path through a link.
* **Errors.** A missing object is FileNotFoundError, an object that exists already is FileExistsError, everything else
  is StorageError, with its reason. `doing` replaces the description of the request in the error.
* **Retries.** The client repeats requests to S3 that failed on the way (RETRIES), with growing pauses and jitter. On a
  disk another process may remove an empty folder, or the temporary file of a slow put, between two calls: the put is
  repeated up to LOCAL_TRIES_MAX times, also with growing pauses and jitter.

Nothing here is synced unless `sync` is called: most objects may be lost in a power loss.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any

from omnigraph.errors import StorageError
from omnigraph.storage import durability
from omnigraph.storage.concurrency import map_threads
from omnigraph.storage.layout import Location
from omnigraph.storage.objects import nofollow
from omnigraph.storage.objects.client import (
    LOCAL_TRIES_MAX,
    bucket_and_key,
    is_missing,
    local_backoff,
    open_bucket,
    open_store,
    store_errors,
)

if TYPE_CHECKING:
    from obstore.store import LocalStore, S3Store

DELETE_KEYS_MAX = 1000
"""How many keys one request to S3 deletes."""


@dataclass(frozen=True)
class StoredFile:
    """`path` is relative to the prefix; `modified_s` is the store's time of its last write, which is the same for every
    process; `etag` changes with every write.
    """

    path: str
    size: int
    modified_s: float
    etag: str = ""


class ObjectStore:
    def __init__(self, location: Location, prefix: str = "") -> None:
        self.location = location
        self.prefix = prefix
        self._opened: LocalStore | S3Store | None = None
        self._opening = threading.Lock()

    def path(self, name: str = "") -> str:
        """The path of an object relative to the graph."""
        return f"{self.prefix}/{name}" if self.prefix and name else self.prefix or name

    @property
    def _client(self) -> Any:
        with self._opening:  # threads share one client, and so its connections
            if self._opened is None:
                self._opened = open_store(self.location, self.prefix)
            return self._opened

    # ---- listing -----------------------------------------------------------------------------------------------------

    def list_files(self, subfolder: str = "", *, links: list[str] | None = None) -> list[StoredFile]:
        """Every object below the prefix, or below one folder of it, in no particular order; none if there is no such
        folder.

        A symbolic link is SymlinkInGraph, or is added to `links`, by its path below the listed folder, and left out.
        """
        return list(self.iter_files(subfolder, links=links))

    def iter_files(
        self, subfolder: str = "", *, links: list[str] | None = None, doing: str | None = None
    ) -> Iterator[StoredFile]:
        """The same as an iterator, for callers that may stop early."""
        with store_errors(doing or f"listing {self.path()}"):
            if self.location.is_local:
                start = f"{subfolder}/" if subfolder else ""
                for path, status in nofollow.files(self.location, self.path(subfolder), links=links):
                    yield _local_file(start + path, status)
                return
            import obstore

            for batch in obstore.list(self._client, subfolder or None):
                for entry in batch:
                    yield _remote_file(entry)

    def children(self) -> nofollow.Children:
        """The names directly below the prefix. A bucket has no links."""
        with store_errors(f"listing {self.path()}"):
            if self.location.is_local:
                return nofollow.children(self.location, self.prefix)
            import obstore

            listed = obstore.list_with_delimiter(self._client)
        files = sorted(entry["path"].rpartition("/")[2] for entry in listed["objects"])
        folders = sorted(prefix.rstrip("/").rpartition("/")[2] for prefix in listed["common_prefixes"])
        return nofollow.Children([name for name in files if name], folders, [])

    def head(self, name: str, *, doing: str | None = None) -> StoredFile:
        """What a listing says about one object."""
        with store_errors(doing or f"looking at {self.path(name)}", keep_missing=True):
            if self.location.is_local:
                return _local_file(name, os.lstat(self.location.join(self.path(name))))
            import obstore

            return _remote_file(obstore.head(self._client, name))

    def sizes(self, names: Iterable[str]) -> list[int | None]:
        """The size of each of these files; None of a missing one."""
        if self.location.is_local:
            return [self._local_size(name) for name in names]

        def size_of(name: str) -> int | None:
            try:
                return self.head(name, doing=f"looking for {self.path(name)}").size
            except FileNotFoundError:
                return None

        return map_threads(size_of, list(names))

    def _local_size(self, name: str) -> int | None:
        with store_errors(f"looking for {self.path(name)}"):
            try:
                return os.stat(self.location.join(self.path(name))).st_size
            except (FileNotFoundError, NotADirectoryError):
                return None

    # ---- reading -----------------------------------------------------------------------------------------------------

    def get(self, name: str, *, doing: str | None = None) -> bytes:
        with store_errors(doing or f"reading {self.path(name)}", keep_missing=True):
            if self.location.is_local:
                try:
                    return nofollow.read(self.location, self.path(name))
                except IsADirectoryError as error:
                    raise FileNotFoundError(str(error)) from error
            import obstore

            return bytes(obstore.get(self._client, name).bytes())

    def get_range(self, name: str, start: int, stop: int, *, doing: str | None = None) -> bytes:
        """The bytes `start` to `stop` of an object; fewer at its end."""
        with store_errors(doing or f"reading {self.path(name)}", keep_missing=True):
            if self.location.is_local:
                return nofollow.read(self.location, self.path(name), start=start, size=stop - start)
            import obstore

            return bytes(obstore.get_range(self._client, name, start=start, end=stop))

    def get_tagged(self, name: str, *, doing: str | None = None) -> tuple[bytes, str]:
        """An object of a bucket with the tag that `replace` takes."""
        import obstore

        with store_errors(doing or f"reading {self.path(name)}", keep_missing=True):
            response = obstore.get(self._client, name)
            return bytes(response.bytes()), str(response.meta["e_tag"])

    def stream(self, name: str, *, chunk_bytes: int, doing: str | None = None) -> Iterator[Any]:
        """An object of a bucket in chunks of about this size."""
        import obstore

        with store_errors(doing or f"reading {self.path(name)}", keep_missing=True):
            yield from obstore.get(self._client, name).stream(min_chunk_size=chunk_bytes)

    # ---- writing -----------------------------------------------------------------------------------------------------

    def put(self, name: str, raw: bytes, *, doing: str | None = None) -> None:
        """Write an object, or replace it."""
        self._put(name, raw, "overwrite", doing or f"writing {self.path(name)}")

    def create(self, name: str, raw: bytes, *, doing: str | None = None) -> None:
        """Write an object unless there is one: then FileExistsError."""
        from obstore.exceptions import AlreadyExistsError

        try:
            self._put(name, raw, "create", doing or f"creating {self.path(name)}")
        except StorageError as error:
            if isinstance(error.__cause__, AlreadyExistsError):
                raise FileExistsError(self.path(name)) from error
            raise

    def replace(self, name: str, raw: bytes, *, etag: str, doing: str | None = None) -> bool:
        """Write over an object of a bucket; False if it is missing, or is not the one with this tag."""
        from obstore.exceptions import NotFoundError, PreconditionError

        try:
            self._put(name, raw, {"e_tag": etag}, doing or f"writing {self.path(name)}")
        except StorageError as error:
            if isinstance(error.__cause__, PreconditionError | NotFoundError | FileNotFoundError):
                return False
            raise
        return True

    def _put(self, name: str, raw: bytes, mode: Any, doing: str) -> None:
        import obstore

        pause = local_backoff()
        with store_errors(doing):
            for attempt in range(1, LOCAL_TRIES_MAX + 1):
                nofollow.require_path(self.location, self.path(name))
                try:
                    obstore.put(self._client, name, raw, mode=mode)
                    return
                except Exception as error:
                    if not self.location.is_local or not is_missing(error) or attempt == LOCAL_TRIES_MAX:
                        raise
                    pause()
                    self._opened = None  # which creates the folder again

    def put_file(self, name: str, path: str, *, chunk_bytes: int | None = None, doing: str | None = None) -> None:
        """Upload a local file to a bucket, in parts of this size."""
        import obstore

        parts = {} if chunk_bytes is None else {"chunk_size": chunk_bytes, "max_concurrency": 2}
        with store_errors(doing or f"writing {self.path(name)}"):
            obstore.put(self._client, name, Path(path), **parts)

    def writer(self, name: str, *, chunk_bytes: int | None = None) -> Any:
        """A file to write to a bucket in parts. `close` completes the upload: before that the object does not exist.

        The caller translates its errors (`store_errors`).
        """
        import obstore

        parts = {} if chunk_bytes is None else {"buffer_size": chunk_bytes, "max_concurrency": 2}
        return obstore.open_writer(self._client, name, **parts)

    def copy_from(self, source: ObjectStore, name: str, *, to: str, doing: str | None = None) -> None:
        """Copy an object of the same bucket (`in_one_bucket`), by the store."""
        import obstore

        keys = (f"{bucket_and_key(s.location)[1]}/{s.path(n)}" for s, n in ((source, name), (self, to)))
        with store_errors(doing or f"copying {source.path(name)}"):
            obstore.copy(open_bucket(self.location), *keys)

    def rename(self, name: str, to: str, *, doing: str | None = None) -> None:
        with store_errors(doing or f"renaming {self.path(name)}"):
            if self.location.is_local:
                os.rename(self.location.join(self.path(name)), self.location.join(self.path(to)))
                return
            import obstore

            obstore.rename(self._client, name, to)

    def sync(self, names: Iterable[str]) -> None:
        """Sync objects on a local disk, with their folders and the folder of the prefix."""
        if self.location.is_local:
            root = self.location.join(self.prefix)
            durability.sync_files([os.path.join(root, name) for name in names])
            durability.sync_folder(os.path.dirname(root))

    def sync_folder(self, subfolder: str, *, doing: str) -> None:
        """Sync a local folder, which makes removals in it permanent. A missing one is ignored."""
        if self.location.is_local and durability.fsync_enabled():
            path = self.path(subfolder)
            with store_errors(doing), suppress(FileNotFoundError), nofollow.opened(self.location, path) as folder_fd:
                os.fsync(folder_fd)

    # ---- deleting ----------------------------------------------------------------------------------------------------

    def delete(self, names: Iterable[str], *, doing: str | None = None) -> None:
        """Delete objects in this order, one by one; missing ones are ignored."""
        for name in names:
            with store_errors(doing or f"deleting {self.path(name)}"), suppress(FileNotFoundError):
                if self.location.is_local:
                    # The client refuses the names of its own temporary files, which a crash leaves.
                    nofollow.unlink(self.location, self.path(name))
                else:
                    import obstore

                    obstore.delete(self._client, name)

    def delete_many(self, names: Sequence[str], *, doing: str | None = None) -> None:
        """Delete objects in this order: missing ones are ignored, and a crash leaves the rest. On S3 a request deletes
        up to DELETE_KEYS_MAX of them.
        """
        doing = doing or f"removing files of {self.prefix}"
        if self.location.is_local:
            for folder, group in groupby(names, key=lambda name: name.rpartition("/")[0]):
                with store_errors(doing), suppress(FileNotFoundError):
                    self._delete_local(folder, [name.rpartition("/")[2] for name in group])
            return
        import obstore

        for start in range(0, len(names), DELETE_KEYS_MAX):
            with store_errors(doing), suppress(FileNotFoundError):
                obstore.delete(self._client, list(names[start : start + DELETE_KEYS_MAX]))

    def _delete_local(self, folder: str, names: Sequence[str]) -> None:
        with nofollow.opened(self.location, self.path(folder)) as folder_fd:
            for name in names:
                with suppress(FileNotFoundError):
                    os.unlink(name, dir_fd=folder_fd)

    def remove_empty_folder(self, subfolder: str = "") -> None:
        """Remove the local folder of the prefix, or one folder in it, if it is empty. A link stays."""
        if self.location.is_local:
            path = self.path(subfolder)
            with suppress(OSError, StorageError):  # not empty, or missing: another process is active there
                nofollow.require_path(self.location, path)
                os.rmdir(self.location.join(path))
            if not subfolder:
                self._opened = None


def all_exist(location: Location, paths: Iterable[str]) -> bool:
    """Whether all of these files, named relative to the graph, exist."""
    return None not in ObjectStore(location).sizes(paths)


def _local_file(path: str, status: os.stat_result) -> StoredFile:
    etag = f"{status.st_mtime_ns}|{status.st_ino}|{status.st_size}"
    return StoredFile(path, status.st_size, status.st_mtime, etag)


def _remote_file(entry: Any) -> StoredFile:
    modified = entry["last_modified"]
    return StoredFile(entry["path"], entry["size"], modified.timestamp(), f"{entry['e_tag']}|{modified.isoformat()}")


def shared_store(location: Location, prefix: str = "") -> ObjectStore:
    """The same store for the same address and options, with its open connections: for many small reads."""
    return _shared_store(location.uri, location.is_local, tuple(sorted(location.options.items())), prefix)


@lru_cache(maxsize=16)
def _shared_store(uri: str, is_local: bool, options: tuple[tuple[str, str], ...], prefix: str) -> ObjectStore:
    return ObjectStore(Location(uri, is_local, dict(options)), prefix)
