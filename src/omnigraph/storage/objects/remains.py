"""Classifies an address without a readable manifest: empty, the remains of a crashed `init`, or a graph that lost its
manifest.

A crashed `init` leaves empty tables at their first version, files of a manifest without a version, and probes: it can
be repeated over them. An unfinished clone has a mark. Everything else with the layout of a graph was a graph: data,
further versions, forks, advisory locks, leases, staged files. No graph may be created over it, because cleanup would
treat its tables as unreferenced and remove them.

The address is listed, and an error of the listing is raised: "there is no graph" is returned only after a listing that
succeeded. The listing ends with the first file that proves a graph.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator

from omnigraph.errors import CloneUnfinished, ManifestMissing, NotAGraph, StorageError
from omnigraph.storage.layout import CLONE, LAYOUT_FOLDERS, MANIFEST, TABLE_FOLDERS, TABLE_NAME, Location
from omnigraph.storage.objects import clone_mark
from omnigraph.storage.objects.store import ObjectStore

TABLES_MAX = 20
_FIRST_VERSION = re.compile(r"(_versions/18446744073709551614\.manifest|_transactions/0-[^/]+\.txn)")
_IN_THE_MAKING = re.compile(r"(.*/)?(\.tmp[^/]*|[^/]+#\d+|latest_version_hint\.json|probe-[^/]*)")
_VERSION = re.compile(re.escape(MANIFEST) + r"/_versions/\d+\.manifest")
_OF_A_MANIFEST = re.compile(r"(_transactions/[^/]+\.txn|data/[^/]+\.lance)")


def require_folder(location: Location) -> None:
    """Refuse a local address whose folders can't be listed, or that is a file: neither is an empty address.

    Lance would retry for seconds, and report some of these as a missing table.
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
    """The error for a graph without any version of its manifest; None if there is no graph, or only the remains of a
    crashed `init`.
    """
    folders = [name for name in ObjectStore(location).children().folders if name in LAYOUT_FOLDERS]
    unfinished = clone_mark.unfinished(location) if CLONE in folders else None
    if unfinished is not None:
        return unfinished
    evidence = next((path for folder in folders for path in _files(location, folder) if _is_evidence(path)), None)
    if evidence is None:
        return None
    tables = {
        kind: [
            f"{folder}/{name}"
            for name in ObjectStore(location, folder).children().folders
            if TABLE_NAME.fullmatch(name)
        ]
        for kind, folder in (("node", TABLE_FOLDERS["n"]), ("edge", TABLE_FOLDERS["e"]))
    }
    names = [name for table_paths in tables.values() for name in table_paths]
    counts = [
        f"{len(table_paths)} {kind} table{'s' * (len(table_paths) != 1)}"
        for kind, table_paths in tables.items()
        if table_paths
    ]
    detail = f"{' and '.join(counts) or evidence} {'are' if len(names) > 1 else 'is'}"
    return ManifestMissing(uri=location.uri, detail=detail, tables=names[:TABLES_MAX], example=evidence)


def _files(location: Location, folder: str) -> Iterator[str]:
    return (f"{folder}/{file.path}" for file in ObjectStore(location, folder).iter_files())


def _is_evidence(path: str) -> bool:
    """Whether a file, by its path relative to the graph, can't be from a crashed `init`."""
    folder, _, below = path.partition("/")
    if _IN_THE_MAKING.fullmatch(below):
        return False
    if folder == MANIFEST:
        return not _OF_A_MANIFEST.fullmatch(below)
    if folder in TABLE_FOLDERS.values():
        return not _FIRST_VERSION.fullmatch(below.partition("/")[2])
    return True
