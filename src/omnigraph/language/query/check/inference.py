"""The node types that both ends of a traversal can have, and the direction in which each edge is crossed.

An edge is crossed as it is declared if the types of both ends allow that, otherwise backwards if they allow that. A
traversal of one hop decides for each of its edge types; one of several hops for all of them at once. An end whose type
is not known yet gets the remaining types.

Types are only ever removed, so repeating this over all traversals of a block until nothing changes terminates.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from omnigraph.language.query.check.context import Context
from omnigraph.language.query.syntax.tree import EdgeWord, Traversal
from omnigraph.language.query.terms import Entity
from omnigraph.language.schema.model import EdgeType

Direction = Literal["out", "in", "both"]
Types = tuple[Entity, ...]


@dataclass(frozen=True, slots=True)
class Crossing:
    """An edge type, crossed in a direction."""

    edge: EdgeType
    direction: Direction

    @property
    def starts(self) -> str:
        return self.edge.target if self.direction == "in" else self.edge.source

    @property
    def ends(self) -> str:
        return self.edge.source if self.direction == "in" else self.edge.target


@dataclass(frozen=True, slots=True)
class Fit:
    """`never`: the bounds require more hops than the types allow, so there is never a row."""

    crossings: tuple[Crossing, ...]
    sources: Types
    targets: Types
    never: bool = False


def check_traversal(context: Context, t: Traversal) -> None:
    """Check the bounds, also for an edge variable and for paths; no edge type twice. Raises T4, T15, T23, T27."""
    bounds = t.bounds
    if bounds is not None:
        if bounds.minimum < 1:
            raise context.fail("T15", bounds.place, "A traversal has at least one hop.")
        if bounds.maximum is not None and bounds.maximum < bounds.minimum:
            detail = f"The most hops ({bounds.maximum}) are fewer than the least ({bounds.minimum})."
            raise context.fail("T15", bounds.place, detail)
    if t.edge is not None and bounds is not None and (bounds.minimum, bounds.maximum) != (1, 1):
        raise context.fail("T23", t.edge.place, f"${t.edge.name} is one edge; a traversal of several hops has many.")
    if t.path is not None and not t.shortest and bounds is not None and bounds.maximum is None:
        detail = "Without a maximum there can be too many paths; give one, or write path $p = shortest …"
        raise context.fail("T27", bounds.place, detail)
    words = [w.name.lower() for w in t.edges]
    repeated = next((w for i, w in enumerate(t.edges) if w.name.lower() in words[:i]), None)
    if repeated is not None:
        raise context.fail("T4", repeated.place, f"The edge {repeated.name} is named twice.")


def fit(context: Context, t: Traversal, sources: Types | None, targets: Types | None) -> Fit:
    """The directions and end types of a traversal. None stands for an end of unknown types. Raises T4, T5, T22."""
    words = [(word, context.edge_named(word.name, word.place)) for word in t.edges]
    low, high = (1, 1) if t.bounds is None else (t.bounds.minimum, t.bounds.maximum)
    if t.undirected:
        for word, edge in words:
            if edge.source != edge.target:
                ends = f"{edge.name} leads from {edge.source} to {edge.target}"
                detail = f"{ends}; only an edge within one type can be crossed without a direction."
                raise context.fail("T22", word.place, detail)
        options = [tuple(Crossing(edge, "both") for _, edge in words)]
    elif high == 1:
        options = [tuple(_one_hop(context, word, edge, sources, targets, t) for word, edge in words)]
    else:
        options = [tuple(Crossing(edge, d) for _, edge in words) for d in ("out", "in")]
    for crossings in options:
        fitted = _ends(context, crossings, sources, targets, low, high)
        if fitted is not None:
            return fitted
    for crossings in options:
        fitted = _ends(context, crossings, sources, targets, 1, 1)
        if fitted is not None:
            return Fit(fitted.crossings, fitted.sources, fitted.targets, never=True)
    raise _mismatch(context, words[0][0], words[0][1], sources, targets, t)


def _one_hop(
    context: Context, word: EdgeWord, edge: EdgeType, sources: Types | None, targets: Types | None, t: Traversal
) -> Crossing:
    directions: Sequence[Direction] = ("out", "in")
    for direction in directions:
        crossing = Crossing(edge, direction)
        if _allows(sources, crossing.starts) and _allows(targets, crossing.ends):
            return crossing
    raise _mismatch(context, word, edge, sources, targets, t)


def _allows(types: Types | None, name: str) -> bool:
    return types is None or any(e.name == name for e in types)


def _ends(
    context: Context,
    crossings: Sequence[Crossing],
    sources: Types | None,
    targets: Types | None,
    low: int,
    high: int | None,
) -> Fit | None:
    names = _unique(c.starts for c in crossings) if sources is None else [e.name for e in sources]
    start_names: list[str] = []
    reached: dict[str, None] = {}
    for name in names:
        end_names = [n for n in _reach(name, crossings, low, high) if _allows(targets, n)]
        if end_names:
            start_names.append(name)
            reached.update(dict.fromkeys(end_names))
    if not start_names:
        return None
    order = reached if targets is None else [e.name for e in targets if e.name in reached]
    return Fit(tuple(crossings), tuple(map(context.node, start_names)), tuple(map(context.node, order)))


def _reach(start: str, crossings: Sequence[Crossing], low: int, high: int | None) -> list[str]:
    """The types that can be reached in low to high hops.

    The set of types at each hop depends only on the previous one, so the sets form a cycle, which is walked once.
    """
    sets = [frozenset([start])]
    while sets[-1] and sets[-1] not in sets[:-1]:
        sets.append(frozenset(c.ends for c in crossings if c.starts in sets[-1]))
    first = sets.index(sets[-1])
    cycle = max(len(sets) - 1 - first, 1)

    def types_at(hop: int) -> frozenset[str]:
        return sets[hop] if hop < first else sets[first + (hop - first) % cycle]

    last = low + first + cycle if high is None else min(high, low + first + cycle)
    reached = frozenset().union(*(types_at(hop) for hop in range(low, last + 1)))
    return _unique(c.ends for c in crossings if c.ends in reached)


def _unique(names: Iterable[str]) -> list[str]:
    return list(dict.fromkeys(names))


def _mismatch(
    context: Context, word: EdgeWord, edge: EdgeType, sources: Types | None, targets: Types | None, t: Traversal
) -> Exception:
    parts = []
    for variable, types in ((t.source, sources), (t.target, targets)):
        if types is not None:
            shown = " or ".join(e.name for e in types) or "nothing"
            parts.append(f"{'$' + variable.name} is {shown}")
    detail = f"{word.name} leads from {edge.source} to {edge.target}, but {' and '.join(parts)}."
    return context.fail("T5", word.place, detail)
