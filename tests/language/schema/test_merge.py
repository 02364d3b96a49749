"""Three-way merge of schemas: what each side changed comes together, and what excludes itself is a conflict."""

from __future__ import annotations

from dataclasses import replace
from itertools import count

import pytest

from omnigraph.language.schema import Schema, parse_schema, plan_changes, render
from omnigraph.language.schema.merge.schemas import SchemaMerge, merge_schemas
from tests.language.schema.texts import accepted
from tests.support.merged_schemas import content

BASE = "node P { k: String @key  a: I32?  e: enum(x, y)? } node Q { n: I32? } edge K: P -> Q { s: Date? }"
_NUMBERS = count(500)


def evolve(before: Schema, *texts: str) -> Schema:
    """The schema after each text was applied, with ids that no other call gives."""
    for text in texts:
        plan = plan_changes(
            before,
            parse_schema(text),
            new_id=lambda prefix: f"{prefix}{next(_NUMBERS)}",
            drop_all=True,
            populated=lambda t: False,
        )
        assert plan.supported, plan.unsupported
        before = plan.result
    return before


def merge(base: str, ours: str | tuple[str, ...], theirs: str | tuple[str, ...]) -> SchemaMerge:
    before = accepted(base)
    sides = [evolve(before, *((s,) if isinstance(s, str) else s)) for s in (ours, theirs)]
    return merge_schemas(before, *sides)


def kinds(merged: SchemaMerge) -> list[tuple[str, str]]:
    return [(c.kind, c.entity) for c in merged.conflicts]


def steps(merged: SchemaMerge) -> list[str]:
    return [str(s) for s in merged.steps]


# ---- no conflict -----------------------------------------------------------------------------------------------------


def test_a_side_that_did_not_change_takes_the_other_with_ids_and_text() -> None:
    base = accepted(BASE)
    other = evolve(base, BASE.replace("a: I32?", "a: I32? @index  b: String?") + " node R {} // with a comment")
    taken = merge_schemas(base, base, other)
    assert (taken.result, taken.changed, taken.conflicts) == (other, True, ())
    assert steps(taken) == ["add property P.b: String?", "add @index(a) to node P", "add node R"]
    kept = merge_schemas(base, other, base)
    assert (kept.result, kept.changed, kept.steps) == (other, False, ())
    same = merge_schemas(base, other, other)
    assert (same.result, same.changed, same.steps) == (other, False, ())


