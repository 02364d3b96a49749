"""Three versions of a schema element, of the base, ours and theirs of a merge: how they are matched, how they differ.

Elements are matched by their ids and aliases (`identity`). Two elements that were added on both sides with the same
name and definition are matched as well: usually both branches have applied the same file.

Elements are compared attribute by attribute (`attributes`); the annotations of one name are one attribute.
`@rename_from` is no attribute: it describes the origin of a name.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Generic, Literal, TypeVar

from omnigraph.language.schema.identity import identifiers
from omnigraph.language.schema.model import Annotation, EdgeType, EntityType, NodeType, Property
from omnigraph.language.schema.plan.compare import metadata
from omnigraph.language.schema.syntax.constraints import constraint_identity

E = TypeVar("E", bound=NodeType | EdgeType | Property)
T = TypeVar("T", bound=NodeType | EdgeType)
Side = Literal["ours", "theirs"]
Attributes = Mapping[str, object]


@dataclass(frozen=True)
class Three(Generic[E]):
    """One element in three schemas; None if a schema does not have it."""

    base: E | None
    ours: E | None
    theirs: E | None

    @property
    def present(self) -> E:
        """The element as ours has it, else theirs, else the base."""
        element = self.ours or self.theirs or self.base
        assert element is not None, "an element is in one schema at least"
        return element

    @property
    def key(self) -> str:
        """The key of the element in references, whatever its name on each side."""
        return self.present.id

    @property
    def versions(self) -> tuple[E | None, E | None, E | None]:
        return self.base, self.ours, self.theirs

    @property
    def aliases(self) -> tuple[str, ...]:
        """All other ids of the element, its own aliases first."""
        own_ids = (self.present.id, *self.present.aliases)
        ids = {i for version in self.versions if version is not None for i in identifiers(version)}
        return (*self.present.aliases, *sorted(ids.difference(own_ids)))


# ---- matching --------------------------------------------------------------------------------------------------------


@dataclass
class _Group(Generic[E]):
    versions: tuple[list[E], list[E], list[E]] = field(default_factory=lambda: ([], [], []))

    def absorb(self, other: _Group[E]) -> None:
        for own, added in zip(self.versions, other.versions, strict=True):
            own.extend(added)


def match_by_ids(
    base: Sequence[E], ours: Sequence[E], theirs: Sequence[E]
) -> tuple[list[Three[E]], list[tuple[Three[E], E]]]:
    """Elements in the order of ours, then theirs, then the base; and the repeated ones, each with the other element.

    An element is repeated on a side if two elements of that side became one on another.
    """
    group_of: dict[str, _Group[E]] = {}
    for side, elements in ((1, ours), (2, theirs), (0, base)):
        for element in elements:
            ids = identifiers(element)
            assert ids, f"{element.name} has no id"
            touched = list({id(g): g for g in (group_of.get(i) for i in ids) if g is not None}.values())
            group = touched[0] if touched else _Group()
            for other in touched[1:]:
                group.absorb(other)
                group_of.update({i: group for i, g in group_of.items() if g is other})
            group.versions[side].append(element)
            group_of.update(dict.fromkeys(ids, group))
    threes: list[Three[E]] = []
    repeated: list[tuple[Three[E], E]] = []
    for group in {id(g): g for g in group_of.values()}.values():
        three = Three(*(next(iter(version), None) for version in group.versions))
        threes.append(three)
        repeated += [(three, element) for version in group.versions for element in version[1:]]
    return threes, repeated


def match_added(threes: Sequence[Three[E]], is_same: Callable[[E, E], bool]) -> list[Three[E]]:
    """Elements that both sides have added with the same name become one if `is_same` is true."""
    added = {t.theirs.name: t for t in threes if t.theirs is not None and t.base is None and t.ours is None}
    matched: list[Three[E]] = []
    merged: set[str] = set()
    for three in threes:
        other = added.get(three.present.name)
        is_added = three.ours is not None and three.base is None and three.theirs is None
        if is_added and other is not None and is_same(three.present, other.present):
            matched.append(Three(None, three.ours, other.theirs))
            merged.add(other.key)
        else:
            matched.append(three)
    return [t for t in matched if t.ours is not None or t.key not in merged]


def same_property(a: Property, b: Property) -> bool:
    """Whether two properties that were added separately can become one. Embedding marks are stored by id."""
    return attributes(a) == attributes(b) and a.annotation("embed") is None


def same_type(a: EntityType, b: EntityType, nodes_a: Mapping[str, str], nodes_b: Mapping[str, str]) -> bool:
    """The same for types; `nodes_a` and `nodes_b` map the names of node types, for endpoints, to keys.

    Ids of rows are derived from the members of @key in the order of their ids, so that order has to be equal too.
    """
    if {p.name for p in a.properties} != {p.name for p in b.properties} or a.key_properties != b.key_properties:
        return False
    constraints = [{constraint_identity(c) for c in t.constraints} for t in (a, b)]
    return (
        attributes(with_endpoints(a, nodes_a)) == attributes(with_endpoints(b, nodes_b))
        and constraints[0] == constraints[1]
        and all(same_property(p, b.by_name[p.name]) for p in a.properties)
    )


def with_endpoints(t: T, names: Mapping[str, str]) -> T:
    """The type with the names of its endpoints replaced by other names, or keys, of `names`."""
    if isinstance(t, EdgeType):
        return replace(t, source=names.get(t.source, t.source), target=names.get(t.target, t.target))
    return t


# ---- comparison ------------------------------------------------------------------------------------------------------


def attributes(element: EntityType | Property) -> Attributes:
    """All attributes of a property; of a type all but its properties and constraints."""
    annotations = {f"@{name}": _values(group) for name, group in by_name(element.annotations).items()}
    annotations.pop("@rename_from", None)
    if isinstance(element, Property):
        return {"name": element.name, "type": element.type, "nullable": element.nullable} | annotations
    if isinstance(element, NodeType):
        return {"name": element.name, "implements": frozenset(element.implements)} | annotations
    ends = (element.source, element.target)
    return {"name": element.name, "endpoints": ends, "cardinality": (element.card_min, element.card_max)} | annotations


def by_name(annotations: Iterable[Annotation]) -> dict[str, list[Annotation]]:
    groups: dict[str, list[Annotation]] = {}
    for a in annotations:
        groups.setdefault(a.name, []).append(a)
    return groups


def _values(annotations: Sequence[Annotation]) -> object:
    return frozenset(metadata(annotations, without=()).items())


def choose(base: E | None, ours: E, theirs: E) -> tuple[dict[str, Side], list[str]]:
    """The side that each attribute is taken from, and the attributes that both sides have changed differently."""
    base_attributes = None if base is None else attributes(base)
    our_attributes, their_attributes = attributes(ours), attributes(theirs)
    chosen: dict[str, Side] = {}
    diverged: list[str] = []
    for name in dict.fromkeys((*our_attributes, *their_attributes)):
        our_value, their_value = our_attributes.get(name), their_attributes.get(name)
        chosen[name] = "ours"
        if our_value == their_value or (base_attributes is not None and base_attributes.get(name) == their_value):
            continue
        if base_attributes is not None and base_attributes.get(name) == our_value:
            chosen[name] = "theirs"
        else:
            diverged.append(name)
    return chosen, diverged
