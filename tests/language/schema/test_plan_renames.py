"""`@rename_from`: identity survives, everything that mentions the old name follows, and what is unclear is refused."""

from __future__ import annotations

import pytest

from tests.language.schema.texts import accepted, kinds, plan, steps


def test_renaming_a_type_keeps_its_id_and_its_properties_ids() -> None:
    before = accepted("node A { x: I32 }")
    made = plan(before, 'node B @rename_from("A") { x: I32 }')
    assert steps(made) == [
        {"kind": "rename_type", "type_kind": "node", "type_name": "B", "type_id": "n01", "from_name": "A"}
    ]
    assert made.result.node["B"].id == before.node["A"].id
    assert made.result.node["B"].properties == before.node["A"].properties


def test_edges_follow_a_renamed_node() -> None:
    made = plan(
        "node A {} node C {} edge E: A -> C edge F: A -> A",
        'node B @rename_from("A") {} node C {} edge E: B -> C edge F2: B -> B @rename_from("F")',
    )
    assert [str(s) for s in made.steps] == ["rename node A to B", "rename edge F to F2"]
    assert (made.result.edge["E"].source, made.result.edge["F2"].target) == ("B", "B")


def test_renaming_a_property_keeps_its_id_and_place() -> None:
    before = accepted("node P { a: I32 b: I32 }")
    made = plan(before, 'node P { b: I32 z: I32 @rename_from("a") }')
    assert steps(made) == [
        {
            "kind": "rename_property",
            "type_kind": "node",
            "type_name": "P",
            "type_id": "n01",
            "property_name": "z",
            "property_id": "p02",
            "from_name": "a",
        }
    ]
    assert [(p.name, p.id) for p in made.result.node["P"].properties] == [("z", "p02"), ("b", "p03")]


def test_rename_and_widen_renames_first_and_then_uses_the_new_names() -> None:
    made = plan("node P { s: enum(a) }", 'node P2 @rename_from("P") { state: enum(a, b) @rename_from("s") @x }')
    assert [(s["kind"], s["type_name"], s.get("property_name")) for s in steps(made)] == [
        ("rename_type", "P2", None),
        ("rename_property", "P2", "state"),
        ("extend_enum", "P2", "state"),
        ("update_property_metadata", "P2", "state"),
    ]


def test_constraints_and_embeddings_follow_renamed_properties() -> None:
    made = plan(
        'node P { a: String @key b: I32? @unique c: I32? t: String v: Vector(2)? @embed("t", model="m") '
        '@unique(a, c) @index(t) @range(b, 0..9) @check(t, "x") }',
        'node P { a2: String @rename_from("a") @key b2: I32? @rename_from("b") @unique c2: I32? @rename_from("c") '
        't2: String @rename_from("t") v: Vector(2)? @embed("t2", model="m") '
        '@unique(c2, a2) @index(t2) @range(b2, 0..9) @check(t2, "x") }',
    )
    assert kinds(made) == ["rename_property"] * 4
    assert made.result.node["P"].key_properties == ("a2",)


def test_the_members_of_a_key_keep_their_order_when_renamed() -> None:
    before = accepted("node P { b: I32 a: I32 @key(a, b) }")
    after = plan(before, 'node P { a2: I32 @rename_from("a") z: I32 @rename_from("b") @key(a2, z) }').result
    assert before.node["P"].key_properties == ("b", "a")
    assert after.node["P"].key_properties == ("z", "a2")


def test_an_interface_renames_the_property_in_all_its_nodes() -> None:
    made = plan(
        "interface I { a: I32 } node P implements I {} node Q implements I {}",
        'interface I { b: I32 @rename_from("a") } node P implements I {} node Q implements I {}',
    )
    assert kinds(made) == ["update_type_metadata", "rename_property", "rename_property"]


def test_leaving_or_removing_the_annotation_afterwards_is_no_change() -> None:
    text = 'node B @rename_from("A") { y: I32 @rename_from("x") } edge F: B -> B @rename_from("E")'
    after = plan("node A { x: I32 } edge E: A -> A", text).result
    assert not plan(after, text).changed
    assert not plan(after, "node B { y: I32 } edge F: B -> B").changed


def test_the_old_name_can_be_used_again_once_the_rename_is_done() -> None:
    text = 'node B @rename_from("A") {}'
    after = plan("node A {}", text).result
    made = plan(after, text + " node A {}")
    assert [str(s) for s in made.steps] == ["add node A"]
    assert not plan(made.result, text + " node A {}").changed


