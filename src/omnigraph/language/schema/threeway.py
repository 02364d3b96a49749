"""Three versions of an element of a schema, of a merge's base, ours and theirs: which belong together, what differs.

Elements belong together by their ids and aliases (`identity`). Two that were added on both sides under one name and
with one definition belong together as well: usually both branches have applied the same file.

What an element is made of is compared attribute by attribute (`attributes`), the annotations of one name being one
attribute. `@rename_from` is none: it tells how a name came about.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Generic, Literal, TypeVar

from omnigraph.language.schema.compare import metadata
from omnigraph.language.schema.constraints import constraint_identity
from omnigraph.language.schema.identity import identifiers
from omnigraph.language.schema.model import Annotation, EdgeType, EntityType, NodeType, Property

E = TypeVar("E", bound=NodeType | EdgeType | Property)
T = TypeVar("T", bound=NodeType | EdgeType)
Side = Literal["ours", "theirs"]
Attributes = Mapping[str, object]


@dataclass(frozen=True)
class Three(Generic[E]):
    """One element in three schemas; None where it is not there."""

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
        """What stands for the element in references, whatever it is called on each side."""
        return self.present.id

    @property
    def versions(self) -> tuple[E | None, E | None, E | None]:
        return self.base, self.ours, self.theirs

    @property
    def aliases(self) -> tuple[str, ...]:
        """All other ids of the element, those that it has had first."""
        known = (self.present.id, *self.present.aliases)
        ids = {i for version in self.versions if version is not None for i in identifiers(version)}
        return (*self.present.aliases, *sorted(ids.difference(known)))


# ---- which belong together -------------------------------------------------------------------------------------------


@dataclass
class _Group(Generic[E]):
    versions: tuple[list[E], list[E], list[E]] = field(default_factory=lambda: ([], [], []))

    def absorb(self, other: _Group[E]) -> None:
        for mine, more in zip(self.versions, other.versions, strict=True):
            mine.extend(more)


def match_by_ids(
    base: Sequence[E], ours: Sequence[E], theirs: Sequence[E]
) -> tuple[list[Three[E]], list[tuple[Three[E], E]]]:
    """Elements in the order of ours, then theirs, then the base; and those of which one side has another one as well.

    A side has an element twice if two elements of it became one elsewhere.
    """
    group_of: dict[str, _Group[E]] = {}
    for place, elements in ((1, ours), (2, theirs), (0, base)):
        for element in elements:
            ids = identifiers(element)
            assert ids, f"{element.name} has no id"
            touched = list({id(g): g for g in (group_of.get(i) for i in ids) if g is not None}.values())
            group = touched[0] if touched else _Group()
            for other in touched[1:]:
                group.absorb(other)
                group_of.update({i: group for i, g in group_of.items() if g is other})
            group.versions[place].append(element)
            group_of.update(dict.fromkeys(ids, group))
    threes: list[Three[E]] = []
    repeated: list[tuple[Three[E], E]] = []
    for group in {id(g): g for g in group_of.values()}.values():
        three = Three(*(next(iter(version), None) for version in group.versions))
        threes.append(three)
        repeated += [(three, element) for version in group.versions for element in version[1:]]
    return threes, repeated


def match_added(threes: Sequence[Three[E]], is_same: Callable[[E, E], bool]) -> list[Three[E]]:
    """Elements that both sides have added with the same name become one where `is_same` says so."""
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
    """Whether two properties that were added apart can be one. The marks of embedded vectors are stored by id."""
    return attributes(a) == attributes(b) and a.annotation("embed") is None


def same_type(a: EntityType, b: EntityType, nodes_a: Mapping[str, str], nodes_b: Mapping[str, str]) -> bool:
    """The same for types; `nodes_a` and `nodes_b` tell which node types their endpoints are.

    Ids of rows are made from the members of @key in the order of their ids, so that has to be the same too.
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
    """The type with other names, or keys, for its endpoints, where `names` has them."""
    if isinstance(t, EdgeType):
        return replace(t, source=names.get(t.source, t.source), target=names.get(t.target, t.target))
    return t


# ---- what differs ----------------------------------------------------------------------------------------------------


def attributes(element: EntityType | Property) -> Attributes:
    """Everything of a property; of a type everything but its properties and constraints."""
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
    before = None if base is None else attributes(base)
    left, right = attributes(ours), attributes(theirs)
    chosen: dict[str, Side] = {}
    diverged: list[str] = []
    for name in dict.fromkeys((*left, *right)):
        mine, other = left.get(name), right.get(name)
        chosen[name] = "ours"
        if mine == other or (before is not None and before.get(name) == other):
            continue
        if before is not None and before.get(name) == mine:
            chosen[name] = "theirs"
        else:
            diverged.append(name)
    return chosen, diverged
