"""The steps of supported changes, their ids, and the accepted schema afterwards."""

from __future__ import annotations

import json

import pytest

from omnigraph.language.schema import Schema, accept, fresh_ids, parse_schema, plan_changes
from omnigraph.language.schema.plan.match import renamed_from
from tests.language.schema.texts import EVERYTHING, accepted, counting_ids, kinds, plan, steps

BASE = "node P { name: String @key  age: I32? } node Q { x: I32? } edge Knows: P -> P { since: Date? }"


def test_accepting_gives_every_type_and_property_its_own_id() -> None:
    schema = accept(parse_schema(EVERYTHING), new_id=fresh_ids())
    types = [t.id for t in schema.types()]
    properties = [p.id for t in schema.types() for p in t.properties]
    assert len({*types, *properties}) == len(types) + len(properties)
    assert [i[0] for i in types] == ["n", "n", "e", "e", "e"]
    assert {i[0] for i in properties} == {"p"}
    assert properties == sorted(properties)


def test_accepting_a_file_that_still_says_rename_from_is_fine() -> None:
    schema = accepted('node B @rename_from("A") { y: I32 @rename_from("x") }')
    assert renamed_from(schema.nodes[0]) == "A"


@pytest.mark.parametrize("text", ["", BASE, EVERYTHING])
def test_an_unchanged_schema_gives_no_steps_and_the_accepted_schema(text: str) -> None:
    before = accepted(text)
    made = plan(before, text)
    assert (made.steps, made.findings, made.changed, made.supported) == ((), (), False, True)
    assert made.result is before


def test_reordering_and_reformatting_is_no_change() -> None:
    made = plan(
        "interface I { i: I32 j: I32 } "
        'node P @a @b("x") implements I { x: enum(b, a) @unique @c @d  y: I32 @key(x, y) } '
        "node Q {} edge E: P -> Q { s: Date? @unique(src, dst) }",
        "edge E: P -> Q { @unique(dst, src) s: Date? } /* moved */ node Q {}\n"
        'node P @b("x") @a implements I { @unique(x) @key(y, x) y: I32 x: enum(a, b) @d @c } '
        "interface I { j: I32 i: I32 }",
    )
    assert made.steps == ()


def test_adding_types_gives_them_ids() -> None:
    made = plan(BASE, BASE + " node R { a: I32 @key } edge Has: P -> R { b: I32 }")
    assert steps(made) == [
        {"kind": "add_type", "type_kind": "node", "type_name": "R", "type_id": "new-n01"},
        {"kind": "add_type", "type_kind": "edge", "type_name": "Has", "type_id": "new-e03"},
    ]
    assert made.result.node["R"].by_name["a"].id == "new-p02"
    assert made.result.edge["Has"].by_name["b"].id == "new-p04"
    assert made.findings == ()


def test_adding_a_nullable_property_leaves_existing_rows_null() -> None:
    made = plan("node P { a: I32 }", "node P { nick: [String]? a: I32 }")
    assert steps(made) == [
        {
            "kind": "add_property",
            "type_kind": "node",
            "type_name": "P",
            "type_id": "n01",
            "property_name": "nick",
            "property_id": "new-p01",
            "property_type": "[String]",
            "nullable": True,
        }
    ]
    assert [p.name for p in made.result.node["P"].properties] == ["a", "nick"], "columns are appended to the table"


@pytest.mark.parametrize(
    ("declared", "backfill"),
    [
        ("I32 @default(-1)", -1),
        ("I32? @default(7)", 7),
        ("Bool @default(false)", False),
        ('String @default("")', ""),
        ("F64 @default(1)", 1.0),
        ("enum(a, b) @default(b)", "b"),
        ('Date @default("2024-01-01")', "2024-01-01"),
    ],
)
def test_a_default_fills_existing_rows_of_required_and_nullable_properties(declared: str, backfill: object) -> None:
    made = plan("node P {}", f"node P {{ a: {declared} }}")
    assert made.supported
    (step,) = steps(made)
    assert step["kind"] == "add_property"
    assert step["backfill"] == backfill
    assert type(step["backfill"]) is type(backfill)
    assert made.findings == ()


