"""Every semantic rule, with the sentence and the place it gives; and what the rules leave free."""

from __future__ import annotations

import pytest

from omnigraph.errors import SchemaRuleError
from omnigraph.language.schema import Constraint, parse_schema
from omnigraph.language.schema.model import RESERVED_PROPERTIES

N = "node N {} "

# text, column (all on line 1), the whole detail
REFUSED = [
    # types of properties
    ("node X { a: Int }", 13, "There is no property type Int. Did you mean I32 or I64?"),
    ("node X { a: Text }", 13, "There is no property type Text. Did you mean String?"),
    ("node X { a: Strng? }", 13, "There is no property type Strng. Did you mean String?"),
    ("node X { a: vector }", 13, "There is no property type vector. Did you mean Vector?"),
    ("node X { a: Qqqqqq }", 13, "There is no property type Qqqqqq."),
    ("node X { a: [Blob] }", 14, "A list can't hold a Blob; its items are other base types."),
    ("node X { a: [Vector(3)] }", 14, "A list can't hold a Vector; its items are other base types."),
    ("node X { a: [enum(b)] }", 14, "A list can't hold an enum; its items are other base types."),
    ("node X { a: enum() }", 13, "An enum needs at least one value, as in enum(open, closed)."),
    ("node X { a: enum(b, c, b) }", 24, "The enum lists b twice."),
    ("node X { a: Vector(0) }", 20, "The length of a vector is a whole number from 1 to 2147483647, not 0."),
    ("node X { a: Vector(1.5) }", 20, "The length of a vector is a whole number from 1 to 2147483647, not 1.5."),
    ("node X { a: Vector(-1) }", 20, "The length of a vector is a whole number from 1 to 2147483647, not -1."),
    (
        "node X { a: Vector(2147483648) }",
        20,
        "The length of a vector is a whole number from 1 to 2147483647, not 2147483648.",
    ),
    (
        f"node X {{ a: Vector({'9' * 9000}) }}",
        20,
        f"The length of a vector is a whole number from 1 to 2147483647, not {'9' * 40}….",
    ),
    # names
    ("node X {} node X {}", 16, "X is declared twice, first on line 1; types of all kinds share their names."),
    (
        "interface X {} node Y {} edge X: Y -> Y",
        31,
        "X is declared twice, first on line 1; types of all kinds share their names.",
    ),
    (
        N + "edge Knows: N -> N edge KNOWS: N -> N",
        35,
        "The edges Knows and KNOWS differ only in case, and queries match edge names in any case.",
    ),
    ("node X { a: I32 a: I32 }", 17, "X has the property a twice, first on line 1."),
    ("interface X { a: I32 a: I32? }", 22, "X has the property a twice, first on line 1."),
    ("node X { id: String }", 10, "id is a column that every node has; a property needs another name."),
    ("interface X { id: String }", 15, "id is a column that every node has; a property needs another name."),
    (N + "edge E: N -> N { id: I32 }", 28, "id is a column that every edge has; a property needs another name."),
    (N + "edge E: N -> N { src: I32 }", 28, "src is a column that every edge has; a property needs another name."),
    (N + "edge E: N -> N { dst: I32 }", 28, "dst is a column that every edge has; a property needs another name."),
    # keys
    (
        "node X { a: I32 @key b: I32 @key }",
        29,
        "X has two keys; a node has one. A key of several properties is @key(a, b).",
    ),
    (
        "node X { a: I32 @key b: I32 @key(a, b) }",
        29,
        "X has two keys; a node has one. A key of several properties is @key(a, b).",
    ),
    ("node X { a: I32? @key }", 18, "a can be null, so it can't be part of @key."),
    ("node X { a: I32 b: I32? @key(a, b) }", 25, "b can be null, so it can't be part of @key."),
    ("node X { a: [I32] @key }", 19, "a is a list, so it can't be part of @key."),
    ("node X { a: Vector(2) @key }", 23, "a is a vector, so it can't be part of @key."),
    ("node X { a: Blob @key }", 18, "a is a Blob, so it can't be part of @key."),
    ("node X { a: Blob @key(a) }", 18, "a is a Blob, so it can't be part of @key."),
    ("node X { name: I32 @key(nme) }", 25, "X has no property nme. Did you mean name?"),
    ("node X { a: I32 @key(a, a) }", 25, "@key names a twice."),
    ("node X { a: I32 @key(id) }", 22, "id is a column that every node has; it is indexed anyway and unique."),
    (N + "edge E: N -> N { a: I32 @key }", 35, "Edges have no @key; use @unique, for example @unique(src, dst)."),
    (N + "edge E: N -> N { @key(src) }", 28, "Edges have no @key; use @unique, for example @unique(src, dst)."),
    # unique and index
    ("node X { a: Blob @unique }", 18, "a is a Blob, so it can't be part of @unique."),
    ("node X { a: [I32] @unique }", 19, "a is a list, so it can't be part of @unique."),
    ("node X { a: Vector(2) @unique }", 23, "a is a vector, so it can't be part of @unique."),
    ("node X { a: I32 b: Blob @unique(a, b) }", 25, "b is a Blob, so it can't be part of @unique."),
    ("node X { a: Blob @index }", 18, "a is a Blob, so it can't be part of @index."),
    ("node X { a: I32 @index @index }", 24, "a carries @index twice."),
    ("node X { a: I32 @unique @unique }", 25, "a carries @unique twice."),
    ("node X { a: I32 @index @index(a) }", 24, "X has @index on a twice."),
    ("node X { a: I32 b: I32 @unique(a, b) @unique(b, a) }", 38, "X has @unique on b, a twice."),
    (
        N + "edge E: N -> N { @index(src) }",
        35,
        "src is a column that every edge has; it is indexed anyway, and only @unique may name it.",
    ),
    ("node X { @unique(src) }", 18, "X has no property src."),
    # range and check
    ("node X { a: String @range(a, 1..2) }", 20, "@range applies to numbers, and a is String."),
    ("node X { a: Date @range(a, 1..2) }", 18, "@range applies to numbers, and a is Date."),
    ("node X { a: [I32] @range(a, 1..2) }", 19, "@range applies to numbers, and a is [I32]."),
    ("node X { a: I32 @range(a, 2..1) }", 27, "The range is empty: 2 is above 1."),
    ("node X { a: F64 @range(a, 0.5..-0.5) }", 27, "The range is empty: 0.5 is above -0.5."),
    ("node X { a: I32 @range(a, ..) }", 27, "@range needs a lower or an upper bound, or both."),
    ("node X { a: I32 @range(b, 1..) }", 24, "X has no property b."),
    ("node X { a: I32 @range(a, 1..) @range(a, 1..) }", 32, "X has @range on a twice."),
    ("node X { a: I32 @range }", 17, "@range is written with its property, as in @range(a, 0..100)."),
    ('node X { a: I32 @check(a, "x") }', 17, "@check applies to String properties, and a is I32."),
    ("node X { a: String @check }", 20, '@check is written with its property, as in @check(a, "pattern").'),
    (
        'node X { a: String @check(a, "(") }',
        30,
        "@check can't use this pattern. This is not a regular expression: missing ): (.",
    ),
    (
        f'node X {{ a: String @check(a, "{"(" * 20000}") }}',
        30,
        "@check can't use this pattern. A regular expression has at most 10000 characters, and this one 20000.",
    ),
    (
        'node X { a: String @check(a, "(?=.*z)b") }',
        30,
        "@check can't use this pattern. Lookaround, backreferences and conditionals are not part of these regular "
        "expressions.",
    ),
    (N + "edge E: N -> N { a: I32 @range(a, 1..) }", 35, "@range belongs on nodes; edges know @unique and @index."),
    (N + 'edge E: N -> N { a: String @check(a, "") }', 38, "@check belongs on nodes; edges know @unique and @index."),
    # edges
    ("node Person {} edge E: Person -> Persn", 34, "There is no node type Persn. Did you mean Person?"),
    (N + "edge E: Q -> N", 19, "There is no node type Q."),
    (N + "interface I {} edge E: N -> I", 39, "I is an interface; edges connect node types."),
    (N + "edge A: N -> N edge E: A -> N", 34, "A is an edge; edges connect node types."),
    (N + "edge E: N -> N @card(2..1)", 32, "The maximum of @card, 1, is below its minimum, 2."),
    (N + "edge E: N -> N @card(..1)", 26, "@card takes whole numbers as min..max or min.., as in @card(0..1)."),
    (N + "edge E: N -> N @card(1)", 26, "@card takes whole numbers as min..max or min.., as in @card(0..1)."),
    (N + "edge E: N -> N @card", 26, "@card takes whole numbers as min..max or min.., as in @card(0..1)."),
    (N + "edge E: N -> N @card(0.5..)", 26, "@card takes whole numbers as min..max or min.., as in @card(0..1)."),
    (N + "edge E: N -> N @card(0..1.5)", 26, "@card takes whole numbers as min..max or min.., as in @card(0..1)."),
    (N + "edge E: N -> N @card(0..1, k=1)", 26, "@card takes whole numbers as min..max or min.., as in @card(0..1)."),
    (N + "edge E: N -> N @card(0..18446744073709551615)", 32, "@card goes up to 9223372036854775807."),
    (N + "edge E: N -> N @card(0..1) @card(0..1)", 38, "E carries @card twice."),
    ("node X @card(0..1) {}", 8, "@card belongs on an edge: it counts the edges of each source node."),
    (N + "edge E: N -> N { a: I32 @card(0..1) }", 35, "@card belongs in the head of an edge, before the {."),
    # embed
    (
        'node X { a: String v: I32 @embed("a") }',
        27,
        "@embed belongs on a vector property, and v is I32.",
    ),
    ('node X { v: Vector(2) @embed("a") }', 30, "X has no property a to embed."),
    ('node X { name: String v: Vector(2) @embed("nam") }', 43, "X has no property nam to embed. Did you mean name?"),
    ('node X { a: [String] v: Vector(2) @embed("a") }', 42, "@embed reads a String property, and a is [String]."),
    ('node X { v: Vector(2) @embed("v") }', 30, "@embed reads a String property, and v is Vector(2)."),
    ("node X { v: Vector(2) @embed }", 23, '@embed takes the name of a String property, as in @embed("title").'),
    ("node X { v: Vector(2) @embed(1) }", 23, '@embed takes the name of a String property, as in @embed("title").'),
    (
        'node X { a: String v: Vector(2) @embed("a", dim=2) }',
        45,
        "@embed knows the option model only, not dim.",
    ),
    (
        'node X { a: String v: Vector(2) @embed("a", model="") }',
        45,
        "The model of @embed is a string that is not empty.",
    ),
    (
        'node X { a: String v: Vector(2) @embed("a", model=3) }',
        45,
        "The model of @embed is a string that is not empty.",
    ),
    (
        N + 'edge E: N -> N { a: String v: Vector(2) @embed("a") }',
        51,
        "@embed belongs on a node's property, not on an edge's.",
    ),
    ('node X @embed("a") {}', 8, "@embed belongs on a property, not on a type."),
    # words about words
    ("node X @description {}", 8, "@description takes one string and nothing else."),
    ('node X @description("a", b=1) {}', 8, "@description takes one string and nothing else."),
    ('node X @description(" ") {}', 21, "@description takes a string in quotes that is not empty."),
    ("node X @description(word) {}", 21, "@description takes a string in quotes that is not empty."),
    ("node X @instruction(1) {}", 21, "@instruction takes a string in quotes that is not empty."),
    ('node X { a: I32 @description("") }', 30, "@description takes a string in quotes that is not empty."),
    ('node X { a: I32 @instruction("x") }', 17, "@instruction belongs on a node or edge type, not on a property."),
    ('node X @description("a") @description("b") {}', 26, "X carries @description twice."),
    # rename_from
    ("node X @rename_from {}", 8, "@rename_from takes the old name and nothing else."),
    ('node X @rename_from("X") {}', 21, "X can't be renamed from itself."),
    (
        'node X @rename_from("x") {}',
        21,
        '@rename_from takes the old name, a name that starts with an upper-case letter, as in @rename_from("…").',
    ),
    (
        'node X { a: I32 @rename_from("B") }',
        30,
        '@rename_from takes the old name, a name that starts with a lower-case letter, as in @rename_from("…").',
    ),
    (
        "node X { a: I32 @rename_from(3) }",
        30,
        '@rename_from takes the old name, a name that starts with a lower-case letter, as in @rename_from("…").',
    ),
    ("node X @default(1) {}", 8, "@default belongs on a property, not on a type."),
    # interfaces
    ("interface I @x {}", 13, "An interface takes no annotations; its properties may."),
    ("interface Named {} node X implements Name {}", 38, "There is no interface Name. Did you mean Named?"),
    ("node X {} node Y implements X {}", 29, "There is no interface X."),
    ("interface I {} node X implements I, I {}", 37, "X implements I twice."),
    (
        "interface I { a: I32 } node X implements I { a: String }",
        46,
        "X can't redeclare a as String: its interface has it as I32.",
    ),
    (
        "interface I { a: I32? } node X implements I { a: I32 }",
        47,
        "X can't redeclare a as I32: its interface has it as I32?.",
    ),
    (
        "interface I { a: I32 } interface J { a: I64 } node X implements I, J {}",
        68,
        "X can't implement both I and J: a is I32 in one and I64 in the other.",
    ),
    (
        "interface I { a: I32 @key } node X implements I { b: I32 @key }",
        58,
        "X has two keys; a node has one. A key of several properties is @key(a, b).",
    ),
]