@pytest.mark.parametrize(
    ("ours", "theirs", "expected"),
    [
        pytest.param(
            BASE + " node R { r: I32 }",
            BASE + " node S {} edge L: S -> P",
            BASE + " node R { r: I32 } node S {} edge L: S -> P",
            id="types added on both sides",
        ),
        pytest.param(
            BASE.replace("n: I32?", "n: I32?  m: I32?"),
            BASE.replace("n: I32?", 'n: I32?  l: String @default("")'),
            BASE.replace("n: I32?", 'n: I32?  m: I32?  l: String @default("")'),
            id="properties added on both sides",
        ),
        pytest.param(
            BASE.replace("node P", 'node R @rename_from("P")').replace("P ->", "R ->"),
            BASE.replace("a: I32?", 'b: I32? @rename_from("a")') + " edge L: Q -> P",
            BASE.replace("node P", 'node R @rename_from("P")')
            .replace("P ->", "R ->")
            .replace("a: I32?", 'b: I32? @rename_from("a")')
            + " edge L: Q -> R",
            id="a type renamed on one side, a property of it on the other, and a new edge to it",
        ),
        pytest.param(
            BASE.replace("a: I32?", 'b: I32? @rename_from("a")'),
            BASE.replace("a: I32?", "a: I32? @index"),
            BASE.replace("a: I32?", 'b: I32? @index @rename_from("a")'),
            id="an index on a property that was renamed",
        ),
        pytest.param(
            BASE.replace("x, y", "x, y, b"),
            BASE.replace("x, y", "x, y, a, z"),
            BASE.replace("x, y", "a, b, x, y, z"),
            id="enums are united",
        ),
        pytest.param(
            BASE.replace("a: I32?", 'a: I32? @description("d")'),
            BASE.replace("a: I32?", "a: I32? @default(3)").replace("node Q", "node Q @x(1)"),
            BASE.replace("a: I32?", 'a: I32? @description("d") @default(3)').replace("node Q", "node Q @x(1)"),
            id="annotations by name",
        ),
        pytest.param(
            BASE.replace("node Q", 'node Q @description("d") @x'),
            BASE.replace("node Q", 'node Q @description("d") @y'),
            BASE.replace("node Q", 'node Q @description("d") @x @y'),
            id="the same annotation on both sides",
        ),
        pytest.param(
            BASE.replace("a: I32?", ""),
            BASE.replace("{ s: Date? }", ""),
            BASE.replace("a: I32?", "").replace("{ s: Date? }", ""),
            id="properties dropped on both sides",
        ),
        pytest.param(
            BASE.partition("edge")[0],
            BASE.partition("edge")[0].replace("node Q { n: I32? }", ""),
            BASE.partition("edge")[0].replace("node Q { n: I32? }", ""),
            id="types dropped on both sides",
        ),
        pytest.param(
            (BASE.replace("a: I32?", 'b: I32? @rename_from("a")'), BASE.replace("a: I32?", "a: I32? @rename_from(b)")),
            BASE.replace("a: I32?", 'b: I32? @rename_from("a")'),
            BASE.replace("a: I32?", 'b: I32? @rename_from("a")'),
            id="renamed there and back on one side",
        ),
        pytest.param(
            BASE,
            (BASE.replace("a: I32?", ""), BASE.replace("a: I32?", "a: String? @index")),
            BASE.replace("a: I32?", "a: String? @index"),
            id="dropped and added again with another type",
        ),
    ],
)
def test_changes_of_both_sides_come_together(ours: str, theirs: str, expected: str) -> None:
    merged = merge(BASE, ours, theirs)
    assert merged.conflicts == ()
    assert content(merged.result) == content(parse_schema(expected))
    assert content(parse_schema(merged.result.source)) == content(merged.result)
    reverse = merge(BASE, theirs, ours)
    assert content(reverse.result) == content(merged.result)


def test_what_theirs_added_keeps_its_ids() -> None:
    base = accepted(BASE)
    ours = evolve(base, BASE + " node R {}")
    theirs = evolve(base, BASE.replace("n: I32?", "n: I32?  m: I32?") + " node S { t: I32? }")
    merged = merge_schemas(base, ours, theirs)
    assert merged.result.node["S"] == theirs.node["S"]
    assert merged.result.node["Q"] == theirs.node["Q"]
    assert [n.name for n in merged.result.nodes] == ["P", "Q", "R", "S"]
    assert merged.result.source == render(merged.result)


def test_an_embedded_vector_follows_the_rename_of_its_source() -> None:
    text = "node P { t: String?  v: Vector(4)? @embed(t) }"
    merged = merge(
        text, text.replace("t: String?", "u: String? @rename_from(t)").replace("(t) }", "(u) }"), text + " node Q {}"
    )
    assert merged.conflicts == ()
    embed = merged.result.node["P"].by_name["v"].annotation("embed")
    assert embed is not None
    assert embed.argument == "u"
    taken = merge(
        text, text + " node Q {}", text.replace("t: String?", "u: String? @rename_from(t)").replace("(t) }", "(u) }")
    )
    assert steps(taken) == ["rename property P.t to u"]


def test_constraints_are_merged_as_a_set() -> None:
    text = "node P { a: I32? @unique  b: I32?  c: I32? }"
    merged = merge(
        text, text.replace("c: I32?", "c: I32? @index(a, b)"), text.replace("b: I32?", "b: I32? @index @index(b, a)")
    )
    shown = [(c.kind, c.properties) for c in merged.result.nodes[0].constraints]
    assert shown == [("unique", ("a",)), ("index", ("a", "b")), ("index", ("b",))]
    gone = merge(text, text.replace("b: I32?", "b: I32? @index"), "node P { b: I32?  c: I32? }")
    assert [(c.kind, c.properties) for c in gone.result.nodes[0].constraints] == [("index", ("b",))]


