"""Full text: which rows a query's words or phrase occur in. Whatever the state of the index, the rows are the same.

Lance analyses texts (words in lower case, without accents, stemmed, without stop words) and answers from its index.
Three things are not left to it:

1. rows that no index segment covers are searched in a table in memory with an index of its own, because without an
   index Lance analyses texts differently
2. what an index says of rows that have moved to a fragment it does not cover is old, and is left out
3. nothing is said of rows that are not asked for: where these are few, only they are looked at
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
from omnigraph.storage.lance.memory import TEXT, text_table

if TYPE_CHECKING:
    from lance import LanceDataset

Kind = Literal["search", "match_text"]
FEW_ROWS = 512
"""So few rows are looked at themselves, whatever is indexed."""
TEXTS_MAX = 50_000
"""So many texts are indexed or cut into words between two looks at the limits."""


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
    """With the place of its first text."""

    @staticmethod
    def of(texts: pa.Array) -> IndexedTexts:
        found = []
        for start in range(0, len(texts), TEXTS_MAX):
            checkpoint()
            some = texts.slice(start, TEXTS_MAX)
            if some.null_count < len(some):
                found.append((start, text_table(some)))
        return IndexedTexts(tuple(found))

    def hits(self, kind: Kind, query: str) -> np.ndarray:
        """The places of the texts that the query matches, in order."""
        found = [np.empty(0, dtype=np.int64)]
        for start, table in self.tables:
            checkpoint()
            found.append(_hits(table, TEXT, kind, query) + start)
        return np.concatenate(found)


def matching(table: Table, column: str, kind: Kind, query: str, numbers: np.ndarray) -> np.ndarray:
    """Which of these rows the query matches."""
    stored = table.stored
    if stored is None or len(numbers) <= FEW_ROWS:
        return _looked_at(table.values([column], numbers)[column], column, kind, query)
    rest = uncovered(stored, column)
    if rest.is_all and len(numbers) * 4 < len(rest.rowids):
        return _looked_at(table.values([column], numbers)[column], column, kind, query)
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
    found = np.concatenate(parts) if parts else np.empty(0, dtype=np.int64)
    return np.sort(found)


def uncovered(table: StoredTable, column: str) -> Uncovered:
    def make() -> tuple[Uncovered, int]:
        found = _uncovered(table, column)
        size = found.rowids.nbytes
        if found.texts.tables:
            # Texts, their index and room for both.
            size += 4 * table.text_bytes
        return found, size

    return table.cache.made((*table.key, "uncovered", column), make)


def _uncovered(table: StoredTable, column: str) -> Uncovered:
    indices = [i for i in built_indices(table.dataset) if i.kind == "INVERTED" and i.column == column]
    covered = frozenset().union(*(i.covered for i in indices)) if indices else frozenset()
    fragments = table.dataset.get_fragments()
    open_ = [f for f in fragments if f.fragment_id not in covered]
    is_all = len(open_) == len(fragments)
    if not open_:
        return Uncovered(np.empty(0, dtype=np.int64), IndexedTexts(()), False)
    with tables_of.reading(table.dataset, table.type):
        options: dict[str, Any] = {} if is_all else {"fragments": open_}
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


def _looked_at(texts: pa.Array, column: str, kind: Kind, query: str) -> np.ndarray:
    found = np.zeros(len(texts), dtype=bool)
    found[IndexedTexts.of(texts).hits(kind, query)] = True
    return found


def _hits(table: LanceDataset, column: str, kind: Kind, query: str, *, indexed_only: bool = False) -> np.ndarray:
    from lance.query import FullTextOperator, MatchQuery, PhraseQuery

    asked = (
        PhraseQuery(query, column) if kind == "match_text" else MatchQuery(query, column, operator=FullTextOperator.AND)
    )
    scanner = table.scanner(columns=[], with_row_id=True, full_text_query=asked, fast_search=indexed_only)
    found = np.asarray(flat(scanner.to_table()["_rowid"])).astype(np.int64)
    return np.sort(found)
