"""Small control objects under `__recovery`, with one object store interface for local disks and S3.

`create` is create-only and returns whether this call created the object, even if the store's response was lost: every
object carries a nonce, and "already exists" with the caller's own nonce means that this call created it.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import orjson

from omnigraph.errors import StorageError
from omnigraph.storage import durability
from omnigraph.storage.concurrency import map_threads
from omnigraph.storage.layout import RECOVERY, Location
from omnigraph.storage.objects import nofollow

if TYPE_CHECKING:
    from obstore.store import LocalStore, S3Store


CREATE_TRIES_MAX = 4


@dataclass(frozen=True)
class Entry:
    """One listed object: its name below `__recovery` and a mark that changes whenever it is rewritten."""

    name: str
    mark: str


class ControlObjects:
    """The objects below `<graph>/__recovery`. Names are relative to it."""

    def __init__(self, location: Location) -> None:
        self._location = location
        self._root = os.path.join(location.uri, RECOVERY) if location.is_local else None
        self._opened: LocalStore | S3Store | None = None

    @property
    def _store(self) -> Any:
        if self._opened is None:
            self._opened = open_store(self._location, RECOVERY)
        return self._opened

    def create(self, name: str, body: dict[str, Any]) -> bool:
        """Create `name` unless it exists. True if this call created it; `body` must carry a unique `nonce`."""
        import obstore
        from obstore.exceptions import AlreadyExistsError, BaseError

        self._require_no_link(name)
        for attempt in range(CREATE_TRIES_MAX):
            try:
                obstore.put(self._store, name, orjson.dumps(body), mode="create")
                return True
            except (AlreadyExistsError, BaseError, OSError) as error:
                existing = self.read(name)
                if existing is not None:
                    return bool(existing.get("nonce") == body["nonce"])
                if isinstance(error, AlreadyExistsError):
                    return False  # another writer's object, swept since: its epoch is decided
                # The sweep of another process can remove the temporary file, or the folder, of a slow local put.
                if not _is_missing(error) or attempt == CREATE_TRIES_MAX - 1:
                    self._require_hard_links()
                    raise StorageError(doing=f"creating {RECOVERY}/{name}", detail=str(error)) from error
        raise AssertionError("unreachable")

    def write(self, name: str, body: dict[str, Any]) -> None:
        import obstore

        self._require_no_link(name)
        with _store_errors(f"writing {RECOVERY}/{name}"):
            obstore.put(self._store, name, orjson.dumps(body), mode="overwrite")

    def _require_hard_links(self) -> None:
        """Raise UnsupportedStore if a put failed because the graph was copied to a file system that has none."""
        from omnigraph.storage.objects.conditional_put import require_hard_links

        if self._location.is_local:
            require_hard_links(self._location)

    def _require_no_link(self, name: str) -> None:
        nofollow.require_path(self._location, f"{RECOVERY}/{name}")

    def sync(self, names: Iterable[str]) -> None:
        """Sync objects. Only a few need it: most may be lost in a power loss."""
        if self._root is not None:
            durability.sync_files([os.path.join(self._root, name) for name in names])
            durability.sync_folder(os.path.dirname(self._root))

    def read(self, name: str) -> dict[str, Any] | None:
        """The object's JSON; None if it does not exist; {} if it is not a JSON object (truncated, or foreign)."""
        import obstore

        self._require_no_link(name)
        with _store_errors(f"reading {RECOVERY}/{name}"):
            try:
                raw = bytes(obstore.get(self._store, name).bytes())
            except FileNotFoundError:
                return None
        try:
            body = orjson.loads(raw)
        except orjson.JSONDecodeError:
            return {}
        return body if isinstance(body, dict) else {}

    def entries(self, folder: str = "") -> list[Entry]:
        if self._root is not None:
            with _store_errors(f"listing {RECOVERY}"):
                return self._list_local(folder)
        import obstore

        with _store_errors(f"listing {RECOVERY}"):
            objects = obstore.list(self._store, folder or None).collect()
        return [Entry(o["path"], f"{o['e_tag']}|{o['last_modified']}") for o in objects]

    def _list_local(self, folder: str) -> list[Entry]:
        # Ten times cheaper than the store's own listing; every waiting writer calls this.
        prefix = f"{folder}/" if folder else ""
        entries = [
            Entry(prefix + path, f"{status.st_mtime_ns}|{status.st_ino}|{status.st_size}")
            for path, status in nofollow.files(self._location, f"{RECOVERY}/{folder}", links=[])
        ]
        return sorted(entries, key=lambda e: e.name)

    def delete(self, names: Iterable[str]) -> None:
        """Delete these objects; missing ones are ignored."""
        for name in names:
            with _store_errors(f"deleting {RECOVERY}/{name}"), suppress(FileNotFoundError):
                if self._root is not None:
                    # The store refuses the names of its own temporary files, which a crash leaves.
                    nofollow.unlink(self._location, f"{RECOVERY}/{name}")
                else:
                    import obstore

                    obstore.delete(self._store, name)

    def forget_folder(self, folder: str) -> None:
        """Remove an empty local folder, so that a graph at rest has nothing under `__recovery`."""
        if self._root is not None:
            try:
                self._require_no_link(folder)
                os.rmdir(os.path.join(self._root, folder))
            except (OSError, StorageError):
                return  # not empty, or already removed: another process is active there


