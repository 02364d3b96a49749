"""What lies at an address that has no readable manifest: nothing, what an `init` that died left, or a graph that has
lost its manifest.

An `init` that died leaves empty tables at their first version, files of a manifest without a version, and probes: it
can be repeated over them. A clone that is not finished says so by its mark. Everything else that has our layout was a
graph: data, further versions, forks, tickets, leases, staged files. Nothing may be built over it, because cleanup would
call its tables unreferenced and remove them.

The address is listed, and a listing that fails is the answer: "there is no graph" is said only after one that
succeeded. It ends with the first file that tells.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator

from omnigraph.errors import CloneUnfinished, ManifestMissing, NotAGraph, StorageError
from omnigraph.storage.layout import CLONE, LAYOUT_FOLDERS, MANIFEST, TABLE_FOLDERS, TABLE_NAME, Location
from omnigraph.storage.objects import clone_mark
from omnigraph.storage.objects.listing import children, files_below

TABLES_MAX = 20
_FIRST_VERSION = re.compile(r"(_versions/18446744073709551614\.manifest|_transactions/0-[^/]+\.txn)")
_IN_THE_MAKING = re.compile(r"(.*/)?(\.tmp[^/]*|[^/]+#\d+|latest_version_hint\.json|probe-[^/]*)")
_VERSION = re.compile(re.escape(MANIFEST) + r"/_versions/\d+\.manifest")
_OF_A_MANIFEST = re.compile(r"(_transactions/[^/]+\.txn|data/[^/]+\.lance)")


def require_folder(location: Location) -> None:
    """Refuse a local address whose folders can't be listed: that is not an empty one, and neither is a file.

    Lance would try again for seconds, and call some of these a table that is not there.
    """
    if not location.is_local:
        return
    for folder in (location.uri, location.manifest_uri, f"{location.manifest_uri}/_versions"):
        try:
            os.scandir(folder).close()
        except FileNotFoundError:
            return
        except OSError as error:
            if folder == location.uri and os.path.isfile(folder):
                raise NotAGraph(uri=folder, detail="it is a file.") from error
            raise StorageError(doing=f"listing {folder}", detail=str(error)) from error


def has_versions(location: Location) -> bool:
    """Whether a version of the manifest is listed."""
    return any(_VERSION.fullmatch(path) for path in _files(location, MANIFEST))


def lost_graph(location: Location) -> ManifestMissing | CloneUnfinished | None:
    """The error for a graph without any version of its manifest; None where there is no graph, or only what an `init`
    left that died.
    """
    folders = [name for name in children(location, "")[1] if name in LAYOUT_FOLDERS]
    unfinished = clone_mark.unfinished(location) if CLONE in folders else None
    if unfinished is not None:
        return unfinished
    telling = next((path for folder in folders for path in _files(location, folder) if _tells(path)), None)
    if telling is None:
        return None
    tables = {
        kind: [f"{folder}/{name}" for name in children(location, folder)[1] if TABLE_NAME.fullmatch(name)]
        for kind, folder in (("node", TABLE_FOLDERS["n"]), ("edge", TABLE_FOLDERS["e"]))
    }
    names = [name for found in tables.values() for name in found]
    counts = [f"{len(found)} {kind} table{'s' * (len(found) != 1)}" for kind, found in tables.items() if found]
    detail = f"{' and '.join(counts) or telling} {'are' if len(names) > 1 else 'is'}"
    return ManifestMissing(uri=location.uri, detail=detail, tables=names[:TABLES_MAX], example=telling)


def _files(location: Location, folder: str) -> Iterator[str]:
    return (f"{folder}/{file.path}" for file in files_below(location, folder))


def _tells(path: str) -> bool:
    """Whether a file, by its path relative to the graph, can't be what an `init` leaves that died."""
    folder, _, below = path.partition("/")
    if _IN_THE_MAKING.fullmatch(below):
        return False
    if folder == MANIFEST:
        return not _OF_A_MANIFEST.fullmatch(below)
    if folder in TABLE_FOLDERS.values():
        return not _FIRST_VERSION.fullmatch(below.partition("/")[2])
    return True
