"""The client of the object store (obstore): how it is opened, how often it repeats a request, and its errors."""

from __future__ import annotations

import os
import sys
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from omnigraph.config.backoff import Backoff
from omnigraph.errors import StorageError
from omnigraph.storage.layout import Location

if TYPE_CHECKING:
    from obstore.store import LocalStore, S3Store

LOCAL_TRIES_MAX = 10
RETRIES: dict[str, Any] = {
    "max_retries": 10,
    "retry_timeout": timedelta(seconds=180),
    "backoff": {"init_backoff": timedelta(seconds=0.1), "max_backoff": timedelta(seconds=15), "base": 2},
}
"""Pauses grow, with jitter, up to `max_backoff`."""


def local_backoff() -> Backoff:
    """Between attempts at a local folder that another process has just removed."""
    return Backoff(first_s=0.001, max_s=0.01)


def open_store(location: Location, folder: str) -> LocalStore | S3Store:
    """The client of a store that is rooted at `<graph>/<folder>`."""
    if location.is_local:
        return _local_store(os.path.join(location.uri, folder))
    _, prefix = bucket_and_key(location)
    return open_bucket(location, prefix=f"{prefix}/{folder}")


def bucket_and_key(location: Location) -> tuple[str, str]:
    """The bucket and the key prefix of a graph in S3."""
    bucket, _, prefix = location.uri.removeprefix("s3://").partition("/")
    return bucket, prefix


def in_one_bucket(source: Location, target: Location) -> bool:
    """Whether the store can copy from one of these addresses to the other."""
    if source.is_local or target.is_local or source.options != target.options:
        return False
    return bucket_and_key(source)[0] == bucket_and_key(target)[0]


def open_bucket(location: Location, *, prefix: str | None = None) -> S3Store:
    """The client of the bucket of a graph in S3, or of a prefix of it."""
    from obstore.store import S3Store

    bucket, _ = bucket_and_key(location)
    options = dict(location.options)
    client = {"allow_http": True} if options.pop("allow_http", "").lower() in ("true", "1") else {}
    names = {"aws_access_key_id": "access_key_id", "aws_secret_access_key": "secret_access_key"}
    names["aws_session_token"] = "session_token"
    config = {names.get(k, k): v for k, v in options.items()}
    return S3Store(bucket, prefix=prefix, client_options=client, retry_config=RETRIES, **config)


def _local_store(path: str) -> LocalStore:
    """A client of a folder, which is created if needed. Another process may remove the empty folder meanwhile."""
    from obstore.exceptions import BaseError
    from obstore.store import LocalStore

    pause = local_backoff()
    for attempt in range(LOCAL_TRIES_MAX):
        try:
            return LocalStore(path, mkdir=True)
        except (BaseError, OSError):
            if attempt == LOCAL_TRIES_MAX - 1:
                raise
            pause()
    raise AssertionError("unreachable")


# ---- errors ----------------------------------------------------------------------------------------------------------


class store_errors:
    """Translate errors of the store and of the file system, and `also` others, into StorageError.

    `keep_missing`: FileNotFoundError passes as it is.
    """

    def __init__(self, doing: str, *, keep_missing: bool = False, also: tuple[type[BaseException], ...] = ()) -> None:
        self._doing, self._keep_missing, self._also = doing, keep_missing, also

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: object) -> None:
        if error is None or (self._keep_missing and isinstance(error, FileNotFoundError)):
            return
        if isinstance(error, (OSError, *self._also)) or _is_client_error(error):
            raise StorageError(doing=self._doing, detail=str(error)) from error


def _is_client_error(error: BaseException) -> bool:
    if "obstore" not in sys.modules or not isinstance(error, Exception):
        return False  # importing the client costs more than many a command
    from obstore.exceptions import BaseError

    return isinstance(error, BaseError)


def is_missing(error: BaseException) -> bool:
    return isinstance(error, FileNotFoundError) or "No such file" in str(error)
