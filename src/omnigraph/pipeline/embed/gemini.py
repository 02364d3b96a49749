"""The provider `gemini`: Google's `batchEmbedContents`. GEMINI_API_KEY is the key; GEMINI_BASE_URL another host.

Shortened Gemini vectors do not have unit length; they are normalised here, so that distances are comparable.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any
from urllib.parse import quote

import numpy as np

from omnigraph.errors import EmbeddingFailed
from omnigraph.pipeline.embed.http import answer_bytes_max, post
from omnigraph.pipeline.embed.provider import Choice, checked, key_of

BASE_URL = "https://generativelanguage.googleapis.com"


class GeminiProvider:
    name = "gemini"

    def __init__(self, choice: Choice) -> None:
        self.model = choice.model
        self.dimensions = choice.dimensions
        self._choice = choice
        self._key = key_of(self.name)
        base = (os.environ.get("GEMINI_BASE_URL") or BASE_URL).rstrip("/")
        self._url = f"{base}/v1beta/models/{quote(self.model, safe='')}:batchEmbedContents"

    def embed(self, texts: Sequence[str]) -> np.ndarray:
        request = {
            "model": f"models/{self.model}",
            "taskType": "RETRIEVAL_DOCUMENT",
            "outputDimensionality": self.dimensions,
        }
        body = {"requests": [{**request, "content": {"parts": [{"text": text}]}} for text in texts]}
        # In a header and not in the URL, which proxies write into their logs.
        answer = post(
            self._url,
            body,
            headers={"x-goog-api-key": self._key},
            secret=self._key,
            provider=self,
            bytes_max=answer_bytes_max(texts=len(texts), dimensions=self.dimensions),
        )
        vectors = checked(self._vectors(answer), count=len(texts), choice=self._choice)
        lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
        return np.asarray(vectors / np.where(lengths > 0, lengths, 1), dtype=np.float32)

    def _vectors(self, answer: Any) -> list[Any]:
        try:
            return [item["values"] for item in answer["embeddings"]]
        except (KeyError, TypeError) as error:
            detail = "its answer is no list of embeddings"
            raise EmbeddingFailed(provider=self.name, model=self.model, status=None, detail=detail) from error
