"""Search terms and scores over bound rows: each entity is evaluated once, whatever the number of its rows."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pyarrow as pa

from omnigraph.language.query.terms import Bm25, Constant, Expression, Fused, Nearest, Parameter, Rank, Search
from omnigraph.query.execution.frame import NULL, Frame, factorize, ordinals, rowids
from omnigraph.query.execution.ranking import ranked
from omnigraph.query.execution.sorting import argsort_pairs
from omnigraph.query.limits import checkpoint
from omnigraph.query.search import texts as texts_of
from omnigraph.query.search.bm25 import bm25
from omnigraph.query.search.embed import embedded
from omnigraph.query.search.texts import matching
from omnigraph.query.search.vectors import distances
from omnigraph.query.search.words import plain_words, with_words, within_edits, words_of
from omnigraph.query.tables.source import Source
from omnigraph.query.tables.tables import Table

OfTable = Callable[[Table, np.ndarray], pa.Array]


class Searcher:
    def __init__(self, source: Source, params: Mapping[str, Any]) -> None:
        self.source = source
        self.params = params

    def _constant(self, e: Expression) -> Any:
        if isinstance(e, Parameter):
            return self.params[e.name]
        assert isinstance(e, Constant), e
        return e.value

    def _by_type(self, codes: np.ndarray, type_: pa.DataType, make: OfTable) -> pa.Array:
        """One value per code, computed table by table for the distinct entities; null for a null code."""
        distinct, numbers = factorize(codes)
        kinds = ordinals(distinct)
        parts = []
        for kind in factorize(kinds)[0].tolist():
            if kind == NULL:
                parts.append(pa.nulls(1, type_))
            else:
                parts.append(make(self.source.at(kind), rowids(distinct[kinds == kind])))
        # Codes are ordered by type first, so the parts are in their order.
        whole = pa.concat_arrays(parts) if parts else pa.nulls(0, type_)
        return (
            whole
            if len(whole) == len(codes) and len(distinct) == len(codes) and _is_range(numbers)
            else whole.take(pa.array(numbers))
        )

    # ---- conditions

    def matches(self, e: Search, codes: np.ndarray) -> pa.Array:
        query = self._constant(e.query)
        if query is None:
            return pa.nulls(len(codes), pa.bool_())
        edits = 0 if e.edits is None else int(self._constant(e.edits))
        column = e.property.name

        def make(table: Table, numbers: np.ndarray) -> pa.Array:
            texts = table.values([column], numbers)[column]
            if e.name == "fuzzy":
                hits = _fuzzy(texts, str(query), edits)
            else:
                kind: Any = e.name
                hits = matching(table, column, kind, str(query), numbers)
            return pa.array(hits, mask=np.asarray(texts.is_null()))

        return self._by_type(codes, pa.bool_(), make)

    # ---- scores

    def scores(self, e: Rank, frame: Frame, *, best: int | None = None) -> pa.Array:
        """One score per row. With `best`, scores of rows that are certainly not among the best may be less exact."""
        if isinstance(e, Fused):
            return self._fused(e, frame)
        codes = frame.columns[e.property.variable.slot]
        if isinstance(e, Bm25):
            query = self._constant(e.query)
            if query is None:
                return pa.nulls(len(codes), pa.float64())
            column = e.property.name
            return self._by_type(codes, pa.float64(), lambda t, n: bm25(t, column, str(query), n))
        return self._nearest(e, codes, best)

    def _nearest(self, e: Nearest, codes: np.ndarray, best: int | None) -> pa.Array:
        query = self._constant(e.query)
        if query is None:
            return pa.nulls(len(codes), pa.float64())
        column = e.property.name

        def make(table: Table, numbers: np.ndarray) -> pa.Array:
            if isinstance(query, str):
                provider = self.source.watch.options.provider
                vector = embedded(table, column, query, provider=provider)
            else:
                vector = np.asarray(query, dtype=np.float32)
            return distances(table, column, vector, numbers, best=best)

        return self._by_type(codes, pa.float64(), make)

    def _fused(self, e: Fused, frame: Frame) -> pa.Array:
        k = int(self._constant(e.k))
        total = np.zeros(frame.rows)
        for part in (e.left, e.right):
            codes = frame.columns[part.property.variable.slot]
            total += self._reciprocal(part, codes, self.scores(part, frame), k)
        return pa.array(total)

    def _reciprocal(self, part: Nearest | Bm25, codes: np.ndarray, scores: pa.Array, k: int) -> np.ndarray:
        """1 / (k + position among the entities that have a score, best first, ties by id); 0 for the others."""
        distinct, numbers = factorize(codes)
        values = np.full(len(distinct), np.nan)
        values[numbers] = np.asarray(scores.fill_null(np.nan))
        if isinstance(part, Bm25):
            values[values <= 0] = np.nan
            values = -values
        scored = np.flatnonzero(~np.isnan(values))
        by_score = ranked(pa.array(values[scored]))
        order = scored[argsort_pairs(by_score, self.source.ranks(distinct[scored]))]
        reciprocals = np.zeros(len(distinct))
        reciprocals[order] = 1.0 / (k + 1 + np.arange(len(order)))
        return np.asarray(reciprocals[numbers])


def _is_range(numbers: np.ndarray) -> bool:
    return bool((numbers[1:] > numbers[:-1]).all())


def _fuzzy(texts: pa.Array, query: str, edits: int) -> np.ndarray:
    """Texts in which every word of the query occurs, or a word at most `edits` edits away."""
    query_words = plain_words(query)
    if not query_words or len(texts) == 0:
        return np.zeros(len(texts), dtype=bool)
    if len(texts) > texts_of.TEXTS_MAX:
        starts = range(0, len(texts), texts_of.TEXTS_MAX)
        return np.concatenate([_fuzzy(texts.slice(start, texts_of.TEXTS_MAX), query, edits) for start in starts])
    checkpoint()
    words = words_of(texts)
    is_match = np.ones(len(texts), dtype=bool)
    for word in query_words:
        is_match &= with_words(words, within_edits(word, words.vocabulary, edits)) > 0
    return is_match