def test_a_stale_annotation_does_not_stand_in_the_way_of_the_next_rename() -> None:
    before = accepted('node B @rename_from("A") {} node A {}')
    made = plan(before, 'node B @rename_from("A") {} node C @rename_from("A") {}')
    assert [str(s) for s in made.steps] == ["rename node A to C"]


def test_a_new_type_may_bring_old_annotations_on_its_properties() -> None:
    assert kinds(plan("", 'node P { b: I32 @rename_from("a") }')) == ["add_type"]


REFUSED = [
    (
        "node A {}",
        'node A {} node B @rename_from("Gone") {}',
        "node:B",
        "@rename_from names Gone, which does not exist",
    ),
    (
        "node A { x: I32 }",
        'node A { x: I32 y: I32? @rename_from("gone") }',
        "node:A.y",
        "@rename_from names gone, which does not exist",
    ),
    (
        "node Person {}",
        'node Person {} node Company @rename_from("Persom") {}',
        "node:Company",
        "@rename_from names Persom, which does not exist (did you mean Person?)",
    ),
    (
        "node A {}",
        'node A @rename_from("Gone") {}',
        "node:A",
        "@rename_from names Gone, which does not exist",
    ),
    (
        "node A { x: I32 }",
        'node A { x: I32 @rename_from("gone") }',
        "node:A.x",
        "@rename_from names gone, which does not exist",
    ),
    (
        'node B @rename_from("A") {}',
        'node B @rename_from("Gone") {}',
        "node:B",
        "@rename_from names Gone, which does not exist",
    ),
    (
        "node A {}",
        'node A {} node B @rename_from("A") {}',
        "node:B",
        "@rename_from names A, which is still declared; remove one of the two",
    ),
    (
        "node A { x: I32 }",
        'node A { x: I32 y: I32 @rename_from("x") }',
        "node:A.y",
        "@rename_from names x, which is still declared; remove one of the two",
    ),
    (
        "node A {} node B {}",
        'node B @rename_from("A") {}',
        "node:B",
        "@rename_from names A, but A and B both exist; drop one of them first, or remove the annotation",
    ),
    (
        "node A {}",
        'node B @rename_from("A") {} node C @rename_from("A") {}',
        "node:C",
        "B is renamed from A as well",
    ),
    (
        "node A {} node B {}",
        'node A {} edge E: A -> A @rename_from("B")',
        "edge:E",
        "@rename_from names B, which is no edge type",
    ),
]


@pytest.mark.parametrize(("before", "after", "entity", "reason"), REFUSED, ids=range(len(REFUSED)))
def test_an_unclear_rename_is_refused_with_its_reason(before: str, after: str, entity: str, reason: str) -> None:
    old = accepted(before)
    made = plan(old, after)
    assert [(s.entity, s.reason) for s in made.unsupported] == [(entity, reason)]
    assert made.result is old


SWAPPED = [
    ("node A {} node B {}", 'node A @rename_from("B") {} node B @rename_from("A") {}', ["node:A", "node:B"]),
    (
        "node P { x: I32 y: I32 }",
        'node P { x: I32 @rename_from("y") y: I32 @rename_from("x") }',
        ["node:P.x", "node:P.y"],
    ),
    ("node A {} node B {}", 'node A @rename_from("B") {} node B {}', ["node:A"]),
]


@pytest.mark.parametrize(("before", "after", "entities"), SWAPPED, ids=["types", "properties", "half"])
def test_swapped_names_are_refused_and_not_ignored(before: str, after: str, entities: list[str]) -> None:
    made = plan(before, after)
    assert [s.entity for s in made.unsupported] == entities
    assert all("both exist and stay; swap names in two steps" in s.reason for s in made.unsupported)


def test_names_are_swapped_by_a_third_one() -> None:
    first = plan("node A {} node B {}", 'node C @rename_from("A") {} node A @rename_from("B") {}')
    assert not first.supported, "A is still there when it is claimed"
    text = 'node C @rename_from("A") {} node B {}'
    by_third = plan("node A {} node B {}", text).result
    second = plan(by_third, 'node C {} node A @rename_from("B") {}').result
    third = plan(second, 'node B @rename_from("C") {} node A {}')
    assert third.supported
    assert (third.result.node["B"].id, third.result.node["A"].id) == ("n01", "n02")


def test_an_unclear_rename_drops_nothing() -> None:
    made = plan("node A {} node B {} edge E: A -> B", 'node B @rename_from("A") {}')
    assert "drop node A" not in [str(s)[:11] for s in made.steps]
