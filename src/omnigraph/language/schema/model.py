"""The model of a schema: frozen values, names as the user wrote them, stable ids if it is accepted.

A parsed schema has empty ids. `plan` gives every type and property of an accepted schema an id that survives renames
and is never reused. Ids are 12 characters that sort by the time of creation; a type's id starts with `n` or `e`.
`aliases` are ids of the same element on other branches: a merge of two branches that both added it keeps one id and
records the other (`identity`).

`id` of a node and `id`, `src`, `dst` of an edge are physical columns, not properties. Interfaces are stored as
declared; the nodes that implement them have the interface's properties themselves, before their own.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import Literal

Literal_ = str | int | float | bool

SCALARS = ("String", "Blob", "Bool", "I32", "I64", "U32", "U64", "F32", "F64", "DateTime", "Date")
INTEGERS = ("I32", "I64", "U32", "U64")
NUMBERS = (*INTEGERS, "F32", "F64")
CONSTRAINTS = ("key", "unique", "index", "range", "check")
EDGE_COLUMNS = ("id", "src", "dst")
VECTOR_DIMENSION_MAX = 2**31 - 1
RESERVED_PROPERTIES = ("_rowid", "_rowaddr", "_rowoffset", "_row_created_at_version", "_row_last_updated_at_version")


@dataclass(frozen=True)
class PropertyType:
    """`kind` is one of SCALARS, or "Enum", "Vector", "List". `item` is the scalar of a list."""

    kind: str
    item: str | None = None
    values: tuple[str, ...] = ()
    dimension: int | None = None

    def __str__(self) -> str:
        if self.kind == "List":
            return f"[{self.item}]"
        if self.kind == "Enum":
            return f"enum({', '.join(self.values)})"
        if self.kind == "Vector":
            return f"Vector({self.dimension})"
        return self.kind


@dataclass(frozen=True)
class Annotation:
    """`@name`, `@name(argument)` or `@name(argument, key=value, …)`, kept as written, known or not."""

    name: str
    argument: Literal_ | None = None
    options: tuple[tuple[str, Literal_], ...] = ()

    def option(self, key: str) -> Literal_ | None:
        return dict(self.options).get(key)


@dataclass(frozen=True)
class Property:
    name: str
    type: PropertyType
    nullable: bool = False
    annotations: tuple[Annotation, ...] = ()
    id: str = ""
    aliases: tuple[str, ...] = ()

    def annotation(self, name: str) -> Annotation | None:
        return next((a for a in self.annotations if a.name == name), None)

    @property
    def default(self) -> Literal_ | None:
        """The literal of `@default(…)`."""
        annotation = self.annotation("default")
        return None if annotation is None else annotation.argument


@dataclass(frozen=True)
class Constraint:
    """A constraint of a type, whether written in the body or on a property: `kind` over `properties`.

    `low` and `high` are the bounds of a range (inclusive), `pattern` the regular expression of a check.
    """

    kind: Literal["key", "unique", "index", "range", "check"]
    properties: tuple[str, ...]
    low: int | float | None = None
    high: int | float | None = None
    pattern: str | None = None


@dataclass(frozen=True)
class InterfaceType:
    name: str
    properties: tuple[Property, ...] = ()


@dataclass(frozen=True)
class NodeType:
    name: str
    properties: tuple[Property, ...] = ()
    constraints: tuple[Constraint, ...] = ()
    implements: tuple[str, ...] = ()
    annotations: tuple[Annotation, ...] = ()
    id: str = ""
    aliases: tuple[str, ...] = ()

    kind: Literal["node"] = field(default="node", init=False)

    @property
    def key(self) -> str:
        return f"node:{self.name}"

    @cached_property
    def by_name(self) -> dict[str, Property]:
        return {p.name: p for p in self.properties}

    @cached_property
    def key_properties(self) -> tuple[str, ...]:
        """Members of @key, in the order of their stable ids (in declaration order if there are no ids yet)."""
        for c in self.constraints:
            if c.kind == "key":
                order = {p.name: (p.id, i) for i, p in enumerate(self.properties)}
                return tuple(sorted(c.properties, key=order.__getitem__))
        return ()


@dataclass(frozen=True)
class EdgeType:
    name: str
    source: str
    target: str
    properties: tuple[Property, ...] = ()
    constraints: tuple[Constraint, ...] = ()
    card_min: int = 0
    card_max: int | None = None
    annotations: tuple[Annotation, ...] = ()
    id: str = ""
    aliases: tuple[str, ...] = ()

    kind: Literal["edge"] = field(default="edge", init=False)

    @property
    def key(self) -> str:
        return f"edge:{self.name}"

    @cached_property
    def by_name(self) -> dict[str, Property]:
        return {p.name: p for p in self.properties}

    @property
    def key_properties(self) -> tuple[str, ...]:
        return ()


EntityType = NodeType | EdgeType


@dataclass(frozen=True)
class Schema:
    """All declarations, in the order of the file. `source` is the text that was parsed."""

    interfaces: tuple[InterfaceType, ...] = ()
    nodes: tuple[NodeType, ...] = ()
    edges: tuple[EdgeType, ...] = ()
    source: str = ""

    @cached_property
    def node(self) -> dict[str, NodeType]:
        return {n.name: n for n in self.nodes}

    @cached_property
    def edge(self) -> dict[str, EdgeType]:
        return {e.name: e for e in self.edges}

    @cached_property
    def by_id(self) -> dict[str, EntityType]:
        return {t.id: t for t in self.types()}

    def types(self) -> Iterator[EntityType]:
        """Node types, then edge types."""
        yield from self.nodes
        yield from self.edges

    def incident_edges(self, node: str) -> tuple[EdgeType, ...]:
        """The edge types that start or end at a node type."""
        return tuple(e for e in self.edges if node in (e.source, e.target))
