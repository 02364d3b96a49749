"""The local provider: a small static model from an installed package. Offline, free, the same on every machine.

Vectors have unit length, as those of the other providers do.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from omnigraph.errors import EmbeddingFailed
from omnigraph.pipeline.embed.provider import Choice, checked

GROUP_MAX = 64
GROUP_CHARACTERS_MAX = 200_000
_IMPORTING = threading.Lock()


class LocalProvider:
    name = "local"

    def __init__(self, choice: Choice) -> None:
        self.model = choice.model
        self.dimensions = choice.dimensions
        self._choice = choice
        self._loaded = _model(choice.dimensions)

    def embed(self, texts: Sequence[str]) -> np.ndarray:
        sizes = np.array([len(t) for t in texts])
        vectors = np.empty((len(texts), self.dimensions), dtype=np.float32)
        for group in _groups(sizes):
            vectors[group] = self._loaded.embed([texts[i] for i in group], batch_size=len(group))
        lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
        vectors /= np.where(lengths > 0, lengths, 1)
        return checked(vectors, count=len(texts), choice=self._choice)


def _groups(sizes: np.ndarray) -> Iterator[np.ndarray]:
    """Groups of texts of similar length: the model pads a group to its longest text, and keeps all of it in memory."""
    order = np.argsort(sizes, kind="stable")[::-1]
    start = 0
    while start < len(order):
        longest = max(1, int(sizes[order[start]]))
        count = max(1, min(GROUP_MAX, GROUP_CHARACTERS_MAX // longest))
        yield order[start : start + count]
        start += count


@lru_cache(maxsize=3)
def _model(dimensions: int) -> Any:
    """Loading takes a quarter of a second, so a worker does it once."""
    try:
        package = _wordllama()
        return package.WordLlama.load(
            cache_dir=Path(package.__file__).parent,
            trunc_dim=None if dimensions == 256 else dimensions,
            disable_download=True,
        )
    except (ImportError, OSError) as error:
        detail = f"the model can't be loaded: {error}"
        raise EmbeddingFailed(provider="local", model="wordllama-l2-supercat", status=None, detail=detail) from error


def _wordllama() -> Any:
    """Import the package. It sets the level of the root logger to INFO, which is undone."""
    with _IMPORTING:
        root = logging.getLogger()
        level, handlers = root.level, list(root.handlers)
        try:
            import wordllama
        finally:
            root.setLevel(level)
            root.handlers[:] = handlers
        return wordllama
