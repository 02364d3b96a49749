"""@card(min..max): how many edges of a type may start at one source node."""

from __future__ import annotations

import numpy as np

from omnigraph.language.schema.model import EdgeType
from omnigraph.rules.problem import Problem, entity_text


def is_bounded(e: EdgeType) -> bool:
    """Whether the type limits the number of edges per source at all."""
    return e.card_min > 0 or e.card_max is not None


def beyond_limit(sources: np.ndarray, room: np.ndarray) -> np.ndarray:
    """Which edges of a write are too many: of the edges of each source, in their order, those behind the first `room`.

    `sources` numbers the source of each edge; `room` says per source how many edges it may still take.
    """
    order = np.argsort(sources, kind="stable")
    begins = np.r_[True, sources[order][1:] != sources[order][:-1]]
    first = np.maximum.accumulate(np.where(begins, np.arange(len(order)), 0))
    rank = np.empty(len(order), dtype=np.int64)
    rank[order] = np.arange(len(order)) - first
    return np.asarray(rank >= room[sources])


def too_many_edges(e: EdgeType, source_id: object, count: int) -> Problem:
    """Of an edge beyond the limit."""
    return _problem(e, source_id, count, f"at most {e.card_max} allowed", "from")


def too_few_edges(e: EdgeType, source_id: object, count: int, *, of_node: bool = False) -> Problem:
    """Of a new node (`of_node`), or of an edge that moved away or is removed."""
    return _problem(e, source_id, count, f"at least {e.card_min} needed", None if of_node else "from")


def _problem(e: EdgeType, source_id: object, count: int, limit: str, field: str | None) -> Problem:
    return Problem("cardinality", f"{entity_text(e.source, source_id)} has {count} {e.name} edges, {limit}", field)