@pytest.mark.parametrize(("text", "column", "detail"), REFUSED, ids=range(len(REFUSED)))
def test_a_broken_rule_is_named_at_its_place(text: str, column: int, detail: str) -> None:
    with pytest.raises(SchemaRuleError) as caught:
        parse_schema(text, file="graph.pg")
    fields = caught.value.fields
    assert (fields["detail"], fields["line"], fields["column"]) == (detail, 1, column)
    assert caught.value.condition == "schema_rule"
    assert fields["excerpt"].endswith("^")


@pytest.mark.parametrize("name", RESERVED_PROPERTIES)
@pytest.mark.parametrize("owner", ["interface X", "node X", "node N {} edge X: N -> N"])
def test_exactly_five_property_names_are_reserved_for_the_storage(name: str, owner: str) -> None:
    with pytest.raises(SchemaRuleError, match=f"The property name {name} is reserved for the storage"):
        parse_schema(f"{owner} {{ {name}: I64 }}")


@pytest.mark.parametrize("name", ["_row_id", "_rowids", "_row_last_updated_at", "src", "dst"])
def test_lookalikes_of_reserved_names_are_free_on_nodes(name: str) -> None:
    assert parse_schema(f"node N {{ {name}: I64 }}").node["N"].by_name[name]


@pytest.mark.parametrize("name", ["from", "to", "type", "edge", "data"])
def test_members_of_the_load_envelope_are_free_as_properties(name: str) -> None:
    """`from` and `to` of a record stand outside of its `data`, so an edge may have properties of these names."""
    assert parse_schema(f"node N {{}} edge E: N -> N {{ {name}: I64 }}").edge["E"].by_name[name]


