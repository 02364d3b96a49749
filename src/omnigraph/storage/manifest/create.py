"""Create a graph atomically.

1. create   every table of the schema, empty, at a unique path
2. build    the manifest in a scratch folder: its schema row, its first record, the head of main
3. copy     the manifest's files to `<graph>/__manifest`, the version file last and create-only: from then on the graph
            exists, and of two concurrent creators exactly one wins

A crash before the last step leaves tables without a reference, and the same address can be initialised again. Lance's
own "create" is not enough: a second creator, or a stopped one that continues, overwrites the rows of the first.
"""

from __future__ import annotations

import os
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from omnigraph.errors import GraphExists, OmnigraphError, StorageError, UsageError
from omnigraph.language.schema.model import EntityType, Schema
from omnigraph.storage import durability
from omnigraph.storage.files.checksums import Packed
from omnigraph.storage.lance import lance_api
from omnigraph.storage.lance.tables import storage_schema
from omnigraph.storage.layout import LAYOUT_NAMES, MANIFEST, Location
from omnigraph.storage.manifest.config import HEAD, ROW_IDS_KEY
from omnigraph.storage.manifest.records import Head, Pin, Record
from omnigraph.storage.manifest.rows import checksums_row, manifest_rows, manifest_schema, record_row, schema_row
from omnigraph.storage.manifest.table import Manifest
from omnigraph.storage.objects import conditional_put, nofollow, remains
from omnigraph.storage.objects.client import store_errors
from omnigraph.storage.objects.store import ObjectStore

if TYPE_CHECKING:
    import pyarrow as pa
    from lance import LanceDataset


def create_table(
    location: Location, t: EntityType, *, incarnation: str, stable_row_ids: bool, stamp: str
) -> tuple[Pin, LanceDataset]:
    """A new, empty table for the type, at a path made unique by `incarnation`."""
    pin = Pin(table=t.id, incarnation=incarnation, fork=None, version=1)
    uri = location.join(pin.path)
    operation = lance_api.operations().Overwrite(storage_schema(t), [])
    tx = lance_api.transaction(operation, read_version=0, properties={lance_api.STAMP: stamp})
    table = lance_api.commit(location, uri, tx, stable_row_ids=stable_row_ids)
    if location.is_local:
        durability.sync_tree(uri)
    return replace(pin, version=table.version, rows=0, fragments=0), table


def require_free(location: Location) -> None:
    """Refuse an address with a graph or the remains of one, a local folder with other files, and a store without
    create-only puts.
    """
    nofollow.require_layout(location)
    if location.is_local and os.path.isfile(location.uri):
        raise UsageError(detail=f"{location.uri} is a file; a graph needs a folder of its own.")
    remains.require_folder(location)
    if graph_exists(location) or remains.has_versions(location):
        raise GraphExists(uri=location.uri)
    lost = remains.lost_graph(location)
    if lost is not None:
        raise lost
    if location.is_local and os.path.exists(location.uri):
        foreign = sorted(set(os.listdir(location.uri)) - set(LAYOUT_NAMES))
        if foreign:
            detail = f"{location.uri} is not empty (it holds {foreign[0]!r}); a graph needs a folder of its own."
            raise UsageError(detail=detail)
    if location.is_local:
        conditional_put.require_hard_links(location)
    conditional_put.require_conditional(location)


def graph_exists(location: Location) -> bool:
    try:
        lance_api.open_newest(location, location.manifest_uri)
    except lance_api.TableMissing:
        return False
    return True


def publish_manifest(
    location: Location, *, head: Head, record: Record, schema: Schema, stable_row_ids: bool, checksums: Packed = ""
) -> None:
    """Steps 2 and 3. Raises GraphExists if another process was first. `checksums` are those of existing files."""
    with tempfile.TemporaryDirectory(prefix="omnigraph-init-") as scratch:
        root = os.path.join(scratch, MANIFEST)
        checksum_rows = [checksums_row(checksums)] if checksums else []
        rows = manifest_rows([schema_row(head.schema, schema), record_row(record), *checksum_rows])
        _build(root, head=head, rows=rows, stable_row_ids=stable_row_ids)
        _copy(root, location, head)
    if location.is_local:
        durability.sync_tree(location.manifest_uri)
        durability.sync_files([location.manifest_uri])


def _build(root: str, *, head: Head, rows: pa.Table, stable_row_ids: bool) -> None:
    from lance.fragment import write_fragments

    scratch_location = Location(uri=os.path.dirname(root), is_local=True, options={})
    op = lance_api.operations()
    empty = lance_api.commit(
        scratch_location, root, lance_api.transaction(op.Overwrite(manifest_schema(), []), read_version=0)
    )
    fragments = write_fragments(rows, empty, mode="append")
    filled = lance_api.commit(
        scratch_location, empty, lance_api.transaction(op.Append(fragments), read_version=empty.version)
    )
    config = {HEAD + head.branch: head.dumps(), ROW_IDS_KEY: "stable" if stable_row_ids else "address"}
    update = op.UpdateConfig(config_updates=op.UpdateMap(config))
    lance_api.commit(scratch_location, filled, lance_api.transaction(update, read_version=filled.version))


def manifest_with_checksums(raw: bytes, version: int, checksums: Packed) -> tuple[int, dict[str, bytes]]:
    """The next version of a manifest, with one more row: its number, and its new files by their paths in a graph.

    `raw` is the file of that version. It is built in a scratch folder, which does not need the rows of that version.
    """
    from lance.fragment import write_fragments

    with tempfile.TemporaryDirectory(prefix="omnigraph-clone-") as scratch:
        scratch_location = Location(uri=scratch, is_local=True, options={})
        path = durability.manifest_path(scratch_location.manifest_uri, version)
        os.makedirs(os.path.dirname(path))
        Path(path).write_bytes(raw)
        table = lance_api.open_table(scratch_location, scratch_location.manifest_uri, version=version)
        fragments = write_fragments(manifest_rows([checksums_row(checksums)]), table, mode="append")
        append = lance_api.transaction(lance_api.operations().Append(fragments), read_version=version)
        new_version = int(lance_api.commit(scratch_location, table, append).version)
        names = [str(p.relative_to(scratch)) for p in Path(scratch).rglob("*") if p.is_file()]
        old_files = (durability.manifest_path(MANIFEST, version), f"{MANIFEST}/_versions/latest_version_hint.json")
        return new_version, {name: Path(scratch, name).read_bytes() for name in names if name not in old_files}


def _copy(root: str, location: Location, head: Head) -> None:
    store = ObjectStore(location, MANIFEST)
    doing = f"creating {location.manifest_uri}"
    with store_errors(doing):
        newest = min(Path(root, "_versions").glob("*.manifest"))
        version, version_name = newest.read_bytes(), str(newest.relative_to(root))
        files = [p for p in Path(root).rglob("*") if p.is_file() and p.parent.name != "_versions"]
        bodies = {str(path.relative_to(root)): path.read_bytes() for path in files}
    try:
        for name, raw in bodies.items():
            store.put(name, raw, doing=doing)
        if location.is_local:
            durability.sync_tree(location.manifest_uri)
        store.create(version_name, version, doing=doing)
    except (FileExistsError, StorageError) as error:
        if _is_own(location, head):
            return
        if isinstance(error, FileExistsError):
            raise GraphExists(uri=location.uri) from error
        raise


def _is_own(location: Location, head: Head) -> bool:
    """Whether this process's manifest was written despite an error: the incarnation of its head is unique."""
    try:
        return Manifest(location).head(head.branch).incarnation == head.incarnation
    except OmnigraphError:
        return False
