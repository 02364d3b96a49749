"""Constraints of a type: those in its body and those on its properties, checked and sorted.

`Constraint`s in the model are sorted by kind, then by the position of their properties in the type: two files that
differ only in the order of their lines give the same list.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Literal, cast

from omnigraph.language.regex import CheckPattern
from omnigraph.language.schema.model import CONSTRAINTS, EDGE_COLUMNS, NUMBERS, Constraint
from omnigraph.language.schema.source import Source, did_you_mean
from omnigraph.language.schema.syntax.annotations import MARKS, check_member
from omnigraph.language.schema.syntax.declarations import Argument, RawAnnotation, RawProperty

Kind = Literal["key", "unique", "index", "range", "check"]


def constraint_identity(c: Constraint) -> tuple[object, ...]:
    """Two constraints with the same identity are equivalent; the order of the members does not matter."""
    return c.kind, frozenset(c.properties), c.low, c.high, c.pattern


def in_order(constraints: Iterable[Constraint], names: Sequence[str]) -> tuple[Constraint, ...]:
    position = {name: i for i, name in enumerate((*EDGE_COLUMNS, *names))}

    def order(c: Constraint) -> tuple[object, ...]:
        members = [position[p] for p in c.properties]
        bounds = [(b is not None, b or 0) for b in (c.low, c.high)]
        return CONSTRAINTS.index(c.kind), members, bounds, c.pattern or ""

    return tuple(sorted(constraints, key=order))


def type_constraints(
    owner: str,
    type_name: str,
    properties: Sequence[RawProperty],
    body: Sequence[RawAnnotation],
    inherited: Sequence[RawProperty],
    source: Source,
) -> tuple[Constraint, ...]:
    """All constraints of a node or edge; a constraint of `inherited` properties may be repeated."""
    from_interfaces = {constraint_identity(c) for _, c in _marks(inherited)}
    declared = [
        *_marks(properties),
        *((raw, _body_constraint(raw, owner, type_name, properties, source)) for raw in body),
    ]
    constraints: dict[tuple[object, ...], Constraint] = {}
    key: Constraint | None = None
    for raw, constraint in declared:
        identity = constraint_identity(constraint)
        if identity in constraints:
            if identity in from_interfaces:
                continue
            members = ", ".join(constraint.properties)
            raise source.rule_error(raw.place, f"{type_name} has @{constraint.kind} on {members} twice.")
        if constraint.kind == "key":
            if key is not None:
                detail = f"{type_name} has two keys; a node has one. A key of several properties is @key(a, b)."
                raise source.rule_error(raw.place, detail)
            key = constraint
        constraints[identity] = constraint
    return in_order(constraints.values(), [p.name.text for p in properties])


def _marks(properties: Iterable[RawProperty]) -> list[tuple[RawAnnotation, Constraint]]:
    return [
        (a, Constraint(cast(Kind, a.name), (p.name.text,)))
        for p in properties
        for a in p.annotations
        if a.name in MARKS
    ]


def _body_constraint(
    raw: RawAnnotation, owner: str, type_name: str, properties: Sequence[RawProperty], source: Source
) -> Constraint:
    if raw.name in ("range", "check"):
        if owner == "edge":
            raise source.rule_error(raw.place, f"@{raw.name} belongs on nodes; edges know @unique and @index.")
        return _value_constraint(raw, type_name, properties, source)
    if raw.name == "key" and owner == "edge":
        raise source.rule_error(raw.place, "Edges have no @key; use @unique, for example @unique(src, dst).")
    members: list[str] = []
    for argument in raw.arguments:
        name = _member_name(raw, argument, source)
        if name in members:
            raise source.rule_error(argument.place, f"@{raw.name} names {name} twice.")
        members.append(name)
        if owner == "edge" and raw.name == "unique" and name in EDGE_COLUMNS:
            continue
        check_member(raw.name, _member(argument, owner, type_name, properties, source), owner, raw, source)
    return Constraint(cast(Kind, raw.name), tuple(members))


def _value_constraint(
    raw: RawAnnotation, type_name: str, properties: Sequence[RawProperty], source: Source
) -> Constraint:
    shape = "@range(property, low..high)" if raw.name == "range" else '@check(property, "pattern")'
    form = "range" if raw.name == "range" else "string"
    if len(raw.arguments) != 2 or raw.arguments[1].form != form or raw.arguments[1].key is not None:
        raise source.syntax_error(raw.place, f"@{raw.name} is written {shape}.")
    name = _member_name(raw, raw.arguments[0], source)
    member = _member(raw.arguments[0], "node", type_name, properties, source)
    value = raw.arguments[1]
    if raw.name == "check":
        if member.type.kind != "String":
            raise source.rule_error(raw.place, f"@check applies to String properties, and {name} is {member.type}.")
        _check_pattern(value, source)
        return Constraint("check", (name,), pattern=str(value.value))
    if member.type.kind not in NUMBERS:
        raise source.rule_error(raw.place, f"@range applies to numbers, and {name} is {member.type}.")
    if value.low is None and value.high is None:
        raise source.rule_error(value.place, "@range needs a lower or an upper bound, or both.")
    if value.low is not None and value.high is not None and value.low > value.high:
        raise source.rule_error(value.place, f"The range is empty: {value.low} is above {value.high}.")
    return Constraint("range", (name,), low=value.low, high=value.high)


def _check_pattern(value: Argument, source: Source) -> None:
    problem = CheckPattern.of(str(value.value)).problem()
    if problem is not None:
        raise source.rule_error(value.place, f"@check can't use this pattern. {problem}")


def _member_name(raw: RawAnnotation, argument: Argument, source: Source) -> str:
    if argument.form != "word" or argument.key is not None:
        # `true` and `false` are legal property names that look like literals.
        if argument.form == "bool" and argument.key is None:
            return "true" if argument.value else "false"
        detail = f"@{raw.name} names properties, without quotes, as in @{raw.name}(name)."
        raise source.syntax_error(argument.place, detail)
    return str(argument.value)


def _member(
    argument: Argument, owner: str, type_name: str, properties: Sequence[RawProperty], source: Source
) -> RawProperty:
    name = str(argument.value).lower() if argument.form == "bool" else str(argument.value)
    for p in properties:
        if p.name.text == name:
            return p
    columns = EDGE_COLUMNS if owner == "edge" else ("id",)
    if name in columns:
        detail = f"{name} is a column that every {owner} has; it is indexed anyway"
        detail += ", and only @unique may name it." if owner == "edge" else " and unique."
        raise source.rule_error(argument.place, detail)
    hint = did_you_mean(name, [p.name.text for p in properties])
    raise source.rule_error(argument.place, f"{type_name} has no property {name}.{hint}")
