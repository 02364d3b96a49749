"""The provider `openai`: OpenAI's embeddings endpoint, and others with the same protocol.

OPENAI_API_KEY is the key, OPENAI_BASE_URL the endpoint up to and including `/v1`. The requested number of dimensions is
sent only to models that support it; for all models the length of the vectors is checked.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

import numpy as np

from omnigraph.errors import EmbeddingFailed
from omnigraph.pipeline.embed.http import answer_bytes_max, post
from omnigraph.pipeline.embed.provider import Choice, checked, key_of

BASE_URL = "https://api.openai.com/v1"


class OpenAIProvider:
    name = "openai"

    def __init__(self, choice: Choice) -> None:
        self.model = choice.model
        self.dimensions = choice.dimensions
        self._choice = choice
        self._key = key_of(self.name)
        self._url = (os.environ.get("OPENAI_BASE_URL") or BASE_URL).rstrip("/") + "/embeddings"

    def embed(self, texts: Sequence[str]) -> np.ndarray:
        body: dict[str, Any] = {"model": self.model, "input": list(texts), "encoding_format": "float"}
        if self.model.startswith("text-embedding-3"):
            body["dimensions"] = self.dimensions
        answer = post(
            self._url,
            body,
            headers={"Authorization": f"Bearer {self._key}"},
            secret=self._key,
            provider=self,
            bytes_max=answer_bytes_max(texts=len(texts), dimensions=self.dimensions),
        )
        return checked(self._vectors(answer), count=len(texts), choice=self._choice)

    def _vectors(self, answer: Any) -> list[Any]:
        try:
            # `index` says which text a vector belongs to; the order of the list is not guaranteed.
            items = sorted(answer["data"], key=lambda item: item["index"])
            if [item["index"] for item in items] != list(range(len(items))):
                raise ValueError("index")
            return [item["embedding"] for item in items]
        except (KeyError, TypeError, ValueError) as error:
            detail = "its answer is no list of embeddings"
            raise EmbeddingFailed(provider=self.name, model=self.model, status=None, detail=detail) from error
