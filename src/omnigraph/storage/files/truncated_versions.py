"""What a power loss leaves of versions of a local table that nobody had acknowledged, and how it is put away.

Acknowledging syncs, so a version that is cut short was never published, and neither was any version above one that is
cut short or gone: a step is synced before the next is made. Only what Lance commits in one call of its own, several
versions at once, can lose a lower one and keep an upper one.

Put away means renamed, with the ending `.torn`: the number can be used again, and cleanup takes the file with all that
nobody refers to. On S3 a version is there or not, and nothing here finds anything.
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
    """Versions at the top of a local table whose files are provably cut short, newest first; empty elsewhere."""
    found: list[int] = []
    for version in sorted(_listed(location, uri), reverse=True):
        if not is_truncated(uri, version):
            break
        found.append(version)
    return found


def is_truncated(uri: str, version: int) -> bool:
    """Whether the version's file is there and does not end as Lance ends it.

    A read that fails says nothing about the file.
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
    """Put away all torn versions above a published one.

    A whole version above one that was lost stays, unless `orphans`, asked of all of these, says that they belong to
    what was lost.
    """
    listed = sorted(v for v in _listed(location, uri) if v > above)
    torn = [v for v in listed if is_truncated(uri, v)]
    lost = next((v for v in _up_to_last(above, listed) if v in torn or not _exists(uri, v)), None)
    whole = [v for v in listed if lost is not None and v > lost and v not in torn]
    if whole and orphans is not None and orphans(whole):
        torn += whole
    for version in sorted(torn, reverse=True):  # a crash in between leaves the lower ones, and the work is found again
        path = durability.manifest_path(uri, version)
        with suppress(FileNotFoundError):  # another recoverer mends the same table
            os.replace(path, f"{path}.torn")
    if torn:
        with suppress(FileNotFoundError):
            os.unlink(os.path.join(uri, "_versions", "latest_version_hint.json"))
        folder = uri.removeprefix(f"{location.uri}/")
        fields = {"graph": location.uri, "table": folder, "versions": sorted(torn), "above": above}
        log_event(logger, logging.WARNING, "truncated versions moved aside", **fields)


def _up_to_last(above: int, listed: list[int]) -> range:
    return range(above + 1, max(listed, default=above) + 1)


def _exists(uri: str, version: int) -> bool:
    """Asked of the file: a listing may miss one that came while it was made, and still have a later one."""
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
