"""Which elements of two schemas of one graph are the same: they share an id or an alias.

Two branches may add the same type or property, each under an id of its own. A merge keeps the id of its target and
records the other as an alias, so that later merges and comparisons between the branches still match the two.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeVar, overload

from omnigraph.language.schema.model import EdgeType, EntityType, NodeType, Property, Schema

E = TypeVar("E", NodeType, EdgeType, Property)
Element = NodeType | EdgeType | Property


def identifiers(element: Element) -> tuple[str, ...]:
    """The id and the aliases; empty for an element of a schema that was only parsed."""
    return (element.id, *element.aliases) if element.id else element.aliases


def same_element(a: Element, b: Element) -> bool:
    return not set(identifiers(a)).isdisjoint(identifiers(b))


@overload
def counterpart(element: NodeType, within: Schema) -> NodeType | None: ...
@overload
def counterpart(element: EdgeType, within: Schema) -> EdgeType | None: ...
@overload
def counterpart(element: Property, within: EntityType) -> Property | None: ...
def counterpart(element: Element, within: Schema | EntityType) -> Element | None:
    """The same type in another schema, or the same property in another type; an equal id takes precedence over an
    alias.
    """
    if isinstance(element, Property):
        assert not isinstance(within, Schema), "a property has its counterpart in a type"
        return _counterpart(element, within.properties)
    assert isinstance(within, Schema), "a type has its counterpart in a schema"
    if isinstance(element, NodeType):
        return _counterpart(element, within.nodes)
    return _counterpart(element, within.edges)


def _counterpart(element: E, candidates: Iterable[E]) -> E | None:
    matches = [c for c in candidates if same_element(element, c)]
    return next((c for c in matches if c.id == element.id), matches[0] if matches else None)
