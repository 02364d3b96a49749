"""Full text: the rows that contain a query's words or phrase. The result does not depend on the state of the index.

Lance analyses texts (words in lower case, without accents, stemmed, without stop words) and answers from its index.
Three cases are handled here:

1. rows that no index segment covers are searched in a table in memory with an index of its own, because without an
   index Lance analyses texts differently
2. index entries of rows that have moved to a fragment that it does not cover are stale, and are left out
3. where only few rows are asked for, only their texts are searched
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import pyarrow as pa

from omnigraph.query.execution.frame import member
from omnigraph.query.execution.sorting import argsort
from omnigraph.query.limits import checkpoint, reserve
from omnigraph.query.tables.tables import StoredTable, Table, flat
from omnigraph.storage.files.footers import require_index_footers
from omnigraph.storage.lance import tables as tables_of
from omnigraph.storage.lance.indices import built_indices
from omnigraph.storage.lance.memory_tables import TEXT, text_table

if TYPE_CHECKING:
    from lance import LanceDataset

Kind = Literal["search", "match_text"]
FEW_ROWS = 512
"""The texts of up to this many rows are searched directly, whatever is indexed."""
TEXTS_MAX = 50_000
"""Max texts that are indexed or split into words between two checks of the limits."""


@dataclass(frozen=True, eq=False)
class Uncovered:
    """The rows of a version that no segment covers: their ids in order, and their texts in memory."""

    rowids: np.ndarray
    texts: IndexedTexts
    is_all: bool


@dataclass(frozen=True, eq=False)
class IndexedTexts:
    """Texts in tables in memory, `TEXTS_MAX` in each, since Lance indexes a table in one call."""

    tables: tuple[tuple[int, LanceDataset], ...]
    """Each with the position of its first text."""

    @staticmethod
    def of(texts: pa.Array) -> IndexedTexts:
        tables = []
        for start in range(0, len(texts), TEXTS_MAX):
            checkpoint()
            part = texts.slice(start, TEXTS_MAX)
            if part.null_count < len(part):
                tables.append((start, text_table(part)))
        return IndexedTexts(tuple(tables))

    def hits(self, kind: Kind, query: str) -> np.ndarray:
        """The positions of the texts that the query matches, in order."""
        parts = [np.empty(0, dtype=np.int64)]
        for start, table in self.tables:
            checkpoint()
            parts.append(_hits(table, TEXT, kind, query) + start)
        return np.concatenate(parts)


def matching(table: Table, column: str, kind: Kind, query: str, numbers: np.ndarray) -> np.ndarray:
    """Which of these rows the query matches."""
    stored = table.stored
    if stored is None or len(numbers) <= FEW_ROWS:
        return _search_texts(table.values([column], numbers)[column], column, kind, query)
    rest = uncovered(stored, column)
    if rest.is_all and len(numbers) * 4 < len(rest.rowids):
        return _search_texts(table.values([column], numbers)[column], column, kind, query)
    return member(numbers, all_matching(stored, column, kind, query))


def all_matching(table: StoredTable, column: str, kind: Kind, query: str) -> np.ndarray:
    """The ids of all rows that the query matches, in order."""
    rest = uncovered(table, column)
    parts = []
    if rest.texts.tables:
        table.watch.use("texts in memory")
        parts.append(rest.rowids[rest.texts.hits(kind, query)])
    if not rest.is_all:
        table.watch.use(f"{column}_inverted")
        with tables_of.reading(table.dataset, table.type):
            require_index_footers(table.dataset, column)
            hits = _hits(table.dataset, column, kind, query, indexed_only=True)
        parts.append(hits[~member(hits, rest.rowids)])
    rowids = np.concatenate(parts) if parts else np.empty(0, dtype=np.int64)
    return np.sort(rowids)


def uncovered(table: StoredTable, column: str) -> Uncovered:
    def make() -> tuple[Uncovered, int]:
        rows_uncovered = _uncovered(table, column)
        size = rows_uncovered.rowids.nbytes
        if rows_uncovered.texts.tables:
            # The texts, their index, and temporary copies of both.
            size += 4 * table.text_bytes
        return rows_uncovered, size

    return table.cache.get_or_make((*table.key, "uncovered", column), make)


def _uncovered(table: StoredTable, column: str) -> Uncovered:
    indices = [i for i in built_indices(table.dataset) if i.kind == "INVERTED" and i.column == column]
    covered = frozenset().union(*(i.covered for i in indices)) if indices else frozenset()
    fragments = table.dataset.get_fragments()
    open_fragments = [f for f in fragments if f.fragment_id not in covered]
    is_all = len(open_fragments) == len(fragments)
    if not open_fragments:
        return Uncovered(np.empty(0, dtype=np.int64), IndexedTexts(()), False)
    with tables_of.reading(table.dataset, table.type):
        options: dict[str, Any] = {} if is_all else {"fragments": open_fragments}
        scanner = table.dataset.scanner(columns=[column], with_row_id=True, **options)
        batches, held_bytes = [], 0
        for batch in scanner.to_batches():
            batches.append(batch)
            held_bytes += batch.nbytes
            reserve(held_bytes)
        rows = pa.Table.from_batches(batches, schema=scanner.projected_schema)
    rowids = np.asarray(flat(rows["_rowid"])).astype(np.int64)
    order = argsort(rowids)
    texts = flat(rows[column]).take(pa.array(order))
    table.text_bytes = texts.nbytes
    return Uncovered(rowids[order], IndexedTexts.of(texts), is_all)


def _search_texts(texts: pa.Array, column: str, kind: Kind, query: str) -> np.ndarray:
    is_match = np.zeros(len(texts), dtype=bool)
    is_match[IndexedTexts.of(texts).hits(kind, query)] = True
    return is_match


def _hits(table: LanceDataset, column: str, kind: Kind, query: str, *, indexed_only: bool = False) -> np.ndarray:
    from lance.query import FullTextOperator, MatchQuery, PhraseQuery

    text_query = (
        PhraseQuery(query, column) if kind == "match_text" else MatchQuery(query, column, operator=FullTextOperator.AND)
    )
    scanner = table.scanner(columns=[], with_row_id=True, full_text_query=text_query, fast_search=indexed_only)
    rowids = np.asarray(flat(scanner.to_table()["_rowid"])).astype(np.int64)
    return np.sort(rowids)
