"""Truncated versions of a local table: version files that a power loss cut short, and how they are moved aside.

A version is synced before it is acknowledged, so a truncated version was never published, and neither was any version
above a truncated or missing one: an effect is synced before the next begins. Only a call in which Lance itself commits
several versions can lose a lower version and keep an upper one.

A version is moved aside by renaming its file to `.torn`: the number is free again, and cleanup removes the file with
all other orphan files. On S3 a version exists or not, so this module does nothing there.
"""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Callable
from contextlib import suppress

from omnigraph.config.logs import log_event
from omnigraph.errors import StorageError
from omnigraph.storage import durability
from omnigraph.storage.layout import Location

logger = logging.getLogger(__name__)

_MANIFEST_MARK = b"LANC"


def truncated_versions(location: Location, uri: str) -> list[int]:
    """The newest versions of a local table whose files are truncated, newest first; empty on an object store."""
    truncated: list[int] = []
    for version in sorted(_listed(location, uri), reverse=True):
        if not is_truncated(uri, version):
            break
        truncated.append(version)
    return truncated


def is_truncated(uri: str, version: int) -> bool:
    """Whether the version's file exists and does not end in Lance's mark.

    Raises StorageError if the file can't be read.
    """
    path = durability.manifest_path(uri, version)
    try:
        with open(path, "rb") as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(max(0, size - len(_MANIFEST_MARK)))
            return file.read() != _MANIFEST_MARK
    except (FileNotFoundError, NotADirectoryError):
        return False
    except OSError as error:
        raise StorageError(doing=f"reading {path}", detail=str(error)) from error


def move_aside(location: Location, uri: str, *, above: int, orphans: Callable[[list[int]], bool] | None = None) -> None:
    """Move aside all truncated versions above a published one.

    A complete version above a lost one stays, unless `orphans`, called with all of these, returns that they belong to
    the lost one.
    """
    listed = sorted(v for v in _listed(location, uri) if v > above)
    truncated = [v for v in listed if is_truncated(uri, v)]
    first_lost = next((v for v in _up_to_last(above, listed) if v in truncated or not _exists(uri, v)), None)
    complete = [v for v in listed if first_lost is not None and v > first_lost and v not in truncated]
    if complete and orphans is not None and orphans(complete):
        truncated += complete
    for version in sorted(truncated, reverse=True):  # a crash in between leaves the lower ones for the next call
        path = durability.manifest_path(uri, version)
        with suppress(FileNotFoundError):  # another process recovers the same table
            os.replace(path, f"{path}.torn")
    if truncated:
        with suppress(FileNotFoundError):
            os.unlink(os.path.join(uri, "_versions", "latest_version_hint.json"))
        folder = uri.removeprefix(f"{location.uri}/")
        fields = {"graph": location.uri, "table": folder, "versions": sorted(truncated), "above": above}
        log_event(logger, logging.WARNING, "truncated versions moved aside", **fields)


def _up_to_last(above: int, listed: list[int]) -> range:
    return range(above + 1, max(listed, default=above) + 1)


def _exists(uri: str, version: int) -> bool:
    """Checks the file itself: a listing may miss a file created meanwhile, and still contain a later one."""
    return os.path.exists(durability.manifest_path(uri, version))


def _listed(location: Location, uri: str) -> list[int]:
    if not location.is_local:
        return []
    try:
        names = os.listdir(os.path.join(uri, "_versions"))
    except (FileNotFoundError, NotADirectoryError):
        return []
    except OSError as error:
        raise StorageError(doing=f"listing {uri}", detail=str(error)) from error
    return [2**64 - 1 - int(n[:20]) for n in names if re.fullmatch(r"\d{20}\.manifest", n)]