def test_unique_on_edges_may_name_the_physical_columns() -> None:
    edge = parse_schema("node N {} edge E: N -> N { a: I32? @unique(src, dst) @unique(dst, a) @unique(id) }").edge["E"]
    assert edge.constraints == (
        Constraint("unique", ("id",)),
        Constraint("unique", ("src", "dst")),
        Constraint("unique", ("dst", "a")),
    )


@pytest.mark.parametrize(
    "kind", ["String", "Bool", "I32", "I64", "U32", "U64", "F32", "F64", "Date", "DateTime", "enum(a)"]
)
def test_keys_may_be_of_every_scalar_type(kind: str) -> None:
    assert parse_schema(f"node N {{ a: {kind} @key }}").node["N"].key_properties == ("a",)


def test_vectors_may_be_indexed() -> None:
    assert parse_schema("node N { v: Vector(2) @index }").node["N"].constraints == (Constraint("index", ("v",)),)


def test_the_source_of_an_embedding_may_be_a_word() -> None:
    embed = parse_schema("node N { t: String v: Vector(2)? @embed(t) }").node["N"].by_name["v"].annotation("embed")
    assert embed is not None
    assert embed.argument == "t"


def test_cardinality_zero_and_exact_are_legal() -> None:
    schema = parse_schema("node N {} edge A: N -> N @card(0..0) edge B: N -> N @x @card(3..3) @y")
    assert [(e.card_min, e.card_max) for e in schema.edges] == [(0, 0), (3, 3)]


