"""Scenes of maintenance: graphs that time has worn, what is done for them, and what the oracle expects then.

Maintenance changes no row. What it does change is said in the state as well (`jobs.read_state`): the graph commit, per
index the number of rows that it does not cover, and which tables wait for a remap; so a coverage between old and new is
a third state. Whether every index answers what a scan answers is part of each check.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Sequence
from typing import Any
from unittest.mock import patch

from tests.faults.scenes import SCHEMA, Place, State, committed

WORN = ("Person", "Company")
EMBEDDED = SCHEMA.replace("text: String?", 'text: String?  vector: Vector(4)? @embed("text")')
TEXTS = {"first": "one", "second": "two", "third": None}


# ---- starts ----------------------------------------------------------------------------------------------------------


def create_worn(place: Place) -> None:
    """Indices that cover an older part of two tables; since then rows came, changed and went, a few at a time."""
    with place.init(SCHEMA) as graph:
        _wear(graph)


def create_worn_branch(place: Place) -> None:
    """The same, seen from a branch that inherits every table."""
    create_worn(place)
    with place.open() as graph:
        graph.create_branch("review")


def create_by_address(place: Place) -> None:
    """Small fragments under indices that cover them all, in a graph whose rows are known by their addresses."""
    with place.init(SCHEMA, row_ids="address") as graph:
        _wear(graph)
        graph.optimize(target_rows_per_fragment=2, engine="local")


def create_deferred(place: Place) -> None:
    """The same after a compaction that left the indices alone."""
    create_by_address(place)
    with place.open() as graph:
        graph.optimize(defer_index_remap=True, engine="local")


def create_with_texts(place: Place) -> None:
    """Texts without vectors in two fragments, beside one that has nothing to embed."""
    with place.init(EMBEDDED) as graph:
        for title, text in TEXTS.items():
            graph.insert({"Note": [{"title": title, "text": text}]})


def _wear(graph: Any) -> None:
    people = [{"name": name, "age": 30 + i} for i, name in enumerate(("anna", "ben", "cleo", "dan"))]
    graph.insert({"Person": people, "Company": [{"name": "acme", "city": "Bern"}, {"name": "bolt"}]})
    graph.optimize(engine="local")
    graph.upsert({"Person": [{"name": "ben", "age": 41}, {"name": "eva"}], "Company": [{"name": "core"}]})
    graph.insert({"Person": [{"name": "finn", "age": 20}], "Company": [{"name": "dune", "city": "Chur"}]})
    graph.delete({"Person": ["cleo"], "Company": ["bolt"]})


# ---- runs ------------------------------------------------------------------------------------------------------------


def optimize(**options: Any) -> Callable[[Any], object]:
    """One task at a time, so that requests have an order. A table that failed makes the run fail."""

    def act(graph: Any) -> None:
        from omnigraph.errors import StorageError

        os.environ["OMNIGRAPH_THREADS"] = "1"
        result = graph.optimize(engine="local", **options)
        if not result.ok:
            told = "; ".join(f"{t.table_key}: {t.error}" for t in result.tables if t.error)
            raise StorageError(doing="optimizing", detail=told)

    return act


def maintain(graph: Any) -> None:
    """All steps. What the others could not do is told and changes nothing that is published; optimize may not fail.

    Cleanup leaves what optimize has made, so that the oracle can count it.
    """
    from omnigraph.errors import StorageError

    os.environ["OMNIGRAPH_THREADS"] = "1"
    result = graph.maintain(keep=3, confirm=True, engine="local")
    step = result.step("optimize")
    if not step.ok:
        raise StorageError(doing="optimizing", detail="; ".join((step.summary, *step.notes)))


def embed(graph: Any) -> None:
    """With a provider that needs no model: the fault is in the store, not in the vectors."""
    from omnigraph.pipeline.embed import provider

    os.environ["OMNIGRAPH_THREADS"] = "1"
    with patch.dict(provider.KINDS, tiny=provider.Kind(_Tiny, "tiny", 16, 16)):
        graph.embed(provider="tiny", engine="local")


class _Tiny:
    """A vector that says how long its text is."""

    name = model = "tiny"

    def __init__(self, choice: Any) -> None:
        self.dimensions = choice.dimensions

    def embed(self, texts: Any) -> Any:
        import numpy as np

        return np.array([tiny_vector(text, self.dimensions) for text in texts], dtype=np.float32)


def tiny_vector(text: str, dimensions: int = 4) -> list[float]:
    return [float(len(text) + i) for i in range(dimensions)]


# ---- changes: what the oracle expects --------------------------------------------------------------------------------


def optimized(state: State, *, tables: Sequence[str] = WORN, branch: str = "main") -> None:
    """No row changes; every index of these tables covers every row."""
    for table in tables:
        indices = state[branch]["indices"][table]
        indices.update(dict.fromkeys(indices, 0))
    committed(state, branch=branch)


def covered(state: State, *, branch: str = "main") -> None:
    """What came while the verb was stopped on its way to its commit is covered, too, by that commit."""
    for indices in state[branch]["indices"].values():
        indices.update(dict.fromkeys(indices, 0))


def covered_apart(state: State, *, branch: str = "main") -> None:
    """The same, where what nobody had touched was published first, and the other table after it."""
    covered(state, branch=branch)
    committed(state, branch=branch)


CAUGHT_UP = (covered, covered_apart)
CAUGHT_UP_ON_REVIEW = tuple(functools.partial(change, branch="review") for change in CAUGHT_UP)


def optimized_review(state: State, *, tables: Sequence[str] = WORN) -> None:
    optimized(state, tables=tables, branch="review")


def compacted(state: State, *, tables: Sequence[str] = WORN) -> None:
    """Rows have moved, and the indices of their tables have not been told."""
    state["main"]["deferred"] = list(tables)
    committed(state)


def drained(state: State, *, tables: Sequence[str] = WORN) -> None:
    left = [table for table in state["main"].pop("deferred") if table not in tables]
    state["main"] |= {"deferred": left} if left else {}
    optimized(state, tables=tables)


def embedded(state: State) -> None:
    for row in state["main"]["rows"]["Note"]:
        row["vector"] = None if row["text"] is None else tiny_vector(row["text"])
    committed(state)
