"""The differences between an accepted type and its new declaration, as steps, refusals and findings.

Annotations other than `@embed` and `@rename_from` are metadata and change freely. `@rename_from` is an instruction to
the planner: adding or removing it is no change by itself. Constraints must hold for every existing row, so only
`@index` can be added; a constraint whose properties are all dropped is dropped with them, unless it is the key. Between
accepted schemas (`Changes.by_id`) a merge may also revert an earlier change: a constraint is removed, or added with a
property that is null in every row.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, TypeVar

from omnigraph.language.regex import CheckPattern
from omnigraph.language.schema.lint import Finding, finding
from omnigraph.language.schema.model import (
    EDGE_COLUMNS,
    Annotation,
    Constraint,
    EdgeType,
    EntityType,
    InterfaceType,
    NodeType,
    Property,
    Schema,
)
from omnigraph.language.schema.plan.match import Match, match, match_by_id
from omnigraph.language.schema.plan.steps import (
    AddConstraint,
    AddProperty,
    AddType,
    DropProperty,
    ExtendEnum,
    RenameProperty,
    Step,
    UnsupportedChange,
    UpdatePropertyMetadata,
    UpdateTypeMetadata,
)
from omnigraph.language.schema.syntax.constraints import constraint_identity, in_order

T = TypeVar("T", NodeType, EdgeType)
E = TypeVar("E", NodeType, EdgeType, Property)
_PREFIXES: dict[type, str] = {NodeType: "n", EdgeType: "e", Property: "p"}


@dataclass
class Changes:
    """The result of the comparison while it is built."""

    new_id: Callable[[str], str]
    mode: Literal["soft", "hard"]
    populated: Callable[[EntityType], bool]
    by_id: bool = False
    """Both schemas have ids, by which elements are matched and added."""
    steps: list[Step] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)

    def match(self, accepted: Sequence[E], desired: Sequence[E]) -> Match[E]:
        return match_by_id(accepted, desired) if self.by_id else match(accepted, desired)

    def id_of_added(self, element: NodeType | EdgeType | Property) -> str:
        return element.id if self.by_id else self.new_id(_PREFIXES[type(element)])

    def unsupported(
        self, entity: str, reason: str, *, type_id: str = "", property_id: str = "", code: str | None = None
    ) -> None:
        self.steps.append(UnsupportedChange(entity, reason, code, type_id, property_id))
        if code is not None:
            self.findings.append(finding(code, entity, reason))


# ---- interfaces ------------------------------------------------------------------------------------------------------


def compare_interfaces(accepted: Schema, desired: Schema, changes: Changes) -> None:
    before = {i.name: i for i in accepted.interfaces}
    after = {i.name: i for i in desired.interfaces}
    for name in before:
        if name not in after:
            changes.unsupported(f"interface:{name}", "an interface can't be removed or renamed")
    for name, new in after.items():
        if name not in before:
            changes.steps.append(AddType("interface", name, ""))
        elif _definition(before[name]) != _definition(new):
            changes.steps.append(UpdateTypeMetadata("interface", name, ""))


def _definition(interface: InterfaceType) -> set[tuple[Any, ...]]:
    return {
        (p.name, p.type, p.nullable, frozenset(metadata(p.annotations, without=("rename_from",)).items()))
        for p in interface.properties
    }


# ---- types -----------------------------------------------------------------------------------------------------------


def compare_types(old: T, new: T, node_renames: dict[str, str], changes: Changes) -> T:
    """Add the steps from `old` to `new` and return the type after them, with ids."""
    _compare_head(old, new, node_renames, changes)
    matched: Match[Property] = changes.match(old.properties, new.properties)
    for p, before, reason in matched.conflicts:
        property_id = "" if before is None else before.id
        changes.unsupported(f"{new.key}.{p.name}", reason, type_id=old.id, property_id=property_id)
    kept_properties: list[Property] = [
        _compare_property(a, b, old, new, matched.renames(), changes) for a, b in matched.pairs
    ]
    for p in matched.dropped:
        _drop_property(p, old, new, changes)
    added: list[Property] = [_add_property(p, old, new, changes) for p in matched.added]
    _compare_constraints(old, new, matched, changes)
    names = differing_annotations(old.annotations, new.annotations, without=("rename_from",))
    if names:
        changes.steps.append(UpdateTypeMetadata(new.kind, new.name, old.id, names))
    properties = (*kept_properties, *added)
    if any(isinstance(s, UnsupportedChange) for s in changes.steps):
        return old
    constraints = in_order(new.constraints, [p.name for p in properties])
    return replace(new, id=old.id, aliases=old.aliases, properties=properties, constraints=constraints)


def _compare_head(old: EntityType, new: EntityType, node_renames: dict[str, str], changes: Changes) -> None:
    if isinstance(old, NodeType) and isinstance(new, NodeType):
        if set(old.implements) != set(new.implements):
            changes.unsupported(new.key, "the interfaces that a node implements can't change", type_id=old.id)
        return
    assert isinstance(old, EdgeType)
    assert isinstance(new, EdgeType)
    ends = tuple(node_renames.get(name, name) for name in (old.source, old.target))
    if ends != (new.source, new.target):
        reason = f"the endpoints of an edge can't change ({ends[0]} -> {ends[1]} to {new.source} -> {new.target})"
        changes.unsupported(new.key, reason, type_id=old.id)
    if (old.card_min, old.card_max) != (new.card_min, new.card_max):
        changes.unsupported(new.key, "the cardinality of an edge can't change", type_id=old.id)


# ---- properties ------------------------------------------------------------------------------------------------------


def _compare_property(
    old: Property, new: Property, owner: EntityType, now: EntityType, renames: dict[str, str], changes: Changes
) -> Property:
    where = (now.kind, now.name, owner.id, new.name, old.id)
    if old.name != new.name:
        changes.steps.append(RenameProperty(*where, old.name))

    def refuse(reason: str, code: str | None = None) -> None:
        changes.unsupported(f"{now.key}.{new.name}", reason, type_id=owner.id, property_id=old.id, code=code)

    if old.type.kind == new.type.kind == "Enum":
        removed = sorted(set(old.type.values) - set(new.type.values))
        added = sorted(set(new.type.values) - set(old.type.values))
        if removed:
            refuse(f"enum values can't be removed or renamed ({', '.join(removed)})", "OG-MF-106")
        elif added:
            changes.steps.append(ExtendEnum(*where, tuple(added)))
    elif old.type != new.type:
        refuse(f"the type of a property can't change ({old.type} to {new.type})", "OG-MF-106")
    if old.nullable and not new.nullable:
        refuse("a nullable property can't become required", "OG-MF-104")
    elif new.nullable and not old.nullable:
        refuse("a required property can't become nullable", "OG-MF-106")
    if _embed(old, renames) != _embed(new, {}):
        refuse("the source or model of @embed can't change: stored vectors came from the old one")
    names = differing_annotations(old.annotations, new.annotations, without=("rename_from", "embed"))
    if names:
        changes.steps.append(UpdatePropertyMetadata(*where, names))
    return replace(new, id=old.id, aliases=old.aliases)


def _embed(p: Property, renames: dict[str, str]) -> tuple[object, ...]:
    embed = p.annotation("embed")
    if embed is None:
        return ()
    return renames.get(str(embed.argument), embed.argument), embed.option("model")


def _add_property(p: Property, owner: EntityType, now: EntityType, changes: Changes) -> Property:
    """A default fills the existing rows, whether or not the property is nullable, as in SQL's ADD COLUMN."""
    if not p.nullable and p.default is None and changes.populated(owner):
        reason = "a required property without @default can't be added to a type that holds rows"
        changes.unsupported(f"{now.key}.{p.name}", reason, type_id=owner.id, code="OG-MF-103")
        return p
    added = replace(p, id=changes.id_of_added(p))
    where = (now.kind, now.name, owner.id, p.name, added.id)
    changes.steps.append(AddProperty(*where, str(p.type), p.nullable, p.default))
    return added


