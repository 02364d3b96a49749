"""Tables in memory, as long as a reference exists: texts that Lance is to analyse and search as it does on disk.

They belong to no graph; nothing of them is ever written anywhere.
"""

from __future__ import annotations

import secrets
from typing import TYPE_CHECKING

import pyarrow as pa

from omnigraph.storage.lance import lance_api

if TYPE_CHECKING:
    from lance import LanceDataset

TEXT = "text"


def text_table(texts: pa.Array) -> LanceDataset:
    """A table of these texts with a full-text index like those of graphs; row i has the number i as `_rowid`."""
    with lance_api.reading("indexing texts in memory"):
        table = lance_api._lance().write_dataset(
            pa.table({TEXT: texts.cast(pa.string())}), f"memory://{secrets.token_hex(8)}", max_rows_per_file=1 << 30
        )
        table.create_scalar_index(TEXT, "INVERTED", with_position=True)
    return table
