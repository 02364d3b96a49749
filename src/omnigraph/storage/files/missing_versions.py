"""Why a version of a table does not exist: cleanup or a schema change removed it, or it was lost.

Cleanup removes, from one version line, all versions older than some version that nothing retains; heads of branches,
the commits from which branches were created, tags (of the graph and of Lance) and leases retain versions. So a version
is missing, and not reclaimed, if

* a head, the base of a branch or a tag of the graph pins it
* the line is pinned, and no version of it exists, or none as new as this version
* an older version of the line exists that nothing retains: a cleanup would have removed that one first

A version that a running cleanup has announced is reclaimed. A version that a lease or a branch retained until just now
looks like one that nothing retains: beside it, a reclaimed version is reported as missing until the next cleanup.

This runs only after a read has failed. It writes nothing.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from omnigraph.errors import VersionMissing, VersionReclaimed
from omnigraph.storage.lance import lance_api
from omnigraph.storage.layout import Location, graph_of
from omnigraph.storage.manifest.records import Pin
from omnigraph.storage.manifest.table import Manifest
from omnigraph.storage.manifest.tags import read_tags

if TYPE_CHECKING:
    from lance import LanceDataset


def absence(location: Location, path: str, version: int, *, table_key: str = "") -> VersionReclaimed:
    """The error for a version that does not exist, of the version line at `path` relative to the graph."""
    manifest = Manifest(location)
    kind = VersionMissing if _is_lost(manifest, path, version) else VersionReclaimed
    return kind(table_key=table_key or _key(manifest, path), version=version)


def absence_of(table: LanceDataset, *, table_key: str) -> VersionReclaimed:
    """The error for a handle whose version existed when it was opened."""
    location, path = graph_of(table.uri, table._storage_options)
    return absence(location, path, int(table.version), table_key=table_key)


def _key(manifest: Manifest, path: str) -> str:
    """The table key of a folder: in the schema of a branch, or its type id if no branch has the type any more."""
    type_id = path.split("/")[1].partition("-")[0]
    for schema_id in {head.schema for head in manifest.heads().values()}:
        t = manifest.schema(schema_id).by_id.get(type_id)
        if t is not None:
            return t.key
    return type_id


def _is_lost(manifest: Manifest, path: str, version: int) -> bool:
    from omnigraph.storage.objects.leases import announced, leases  # which raises what is decided here

    location = manifest.location
    if version in announced(location).get(path, ()):
        return False
    pinned = {pin.version for pin in _live_pins(manifest) if pin.path == path}
    if version in pinned:
        return True
    try:
        table = lance_api.open_newest(location, location.join(path))
    except lance_api.TableMissing:
        return bool(pinned)
    with lance_api.reading(f"looking for versions of {path}"):
        present = {int(v["version"]) for v in table.version_refs()}
        tagged = {int(tag["version"]) for tag in table.tags.list().values()}
    if pinned and version > max(present):
        return True
    leased = {v for lease in leases(location) for v in lease.pins.get(path, ())}
    return any(older < version for older in present - pinned - tagged - leased)


def _live_pins(manifest: Manifest) -> Iterator[Pin]:
    """What heads pin now, what branches were made from, and what tags name."""
    for head in manifest.heads().values():
        yield from manifest.pins(head).values()
        if head.base is not None:
            yield from manifest.pins_at(head.base).values()
    for tag in read_tags(manifest).values():
        yield from manifest.pins_at(tag.commit).values()