def _drop_property(p: Property, owner: EntityType, now: EntityType, changes: Changes) -> None:
    changes.steps.append(DropProperty(now.kind, now.name, owner.id, p.name, p.id, changes.mode))
    if changes.populated(owner):
        code = "OG-DS-105" if p.type.kind == "Vector" else "OG-DS-104"
        effect = (
            "its values and their history are removed, except those that another branch holds"
            if changes.mode == "hard"
            else "its values stay readable at older commits until cleanup"
        )
        message = f"{now.name} holds rows and its property {p.name} is dropped; {effect}"
        changes.findings.append(finding(code, f"{now.key}.{p.name}", message))


# ---- constraints -----------------------------------------------------------------------------------------------------


def _compare_constraints(old: EntityType, new: EntityType, matched: Match[Property], changes: Changes) -> None:
    dropped = {p.name for p in matched.dropped}
    # Matched by id, an added property may have the name of a dropped one.
    renames = matched.renames() | {name: f"{name} (dropped)" for name in dropped if name in new.by_name}
    before = [(_renamed(c, renames), sorted(dropped & set(c.properties))) for c in old.constraints]
    after = {constraint_identity(c): c for c in new.constraints}
    null_properties = {p.name for p in matched.added if p.default is None} if changes.by_id else set()

    def refuse(reason: str) -> None:
        changes.unsupported(new.key, reason, type_id=old.id)

    for c, dropped_members in before:
        if constraint_identity(c) in after:
            if dropped_members:
                refuse(f"{', '.join(dropped_members)} can't be dropped: {text_of(c)} uses it")
        elif c.kind == "check" and CheckPattern.of(c.pattern or "").problem() is not None:
            changes.steps.append(UpdateTypeMetadata(new.kind, new.name, old.id, ("check",)))
        elif c.kind == "key" and dropped_members:
            refuse(
                f"{', '.join(dropped_members)} can't be dropped: it is part of {text_of(c)}, from which ids are made"
            )
        elif len(dropped_members) < len(c.properties) and changes.by_id and c.kind != "key":
            changes.steps.append(UpdateTypeMetadata(new.kind, new.name, old.id, (c.kind,)))
        elif len(dropped_members) < len(c.properties):
            reason_suffix = (
                f" ({', '.join(dropped_members)} is dropped, the rest of its properties stay)"
                if dropped_members
                else ""
            )
            refuse(f"{text_of(c)} can't be removed{reason_suffix}")
    column_names = {*new.by_name, *EDGE_COLUMNS}
    identities = {constraint_identity(c) for c, _ in before}
    for identity, c in after.items():
        if identity in identities:
            continue
        is_possible = c.kind == "index" or (c.kind != "key" and not null_properties.isdisjoint(c.properties))
        if not is_possible or not column_names.issuperset(c.properties):
            refuse(f"{text_of(c)} can't be added to a type that exists: its rows were never held to it")
        else:
            changes.steps.append(AddConstraint(new.kind, new.name, old.id, c.kind, c.properties))