def test_names_may_be_exchanged_by_steps_of_the_other_side() -> None:
    text = "node P { a: I32?  b: I32? } node R {}"
    swap = (
        text.replace("a: I32?", "t: I32? @rename_from(a)"),
        "node P { t: I32?  a: I32? @rename_from(b) } node R {}",
        "node P { b: I32? @rename_from(t)  a: I32? } node R {}",
    )
    merged = merge(text, text + " node S {}", swap)
    assert steps(merged) == ["rename property P.a to b", "rename property P.b to a"]
    assert [p.name for p in merged.result.node["P"].properties] == ["b", "a"]


# ---- the same element added twice --------------------------------------------------------------------------------


FILE = BASE.replace("n: I32?", "n: I32?  m: I32? @index") + (
    " node R { x: String  y: I32  @key(x, y) } edge L: R -> R @card(0..1) { w: F64? }"
)


def test_a_file_that_both_branches_applied_is_one_change_with_aliases() -> None:
    base = accepted(BASE)
    ours, theirs = evolve(base, FILE), evolve(base, FILE)
    merged = merge_schemas(base, ours, theirs)
    assert (merged.conflicts, merged.steps, merged.changed) == ((), (), True)
    assert merged.result.source == FILE
    for kind in ("node", "edge"):
        for name, t in getattr(merged.result, kind).items():
            mine, other = getattr(ours, kind)[name], getattr(theirs, kind)[name]
            assert t.id == mine.id
            assert t.aliases == (() if mine.id == other.id else (other.id,))
            for p in t.properties:
                assert p.id == mine.by_name[p.name].id
                assert {p.id, *p.aliases} == {p.id, other.by_name[p.name].id}
    assert merge_schemas(theirs, merged.result, theirs).changed is False
    assert merge_schemas(base, merged.result, theirs).changed is False


def test_later_changes_are_matched_by_alias() -> None:
    base = accepted(BASE)
    ours, theirs = evolve(base, FILE), evolve(base, FILE)
    merged = merge_schemas(base, ours, theirs).result
    renamed = FILE.replace("w: F64?", "v: F64? @rename_from(w)").replace("node R {", "node R2 @rename_from(R) {")
    renamed = renamed.replace("R -> R ", "R2 -> R2 ")
    later = merge_schemas(theirs, merged, evolve(theirs, renamed))
    assert later.conflicts == ()
    assert steps(later) == ["rename node R to R2", "rename property L.w to v"]
    assert (later.result.node["R2"].id, later.result.node["R2"].aliases) == (
        merged.node["R"].id,
        merged.node["R"].aliases,
    )
    back = merge_schemas(theirs, theirs, later.result)
    assert steps(back) == steps(later)
    assert back.result.node["R2"].id == theirs.node["R"].id
    assert content(back.result) == content(later.result)


def test_an_element_that_is_two_on_the_other_side_is_a_conflict() -> None:
    base = accepted("node P { a: I32? }")
    one, two = evolve(base, "node P { a: I32? } node T {}"), evolve(base, "node P { a: I32? } node T {}")
    united = merge_schemas(base, one, two).result
    apart = merge_schemas(base, evolve(one, "node P { a: I32? } node S @rename_from(T) {}"), two)
    assert apart.conflicts == ()
    assert set(apart.result.node) == {"P", "S", "T"}
    assert ("schema_divergent_type", "node:S") in kinds(merge_schemas(base, apart.result, united))


def test_an_embedded_vector_that_both_sides_added_is_a_conflict() -> None:
    text = "node P { t: String? }"
    both = "node P { t: String?  v: Vector(4)? @embed(t) }"
    merged = merge(text, both, both)
    assert kinds(merged) == [("schema_divergent_property", "node:P.v")]
    assert merged.conflicts[0].ours == merged.conflicts[0].theirs == 'v: Vector(4)? @embed("t")'
    in_type = text + " node V { t: String?  v: Vector(4)? @embed(t) }"
    assert kinds(merge(text, in_type, in_type)) == [("schema_divergent_type", "node:V")]


