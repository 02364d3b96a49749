"""What a version of a table says of itself, without reading data: its fragments, their row ids, its settings."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from omnigraph.storage.lance import lance_api

if TYPE_CHECKING:
    from lance import LanceDataset, Transaction

AUTO_CLEANUP = "lance.auto_cleanup."
"""Settings that make every commit of any client collect old versions."""
DELETED_SHARE = 0.1
"""A fragment of which more is deleted is worth a rewrite."""


@dataclass(frozen=True)
class Fragment:
    """`rows` live ones, `deleted` ones that are marked, and the bytes of the data files, with the blobs beside them
    where these were asked for.
    """

    id: int
    rows: int
    deleted: int
    size_bytes: int


def fragments_of(table: LanceDataset, beside: Mapping[str, int] | None = None) -> list[Fragment]:
    """The fragments in the table's order. `beside` are bytes of blobs by data file (`storage/files/blob_files.py`)."""
    fragments = []
    for fragment in table.get_fragments():
        about = fragment.metadata
        deleted = int(about.num_deletions)
        size = sum(file.file_size_bytes or 0 for file in about.files)
        if beside:
            size += sum(beside.get(file.path, 0) for file in about.files)
        fragments.append(Fragment(int(about.id), int(about.physical_rows) - deleted, deleted, int(size)))
    return fragments


def blobs_of(table: LanceDataset, beside: Mapping[str, int]) -> int:
    """Bytes of the blobs beside the data files of this version."""
    if not beside:
        return 0
    return sum(beside.get(file.path, 0) for fragment in table.get_fragments() for file in fragment.metadata.files)


@dataclass(frozen=True)
class Span:
    """Row ids from `low` to `high`; `is_dense` if none between them is missing."""

    low: int
    high: int
    is_dense: bool


class RowIds:
    """The stable row ids of a table's fragments, also of rows that are deleted there. Spans are remembered."""

    def __init__(self, table: LanceDataset) -> None:
        self._table = table
        self._spans: dict[int, Span | None] = {}

    def row_ids(self, fragment: int) -> np.ndarray:
        """In no particular order."""
        from lance.fragment import RowIdSequence

        lance_fragment = self._table.get_fragment(fragment)
        meta = lance_fragment.metadata.row_id_meta
        with lance_api.reading(f"reading row ids of {self._table.uri}"):
            if meta is not None and "Inline" in lance_fragment.metadata.to_json()["row_id_meta"]:
                return np.asarray(RowIdSequence.from_inline_metadata(meta).to_pyarrow(), dtype=np.uint64)
            # A long list of scattered ids lies in a file of its own; deleted rows show there with their ids as well.
            rows = lance_fragment.scanner(columns=[], with_row_id=True, include_deleted_rows=True).to_table()
        return np.asarray(rows["_rowid"].drop_null().to_numpy(), dtype=np.uint64)

    def span(self, fragment: int) -> Span | None:
        """None if the fragment has no rows."""
        if fragment not in self._spans:
            ids = self.row_ids(fragment)
            self._spans[fragment] = None
            if len(ids):
                low, high = int(ids.min()), int(ids.max())
                self._spans[fragment] = Span(low, high, is_dense=high - low + 1 == len(ids))
        return self._spans[fragment]


def lowest_created(table: LanceDataset, fragment: int) -> int:
    """The lowest version of the table in which a live row of the fragment was created."""
    import pyarrow.compute as pc

    with lance_api.reading(f"reading row versions of {table.uri}"):
        versions = table.get_fragment(fragment).scanner(columns=["_row_created_at_version"]).to_table()
    return int(pc.min(versions["_row_created_at_version"]).as_py() or 0)


def stale_settings(table: LanceDataset) -> tuple[str, ...]:
    """Keys of the table's config that make Lance collect versions by itself."""
    return tuple(sorted(key for key in table.config() if key.startswith(AUTO_CLEANUP)))


def unset(table: LanceDataset, keys: Iterable[str]) -> Transaction:
    op = lance_api.operations()
    update = op.UpdateConfig(config_updates=op.UpdateMap(dict.fromkeys(keys)))
    return lance_api.transaction(update, read_version=table.version)
