"""Conflicts of a schema merge, as values, and the elements that its caller has to compare with rows.

| kind                          | meaning                                                                          |
|-------------------------------|----------------------------------------------------------------------------------|
| `schema_divergent_rename`     | both sides renamed an element, differently                                       |
| `schema_divergent_type`       | two types would have one name, or one type is two on the other side              |
| `schema_divergent_property`   | the same for properties of a type                                                |
| `schema_divergent_definition` | both sides changed an attribute differently, or the result would break a rule    |
| `schema_dropped_type`         | dropped on one side; changed, or connected by an edge type, on the other         |
| `schema_dropped_property`     | dropped on one side; changed, or used by a constraint or @embed, on the other    |
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TypeVar

from omnigraph.language.schema.merge.threeway import Three
from omnigraph.language.schema.model import EdgeType, EntityType, InterfaceType, NodeType, Property, Schema
from omnigraph.language.schema.syntax.show import render_property, render_type

T = TypeVar("T", bound=NodeType | EdgeType)
Texts = tuple[str | None, str | None, str | None]


@dataclass(frozen=True)
class SchemaConflict:
    """`entity` is `<type kind>:<type>[.<property>]`; base, ours and theirs are definitions as schema text."""

    kind: str
    entity: str
    base: str | None
    ours: str | None
    theirs: str | None
    message: str
    table_key: str


@dataclass
class Findings:
    """Conflicts and dropped elements of a schema merge. Elements that theirs dropped have ours' ids, and vice versa."""

    base: Schema
    ours: Schema
    theirs: Schema
    conflicts: list[SchemaConflict] = field(default_factory=list)
    dropped_types: list[str] = field(default_factory=list)
    dropped_properties: list[tuple[str, str]] = field(default_factory=list)
    missing_types: list[str] = field(default_factory=list)
    missing_properties: list[tuple[str, str]] = field(default_factory=list)
    required_properties: list[tuple[str, str]] = field(default_factory=list)
    undecided: set[str] = field(default_factory=set)
    """Keys of types and properties whose name or removal is a conflict; consequences of it are not reported again."""

    def add(self, kind: str, entity: str, texts: Texts, message: str) -> None:
        table_key = entity.partition(".")[0]
        self.conflicts.append(SchemaConflict(kind, entity, *texts, message, table_key))

    def about_type(self, kind: str, three: Three[T], message: str) -> None:
        self.add(kind, three.present.key, self.texts(*three.versions), message)

    def about_property(self, kind: str, owner: Three[T], three: Three[Property], message: str) -> None:
        texts = tuple(
            None if p is None or t is None else render_property(p, t.constraints)
            for p, t in zip(three.versions, owner.versions, strict=True)
        )
        base, ours, theirs = texts
        self.add(kind, f"{owner.present.key}.{three.present.name}", (base, ours, theirs), message)

    def texts(
        self,
        base: EntityType | InterfaceType | None,
        ours: EntityType | InterfaceType | None,
        theirs: EntityType | InterfaceType | None,
    ) -> Texts:
        return (
            None if base is None else render_type(base, self.base),
            None if ours is None else render_type(ours, self.ours),
            None if theirs is None else render_type(theirs, self.theirs),
        )
