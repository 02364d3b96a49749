"""Writes that come between the preparation and the publication of optimize."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import omnigraph as og
from omnigraph.maintenance.optimize.prepare import Preparation
from tests.support.exchanged_vectors import exchange_vectors as exchange_vectors

POSTS = 'node Post { name: String @key  text: String?  vec: Vector(8)? @embed("text") @index }'


AS_IT_IS = {"target_rows_per_fragment": 2}
"""Fragments of two rows are full then: there is only work for indices."""


def meanwhile(patch: pytest.MonkeyPatch, act: Callable[[], object]) -> None:
    """`act` comes once, when all is prepared and nothing is committed."""
    run, acts = Preparation.run, iter([act])

    def raced(self: Any, *args: Any, **options: Any) -> Any:
        late = run(self, *args, **options)
        for once in acts:
            once()
        return late

    patch.setattr(Preparation, "run", raced)


def posts(path: Path, fragments: int, rows: int, **options: Any) -> og.Graph:
    """`fragments` of so many rows each, with vectors."""
    graph = og.init(path, POSTS, **options)
    for first in range(0, fragments * rows, rows):
        numbers = range(first, first + rows)
        graph.insert({"Post": [{"name": f"p{i}", "text": f"text {i}", "vec": [1.0 + i] * 7 + [1.0]} for i in numbers]})
    return graph


def is_exchanged(vector: list[float]) -> bool:
    return vector[0] == 1.0 and vector[1] >= 2.0
