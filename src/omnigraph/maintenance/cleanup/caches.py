"""Adjacency arrays that queries keep on disk (`query/traversal/adjacency_files.py`), of removed versions.

* version_gone  the version of the edge table that they were made from does not exist, or this plan removes it
* abandoned     a folder without a record of its version: a crashed process left it incomplete. It is removed when
                nothing in it has changed for as long as orphan files are kept

A symbolic link is kept, with a warning.

All of it is derived: a query whose arrays are removed builds them again, so nothing has to be refused or retained.
"""

from __future__ import annotations

from collections.abc import Sequence

import orjson

from omnigraph.errors import SymlinkInGraph
from omnigraph.language import identifiers as form
from omnigraph.maintenance.cleanup.orphans import Staged, folders_of
from omnigraph.maintenance.cleanup.plan import TablePlan
from omnigraph.maintenance.cleanup.policy import Policy
from omnigraph.storage.files.references import Folder, folder_of
from omnigraph.storage.layout import CACHE, CACHE_META, Location
from omnigraph.storage.objects import nofollow
from omnigraph.storage.objects.store import ObjectStore, StoredFile


def cached(
    location: Location, tables: Sequence[TablePlan], policy: Policy, *, now_s: float, links: list[str]
) -> list[Staged]:
    """Folders of arrays that may be removed, given the plans of the tables."""
    if not location.is_local:
        return []  # they are kept on local disks only
    going = {line: versions for table in tables for line, versions in table.by_line().items()}
    forks = {fork.path for table in tables for fork in table.forks}
    folders: dict[str, Folder] = {}
    stale = []
    for path, listing in folders_of(location, CACHE, links):
        files = _meta_last(listing)
        made_from = _made_from(location, path)
        if made_from is None:
            newest_s = max((f.modified_s for f in files), default=now_s)
            if now_s - newest_s >= policy.orphans_older_than_s:
                stale.append(Staged(path, files, "abandoned"))
            continue
        line, version = made_from
        is_going = line in forks or version in going.get(line, frozenset())
        if is_going or not _exists(location, line, version, folders):
            stale.append(Staged(path, files, "version_gone"))
    return stale


def _meta_last(files: Sequence[StoredFile]) -> tuple[StoredFile, ...]:
    """The record of their version is removed last: after a crash the next run recognises the folder."""
    return tuple(sorted(files, key=lambda f: (f.path == CACHE_META, f.path)))


def _made_from(location: Location, path: str) -> tuple[str, int] | None:
    try:
        line, version = orjson.loads(nofollow.read(location, f"{path}/{CACHE_META}"))["edges"]
        return form.fork(line), form.version(version)
    except (OSError, SymlinkInGraph, ValueError, KeyError, TypeError):
        return None


def _exists(location: Location, line: str, version: int, folders: dict[str, Folder]) -> bool:
    root, inner = "/".join(line.split("/")[:2]), "/".join(line.split("/")[2:])
    if root not in folders:
        folders[root] = folder_of(root, ObjectStore(location, root).iter_files())
    stored = folders[root].lines.get(inner)
    return stored is not None and version in stored.versions
