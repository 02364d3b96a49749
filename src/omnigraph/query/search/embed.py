"""Texts compared with vectors: embedded by the model that made the property's vectors, or refused.

1. model     the one that `@embed` declares, else the one that the marks of the vectors name, else the default
2. provider  the one in the options, else the one of that model
3. check     if marks exist and none is of that model, the vectors can't be compared: EmbeddingMismatch
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from omnigraph.errors import EmbeddingMismatch, UsageError
from omnigraph.pipeline.embed.provider import DEFAULT, KINDS, Choice, choose, make
from omnigraph.query.tables.tables import StoredTable, Table
from omnigraph.storage.lance.embedding_marks import mark_column, model_digest, pairs_of, source_of


def embedded(table: Table, column: str, text: str, *, provider: str | None) -> np.ndarray:
    """The vector of a text, comparable with those of the column."""
    choice = choice_for(table, column, provider=provider)
    cache = table.stored.cache if table.stored is not None else None
    key = ("embedded", choice, text)
    cached = cache.get(key) if cache is not None else None
    if isinstance(cached, np.ndarray):
        return cached
    vector = np.asarray(make(choice).embed([text])[0])
    if cache is not None:
        cache.put(key, vector, vector.nbytes)
    return vector


def choice_for(table: Table, column: str, *, provider: str | None) -> Choice:
    p = table.type.by_name[column]
    name = f"{table.type.key}.{column}"
    annotation = p.annotation("embed")
    if annotation is None or source_of(p) is None or p.type.dimension is None:
        detail = f'{name} is not declared with @embed("source"): compare it with a vector, not with a text.'
        raise UsageError(detail=detail)
    declared = annotation.option("model")
    models = _models(table, mark_column(p))
    model = None if declared is None else str(declared)
    if model is None:
        model = next((k.model for k in KINDS.values() if model_digest(k.model) in models), None)
    kind = provider or next((n for n, k in KINDS.items() if model is not None and k.model == model), DEFAULT)
    choice = choose(kind, model=None, declared=model, dimensions=p.type.dimension, batch=None, column=name)
    if models and model_digest(choice.model) not in models:
        detail = f"its vectors were made by another model than {choice.model}"
        raise EmbeddingMismatch(column=name, provider=choice.name, detail=detail)
    return choice


def _models(table: Table, mark: str) -> frozenset[bytes]:
    """Digests of the models that made vectors of this column."""
    stored = table.stored
    if stored is None or mark not in stored.dataset.schema.names:
        return frozenset()

    def make_() -> tuple[frozenset[bytes], int]:
        digests = frozenset(_digests(stored, mark))
        return digests, 256

    return stored.cache.get_or_make((*stored.key, "models", mark), make_)


def _digests(stored: StoredTable, mark: str) -> Iterator[bytes]:
    pairs = pairs_of(stored.whole([mark])[mark])
    for digest in np.unique(pairs[:, 0]).tolist():
        if digest:
            yield np.array([digest], dtype="<u8").tobytes()
