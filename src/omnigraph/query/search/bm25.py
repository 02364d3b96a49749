"""Scores of full text: Okapi BM25, computed from what the rows hold and nothing else.

    score = sum over the words of the query that occur: idf * tf * (k1 + 1) / (tf + k1 * (1 - b + b * length / 100))
    idf   = ln(1 + (N - df + 0.5) / (df + 0.5))

N are the rows of the table and df those that have the word, whatever conditions the query has. Words are the same if
Lance's analyser says so. Lengths are compared with a text of 100 words: so the score of a row hangs on its own text and
on how rare the words are, not on how an index is cut into segments, and reading one row is enough to score it.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

import numpy as np
import pyarrow as pa

from omnigraph.query.execution.frame import member
from omnigraph.query.limits import checkpoint
from omnigraph.query.search import texts as texts_of
from omnigraph.query.search.texts import IndexedTexts, _hits, all_matching
from omnigraph.query.search.words import plain_words, with_words, words_of
from omnigraph.query.tables.tables import StoredTable, Table
from omnigraph.storage.lance.memory import TEXT, text_table

K1, B, LENGTH = 1.2, 0.75, 100.0


def bm25(table: Table, column: str, query: str, numbers: np.ndarray) -> pa.Array:
    """One score per row: null without a text, 0 if no word occurs."""
    texts = table.values([column], numbers)[column]
    scores = np.zeros(len(numbers))
    terms = _terms(query)
    if terms and len(numbers):
        hits = [_rows(table, column, term) for term in terms]
        some = np.zeros(len(numbers), dtype=bool)
        inside = [member(numbers, h) for h in hits]
        for mask in inside:
            some |= mask
        places = np.flatnonzero(some)
        for start in range(0, len(places), texts_of.TEXTS_MAX):
            checkpoint()
            at = places[start : start + texts_of.TEXTS_MAX]
            scores[at] = _scored(texts.take(pa.array(at)), terms, [m[at] for m in inside], hits, table.rows)
    return pa.array(scores, mask=np.asarray(texts.is_null()))


@lru_cache(maxsize=256)
def _terms(query: str) -> tuple[str, ...]:
    """The words of the query, one of those that mean the same, without stop words."""
    words = plain_words(query)
    if not words:
        return ()
    table = text_table(pa.array(words, pa.string()))
    kept: list[str] = []
    taken: set[int] = set()
    for i, word in enumerate(words):
        same = _hits(table, TEXT, "search", word).tolist()
        if same and i not in taken:
            kept.append(word)
        taken.update(same)
    return tuple(kept)


def _rows(table: Table, column: str, term: str) -> np.ndarray:
    stored = table.stored
    if isinstance(stored, StoredTable):
        return all_matching(stored, column, "search", term)
    numbers = table.scan()
    return IndexedTexts.of(table.values([column], numbers)[column]).hits("search", term)


def _scored(
    texts: pa.Array, terms: Sequence[str], inside: list[np.ndarray], hits: list[np.ndarray], rows: int
) -> np.ndarray:
    words = words_of(texts)
    vocabulary = text_table(words.vocabulary)
    total = np.zeros(len(texts))
    norm = K1 * (1 - B + B * words.lengths / LENGTH)
    for term, mask, found in zip(terms, inside, hits, strict=True):
        same = np.zeros(len(words.vocabulary), dtype=bool)
        same[_hits(vocabulary, TEXT, "search", term)] = True
        # Where words are cut differently the row has the word all the same: its index says so.
        count = np.where(mask, np.maximum(with_words(words, same), 1), 0)
        rarity = np.log(1 + (rows - len(found) + 0.5) / (len(found) + 0.5))
        total += rarity * count * (K1 + 1) / (count + norm)
    return total