class _store_errors:
    """Translate the store's errors into StorageError; a missing object stays FileNotFoundError."""

    def __init__(self, doing: str) -> None:
        self._doing = doing

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: object) -> None:
        if error is None or isinstance(error, FileNotFoundError):
            return
        from obstore.exceptions import BaseError

        if isinstance(error, (BaseError, OSError)):
            raise StorageError(doing=self._doing, detail=str(error)) from error


def _is_missing(error: BaseException) -> bool:
    return isinstance(error, FileNotFoundError) or "No such file" in str(error)


def all_exist(location: Location, paths: Iterable[str]) -> bool:
    """Whether all of these files, named relative to the graph, exist."""
    if location.is_local:
        return all(os.path.exists(location.join(path)) for path in paths)
    import obstore

    folders: dict[str, Any] = {}
    names: list[tuple[str, str]] = []
    for path in paths:
        folder, _, name = path.rpartition("/")
        folders[folder] = folders.get(folder) or open_store(location, folder)
        names.append((folder, name))

    def exists(folder_and_name: tuple[str, str]) -> bool:
        with _store_errors(f"looking for {folder_and_name[0]}/{folder_and_name[1]}"):
            try:
                obstore.head(folders[folder_and_name[0]], folder_and_name[1])
            except FileNotFoundError:
                return False
        return True

    return all(map_threads(exists, names))


def open_store(location: Location, folder: str) -> LocalStore | S3Store:
    """An obstore store rooted at `<graph>/<folder>`."""
    if location.is_local:
        return _local_store(os.path.join(location.uri, folder))
    _, prefix = bucket_and_key(location)
    return open_bucket(location, prefix=f"{prefix}/{folder}")


def bucket_and_key(location: Location) -> tuple[str, str]:
    """The bucket and the key prefix of a graph in S3."""
    bucket, _, prefix = location.uri.removeprefix("s3://").partition("/")
    return bucket, prefix


def open_bucket(location: Location, *, prefix: str | None = None) -> S3Store:
    """A store of the bucket of a graph in S3, or of a prefix of it."""
    from obstore.store import S3Store

    bucket, _ = bucket_and_key(location)
    options = dict(location.options)
    client = {"allow_http": True} if options.pop("allow_http", "").lower() in ("true", "1") else {}
    names = {"aws_access_key_id": "access_key_id", "aws_secret_access_key": "secret_access_key"}
    names["aws_session_token"] = "session_token"
    config = {names.get(k, k): v for k, v in options.items()}
    return S3Store(bucket, prefix=prefix, client_options=client, **config)


def _local_store(path: str) -> LocalStore:
    """A store of a folder, which is created if needed. Another process may remove the empty folder meanwhile."""
    from obstore.exceptions import BaseError
    from obstore.store import LocalStore

    for attempt in range(CREATE_TRIES_MAX):
        try:
            return LocalStore(path, mkdir=True)
        except (BaseError, OSError):
            if attempt == CREATE_TRIES_MAX - 1:
                raise
    raise AssertionError("unreachable")