def test_a_required_property_without_default_needs_a_type_without_rows() -> None:
    before, after = "node P {}", "node P { a: I32 }"
    refused = plan(before, after)
    assert steps(refused) == [
        {
            "kind": "unsupported_change",
            "entity": "node:P.a",
            "reason": "a required property without @default can't be added to a type that holds rows",
            "code": "OG-MF-103",
            "type_id": "n01",
        }
    ]
    assert [(f.code, f.severity, f.entity) for f in refused.findings] == [("OG-MF-103", "error", "node:P.a")]
    empty = plan(before, after, populated=False)
    assert empty.supported
    assert kinds(empty) == ["add_property"]
    assert "backfill" not in steps(empty)[0]


def test_only_types_in_question_are_counted_and_each_once() -> None:
    asked: list[str] = []
    plan_changes(
        accepted("node P { a: I32 b: I32 } node Q {} edge E: P -> Q"),
        parse_schema("node P { c: I32? d: I32 e: I32 } node Q {} edge E: P -> Q"),
        new_id=counting_ids(),
        populated=lambda t: bool(asked.append(t.key)),
    )
    assert asked == ["node:P"]


def test_an_index_can_be_added() -> None:
    made = plan("node P { a: I32 b: String }", "node P { a: I32 b: String c: Date? @index @index(b, a) }")
    assert kinds(made) == ["add_property", "add_constraint", "add_constraint"]
    assert steps(made)[1] == {
        "kind": "add_constraint",
        "type_kind": "node",
        "type_name": "P",
        "type_id": "n01",
        "constraint": "index",
        "properties": ["b", "a"],
    }


def test_an_enum_can_be_extended() -> None:
    made = plan("node P { s: enum(open, closed) }", "node P { s: enum(closed, archived, open, aborted) }")
    assert steps(made) == [
        {
            "kind": "extend_enum",
            "type_kind": "node",
            "type_name": "P",
            "type_id": "n01",
            "property_name": "s",
            "property_id": "p02",
            "added_values": ["aborted", "archived"],
        }
    ]
    assert made.result.node["P"].by_name["s"].type.values == ("aborted", "archived", "closed", "open")


def test_annotations_are_metadata() -> None:
    made = plan(
        'node P @description("a") @x(1) { a: I32 @default(1) @y } edge E: P -> P',
        'node P @description("b") @x(true) @instruction("i") { a: I32 @default(2) } edge E: P -> P @z',
    )
    assert steps(made) == [
        {
            "kind": "update_property_metadata",
            "type_kind": "node",
            "type_name": "P",
            "type_id": "n01",
            "property_name": "a",
            "property_id": "p02",
            "annotations": ["default", "y"],
        },
        {
            "kind": "update_type_metadata",
            "type_kind": "node",
            "type_name": "P",
            "type_id": "n01",
            "annotations": ["description", "instruction", "x"],
        },
        {
            "kind": "update_type_metadata",
            "type_kind": "edge",
            "type_name": "E",
            "type_id": "e03",
            "annotations": ["z"],
        },
    ]


@pytest.mark.parametrize(("allow_data_loss", "mode"), [(False, "soft"), (True, "hard")])
def test_drops_are_soft_unless_data_loss_is_allowed(allow_data_loss: bool, mode: str) -> None:
    before = "node P { a: I32 v: Vector(2)? } node Q {} edge E: P -> Q"
    made = plan(before, "node P {}", allow_data_loss=allow_data_loss)
    assert made.supported
    assert [(s["kind"], s.get("property_name", s["type_name"]), s["mode"]) for s in steps(made)] == [
        ("drop_property", "a", mode),
        ("drop_property", "v", mode),
        ("drop_type", "E", mode),
        ("drop_type", "Q", mode),
    ]
    assert [(f.code, f.severity, f.entity) for f in made.findings] == [
        ("OG-DS-104", "warning", "node:P.a"),
        ("OG-DS-105", "warning", "node:P.v"),
        ("OG-DS-103", "warning", "edge:E"),
        ("OG-DS-102", "warning", "node:Q"),
    ]
    for found in made.findings:
        assert ("are removed" in found.message) == allow_data_loss
        assert found.suggestion
    assert made.result.nodes[0].properties == made.result.edges == ()


