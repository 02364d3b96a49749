"""Reads the entries of a BTREE index from its files: the rows to which they point."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from omnigraph.storage.layout import Location

if TYPE_CHECKING:
    import numpy as np

BATCH_ENTRIES = 1 << 20


def btree_rows(location: Location, folder: str) -> Iterator[np.ndarray]:
    """The row ids or addresses of a BTREE segment's entries, in the order of their values.

    `folder` is the segment's, relative to the graph.
    """
    import numpy as np
    from lance.file import LanceFileReader

    path = location.join(folder, "page_data.lance")
    reader = LanceFileReader(path, storage_options=location.lance_options, columns=["ids"])
    for batch in reader.read_all(batch_size=BATCH_ENTRIES).to_batches():
        yield np.asarray(batch.column("ids"), dtype=np.uint64)
