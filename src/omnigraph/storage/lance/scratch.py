"""Small tables in memory, gone with their handle: to ask Lance itself what it would answer about some rows."""

from __future__ import annotations

import secrets
from typing import TYPE_CHECKING, Any

from omnigraph.storage.lance import lance_api

if TYPE_CHECKING:
    import pyarrow as pa
    from lance import LanceDataset


def memory_index(rows: pa.Table, column: str, kind: str, **settings: Any) -> LanceDataset:
    """A table of these rows with one scalar or text index, made from nothing but them."""
    lance_api.operations()  # imports Lance as this package wants it
    import lance

    table = lance.write_dataset(rows, f"memory://omnigraph-{secrets.token_hex(8)}")
    table.create_scalar_index(column, kind, **settings)
    return table
