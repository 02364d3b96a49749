"""Statements: insert, update, delete, merge, against the type that they write.

Bare names mean the row's own properties. An insert needs all required properties, a key can't change, no property is
set twice, and every value fits its property: a text literal becomes a date where the property is one. A merge needs the
required properties only if it finds no row, which is checked when it runs.
"""

from __future__ import annotations

from collections.abc import Iterable

from omnigraph.language.query.check.context import EDGE_ENDS, Context, Scope
from omnigraph.language.query.check.patterns import check_pattern
from omnigraph.language.query.check.typer import Typer
from omnigraph.language.query.model import Column, Delete, Insert, Merge, Pattern, Setting, Statement, Update
from omnigraph.language.query.syntax import tree
from omnigraph.language.query.syntax.show import show_expression
from omnigraph.language.query.terms import Constant, Entity, Expression, ListOf, Object, Parameter, Property, Variable
from omnigraph.language.query.types import STRING, Type, assignable, counted, describe, of_property
from omnigraph.language.schema.model import EntityType, PropertyType
from omnigraph.language.schema.source import Place

TEXT = PropertyType("String")


def check_statement(context: Context, s: tree.Statement) -> Statement:
    t = _target(context, s)
    entity = context.entity(t)
    context.writes.add(entity)
    row = context.variable("row", "row", (entity,))
    if isinstance(s, tree.Insert):
        return _insert(context, s, t, row)
    if isinstance(s, tree.Delete):
        cascades: tuple[Entity, ...] = ()
        if t.kind == "node":
            cascades = tuple(context.entity(e) for e in context.schema.incident_edges(t.name))
            context.writes.update(cascades)
        where = Typer(context, Scope(), "where", row).condition(s.where)
        return Delete(entity, row, where, cascades, _returning(context, s.returning, t, row))
    if isinstance(s, tree.Update):
        if not s.values:
            raise context.fail("T10", s.place, "This update sets nothing.")
        values = _settings(context, s.values, t, Typer(context, Scope(), "set", row), update=True)
        where = Typer(context, Scope(), "where", row).condition(s.where)
        return Update(entity, row, values, where, _returning(context, s.returning, t, row))
    return _merge(context, s, t, row)


def _target(context: Context, s: tree.Statement) -> EntityType:
    schema, name = context.schema, s.type_name
    target = schema.node.get(name) or schema.edge.get(name)
    if target is None:
        if any(i.name == name for i in schema.interfaces):
            raise context.fail("T10", s.place, f"{name} is an interface; write to one of the types that implement it.")
        known = [*schema.node, *schema.edge]
        raise context.fail("T10", s.place, f"There is no node or edge type {name}.", word=name, known=known)
    return target


# ---- insert and merge ------------------------------------------------------------------------------------------------


def _insert(context: Context, s: tree.Insert, t: EntityType, row: Variable) -> Insert:
    if not s.values:
        raise context.fail("T10", s.place, f"This insert gives {t.name} no property.")
    pattern: Pattern | None = None
    scope = Scope()
    if s.match is not None:
        pattern, scope = check_pattern(context, s.match, Scope())
    values = _settings(context, s.values, t, Typer(context, scope, "value"), update=False)
    _check_required(context, t, values, s.place)
    _read_endpoints(context, t)
    upsert = bool(t.key_properties)
    return Insert(context.entity(t), row, values, upsert, pattern, _returning(context, s.returning, t, row))


def _merge(context: Context, s: tree.Merge, t: EntityType, row: Variable) -> Merge:
    key_names = set(t.key_properties) if t.kind == "node" else {"src", "dst"}
    if not key_names:
        raise context.fail("T30", s.place, f"{t.name} has no @key to merge by; use insert or update.")
    keys = _settings(context, s.keys, t, Typer(context, Scope(), "value"), update=False)
    key_names_given = {k.name for k in keys}
    if key_names_given != key_names:
        named = ", ".join(sorted(key_names)) if t.kind == "node" else "from, to"
        detail = f"merge {t.name} finds its row by {named}, all of these and nothing else; the rest goes into set."
        raise context.fail("T30", s.place, detail)
    maybe = Variable(row.name, row.slot, row.kind, row.types, nullable=True)
    values = _settings(context, s.values, t, Typer(context, Scope(), "set", maybe), update=True)
    _read_endpoints(context, t)
    return Merge(context.entity(t), row, keys, values, _returning(context, s.returning, t, row))


def _check_required(context: Context, t: EntityType, values: Iterable[Setting], place: Place) -> None:
    given_names = {v.name for v in values}
    missing = [p.name for p in t.properties if p.name not in given_names and _is_required(t, p.name, given_names)]
    if t.kind == "edge":
        missing = [word for word, column in (("from", "src"), ("to", "dst")) if column not in given_names] + missing
    if missing:
        raise context.fail("T12", place, f"{t.name} needs a value for {', '.join(missing)}.")


def _is_required(t: EntityType, name: str, given_names: set[str]) -> bool:
    p = t.by_name[name]
    embed = p.annotation("embed")
    is_embedded = embed is not None and str(embed.argument) in given_names
    return not (p.nullable or p.default is not None or is_embedded)


