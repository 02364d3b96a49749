"""New values for some columns of existing rows, without rewriting the rows: one new file beside a fragment's own.

1. write    per fragment, on any worker: a data file with the columns' values for all physical rows, old values where
            there is no new one
2. exchange one Update that replaces the columns' old files by these

A fragment's physical rows never change, so a file stays valid as long as the fragment keeps the files it was made from
(`base`), whatever was deleted meanwhile: a row that another writer replaced is deleted here and is in another fragment.
So long work stays valid beside other writers. Row ids and addresses stay; indices lose their coverage of these columns
in these fragments only.

The files of a fork go into the root table's `data/`, as all its files do. A crash leaves files without a reference.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from omnigraph.errors import StorageError
from omnigraph.storage import durability
from omnigraph.storage.lance import lance_api
from omnigraph.storage.layout import Location
from omnigraph.storage.manifest.records import Pin
from omnigraph.storage.objects.store import ObjectStore

if TYPE_CHECKING:
    from lance import LanceDataset, Transaction

_REPLACED = -2
"""How Lance marks a column of a data file that a newer file holds."""


@dataclass(frozen=True)
class ColumnFile:
    """A written file: which fragment it belongs to, what it was made from, which field ids it holds and rows it set."""

    fragment: int
    base: tuple[str | None, ...]
    fields: tuple[int, ...]
    file: dict[str, Any]
    offsets: str

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @staticmethod
    def of(body: dict[str, Any]) -> ColumnFile:
        return ColumnFile(**{**body, "base": tuple(body["base"]), "fields": tuple(body["fields"])})


def base_of(table: LanceDataset, fragment_id: int, columns: Sequence[str]) -> tuple[str | None, ...] | None:
    """The data file that holds each column in this fragment; None in the tuple for a column that is null throughout.

    None as a whole if the table has no such fragment.
    """
    fragment = table.get_fragment(fragment_id)
    if fragment is None:
        return None
    field_ids = _field_ids(table, columns)
    files = fragment.metadata.to_json()["files"]
    return tuple(next((f["path"] for f in files if number in f["fields"]), None) for number in field_ids)


def write_columns(
    location: Location, pin: Pin, table: LanceDataset, fragment_id: int, rows: pa.Table, *, base: tuple[str | None, ...]
) -> ColumnFile:
    """Write new values: `rows` has `_rowaddr` and the columns. Checked and synced, without a reference yet."""
    fragment = table.get_fragment(fragment_id)
    before = {f["path"] for f in fragment.metadata.to_json()["files"]}
    with lance_api.reading(f"writing columns of {pin.path}"):
        updated, fields, offsets = fragment.update_columns(rows, left_on="_rowaddr", with_offsets=True)
    new_files = [f for f in updated.to_json()["files"] if f["path"] not in before]
    assert len(new_files) == 1, "an update of columns writes one file"
    _move_and_sync(location, pin, new_files[0])
    return ColumnFile(fragment_id, base, tuple(fields), new_files[0], base64.b64encode(offsets).decode())


def _move_and_sync(location: Location, pin: Pin, file: dict[str, Any]) -> None:
    """Move a fork's file to its root table's folder, and sync."""
    if pin.fork is not None:
        inner = pin.path.removeprefix(f"{pin.root}/")
        name = f"data/{file['path']}"
        ObjectStore(location, pin.root).rename(f"{inner}/{name}", name, doing=f"writing columns of {pin.path}")
    if location.is_local:
        durability.sync_fragments(location.join(pin.root), [{"id": 0, "files": [file]}])


def exchange(pin: Pin, table: LanceDataset, files: Iterable[ColumnFile]) -> Transaction:
    """The Update that makes these files the values of their columns. All of one set of columns, one per fragment."""
    from lance.fragment import FragmentMetadata

    root = _root_base(pin, table)
    updated: list[FragmentMetadata] = []
    fields: set[int] = set()
    offsets: dict[int, bytes] = {}
    for column_file in files:
        body = table.get_fragment(column_file.fragment).metadata.to_json()
        kept = [
            {**f, "fields": [_REPLACED if n in column_file.fields else n for n in f["fields"]]} for f in body["files"]
        ]
        kept = [f for f in kept if any(n != _REPLACED for n in f["fields"])]
        body["files"] = [*kept, {**column_file.file, "base_id": root}]
        updated.append(FragmentMetadata.from_json(json.dumps(body)))
        fields.update(column_file.fields)
        offsets[column_file.fragment] = base64.b64decode(column_file.offsets)
    operation = lance_api.operations().Update(
        updated_fragments=updated,
        fields_modified=sorted(fields),
        update_mode="rewrite_columns",
        updated_fragment_offsets=offsets if table.has_stable_row_ids else None,
    )
    return lance_api.transaction(operation, read_version=table.version)


def _root_base(pin: Pin, table: LanceDataset) -> int | None:
    """The id under which a fork knows its root table's folder; None on the root itself."""
    if pin.fork is None:
        return None
    for base in table.base_paths().values():
        if base.path.rstrip("/").endswith(pin.root):
            return int(base.id)
    raise StorageError(doing=f"writing to {pin.path}", detail="the fork does not know its root table")


def _field_ids(table: LanceDataset, columns: Sequence[str]) -> list[int]:
    ids_by_name = {field.name(): field.id() for field in table.lance_schema.fields()}
    return [ids_by_name[name] for name in columns]
