"""Changes of a table's columns as uncommitted transactions.

Rename and drop touch metadata only; an addition may fill in values. Lance's own calls for this commit at once and can't
carry a stamp. So the new schema is made on an empty scratch table in memory that starts with the real table's fields
and ids, and the real table gets it in one stamped transaction.

Data files refer to fields by id, so the ids must be right. Lance numbers the fields of a new table without gaps;
the scratch table therefore gets a placeholder for every id that the real table no longer has, and a new field gets an
id above every one that the real table has ever used. Both are checked before the schema is returned.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from omnigraph.storage import durability
from omnigraph.storage.lance import lance_api
from omnigraph.storage.layout import Location
from omnigraph.storage.manifest.records import Pin

if TYPE_CHECKING:
    from lance import LanceDataset, Transaction

_MEMORY = Location(uri="memory://", is_local=False, options={})


def rename_and_drop(table: LanceDataset, *, renames: dict[str, str], drops: Sequence[str]) -> Transaction:
    """One Project: columns get new names, other columns go. Names on the left are those of the table."""

    def change(scratch: Any) -> None:
        if drops:
            scratch.drop_columns(list(drops))
        # Two steps, so that names can be exchanged.
        parked = {old: f"__rename_{i}" for i, old in enumerate(renames)}
        for old, between in parked.items():
            scratch.alter_columns({"path": old, "name": between})
        for old, between in parked.items():
            scratch.alter_columns({"path": between, "name": renames[old]})

    schema = _scratch(table, change, renames=renames)
    return lance_api.transaction(lance_api.operations().Project(schema, True), read_version=table.version)


def add_nullable(table: LanceDataset, fields: Sequence[pa.Field]) -> Transaction:
    """One Merge that adds columns which read as null everywhere; no data file is touched."""

    def change(scratch: Any) -> None:
        pads = [f"__pad_{i}" for i in range(max(0, table.max_field_id - scratch.max_field_id))]
        if pads:
            scratch.add_columns([pa.field(name, pa.int8()) for name in pads])
        scratch.add_columns(list(fields))
        if pads:
            scratch.drop_columns(pads)

    schema = _scratch(table, change, renames={})
    fragments = [f.metadata for f in table.get_fragments()]
    operation = lance_api.operations().Merge(fragments, schema, True)
    return lance_api.transaction(operation, read_version=table.version)


def add_filled(location: Location, pin: Pin, table: LanceDataset, values: dict[str, pa.Scalar]) -> Transaction:
    """One Merge that adds columns with the same value in every row: a new data file beside each fragment's own."""

    def fill(batch: pa.RecordBatch) -> pa.RecordBatch:
        return pa.record_batch({name: pa.repeat(value, batch.num_rows) for name, value in values.items()})

    merged = [f.merge_columns(fill, columns=["id"]) for f in table.get_fragments()]
    assert merged, "a table without rows takes add_nullable"
    if location.is_local:
        old = {d.path for f in table.get_fragments() for d in f.metadata.files}
        bodies = [m.to_json() for m, _ in merged]
        new = [{"id": b["id"], "files": [d for d in b["files"] if d["path"] not in old]} for b in bodies]
        durability.sync_fragments(location.join(pin.path), new)
    operation = lance_api.operations().Merge([m for m, _ in merged], merged[0][1], False)
    return lance_api.transaction(operation, read_version=table.version)


def _scratch(table: LanceDataset, change: Callable[[Any], None], *, renames: Mapping[str, str]) -> Any:
    """The table's schema after `change`, made on an empty table in memory."""
    shape, placeholders = _padded(table)
    uri = f"memory://omnigraph-{secrets.token_hex(8)}"
    scratch = lance_api.commit(
        _MEMORY, uri, lance_api.transaction(lance_api.operations().Overwrite(shape, []), read_version=0)
    )
    if placeholders:
        scratch.drop_columns(placeholders)
    assert _ids(scratch.lance_schema) == _ids(table.lance_schema), (
        "the scratch table must number its fields as the real one"
    )
    change(scratch)
    _require_same_ids(table, scratch.lance_schema, renames)
    return scratch.lance_schema


def _padded(table: LanceDataset) -> tuple[pa.Schema, list[str]]:
    """The table's columns with a placeholder for each id that is missing between them."""
    columns: list[pa.Field] = []
    placeholders: list[str] = []
    next_id = 0
    for field, column in zip(table.lance_schema.fields(), table.schema, strict=True):
        while next_id < field.id():
            placeholders.append(f"__gap_{next_id}")
            columns.append(pa.field(placeholders[-1], pa.int8()))
            next_id += 1
        columns.append(column)
        next_id = field.id() + _size(field)
    return pa.schema(columns), placeholders


def _size(field: Any) -> int:
    return 1 + sum(_size(child) for child in field.children())


def _ids(schema: Any) -> dict[str, tuple[int, ...]]:
    def of(field: Any) -> tuple[int, ...]:
        return (field.id(), *(i for child in field.children() for i in of(child)))

    return {field.name(): of(field) for field in schema.fields()}


def _require_same_ids(table: LanceDataset, schema: Any, renames: Mapping[str, str]) -> None:
    before = {renames.get(name, name): ids for name, ids in _ids(table.lance_schema).items()}
    for name, ids in _ids(schema).items():
        kept = before.get(name) == ids
        assert kept or min(ids) > table.max_field_id, f"column {name} would read the values of another"