def _read_endpoints(context: Context, t: EntityType) -> None:
    if t.kind == "edge":
        context.reads.update((context.node(t.source), context.node(t.target)))


# ---- values ----------------------------------------------------------------------------------------------------------


def _settings(
    context: Context, assignments: Iterable[tree.Assignment], t: EntityType, typer: Typer, *, update: bool
) -> tuple[Setting, ...]:
    settings: dict[str, Setting] = {}
    for a in assignments:
        setting = _setting(context, a, t, typer, update=update)
        if setting.name in settings:
            raise context.fail("T13", a.place, f"{a.name} is given twice.")
        settings[setting.name] = setting
    return tuple(settings.values())


def _setting(context: Context, a: tree.Assignment, t: EntityType, typer: Typer, *, update: bool) -> Setting:
    p = t.by_name.get(a.name)
    if p is None:
        return _physical(context, a, t, typer, update=update)
    if update and a.name in t.key_properties:
        detail = f"{a.name} is part of the key of {t.name}, which never changes; delete the node and insert another."
        raise context.fail("T30", a.place, detail)
    target = of_property(p.type, p.nullable)
    value = typer.dated(typer.read(a.value), target, a.value)
    _check_value(context, a, target, value)
    return Setting(a.name, p.id, p.type, value)


def _physical(context: Context, a: tree.Assignment, t: EntityType, typer: Typer, *, update: bool) -> Setting:
    """`id`, and `from` and `to` of an edge: the id of a node, or a node that the pattern binds."""
    value = typer.read(a.value)
    if t.kind == "edge" and a.name in EDGE_ENDS:
        column = EDGE_ENDS[a.name]
        end = t.source if column == "src" else t.target
        if isinstance(value, Object) and value.type.kind == "Node":
            if [e.name for e in value.variable.types] != [end]:
                shown = " or ".join(e.name for e in value.variable.types)
                raise context.fail("T5", a.value.place, f"{a.name} of {t.name} is a {end}, not a {shown}.")
            value = Property(value.variable, "id", STRING.null(value.type.nullable))
        if not value.type.is_text:
            detail = f"{a.name} is the id of a {end}, a String; this is {describe(value.type)}."
            raise context.fail("T3", a.value.place, detail)
        return Setting(column, "", TEXT, value)
    if a.name == "id":
        if update or t.key_properties:
            detail = "An id never changes." if update else f"The id of {t.name} is made of its key; leave it out."
            raise context.fail("T30", a.place, detail)
        if not value.type.is_text:
            raise context.fail("T3", a.value.place, f"An id is a String; this is {describe(value.type)}.")
        return Setting("id", "", TEXT, value)
    raise context.fail("T11", a.place, f"{t.name} has no property {a.name}.", word=a.name, known=context.columns_of(t))


def _check_value(context: Context, a: tree.Assignment, target: Type, value: Expression) -> None:
    place, problem = a.value.place, None
    if value.type.kind == "Null" and not target.nullable:
        problem = f"{a.name} is required and can't be null"
    elif isinstance(value, Object) or not assignable(value.type, target):
        problem = f"{a.name} is {describe(target)}; this is {describe(value.type)}"
    elif target.kind == "Enum" and isinstance(value, Constant) and value.value not in (None, *target.values):
        word = str(value.value)
        detail = f"{a.name} has no value {word!r}; it is {target.null(False)}."
        raise context.fail("T3", place, detail, word=word, known=target.values)
    elif target.kind == "Vector" and isinstance(value, ListOf) and len(value.items) != target.dimension:
        problem = f"{a.name} is {describe(target)}; this one has {counted(len(value.items), 'number')}"
    elif target.kind == "Blob" and not isinstance(value, Parameter | Constant):
        problem = "A Blob is given as a parameter"
    if problem is not None:
        raise context.fail("T3", place, f"{problem}.")


# ---- returning -------------------------------------------------------------------------------------------------------


def _returning(context: Context, returning: tree.Returning | None, t: EntityType, row: Variable) -> tuple[Column, ...]:
    if returning is None:
        return ()
    if not returning.projections:
        ends = ("from", "to") if t.kind == "edge" else ()
        names = ("id", *ends, *(p.name for p in t.properties if p.type.kind not in ("Blob", "Vector")))
        return tuple(Column(n, context.property(row, n, returning.place)) for n in dict.fromkeys(names))
    typer = Typer(context, Scope(), "returning", row)
    columns: dict[str, Column] = {}
    for p in returning.projections:
        value = typer.read(p.value)
        _check_returned(context, value, p.place)
        name = p.alias or show_expression(p.value).replace("$", "")
        if name in columns:
            raise context.fail("T31", p.place, f"Two columns are named {name}; give one another name with `as`.")
        columns[name] = Column(name, value)
    return tuple(columns.values())


def _check_returned(context: Context, value: Expression, place: Place) -> None:
    if value.type.kind == "Blob":
        raise context.fail("T24", place, "A Blob is not a value that a query can read.")
    if value.type.kind in ("Duration", "Null") or (value.type.kind == "List" and value.type.item is None):
        raise context.fail("T31", place, f"{describe(value.type)} has no form in a result.")