def test_types_whose_keys_order_differently_are_not_one() -> None:
    """Ids of rows are made from the members of the key in the order of their ids."""
    merged = merge(
        "node P {}", "node P {} node R { a: I32 b: I32 @key(a, b) }", "node P {} node R { b: I32 a: I32 @key(a, b) }"
    )
    assert kinds(merged) == [("schema_divergent_type", "node:R")]


# ---- conflicts -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("ours", "theirs", "kind", "entity"),
    [
        pytest.param(
            BASE.replace("a: I32?", "b: I32? @rename_from(a)"),
            BASE.replace("a: I32?", "c: I32? @rename_from(a)"),
            "schema_divergent_rename",
            "node:P.b",
            id="a property renamed differently",
        ),
        pytest.param(
            BASE.replace("edge K: P -> Q", "edge L: P -> Q @rename_from(K)"),
            BASE.replace("edge K: P -> Q", "edge M: P -> Q @rename_from(K)"),
            "schema_divergent_rename",
            "edge:L",
            id="a type renamed differently",
        ),
        pytest.param(
            BASE + " node R { x: I32? }",
            BASE + " node R { x: I64? }",
            "schema_divergent_type",
            "node:R",
            id="one name, two types",
        ),
        pytest.param(
            BASE + " node R {}", BASE + " edge R: P -> P", "schema_divergent_type", "edge:R", id="one name, two kinds"
        ),
        pytest.param(
            BASE + " edge Rel: P -> P",
            BASE + " edge REL: P -> P",
            "schema_divergent_type",
            "edge:REL",
            id="edges that differ in case only",
        ),
        pytest.param(
            BASE + " interface R { x: I32 }", BASE + " node R {}", "schema_divergent_type", "node:R", id="an interface"
        ),
        pytest.param(
            BASE.replace("node Q", "node R @rename_from(Q)").replace("-> Q", "-> R"),
            BASE + " node R {}",
            "schema_divergent_type",
            "node:R",
            id="renamed to a name that the other side added",
        ),
        pytest.param(
            BASE.replace("n: I32?", "n: I32?  m: I32?"),
            BASE.replace("n: I32?", "n: I32?  m: I32? @default(1)"),
            "schema_divergent_property",
            "node:Q.m",
            id="one name, two properties",
        ),
        pytest.param(
            BASE.replace("a: I32?", "b: I32? @rename_from(a)"),
            BASE.replace("a: I32?", "a: I32?  b: I32?"),
            "schema_divergent_property",
            "node:P.b",
            id="renamed to the name of a property that the other side added",
        ),
        pytest.param(
            BASE.replace("node Q", 'node Q @description("x")'),
            BASE.replace("node Q", 'node Q @description("y")'),
            "schema_divergent_definition",
            "node:Q",
            id="an annotation of a type",
        ),
        pytest.param(
            BASE.replace("a: I32?", "a: I32? @note(1)"),
            BASE.replace("a: I32?", "a: I32? @note(true)"),
            "schema_divergent_definition",
            "node:P.a",
            id="an annotation of a property, 1 and true",
        ),
        pytest.param(
            BASE.partition("edge")[0].replace("node Q { n: I32? }", ""),
            BASE.replace("n: I32?", "n: I32?  m: I32?"),
            "schema_dropped_type",
            "node:Q",
            id="a type dropped and changed",
        ),
        pytest.param(
            BASE.partition("edge")[0],
            BASE.replace("s: Date?", "t: Date? @rename_from(s)"),
            "schema_dropped_type",
            "edge:K",
            id="an edge type dropped and changed",
        ),
        pytest.param(
            BASE.partition("edge")[0].replace("node Q { n: I32? }", ""),
            BASE + " edge L: P -> Q",
            "schema_dropped_type",
            "node:Q",
            id="a node type dropped and connected",
        ),
        pytest.param(
            BASE.replace("a: I32?", ""),
            BASE.replace("a: I32?", 'a: I32? @description("d")'),
            "schema_dropped_property",
            "node:P.a",
            id="a property dropped and changed",
        ),
        pytest.param(
            BASE.replace("a: I32?", ""),
            BASE.replace("a: I32?", "a: I32? @index(a, e)"),
            "schema_dropped_property",
            "node:P.a",
            id="a property dropped and indexed",
        ),
    ],
)
def test_what_excludes_itself_is_a_conflict_in_both_directions(ours: str, theirs: str, kind: str, entity: str) -> None:
    merged = merge(BASE, ours, theirs)
    assert kinds(merged) == [(kind, entity)]
    (conflict,) = merged.conflicts
    assert conflict.table_key == entity.partition(".")[0]
    assert conflict.message
    assert conflict.ours != conflict.theirs
    assert (merged.steps, merged.changed) == ((), False)
    assert content(merged.result) == content(evolve(accepted(BASE), ours))
    assert [c.kind for c in merge(BASE, theirs, ours).conflicts] == [kind]