def test_dropping_what_holds_no_rows_needs_no_warning() -> None:
    made = plan("node P { a: I32 } node Q {}", "node P {}", populated=False)
    assert kinds(made) == ["drop_property", "drop_type"]
    assert made.findings == ()


def test_constraints_go_with_the_properties_they_are_about() -> None:
    before = 'node P { a: I32 @unique @range(a, 0..) b: String @index @unique(a, b) @check(b, "x") c: I32 }'
    made = plan(before, "node P { c: I32 }")
    assert kinds(made) == ["drop_property", "drop_property"]
    assert made.result.node["P"].constraints == ()


def test_drop_and_add_again_gives_a_new_id() -> None:
    first = accepted("node P { a: I32? } node Q {}")
    dropped = plan(first, "node P {}").result
    again = plan_changes(dropped, parse_schema("node P { a: I32? } node Q {}"), new_id=fresh_ids()).result
    assert again.node["P"].id == first.node["P"].id
    assert again.node["Q"].id != first.node["Q"].id
    assert again.node["P"].by_name["a"].id != first.node["P"].by_name["a"].id


def test_an_id_that_is_in_use_is_not_given_again() -> None:
    before = accepted("node P {}")
    made = plan_changes(before, parse_schema("node P {} node Q {}"), new_id=counting_ids())
    assert before.node["P"].id == "n01"
    assert made.result.node["Q"].id == "n02"


def test_a_type_may_change_its_kind_by_drop_and_add() -> None:
    made = plan("node A {} node B {}", "node A {} edge B: A -> A")
    assert [(s["kind"], s["type_kind"]) for s in steps(made)] == [("add_type", "edge"), ("drop_type", "node")]


def test_interfaces_can_be_added_and_changed_and_have_no_table() -> None:
    added = plan("node P {}", "interface I { a: I32 } node P {}")
    assert steps(added) == [{"kind": "add_type", "type_kind": "interface", "type_name": "I"}]
    assert [i.name for i in added.result.interfaces] == ["I"]
    grown = plan(
        "interface I {} node P implements I { a: I32 }", "interface I { b: I32? } node P implements I { a: I32 }"
    )
    assert [(s["kind"], s["type_kind"]) for s in steps(grown)] == [
        ("update_type_metadata", "interface"),
        ("add_property", "node"),
    ]
    assert [p.name for p in grown.result.node["P"].properties] == ["a", "b"]
    assert not plan(grown.result, "interface I { b: I32? } node P implements I { a: I32 }").changed


def test_the_result_has_the_new_text_as_its_source() -> None:
    after = BASE + "\n// more\nnode R {}"
    assert plan(BASE, after).result.source == after


def test_a_plan_prints_and_serialises() -> None:
    made = plan(
        "node P { a: I32 b: enum(x) c: I32? } node Old {} edge E: P -> P",
        'node P @d { a: I32 @e b2: enum(x, y) @rename_from("b") n: I32 @default(3) @index } '
        'node New @rename_from("Old") {} node R {}',
    )
    assert [str(s) for s in made.steps] == [
        "rename node Old to New",
        "update P.a: @e",
        "rename property P.b to b2",
        "extend enum P.b2 by y",
        "drop property P.c (soft)",
        "add property P.n: I32, existing rows get 3",
        "add @index(n) to node P",
        "update node P: @d",
        "add node R",
        "drop edge E (soft)",
    ]
    shown = json.loads(json.dumps(made.to_json()))
    assert list(shown) == ["supported", "changed", "steps", "findings"]
    assert shown["supported"] is shown["changed"] is True
    assert {s["kind"] for s in shown["steps"]} >= {"rename_property", "extend_enum", "drop_type"}
    assert all(s["type_id"] for s in shown["steps"])
    assert [s.entity for s in made.steps][:3] == ["node:New", "node:P.a", "node:P.b2"]


def test_an_empty_schema_can_grow_from_nothing() -> None:
    made = plan(Schema(), BASE)
    assert kinds(made) == ["add_type"] * 3
    assert not plan(made.result, BASE).changed
