"""Rows of the table `__manifest`: their schema, how each kind is built, how their bodies are read.

A row has an `object_id`, which is unique among objects: a row that was appended twice is the same object, and readers
use it once. `body` is a JSON value.
"""

from __future__ import annotations

import secrets
from typing import TYPE_CHECKING, Any

import orjson

from omnigraph.language import identifiers as form
from omnigraph.language.schema.model import Schema
from omnigraph.language.schema.serial import schema_to_json
from omnigraph.storage.files.checksums import Packed
from omnigraph.storage.lance import lance_api
from omnigraph.storage.manifest.records import Record

if TYPE_CHECKING:
    import pyarrow as pa
    from lance import LanceDataset

FORMAT = 3
"""The format of a new graph; an older graph is migrated to it before the first write."""
FORMAT_PACKED = FORMAT_MAX = 4
"""The format of a graph with packed heads (`storage/manifest/packed_heads.py`): the newest that this program knows."""
FORMAT_KEY = "omnigraph:internal_schema_version"
CHECKSUMS = "checksums"
"""The kind of rows that hold checksums of files."""
HEADS = "heads"
"""The kind of rows that hold packed heads."""
PRIMARY_KEY = {"lance-schema:unenforced-primary-key": "true"}


def quote(value: str) -> str:
    """A string literal of Lance's SQL."""
    return "'" + value.replace("'", "''") + "'"


def record_row(record: Record) -> tuple[Any, ...]:
    r = record
    return (r.object_id, "commit", r.incarnation, r.epoch, r.operation_id, r.to_json())


def schema_row(schema_id: str, schema: Schema) -> tuple[Any, ...]:
    return (f"schema:{schema_id}", "schema", None, None, None, schema_to_json(schema))


def checksums_row(packed: Packed) -> tuple[Any, ...]:
    return (f"{CHECKSUMS}:{secrets.token_hex(8)}", CHECKSUMS, None, None, None, {"h": packed})


def manifest_schema() -> pa.Schema:
    import pyarrow as pa

    return pa.schema(
        [
            pa.field("object_id", pa.string(), nullable=False, metadata=PRIMARY_KEY),
            pa.field("kind", pa.string()),
            pa.field("inc", pa.string()),
            pa.field("epoch", pa.int64()),
            pa.field("name", pa.string()),
            pa.field("body", pa.large_string()),
        ],
        metadata={FORMAT_KEY: str(FORMAT)},
    )


def manifest_rows(rows: list[tuple[Any, ...]]) -> pa.Table:
    """Rows (object_id, kind, inc, epoch, name, body as JSON value) as an Arrow table of the manifest's shape."""
    import pyarrow as pa

    columns = list(zip(*rows, strict=True))
    columns[5] = tuple(orjson.dumps(body).decode() for body in columns[5])
    shape = manifest_schema()
    return pa.table([pa.array(c, f.type) for c, f in zip(columns, shape, strict=True)], schema=shape)


def bodies_of(table: LanceDataset, where: str) -> dict[str, dict[str, Any]]:
    """The bodies of these rows of one version of the manifest, by `object_id`."""
    with lance_api.reading("reading the manifest", decodes=True):
        rows = table.to_table(columns=["object_id", "body"], filter=where)
    by_id = dict(zip(rows["object_id"].to_pylist(), rows["body"].to_pylist(), strict=True))
    with form.reading("a row of the manifest"):
        return {key: dict(form.mapping(orjson.loads(form.text(body)))) for key, body in by_id.items()}
