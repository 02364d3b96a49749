"""Random schemas, evolved by random supported steps on two sides: what holds for every merge. Replay by the seed."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from itertools import count
from random import Random

import pytest

from omnigraph.errors import SchemaRuleError, SchemaSyntaxError
from omnigraph.language.schema import (
    Schema,
    accept,
    parse_schema,
    plan_changes,
    render,
    schema_from_json,
    schema_to_json,
)
from omnigraph.language.schema.identity import identifiers, same_element
from omnigraph.language.schema.merge.schemas import SchemaMerge, merge_schemas
from omnigraph.language.schema.merge.threeway import with_endpoints
from omnigraph.language.schema.model import (
    Annotation,
    Constraint,
    EdgeType,
    EntityType,
    InterfaceType,
    NodeType,
    Property,
    PropertyType,
)
from omnigraph.language.schema.plan import steps as s
from tests.support.merged_schemas import content
from tests.support.schema_ids import without_ids

TYPES = ("A", "B", "C", "D", "E")
NAMES = ("a", "b", "c", "d")
KINDS = ("I32?", "String?", "String", "F64 @default(1)", "enum(x, y)?", "Vector(2)? @embed(t)")
SEEDS = range(120)


def new_property(r: Random, name: str) -> Property:
    node = f"node N {{ t: String?  {name}: {r.choice(KINDS)}{r.choice(('', ' @index', ' @x(1)'))} }}"
    return parse_schema(node).nodes[0].by_name[name]


def new_type(r: Random, schema: Schema) -> Schema:
    """With a node or an edge more, of few names and shapes, so that two sides often choose the same."""
    name = r.choice(TYPES)
    properties = [new_property(r, n) for n in r.sample(NAMES, r.randint(0, 3))]
    if schema.nodes and r.random() < 0.4:
        ends = r.choice(schema.nodes).name, r.choice(schema.nodes).name
        own = tuple(p for p in properties if p.type.kind != "Vector")
        return replace(schema, edges=(*schema.edges, EdgeType(name, *ends, own, card_max=r.choice((None, 3)))))
    implements = tuple(i.name for i in schema.interfaces if r.random() < 0.5)
    inherited = [p for i in schema.interfaces if i.name in implements for p in i.properties]
    node = NodeType(name, (*inherited, parse_schema("node N { t: String? }").nodes[0].properties[0], *properties))
    return replace(schema, nodes=(*schema.nodes, replace(node, implements=implements)))


def edit_interface(r: Random, schema: Schema) -> Schema:
    """One property more, in the interface and in all nodes that have it."""
    if not schema.interfaces:
        return replace(schema, interfaces=(InterfaceType("I", ()),))
    (interface,) = schema.interfaces
    p = Property(r.choice(("i", "j")), PropertyType("I32"), True)
    nodes = tuple(
        replace(n, properties=(*n.properties, p)) if interface.name in n.implements else n for n in schema.nodes
    )
    return replace(schema, interfaces=(replace(interface, properties=(*interface.properties, p)),), nodes=nodes)


def edit_type(r: Random, schema: Schema) -> Schema:
    if not list(schema.types()):
        return schema
    t = r.choice(list(schema.types()))
    choice = r.choice(("rename", "drop", "annotate", "add", *("property",) * 4))
    if choice == "drop":
        edges = tuple(e for e in schema.edges if t.name not in (e.source, e.target) and e != t)
        return replace(schema, nodes=tuple(n for n in schema.nodes if n != t), edges=edges)
    changed: EntityType = t
    if choice == "rename":
        changed = replace(t, name=r.choice(TYPES), annotations=(Annotation("rename_from", t.name),))
    elif choice == "annotate":
        changed = replace(t, annotations=(Annotation("note", r.randint(0, 2)),))
    elif choice == "add":
        changed = replace(t, properties=(*t.properties, new_property(r, r.choice(NAMES))))
    elif t.properties:
        changed = edit_property(r, t)
    swapped = {t.name: changed.name}
    edges = tuple(changed if e == t else with_endpoints(e, swapped) for e in schema.edges)  # type: ignore[misc]
    return replace(schema, nodes=tuple(changed if n == t else n for n in schema.nodes), edges=edges)  # type: ignore[arg-type]


def edit_property(r: Random, t: EntityType) -> EntityType:
    p = r.choice(t.properties)
    choice = r.choice(("rename", "drop", "annotate", "extend", "index"))
    others = [q for q in t.properties if q != p]
    if choice == "drop":
        constraints = tuple(c for c in t.constraints if c.properties != (p.name,))
        return replace(t, properties=tuple(others), constraints=constraints)
    if choice == "index":
        members = (p.name, *(q.name for q in others[: r.randint(0, 1)]))
        return replace(t, constraints=(*t.constraints, Constraint("index", members)))
    changed = p
    if choice == "rename":
        name = r.choice(NAMES)
        kept = tuple(a for a in p.annotations if a.name != "rename_from")
        changed = replace(p, name=name, annotations=(*kept, Annotation("rename_from", p.name)))
        constraints = tuple(
            replace(c, properties=tuple(name if m == p.name else m for m in c.properties)) for c in t.constraints
        )
        t = replace(t, constraints=constraints)
    elif choice == "annotate":
        kept = tuple(a for a in p.annotations if a.name != "note")
        changed = replace(p, annotations=(*kept, Annotation("note", r.randint(0, 2))))
    elif p.type.kind == "Enum":
        values = tuple(sorted({*p.type.values, r.choice("uvw")}))
        changed = replace(p, type=replace(p.type, values=values))
    return replace(t, properties=tuple(changed if q == p else q for q in t.properties))


def evolved(r: Random, before: Schema, new_id: Callable[[str], str], changes: int) -> Schema:
    """The schema after a number of random edits; what a schema change refuses is left out."""
    for _ in range(changes):
        edit = r.choice((new_type, edit_type, edit_type, edit_type, edit_interface))
        try:
            desired = parse_schema(render(edit(r, without_ids(before))))
        except (SchemaRuleError, SchemaSyntaxError, KeyError):
            continue
        before = planned(before, desired, new_id)
    return before


def planned(before: Schema, desired: Schema, new_id: Callable[[str], str]) -> Schema:
    return plan_changes(before, desired, new_id=new_id, drop_all=True, populated=lambda t: False).result


def history(seed: int) -> tuple[Schema, Schema, Schema]:
    """A base and two sides. In some, both sides have applied the same file first, or have been merged before."""
    r, numbers = Random(seed), count(10)

    def new_id(prefix: str) -> str:
        return f"{prefix}{next(numbers)}"

    base = evolved(r, accept(parse_schema("node A { t: String? }"), new_id=new_id), new_id, r.randint(2, 10))
    start = r.choice(("base", "same file", "merged"))
    ours = theirs = base
    if start != "base":
        ours = evolved(r, base, new_id, r.randint(1, 3))
        theirs = planned(base, parse_schema(ours.source), new_id)
    if start == "merged":
        base, ours = theirs, merge_schemas(base, ours, theirs).result
    return base, evolved(r, ours, new_id, r.randint(0, 4)), evolved(r, theirs, new_id, r.randint(0, 4))


@pytest.mark.parametrize("seed", SEEDS)
def test_every_merge(seed: int) -> None:
    base, ours, theirs = history(seed)
    merged = merge_schemas(base, ours, theirs)
    reverse = merge_schemas(base, theirs, ours)
    assert sorted(c.kind for c in merged.conflicts) == sorted(c.kind for c in reverse.conflicts)
    if merged.conflicts:
        assert (merged.result, merged.steps, merged.changed) == (ours, (), False)
        assert all(c.message and c.entity.startswith(c.table_key) for c in merged.conflicts)
        return
    assert content(merged.result) == content(reverse.result)
    assert merged.changed == (merged.result != ours)
    require_valid(merged.result)
    require_identity(ours, theirs, merged.result)
    assert outline(applied(ours, merged)) == outline(merged.result)
    for again in (base, theirs):
        repeated = merge_schemas(again, merged.result, theirs)
        assert (repeated.result, repeated.conflicts, repeated.steps) == (merged.result, (), ())
    taken = merge_schemas(ours, ours, merged.result)
    assert taken.result == merged.result
    assert taken.steps == merged.steps


@pytest.mark.parametrize("seed", SEEDS)
def test_a_side_that_did_not_change_gives_the_other(seed: int) -> None:
    base, ours, _ = history(seed)
    kept = merge_schemas(base, ours, base)
    assert (kept.result, kept.steps, kept.conflicts, kept.changed) == (ours, (), (), False)
    taken = merge_schemas(base, base, ours)
    assert taken.conflicts == ()
    assert content(taken.result) == content(ours)
    assert taken.result.source == ours.source
    if base != ours:
        assert outline(applied(base, taken)) == outline(taken.result)


def require_valid(schema: Schema) -> None:
    assert content(parse_schema(schema.source)) == content(schema)
    assert content(parse_schema(render(schema))) == content(schema)
    assert schema_from_json(json.loads(json.dumps(schema_to_json(schema)))) == schema


def require_identity(ours: Schema, theirs: Schema, result: Schema) -> None:
    """Elements of ours keep their ids, and nothing has an id that neither side has given."""
    known = {i for side in (ours, theirs) for t in side.types() for e in (t, *t.properties) for i in identifiers(e)}
    for t in result.types():
        assert known.issuperset(i for e in (t, *t.properties) for i in identifiers(e))
        mine = [m for m in ours.types() if same_element(m, t)]
        assert [m.id for m in mine] in ([], [t.id])
        for p in t.properties:
            assert [q.id for m in mine for q in m.properties if same_element(p, q)] in ([], [p.id])


# ---- the steps, applied ----------------------------------------------------------------------------------------------


def outline(schema: Schema) -> dict[str, object]:
    """What steps tell of, by id."""

    def of(t: EntityType) -> object:
        properties = {p.id: (p.name, str(p.type), p.nullable) for p in t.properties}
        ids = {p.name: p.id for p in t.properties}
        constraints = {(c.kind, frozenset(ids.get(m, m) for m in c.properties)) for c in t.constraints}
        return t.name, properties, [p.id for p in t.properties], constraints

    return {t.id: of(t) for t in schema.types()}


def applied(ours: Schema, merged: SchemaMerge) -> Schema:
    """Ours after the steps; only what is added as a whole is taken from the result."""
    types: dict[str, EntityType] = {t.id: t for t in ours.types()}
    for t in types.values():
        types[t.id] = with_members_by_id(t)
    for step in merged.steps:
        assert isinstance(step, s.TypeStep)
        if step.type_kind == "interface":
            continue
        if isinstance(step, s.AddType):
            types[step.type_id] = with_members_by_id(merged.result.by_id[step.type_id])
        elif isinstance(step, s.DropType):
            del types[step.type_id]
        else:
            types[step.type_id] = after(types[step.type_id], step, merged.result.by_id[step.type_id])
    nodes, edges = (tuple(t for t in types.values() if t.kind == kind) for kind in ("node", "edge"))
    return Schema((), nodes, edges)  # type: ignore[arg-type]


def with_members_by_id(t: EntityType) -> EntityType:
    ids = {p.name: p.id for p in t.properties}
    constraints = tuple(replace(c, properties=tuple(ids.get(m, m) for m in c.properties)) for c in t.constraints)
    return replace(t, constraints=constraints)


def after(t: EntityType, step: s.TypeStep, target: EntityType) -> EntityType:
    if isinstance(step, s.RenameType):
        assert t.name == step.from_name
        return replace(t, name=step.type_name)
    if isinstance(step, s.AddConstraint):
        keyed = with_members_by_id(target)
        ids = {target.by_name[m].id if m in target.by_name else m for m in step.properties}
        (added,) = [c for c in keyed.constraints if c.kind == step.constraint and set(c.properties) == ids]
        return replace(t, constraints=(*t.constraints, added))
    if isinstance(step, s.DropProperty):
        constraints = tuple(c for c in t.constraints if step.property_id not in c.properties)
        properties = tuple(p for p in t.properties if p.id != step.property_id)
        return replace(t, properties=properties, constraints=constraints)
    if isinstance(step, s.AddProperty):
        (new,) = [p for p in target.properties if p.id == step.property_id]
        assert (new.name, str(new.type), new.nullable) == (step.property_name, step.property_type, step.nullable)
        assert new.default == step.backfill
        return replace(t, properties=(*t.properties, new))
    if isinstance(step, s.RenameProperty | s.ExtendEnum):
        return replace(t, properties=tuple(changed(p, step) for p in t.properties))
    return t


def changed(p: Property, step: s.PropertyStep) -> Property:
    if p.id != step.property_id:
        return p
    if isinstance(step, s.RenameProperty):
        assert p.name == step.from_name
        return replace(p, name=step.property_name)
    assert isinstance(step, s.ExtendEnum)
    return replace(p, type=replace(p.type, values=tuple(sorted({*p.type.values, *step.added_values}))))