# ---- interfaces ------------------------------------------------------------------------------------------------------


def test_interface_properties_come_first_in_the_nodes_that_implement_it() -> None:
    text = "interface I { a: I32 b: I32? } interface J { c: Date } node N implements J, I { z: I32 a: I32 y: I32 }"
    schema = parse_schema(text)
    assert [p.name for p in schema.node["N"].properties] == ["c", "a", "b", "z", "y"]
    assert schema.node["N"].implements == ("J", "I")
    assert [p.name for p in schema.interfaces[0].properties] == ["a", "b"]


def test_interfaces_may_be_declared_after_their_nodes() -> None:
    assert parse_schema("node N implements I {} interface I { a: I32 }").node["N"].by_name["a"]


def test_marks_of_an_interface_become_constraints_of_each_node() -> None:
    schema = parse_schema(
        "interface I { a: I32 @key b: I32? @unique @index } node N implements I {} node M implements I {}"
    )
    for name in ("N", "M"):
        assert schema.node[name].constraints == (
            Constraint("key", ("a",)),
            Constraint("unique", ("b",)),
            Constraint("index", ("b",)),
        )
        assert schema.node[name].by_name["a"].annotations == ()
    assert [a.name for a in schema.interfaces[0].properties[1].annotations] == ["unique", "index"]