def test_a_name_that_is_not_decided_is_no_second_conflict() -> None:
    theirs = BASE.replace("edge K: P -> Q", "edge M: P -> Q @rename_from(K)") + " node L {}"
    assert kinds(merge(BASE, BASE.replace("edge K: P -> Q", "edge L: P -> Q @rename_from(K)"), theirs)) == [
        ("schema_divergent_rename", "edge:L")
    ]
    again = (BASE.replace("a: I32?", ""), BASE.replace("a: I32?", "a: String?"))
    changed = BASE.replace("a: I32?", "a: I32? @x")
    assert kinds(merge(BASE, again, changed)) == [("schema_dropped_property", "node:P.a")]


def test_a_conflict_shows_the_three_definitions() -> None:
    conflicts = merge(
        BASE, BASE.replace("a: I32?", 'a: I32? @index @x("o")'), BASE.replace("a: I32?", 'a: I32? @x("t")')
    ).conflicts
    assert [(c.base, c.ours, c.theirs) for c in conflicts] == [("a: I32?", 'a: I32? @index @x("o")', 'a: I32? @x("t")')]
    dropped = merge(BASE, BASE.partition("edge")[0], BASE.replace("s: Date?", "")).conflicts
    texts = [(c.base, c.ours, c.theirs) for c in dropped]
    assert texts == [("edge K: P -> Q {\n  s: Date?\n}", None, "edge K: P -> Q")]


def test_a_source_of_embed_that_is_dropped_is_a_conflict() -> None:
    text = "node P { t: String?  u: I32? }"
    merged = merge(text, "node P { u: I32? }", "node P { t: String?  u: I32?  v: Vector(4)? @embed(t) }")
    assert kinds(merged) == [("schema_dropped_property", "node:P.t")]


# ---- what the caller compares with rows ----------------------------------------------------------------------------


def test_drops_and_required_properties_are_listed_by_id() -> None:
    base = accepted(BASE)
    smaller = evolve(base, BASE.partition("edge")[0].replace("a: I32?", "").replace("n: I32?", "n: I32?  r: String"))
    other = evolve(base, BASE + " node R { r: String }")
    person, knows = base.node["P"], base.edge["K"]
    taken = merge_schemas(base, other, smaller)
    assert taken.conflicts == ()
    assert taken.dropped_types == (knows.id,)
    assert taken.dropped_properties == ((person.id, person.by_name["a"].id),)
    assert (taken.missing_types, taken.missing_properties) == ((), ())
    assert taken.required_properties == ((base.node["Q"].id, smaller.node["Q"].by_name["r"].id),)
    assert steps(taken) == ["drop property P.a (soft)", "add property Q.r: String", "drop edge K (soft)"]
    kept = merge_schemas(base, smaller, other)
    assert (kept.dropped_types, kept.dropped_properties) == ((), ())
    assert kept.missing_types == (knows.id,)
    assert kept.missing_properties == ((person.id, person.by_name["a"].id),)
    assert kept.required_properties == ()
    assert steps(kept) == ["add node R"]


def test_what_was_dropped_is_listed_by_the_ids_of_who_still_has_it() -> None:
    base = accepted(BASE)
    ours, theirs = evolve(base, FILE), evolve(base, FILE)
    merged = merge_schemas(base, ours, theirs).result
    without = merge_schemas(theirs, merged, evolve(theirs, BASE))
    assert set(without.dropped_types) == {ours.node["R"].id, ours.edge["L"].id}
    back = merge_schemas(theirs, evolve(merged, BASE), theirs)
    assert set(back.missing_types) == {theirs.node["R"].id, theirs.edge["L"].id}
    assert back.missing_properties == ((base.node["Q"].id, theirs.node["Q"].by_name["m"].id),)


