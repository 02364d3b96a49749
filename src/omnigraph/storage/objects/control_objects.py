"""Small control objects under `__recovery`, through one object store interface for local disks and S3.

`create` is create-only and knows whether it was this call that created the object, even when the store's answer was
lost: every object carries a nonce, and "already exists" with one's own nonce means that it is one's own.
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
        """Create `name` unless it exists. True if it is ours afterwards; `body` must carry a `nonce` of our own."""
        import obstore
        from obstore.exceptions import AlreadyExistsError, BaseError

        self._require_no_link(name)
        for turn in range(CREATE_TRIES_MAX):
            try:
                obstore.put(self._store, name, orjson.dumps(body), mode="create")
                return True
            except (AlreadyExistsError, BaseError, OSError) as error:
                found = self.read(name)
                if found is not None:
                    return bool(found.get("nonce") == body["nonce"])
                if isinstance(error, AlreadyExistsError):
                    return False  # it was another's, and has been swept since: its epoch is decided
                # A slow local put can lose its half-made file, or its folder, to another process's sweep.
                if not _is_missing(error) or turn == CREATE_TRIES_MAX - 1:
                    raise StorageError(doing=f"creating {RECOVERY}/{name}", detail=str(error)) from error
        raise AssertionError("unreachable")

    def write(self, name: str, body: dict[str, Any]) -> None:
        import obstore

        self._require_no_link(name)
        with _reported(f"writing {RECOVERY}/{name}"):
            obstore.put(self._store, name, orjson.dumps(body), mode="overwrite")

    def _require_no_link(self, name: str) -> None:
        nofollow.require_path(self._location, f"{RECOVERY}/{name}")

    def sync(self, names: Iterable[str]) -> None:
        """Make objects safe from a power loss. Few need it: most can be lost without a trace."""
        if self._root is not None:
            durability.sync_files([os.path.join(self._root, name) for name in names])
            durability.sync_folder(os.path.dirname(self._root))

    def read(self, name: str) -> dict[str, Any] | None:
        """The object's JSON; None if it does not exist; {} if it can't be understood (torn by a crash, foreign)."""
        import obstore

        self._require_no_link(name)
        with _reported(f"reading {RECOVERY}/{name}"):
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
            with _reported(f"listing {RECOVERY}"):
                return self._list_local(folder)
        import obstore

        with _reported(f"listing {RECOVERY}"):
            found = obstore.list(self._store, folder or None).collect()
        return [Entry(o["path"], f"{o['e_tag']}|{o['last_modified']}") for o in found]

    def _list_local(self, folder: str) -> list[Entry]:
        # This is ten times cheaper here than the store's own listing, and it is on the path of every waiter.
        prefix = f"{folder}/" if folder else ""
        found = [
            Entry(prefix + path, f"{status.st_mtime_ns}|{status.st_ino}|{status.st_size}")
            for path, status in nofollow.files(self._location, f"{RECOVERY}/{folder}", links=[])
        ]
        return sorted(found, key=lambda e: e.name)

    def delete(self, names: Iterable[str]) -> None:
        """Delete what is there; what is gone already is fine."""
        for name in names:
            with _reported(f"deleting {RECOVERY}/{name}"), suppress(FileNotFoundError):
                if self._root is not None:
                    # The store refuses the names of its own half-written files, which a crash leaves behind.
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
                return  # not empty, or gone already: both are fine, somebody else is at work there


class _reported:
    """Turn the store's failures into StorageError; a missing object stays FileNotFoundError for the caller."""

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
    """Whether every one of these files, named relative to the graph, is there."""
    if location.is_local:
        return all(os.path.exists(location.join(path)) for path in paths)
    import obstore

    folders: dict[str, Any] = {}
    names: list[tuple[str, str]] = []
    for path in paths:
        folder, _, name = path.rpartition("/")
        folders[folder] = folders.get(folder) or open_store(location, folder)
        names.append((folder, name))

    def exists(place: tuple[str, str]) -> bool:
        with _reported(f"looking for {place[0]}/{place[1]}"):
            try:
                obstore.head(folders[place[0]], place[1])
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
    """The bucket of a graph in S3, and the key below which the graph lies."""
    bucket, _, prefix = location.uri.removeprefix("s3://").partition("/")
    return bucket, prefix


def open_bucket(location: Location, *, prefix: str | None = None) -> S3Store:
    """The bucket of a graph in S3, or what lies below a prefix of it."""
    from obstore.store import S3Store

    bucket, _ = bucket_and_key(location)
    options = dict(location.options)
    client = {"allow_http": True} if options.pop("allow_http", "").lower() in ("true", "1") else {}
    names = {"aws_access_key_id": "access_key_id", "aws_secret_access_key": "secret_access_key"}
    names["aws_session_token"] = "session_token"
    config = {names.get(k, k): v for k, v in options.items()}
    return S3Store(bucket, prefix=prefix, client_options=client, **config)


def _local_store(path: str) -> LocalStore:
    """A store of a folder, which is made if need be. Another process may remove it, empty, while it is being opened."""
    from obstore.exceptions import BaseError
    from obstore.store import LocalStore

    for turn in range(CREATE_TRIES_MAX):
        try:
            return LocalStore(path, mkdir=True)
        except (BaseError, OSError):
            if turn == CREATE_TRIES_MAX - 1:
                raise
    raise AssertionError("unreachable")
