"""Providers turn texts into vectors. One small interface; providers are chosen by name.

| name   | models                                    | needs                                                      |
|--------|-------------------------------------------|------------------------------------------------------------|
| local  | wordllama-l2-supercat, 64, 128, 256 wide  | nothing: the model is in an installed package              |
| openai | any that the endpoint has                 | OPENAI_API_KEY; OPENAI_BASE_URL for a compatible endpoint  |
| gemini | any that Google has                       | GEMINI_API_KEY                                             |

Every worker creates its provider from a `Choice`, which is small and has no secret: keys come from the environment of
the process that makes the request, and are never sent to workers.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Protocol

import numpy as np

from omnigraph.errors import EmbeddingFailed, EmbeddingKeyMissing, EmbeddingMismatch, UsageError

DEFAULT = "local"


@dataclass(frozen=True)
class Choice:
    """Provider, model, dimensions, and texts per request. Part of tasks."""

    name: str
    model: str
    dimensions: int
    batch: int

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


class Provider(Protocol):
    name: str
    model: str
    dimensions: int

    def embed(self, texts: Sequence[str]) -> np.ndarray:
        """A float32 array of shape (texts, dimensions), all finite. Raises EmbeddingFailed."""
        ...


@dataclass(frozen=True)
class Kind:
    """The properties of a provider. `key` is the environment variable with its secret, if it has one."""

    make: Callable[[Choice], Provider]
    model: str
    batch: int
    batch_max: int
    key: str | None = None
    only_model: bool = False
    dimensions: tuple[int, ...] | None = None
    """The supported numbers of dimensions; None: those of its model."""


def _local(choice: Choice) -> Provider:
    from omnigraph.pipeline.embed.local import LocalProvider

    return LocalProvider(choice)


def _openai(choice: Choice) -> Provider:
    from omnigraph.pipeline.embed.openai import OpenAIProvider

    return OpenAIProvider(choice)


def _gemini(choice: Choice) -> Provider:
    from omnigraph.pipeline.embed.gemini import GeminiProvider

    return GeminiProvider(choice)


KINDS = {
    "local": Kind(_local, "wordllama-l2-supercat", 1024, 65_536, only_model=True, dimensions=(64, 128, 256)),
    "openai": Kind(_openai, "text-embedding-3-small", 128, 2048, key="OPENAI_API_KEY"),
    "gemini": Kind(_gemini, "gemini-embedding-001", 100, 100, key="GEMINI_API_KEY"),
}


def choose(
    name: str | None, *, model: str | None, declared: str | None, dimensions: int, batch: int | None, column: str
) -> Choice:
    """The provider for one column, checked: `declared` is the model of `@embed`, `model` that of the caller."""
    kind = kind_of(name or DEFAULT)
    if model is not None and declared is not None and model != declared:
        detail = f"@embed declares the model {declared}, and {model} was requested"
        raise EmbeddingMismatch(column=column, provider=name or DEFAULT, detail=detail)
    chosen_model = model or declared or kind.model
    if kind.only_model and chosen_model != kind.model:
        detail = f"it needs the model {chosen_model}, and this provider has {kind.model} only"
        raise EmbeddingMismatch(column=column, provider=name or DEFAULT, detail=detail)
    if kind.dimensions is not None and dimensions not in kind.dimensions:
        dimensions_text = ", ".join(map(str, kind.dimensions))
        detail = f"it is declared as Vector({dimensions}), and this provider gives {dimensions_text} dimensions"
        raise EmbeddingMismatch(column=column, provider=name or DEFAULT, detail=detail)
    if batch is not None and not 1 <= batch <= kind.batch_max:
        raise UsageError(detail=f"{name or DEFAULT} takes 1 to {kind.batch_max} texts at a time, not {batch}.")
    return Choice(name or DEFAULT, chosen_model, dimensions, batch or kind.batch)


def kind_of(name: str) -> Kind:
    if name not in KINDS:
        raise UsageError(detail=f"there is no embedding provider {name!r}; there are {', '.join(sorted(KINDS))}.")
    return KINDS[name]


def make(choice: Choice) -> Provider:
    """The provider itself, in this process. EmbeddingKeyMissing if its key is not in the environment."""
    kind = kind_of(choice.name)
    if kind.key is not None:
        key_of(choice.name)
    return kind.make(choice)


def key_of(name: str) -> str:
    variable = kind_of(name).key
    assert variable is not None
    value = os.environ.get(variable, "").strip()
    if not value:
        raise EmbeddingKeyMissing(provider=name, variable=variable)
    return value


def checked(vectors: Any, *, count: int, choice: Choice) -> np.ndarray:
    """A provider's vectors as float32; refused unless they are `count` finite vectors of the chosen length."""

    def refuse(detail: str) -> EmbeddingFailed:
        return EmbeddingFailed(provider=choice.name, model=choice.model, status=None, detail=detail)

    if len(vectors) != count:
        raise refuse(f"it answered {len(vectors)} vectors to {count} texts")
    try:
        lengths = {len(v) for v in vectors}
    except TypeError as error:
        raise refuse("its vectors are not lists of numbers") from error
    if lengths - {choice.dimensions}:
        wrong = min(lengths - {choice.dimensions})
        detail = f"its vectors have {wrong} dimensions, and {choice.dimensions} are declared"
        raise EmbeddingMismatch(column=None, provider=choice.name, detail=detail)
    try:
        with np.errstate(over="ignore"):
            array = np.asarray(vectors, dtype=np.float32)
    except (TypeError, ValueError) as error:
        raise refuse("its vectors are not numbers") from error
    if array.shape != (count, choice.dimensions) or not np.isfinite(array).all():
        raise refuse("its vectors hold values that are not finite numbers")
    return array
