"""Everything that a plan refuses, always with a reason, with a code where there is one, and without any effect."""

from __future__ import annotations

from dataclasses import replace

import pytest

from omnigraph.language.schema import Constraint, parse_schema
from tests.language.schema.texts import accepted, plan, steps

# before, after, entity, reason, code
REFUSED = [
    ("interface I {}", "", "interface:I", "an interface can't be removed or renamed", None),
    ("interface I {}", "interface J {}", "interface:I", "an interface can't be removed or renamed", None),
    (
        "interface I {} node P implements I {}",
        "interface I {} node P {}",
        "node:P",
        "the interfaces that a node implements can't change",
        None,
    ),
    (
        "interface I {} node P {}",
        "interface I {} node P implements I {}",
        "node:P",
        "the interfaces that a node implements can't change",
        None,
    ),
    (
        "node P {} node Q {} edge E: P -> Q",
        "node P {} node Q {} edge E: Q -> P",
        "edge:E",
        "the endpoints of an edge can't change (P -> Q to Q -> P)",
        None,
    ),
    (
        "node P {} edge E: P -> P",
        "node P {} edge E: P -> P @card(0..1)",
        "edge:E",
        "the cardinality of an edge can't change",
        None,
    ),
    (
        "node P {} edge E: P -> P @card(0..1)",
        "node P {} edge E: P -> P @card(0..2)",
        "edge:E",
        "the cardinality of an edge can't change",
        None,
    ),
    (
        "node P {}",
        "node P { a: I32 }",
        "node:P.a",
        "a required property without @default can't be added to a type that holds rows",
        "OG-MF-103",
    ),
    (
        "node P { a: I32 }",
        "node P { a: I64 }",
        "node:P.a",
        "the type of a property can't change (I32 to I64)",
        "OG-MF-106",
    ),
    (
        "node P { a: String }",
        "node P { a: enum(x) }",
        "node:P.a",
        "the type of a property can't change (String to enum(x))",
        "OG-MF-106",
    ),
    (
        "node P { a: enum(x) }",
        "node P { a: String }",
        "node:P.a",
        "the type of a property can't change (enum(x) to String)",
        "OG-MF-106",
    ),
    (
        "node P { a: Vector(2) }",
        "node P { a: Vector(3) }",
        "node:P.a",
        "the type of a property can't change (Vector(2) to Vector(3))",
        "OG-MF-106",
    ),
    (
        "node P { a: [I32] }",
        "node P { a: [I64] }",
        "node:P.a",
        "the type of a property can't change ([I32] to [I64])",
        "OG-MF-106",
    ),
    (
        "node P { a: enum(x, y) }",
        "node P { a: enum(x) }",
        "node:P.a",
        "enum values can't be removed or renamed (y)",
        "OG-MF-106",
    ),
    (
        "node P { a: enum(x, y) }",
        "node P { a: enum(x, z) }",
        "node:P.a",
        "enum values can't be removed or renamed (y)",
        "OG-MF-106",
    ),
    ("node P { a: I32? }", "node P { a: I32 }", "node:P.a", "a nullable property can't become required", "OG-MF-104"),
    (
        "node P { a: I32? }",
        "node P { a: I32 @default(1) }",
        "node:P.a",
        "a nullable property can't become required",
        "OG-MF-104",
    ),
    ("node P { a: I32 }", "node P { a: I32? }", "node:P.a", "a required property can't become nullable", "OG-MF-106"),
    *(
        (
            f"node P {{ a: String b: String v: Vector(2)? {before} }}",
            f"node P {{ a: String b: String v: Vector(2)? {after} }}",
            "node:P.v",
            "the source or model of @embed can't change: stored vectors came from the old one",
            None,
        )
        for before, after in [
            ('@embed("a")', '@embed("b")'),
            ('@embed("a")', '@embed("a", model="m")'),
            ('@embed("a", model="m")', '@embed("a", model="n")'),
            ('@embed("a")', ""),
            ("", '@embed("a")'),
        ]
    ),
    *(
        (
            "node P { a: I32 b: String }",
            f"node P {{ a: I32 b: String {constraint} }}",
            "node:P",
            f"{shown} can't be added to a type that exists: its rows were never held to it",
            None,
        )
        for constraint, shown in [
            ("@key(a)", "@key(a)"),
            ("@unique(a, b)", "@unique(a, b)"),
            ("@range(a, 0..5)", "@range(a, 0..5)"),
            ("@range(a, ..5)", "@range(a, ..5)"),
            ('@check(b, "x")', "@check(b, …)"),
        ]
    ),
    *(
        (
            f"node P {{ a: I32 b: String {constraint} }}",
            "node P { a: I32 b: String }",
            "node:P",
            f"{shown} can't be removed",
            None,
        )
        for constraint, shown in [
            ("@key(a)", "@key(a)"),
            ("@unique(a, b)", "@unique(a, b)"),
            ("@index(a)", "@index(a)"),
            ("@range(a, 0..5)", "@range(a, 0..5)"),
            ('@check(b, "x")', "@check(b, …)"),
        ]
    ),
    (
        "node P {} edge E: P -> P { a: I32? @unique(src, a) }",
        "node P {} edge E: P -> P",
        "edge:E",
        "@unique(src, a) can't be removed (a is dropped, the rest of its properties stay)",
        None,
    ),
    (
        "node P { a: I32 b: I32 @unique(a, b) }",
        "node P { b: I32 }",
        "node:P",
        "@unique(a, b) can't be removed (a is dropped, the rest of its properties stay)",
        None,
    ),
    (
        "node P { a: I32 @key }",
        "node P {}",
        "node:P",
        "a can't be dropped: it is part of @key(a), from which ids are made",
        None,
    ),
]


