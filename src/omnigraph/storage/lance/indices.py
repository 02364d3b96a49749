"""Indices of a table as values: the built indices and their coverage, and built segments before their commit.

An index is one or more segments, each over fragments of its own. A segment's files are in the table's
`_indices/<uuid>`; it is in use from the commit that names it. Coverage is in the table's manifest: reading it opens no
index.
"""

from __future__ import annotations

import base64
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from omnigraph.storage import durability
from omnigraph.storage.lance import lance_api
from omnigraph.storage.lance.fields import ids_of
from omnigraph.storage.layout import Location
from omnigraph.storage.manifest.records import Pin

if TYPE_CHECKING:
    from lance import LanceDataset, Transaction

FRAGMENT_REUSE = "__lance_frag_reuse"
_KINDS = {"LabelList": "LABEL_LIST"}


@dataclass(frozen=True)
class Segment:
    """`version` is the table version that it was built on; `base_id` its base path, if it is not the table's."""

    uuid: str
    fragments: frozenset[int]
    version: int
    index_version: int
    size_bytes: int
    base_id: int | None = None


@dataclass(frozen=True)
class BuiltIndex:
    """`kind` is Lance's name of the index type, in capitals: BTREE, BITMAP, INVERTED, LABEL_LIST, IVF_FLAT, …"""

    name: str
    kind: str
    fields: tuple[int, ...]
    column: str
    segments: tuple[Segment, ...]
    details: Mapping[str, Any] = field(default_factory=dict, compare=False)
    """The parameters of the index, as Lance reports them."""

    @property
    def covered(self) -> frozenset[int]:
        return frozenset().union(*(s.fragments for s in self.segments))


def built_indices(table: LanceDataset) -> list[BuiltIndex]:
    """All indices of this version that answer queries, by name."""
    indices = []
    for index in table.describe_indices():
        if index.name.startswith("__lance"):
            continue
        segments = tuple(
            Segment(
                uuid=s.uuid,
                fragments=frozenset(s.fragment_ids or ()),
                version=int(s.dataset_version_at_last_update),
                index_version=int(s.index_version),
                size_bytes=int(s.size_bytes or 0),
                base_id=s.base_id,
            )
            for s in index.segments
        )
        kind = _KINDS.get(index.index_type, index.index_type.upper())
        column, details = index.field_names[0], index.details or {}
        indices.append(BuiltIndex(index.name, kind, tuple(index.fields), column, segments, details))
    return sorted(indices, key=lambda i: i.name)


def field_ids(table: LanceDataset) -> frozenset[int]:
    """The fields that the table has, those inside of others too."""
    return frozenset(field_id for field in table.lance_schema.fields() for field_id in ids_of(field))


def segment_folder(pin: Pin, table: LanceDataset, segment: Segment) -> str:
    """The folder of a segment's files, relative to the graph: a fork uses those of the line from which it was made."""
    path = pin.path
    if segment.base_id is not None:
        base = next(b.path for b in table.base_paths().values() if b.id == segment.base_id)
        path = pin.root + base.rstrip("/").rpartition(pin.root)[2]
    return f"{path}/_indices/{segment.uuid}"


def fragment_reuse(table: LanceDataset) -> str | None:
    """The uuid of the fragment-reuse index, which maps addresses of other indices after a deferred remap, or None."""
    return next((i.segments[0].uuid for i in table.describe_indices() if i.name == FRAGMENT_REUSE), None)


def sync_reuse_index(location: Location, pin: Pin, table: LanceDataset) -> None:
    """Sync the fragment-reuse index on a local disk. Lance keeps a small one in the version's own file."""
    uuid = fragment_reuse(table)
    folder = location.join(pin.path, "_indices", uuid or "")
    if uuid is not None and os.path.isdir(folder):
        durability.sync_index_folder(folder)


def new_segment_json(segment: Any) -> dict[str, Any]:
    """A segment that `create_index_uncommitted` has built, as a JSON value."""
    details = segment.index_details
    return {
        "uuid": segment.uuid,
        "name": segment.name,
        "fields": list(segment.fields),
        "fragments": sorted(segment.fragment_ids),
        "index_version": segment.index_version,
        "files": [[f.path, f.size_bytes] for f in segment.files or ()],
        "details": None if details is None else [details[0], base64.b64encode(details[1]).decode()],
        "covering": list(segment.covering_fields),
    }


def _new_segment(body: Mapping[str, Any], *, version: int) -> Any:
    from lance.dataset import Index, IndexFile

    details = body["details"]
    return Index(
        uuid=body["uuid"],
        name=body["name"],
        fields=list(body["fields"]),
        dataset_version=version,
        fragment_ids=_bitmap(body["fragments"]),
        index_version=body["index_version"],
        files=[IndexFile(path, size) for path, size in body["files"]],
        index_details=None if details is None else (details[0], base64.b64decode(details[1])),
        covering_fields=list(body["covering"]),
    )


def _bitmap(fragments: Iterable[int]) -> Any:
    from lance.bitmap import Bitmap

    return Bitmap(sorted(fragments))


def exchange_segments(
    table: LanceDataset,
    new: Sequence[Mapping[str, Any]],
    *,
    removed: Iterable[str],
    version: int,
    ends_reuse: bool = False,
) -> Transaction:
    """The commit that makes new segments count and takes old ones, named by uuid, out of their indices.

    `version` is the one that the new segments were built on: rows of later versions are none of theirs. `ends_reuse`:
    no segment that follows a compaction through the fragment-reuse index is left, and that goes as well.
    """
    from lance.dataset import Index

    gone = set(removed)
    old = [
        Index(
            uuid=s.uuid,
            name=index.name,
            fields=list(index.fields),
            dataset_version=s.version,
            fragment_ids=_bitmap(s.fragments),
            index_version=s.index_version,
        )
        for index in built_indices(table)
        for s in index.segments
        if s.uuid in gone
    ]
    reuse = fragment_reuse(table) if ends_reuse else None
    if reuse is not None:
        old.append(Index(reuse, FRAGMENT_REUSE, [], int(table.version), _bitmap(()), 0))
    made = [_new_segment(body, version=version) for body in new]
    operation = lance_api.operations().CreateIndex(made, old)
    return lance_api.transaction(operation, read_version=table.version)


def segment_files(pin: Pin, body: Mapping[str, Any]) -> list[str]:
    """The files of a new segment, relative to the graph."""
    return [f"{pin.path}/_indices/{body['uuid']}/{name}" for name, _ in body["files"]]


def sync_segment(location: Location, pin: Pin, body: Mapping[str, Any]) -> None:
    """Check a new segment's files on a local disk, and sync them.

    A size alone proves nothing: Lance builds some of them elsewhere and copies what it finds, also what a full disk
    has cut short.
    """
    if not location.is_local:
        return
    folder = location.join(pin.path, "_indices", body["uuid"])
    for name, size in body["files"]:
        durability.require_size(f"{folder}/{name}", size)
        durability.require_closed(f"{folder}/{name}")
    durability.sync_index_folder(folder)
