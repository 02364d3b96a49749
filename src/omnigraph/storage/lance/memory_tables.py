"""Small indexed tables in memory, freed with their last reference: Lance answers about their rows as it does on disk.

They belong to no graph, and nothing of them is written anywhere.
"""

from __future__ import annotations

import secrets
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from omnigraph.storage.lance import lance_api

if TYPE_CHECKING:
    from lance import LanceDataset

TEXT = "text"


def memory_index(rows: pa.Table, column: str, kind: str, **settings: Any) -> LanceDataset:
    """A table of these rows with one scalar or full-text index; row i has the number i as `_rowid`."""
    table = lance_api._lance().write_dataset(
        rows, f"memory://omnigraph-{secrets.token_hex(8)}", max_rows_per_file=1 << 30
    )
    table.create_scalar_index(column, kind, **settings)
    return table


def text_table(texts: pa.Array) -> LanceDataset:
    """A table of these texts, in the column `TEXT`, with a full-text index like those of graphs."""
    with lance_api.reading("indexing texts in memory"):
        return memory_index(pa.table({TEXT: texts.cast(pa.string())}), TEXT, "INVERTED", with_position=True)