@pytest.mark.parametrize("populated", [True, False])
@pytest.mark.parametrize(("before", "after", "entity", "reason", "code"), REFUSED, ids=range(len(REFUSED)))
def test_the_change_is_refused_with_its_reason(
    before: str, after: str, entity: str, reason: str, code: str | None, populated: bool
) -> None:
    old = accepted(before)
    made = plan(old, after, populated=populated, allow_data_loss=True)
    if code == "OG-MF-103" and not populated:
        assert made.supported
        return
    assert [(s.entity, s.reason, s.code) for s in made.unsupported] == [(entity, reason, code)]
    assert not made.supported
    assert made.changed
    assert made.result is old
    assert [f.code for f in made.findings if f.severity == "error"] == ([code] if code else [])


def test_changing_a_constraint_is_removing_and_adding_it() -> None:
    made = plan("node P { a: I32 @range(a, 0..5) }", "node P { a: I32 @range(a, 0..6) }")
    assert [s.reason for s in made.unsupported] == [
        "@range(a, 0..5) can't be removed",
        "@range(a, 0..6) can't be added to a type that exists: its rows were never held to it",
    ]


def test_a_new_property_can_bring_an_index_but_no_promise() -> None:
    made = plan("node P {}", "node P { a: I32? @index @unique }")
    assert [s.reason for s in made.unsupported] == [
        "@unique(a) can't be added to a type that exists: its rows were never held to it"
    ]


def test_refusals_name_the_ids_of_what_they_are_about() -> None:
    (step,) = steps(plan("node P { a: I32 }", "node P { a: I64 }"))
    assert (step["kind"], step["type_id"], step["property_id"]) == ("unsupported_change", "n01", "p02")


def test_one_refusal_makes_the_whole_plan_unsupported_and_all_steps_are_still_shown() -> None:
    made = plan("node P { a: I32 }", "node P { a: I64 b: I32? } node Q {}")
    assert [s.kind for s in made.steps] == ["unsupported_change", "add_property", "add_type"]
    assert not made.supported
    assert str(made.steps[0]) == "not possible: node:P.a: the type of a property can't change (I32 to I64) [OG-MF-106]"


def test_a_node_type_goes_only_together_with_its_edges() -> None:
    before = "node P {} node Q {} edge E: P -> Q"
    made = plan(before, "node P {} edge E: P -> P")
    assert [(s.entity, s.reason) for s in made.unsupported] == [
        ("edge:E", "the endpoints of an edge can't change (P -> Q to P -> P)"),
        ("node:Q", "the node type is dropped, and E still connects it; drop that edge type as well"),
    ]
    assert plan(before, "node P {}").supported


def test_a_property_that_a_remaining_constraint_names_can_t_be_dropped() -> None:
    """No file can say this (the parser refuses it); a schema that was put together by a program can."""
    old = accepted("node P { a: I32 b: I32 @unique(a, b) }")
    desired = parse_schema("node P { b: I32 }")
    node = replace(desired.nodes[0], constraints=(Constraint("unique", ("a", "b")),))
    made = plan(old, replace(desired, nodes=(node,)))
    assert [s.reason for s in made.unsupported] == ["a can't be dropped: @unique(a, b) uses it"]
    index = replace(desired.nodes[0], constraints=(Constraint("index", ("a",)),))
    assert not plan(accepted("node P { a: I32 b: I32 }"), replace(desired, nodes=(index,))).supported
