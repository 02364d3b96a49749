"""Filtered scans of one table at its pin: chosen columns, a filter in Lance's SQL, some of its fragments.

Batches come in the table's own order and have the logical columns: blobs as bytes, vectors as fixed-size lists. A
filter that Lance refuses, when planning or at a row, is the caller's mistake and raises InvalidFilter; other
failures are those of the store.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from omnigraph.errors import InvalidFilter
from omnigraph.language.schema.model import EntityType
from omnigraph.storage.files.blob_values import blob_columns, require_own_blobs
from omnigraph.storage.files.footers import require_index_footers
from omnigraph.storage.lance import tables as tables_of
from omnigraph.storage.lance.columns import arrow_schema

if TYPE_CHECKING:
    from lance import LanceDataset

BATCH_ROWS = 16_384
BATCH_ROWS_BLOBS = 1_024
_REFUSED = re.compile(r"^Invalid user input|applying filter expression")
_NOISE = (
    re.compile(r",\s*/[^\s,]+\.rs:\d+:\d+"),
    re.compile(r"^(Invalid user input: |External error: |Query Execution error: )+"),
    re.compile(
        r"Error (parsing statement|resolving filter expression|optimizing sql filter): .*?(?=\(|Invalid user)", re.S
    ),
    re.compile(r"Error applying filter expression to batch: "),
    re.compile(r"Invalid user input: |LanceError\(\w+\): "),
)


def scan(
    table: LanceDataset,
    t: EntityType,
    columns: Sequence[str],
    *,
    where: str | None = None,
    shown: str | None = None,
    limit: int | None = None,
    fragments: Sequence[int] | None = None,
) -> pa.RecordBatchReader:
    """Rows as record batches. `shown` is the filter as its author wrote it; with it, the filter is tried at once."""
    shape = pa.schema([arrow_schema(t).field(c).with_nullable(True) for c in columns])
    has_blobs = bool(blob_columns(t, columns))
    options: dict[str, Any] = {"blob_handling": "all_binary"} if has_blobs else {}
    if fragments is not None:
        if not fragments:  # Lance takes an empty list for all of them
            return pa.RecordBatchReader.from_batches(shape, [])
        options["fragments"] = [table.get_fragment(number) for number in fragments]
    with tables_of.reading(table, t), _filtering(t, shown):
        if where is not None:
            require_index_footers(table, where)
        scanner = table.scanner(
            columns=list(columns),
            filter=where,
            limit=limit,
            batch_size=BATCH_ROWS_BLOBS if has_blobs else BATCH_ROWS,
            **options,
        )
        if shown is not None:
            scanner.explain_plan()

    def batches() -> Iterator[pa.RecordBatch]:
        with tables_of.reading(table, t), _filtering(t, shown):
            require_own_blobs(table, t, columns, where=where, fragments=options.get("fragments"))
            for batch in scanner.to_batches():
                yield from pa.table(batch).select(shape.names).cast(shape).to_batches()

    return pa.RecordBatchReader.from_batches(shape, batches())


@contextmanager
def _filtering(t: EntityType, shown: str | None) -> Iterator[None]:
    try:
        yield
    except ValueError as error:
        if shown is None or not _REFUSED.search(str(error)):
            raise
        raise InvalidFilter(filter=shown, table_key=t.key, detail=_reason(str(error))) from error


def _reason(text: str) -> str:
    for pattern in _NOISE:
        text = pattern.sub("", text)
    text = text.strip()
    return text[1:-1] if text.startswith("(") and text.endswith(")") else text
