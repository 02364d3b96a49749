"""The state that all parts of the checker share: the schema, the parameters, the scopes of variables, and errors."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Literal

from omnigraph.errors import QueryCheckError
from omnigraph.language.query.syntax.tree import Query
from omnigraph.language.query.terms import Entity, Parameter, Property, Variable
from omnigraph.language.query.types import STRING, Type, of_property
from omnigraph.language.schema.model import EdgeType, EntityType, NodeType, Schema
from omnigraph.language.schema.source import Place, did_you_mean

EDGE_ENDS = {"from": "src", "src": "src", "@src": "src", "to": "dst", "dst": "dst", "@dst": "dst"}


@dataclass
class Scope:
    """Variables by name, including those of the enclosing blocks. A block never changes an enclosing scope."""

    outer: Scope | None = None
    names: dict[str, Variable] = field(default_factory=dict)

    def find(self, name: str) -> Variable | None:
        scope: Scope | None = self
        while scope is not None:
            if name in scope.names:
                return scope.names[name]
            scope = scope.outer
        return None

    def until(self, outer: Scope) -> dict[str, Variable]:
        """The variables that the scopes inside of this outer one bind; an inner variable hides an outer one of its
        name.
        """
        merged: dict[str, Variable] = {}
        scope: Scope | None = self
        while scope is not None and scope is not outer:
            merged = scope.names | merged
            scope = scope.outer
        return merged

    def all_names(self) -> Iterator[str]:
        yield from (name for name in self.names if " " not in name)
        if self.outer is not None:
            yield from self.outer.all_names()


@dataclass(frozen=True)
class Note:
    place: Place
    message: str
    suggestion: str | None = None


class Context:
    """`notes` are places that pass the check and that lint warns of."""

    def __init__(self, query: Query, schema: Schema) -> None:
        self.query = query
        self.schema = schema
        self.parameters = {p.name: Parameter(p.name, of_property(p.type, p.nullable)) for p in query.parameters}
        self.used_parameters: set[str] = set()
        self.reads: set[Entity] = set()
        self.writes: set[Entity] = set()
        self.notes: list[Note] = []
        self._bound: dict[int, tuple[Entity, ...]] = {}
        self._edges = {e.name.lower(): e for e in schema.edges}

    def fail(
        self, code: str, place: Place, detail: str, *, word: str = "", known: Iterable[str] = ()
    ) -> QueryCheckError:
        """The error to raise; with `word`, the message suggests a similar word of `known`."""
        hint, suggestion = _hinted(word, known)
        return self.query.text.reject(code, place, detail + hint, self.query.name, suggestion)

    def note(self, place: Place, detail: str, *, word: str = "", known: Iterable[str] = ()) -> None:
        """As fail, but only adds a note."""
        hint, suggestion = _hinted(word, known)
        self.notes.append(Note(place, detail + hint, suggestion))

    # ---- types of the schema

    def entity(self, t: EntityType) -> Entity:
        return Entity(t.kind, t.name, t.id)

    def type_of(self, entity: Entity) -> EntityType:
        return self.schema.node[entity.name] if entity.kind == "node" else self.schema.edge[entity.name]

    def nodes_named(self, name: str, place: Place) -> tuple[Entity, ...]:
        """A node type, or all that implement an interface."""
        if name in self.schema.node:
            return (self.entity(self.schema.node[name]),)
        if any(i.name == name for i in self.schema.interfaces):
            return tuple(self.entity(n) for n in self.schema.nodes if name in n.implements)
        if name in self.schema.edge:
            word = name[0].lower() + name[1:]
            detail = f"{name} is an edge type; a traversal binds it, as in $a $e:{word} $b."
            raise self.fail("T1", place, detail)
        known = [*self.schema.node, *(i.name for i in self.schema.interfaces)]
        raise self.fail("T1", place, f"There is no node type {name}.", word=name, known=known)

    def edge_named(self, word: str, place: Place) -> EdgeType:
        edge = self._edges.get(word.lower())
        if edge is None:
            known = [e.name[0].lower() + e.name[1:] for e in self.schema.edges]
            raise self.fail("T4", place, f"There is no edge {word}.", word=word, known=known)
        return edge

    def node(self, name: str) -> Entity:
        return self.entity(self.schema.node[name])

    # ---- variables and their properties

    def variable(
        self,
        name: str,
        kind: Literal["node", "edge", "path", "row"],
        types: tuple[Entity, ...] = (),
        nullable: bool = False,
    ) -> Variable:
        slot = len(self._bound) + 1
        self._bound[slot] = types
        return Variable(name, slot, kind, types, nullable)

    def property(self, variable: Variable, name: str, place: Place, code: str = "T6") -> Property:
        """A column of all types of the variable; `code` is the error for a name that one of its types lacks."""
        common_type: Type | None = None
        ids: list[tuple[str, str]] = []
        column = name
        for entity in variable.types:
            t = self.type_of(entity)
            column, type_, property_id = self._column(t, name, place, code, variable)
            if common_type is not None and common_type.null() != type_.null():
                detail = f"{name} is {common_type} in one type of ${variable.name} and {type_} in another."
                raise self.fail(code, place, detail)
            common_type = type_ if common_type is None else common_type.null(common_type.nullable or type_.nullable)
            ids.append((entity.id, property_id))
        if common_type is None:
            raise self.fail(code, place, f"No node type implements what ${variable.name} is, so it has no {name}.")
        self._check_outside(variable, name, common_type, place, code)
        nullable = common_type.nullable or variable.nullable
        return Property(variable, column, common_type.null(nullable), tuple(ids))

    def _check_outside(self, v: Variable, name: str, inner_type: Type, place: Place, code: str) -> None:
        """Refuse different types of a property outside of a block that narrows a variable: rows of the other types are
        read before they are dropped.
        """
        for entity in self._bound.get(v.slot, ()):
            p = None if entity in v.types else self.type_of(entity).by_name.get(name)
            other = inner_type if p is None else of_property(p.type, p.nullable)
            if other.null() != inner_type.null() and not (other.is_text and inner_type.is_text):
                detail = (
                    f"{name} is {other.null(False)} in {entity.name}, another type that ${v.name} can have outside."
                )
                raise self.fail(code, place, f"Here {name} is {inner_type.null(False)}, but {detail}")

    def _column(self, t: EntityType, name: str, place: Place, code: str, v: Variable) -> tuple[str, Type, str]:
        p = t.by_name.get(name)
        if p is not None:
            return name, of_property(p.type, p.nullable), p.id
        if name in ("id", "@id"):
            return "id", STRING, ""
        if name == "@type":
            return "@type", STRING, ""
        if t.kind == "edge" and name in EDGE_ENDS:
            return EDGE_ENDS[name], STRING, ""
        of = "" if len(v.types) == 1 else f", one of the types of ${v.name},"
        raise self.fail(code, place, f"{t.name}{of} has no property {name}.", word=name, known=self.columns_of(t))

    def columns_of(self, t: EntityType) -> list[str]:
        return [*t.by_name, "id"] if isinstance(t, NodeType) else [*t.by_name, "id", "from", "to"]


def _hinted(word: str, known: Iterable[str]) -> tuple[str, str | None]:
    """(the end of a message, the similar word that it suggests). A leading `$` is ignored in the comparison."""
    sign = "$" if word.startswith("$") else ""
    hint = did_you_mean(word.removeprefix(sign), (k.removeprefix(sign) for k in known)) if word else ""
    suggestion = sign + hint.removeprefix(" Did you mean ").removesuffix("?")
    return (f" Did you mean {suggestion}?", suggestion) if hint else ("", None)