@pytest.mark.parametrize("own", ["a: I32 @index", "@index(a)", "a: I32"])
def test_a_node_may_repeat_what_its_interface_says(own: str) -> None:
    schema = parse_schema(f"interface I {{ a: I32 @index }} node N implements I {{ {own} }}")
    assert schema.node["N"].constraints == (Constraint("index", ("a",)),)


def test_a_redeclaration_replaces_annotations_of_the_same_name_and_keeps_the_others() -> None:
    schema = parse_schema(
        'interface I { a: I32 @description("one") @x(1) } node N implements I { a: I32 @description("two") @y }'
    )
    found = [(a.name, a.argument) for a in schema.node["N"].by_name["a"].annotations]
    assert found == [("x", 1), ("description", "two"), ("y", None)]


def test_two_interfaces_may_share_a_property_of_the_same_type() -> None:
    schema = parse_schema("interface I { a: I32 @index } interface J { a: I32 @unique } node N implements I, J {}")
    assert [c.kind for c in schema.node["N"].constraints] == ["unique", "index"]


def test_an_interface_may_embed_a_property_that_its_nodes_bring() -> None:
    interface = 'interface I { v: Vector(2)? @embed("text") } '
    assert parse_schema(interface + "node N implements I { text: String }")
    with pytest.raises(SchemaRuleError, match="M has no property text to embed"):
        parse_schema(interface + "node M implements I {}")
