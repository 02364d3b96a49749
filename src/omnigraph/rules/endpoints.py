"""Endpoints: every edge has both its nodes, and no node is removed under an edge that stays."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from omnigraph.language.schema.model import EdgeType
from omnigraph.rules.problem import Problem, entity_text


class End(NamedTuple):
    """One end of an edge type: its column, the field by which rows give it, and the name of its node type."""

    column: str
    field: str
    node: str


def ends(e: EdgeType) -> tuple[End, End]:
    """Source and target."""
    return End("src", "from", e.source), End("dst", "to", e.target)


def invalid_endpoint(field: str, problem: Problem) -> Problem:
    """The id of a node is no text; `problem` says why."""
    return Problem("endpoint", problem.message).on(field)


def ambiguous_endpoint(names: Sequence[str]) -> Problem:
    """A row gives one end by two fields, with different ids."""
    return Problem("endpoint", f"{' and '.join(names)} name two different nodes")


def missing_node(end: End, node_id: object) -> Problem:
    return Problem("endpoint", f"there is no {entity_text(end.node, node_id)}").on(end.field)


def rejected_node(end: End, node_id: object, where: str | None) -> Problem:
    """The node is in the same input and was rejected; `where` is its line, if it has one."""
    place = "" if where is None else f" ({where})"
    return Problem("endpoint", f"{entity_text(end.node, node_id)} was rejected{place}").on(end.field)


def removed_node(end: End, node_id: object) -> Problem:
    """The write removes a node and keeps an edge to it."""
    return Problem("endpoint", f"the write removes {entity_text(end.node, node_id)} and keeps this edge").on(end.field)