def _renamed(c: Constraint, renames: dict[str, str]) -> Constraint:
    return replace(c, properties=tuple(renames.get(p, p) for p in c.properties))


def text_of(c: Constraint) -> str:
    """The constraint as in a schema file, without the pattern of a check."""
    names = ", ".join(c.properties)
    if c.kind == "range":
        low, high = ("" if b is None else b for b in (c.low, c.high))
        return f"@range({names}, {low}..{high})"
    return f"@check({names}, …)" if c.kind == "check" else f"@{c.kind}({names})"


# ---- annotations -----------------------------------------------------------------------------------------------------


def metadata(annotations: Sequence[Annotation], without: tuple[str, ...]) -> Counter[tuple[object, ...]]:
    """The annotations as a bag, with the types of their values: `true` and 1 are equal in Python and different here."""
    return Counter(
        (a.name, type(a.argument), a.argument, tuple((k, type(v), v) for k, v in sorted(a.options)))
        for a in annotations
        if a.name not in without
    )


def differing_annotations(
    old: Sequence[Annotation], new: Sequence[Annotation], without: tuple[str, ...]
) -> tuple[str, ...]:
    before, after = metadata(old, without), metadata(new, without)
    return tuple(sorted({str(key[0]) for key in ((before - after) + (after - before))}))