# ---- interfaces and rules --------------------------------------------------------------------------------------------

INTERFACE = "interface I { x: I32? } node N implements I { y: I32? }"


def test_interfaces_are_merged_property_by_property() -> None:
    merged = merge(
        INTERFACE,
        INTERFACE.replace("x: I32?", "x: I32?  a: I32?"),
        INTERFACE.replace("x: I32?", 'x: I32? @description("d")  b: I32?') + " interface J { j: I32 }",
    )
    assert merged.conflicts == ()
    expected = INTERFACE.replace("x: I32?", 'x: I32? @description("d")  a: I32?  b: I32?') + " interface J { j: I32 }"
    assert content(merged.result) == content(parse_schema(expected))
    assert steps(merged) == [
        "update interface I: its definition",
        "add interface J",
        "update N.x: @description",
        "add property N.b: I32?",
    ]


def test_interfaces_that_exclude_each_other_are_conflicts() -> None:
    described = [INTERFACE.replace("x: I32?", f'x: I32? @description("{side}")') for side in "ot"]
    assert kinds(merge(INTERFACE, *described)) == [
        ("schema_divergent_definition", "interface:I.x"),
        ("schema_divergent_definition", "node:N.x"),
    ]
    added = merge("node N {}", "node N {} interface J { a: I32 }", "node N {} interface J { b: I32 }")
    assert kinds(added) == [("schema_divergent_type", "interface:J")]


def test_a_result_that_breaks_a_rule_is_a_conflict() -> None:
    """The node that ours added lacks the property that the interface got on the other side."""
    merged = merge(
        INTERFACE, INTERFACE + " node M implements I { z: I32? }", INTERFACE.replace("x: I32?", "x: I32?  a: I32?")
    )
    assert kinds(merged) == [("schema_divergent_definition", "node:M")]
    ranged = "node P { a: I32?  @range(a, 0..9) }"
    default = merge(ranged, ranged.replace("a: I32?", "a: I32? @default(3)"), ranged + " node Q {}")
    assert default.conflicts == ()


def test_an_attribute_that_no_step_can_change_is_a_conflict() -> None:
    base = accepted(BASE)
    (p, q) = base.nodes
    wider = replace(p, properties=tuple(replace(x, nullable=True) if x.name == "k" else x for x in p.properties))
    theirs = replace(base, nodes=(replace(wider, constraints=()), q))
    assert {kind for kind, _ in kinds(merge_schemas(base, base, theirs))} == {"schema_divergent_definition"}
    changed = replace(base, edges=(replace(base.edges[0], card_max=1),))
    assert kinds(merge_schemas(base, base, changed)) == [("schema_divergent_definition", "edge:K")]
    assert merge_schemas(base, changed, base).result == changed


# ---- taking an earlier change back ----------------------------------------------------------------------------------


def test_a_revert_restores_what_was_dropped_with_its_ids_and_constraints() -> None:
    text = "node P { a: I32?  b: I32? @unique }"
    before = accepted(text)
    after = evolve(before, "node P { a: I32? }")
    ours = evolve(after, "node P { a: I32?  c: I32? }")
    merged = merge_schemas(after, ours, before)
    assert merged.conflicts == ()
    assert steps(merged) == ["add property P.b: I32?", "add @unique(b) to node P"]
    assert merged.result.node["P"].by_name["b"] == before.node["P"].by_name["b"]


def test_a_revert_removes_indices_and_keeps_values_of_enums() -> None:
    before = accepted(BASE)
    after = evolve(before, BASE.replace("a: I32?", "a: I32? @index").replace("x, y", "x, y, z"))
    merged = merge_schemas(after, after, before)
    assert steps(merged) == ["update node P: @index"]
    assert merged.result.node["P"].by_name["e"].type.values == ("x", "y", "z")
