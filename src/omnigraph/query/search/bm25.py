"""Scores of full text: Okapi BM25, computed from the rows only.

    score = sum over the words of the query that occur: idf * tf * (k1 + 1) / (tf + k1 * (1 - b + b * length / 100))
    idf   = ln(1 + (N - df + 0.5) / (df + 0.5))

N is the number of rows of the table and df the number of rows with the word, whatever conditions the query has. Lance's
analyser decides which words are the same. Lengths are relative to a text of 100 words: so the score of a row depends on
its own text and on the frequency of the words, not on the segments of an index, and reading one row is enough to score
it.
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
from omnigraph.storage.lance.memory_tables import TEXT, text_table

K1, B, LENGTH = 1.2, 0.75, 100.0


def bm25(table: Table, column: str, query: str, numbers: np.ndarray) -> pa.Array:
    """One score per row: null without a text, 0 if no word occurs."""
    texts = table.values([column], numbers)[column]
    scores = np.zeros(len(numbers))
    terms = _terms(query)
    if terms and len(numbers):
        hits = [_rows(table, column, term) for term in terms]
        has_term = np.zeros(len(numbers), dtype=bool)
        inside = [member(numbers, h) for h in hits]
        for mask in inside:
            has_term |= mask
        positions = np.flatnonzero(has_term)
        for start in range(0, len(positions), texts_of.TEXTS_MAX):
            checkpoint()
            chunk = positions[start : start + texts_of.TEXTS_MAX]
            scores[chunk] = _scored(texts.take(pa.array(chunk)), terms, [m[chunk] for m in inside], hits, table.rows)
    return pa.array(scores, mask=np.asarray(texts.is_null()))


@lru_cache(maxsize=256)
def _terms(query: str) -> tuple[str, ...]:
    """The words of the query without stop words, one of each set that the analyser takes for the same."""
    words = plain_words(query)
    if not words:
        return ()
    table = text_table(pa.array(words, pa.string()))
    terms: list[str] = []
    seen: set[int] = set()
    for i, word in enumerate(words):
        matches = _hits(table, TEXT, "search", word).tolist()
        if matches and i not in seen:
            terms.append(word)
        seen.update(matches)
    return tuple(terms)


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
    for term, mask, term_rows in zip(terms, inside, hits, strict=True):
        is_same = np.zeros(len(words.vocabulary), dtype=bool)
        is_same[_hits(vocabulary, TEXT, "search", term)] = True
        # If words are split differently here, the row still has the word according to the index.
        count = np.where(mask, np.maximum(with_words(words, is_same), 1), 0)
        rarity = np.log(1 + (rows - len(term_rows) + 0.5) / (len(term_rows) + 0.5))
        total += rarity * count * (K1 + 1) / (count + norm)
    return total
