"""Everything the grammar knows is read, and read as what it says."""

from __future__ import annotations

import pytest

from omnigraph.language.schema import Annotation, Constraint, Property, PropertyType, Schema, parse_schema
from omnigraph.language.schema.model import SCALARS
from tests.language.schema.texts import EVERYTHING


@pytest.fixture(scope="module")
def everything() -> Schema:
    return parse_schema(EVERYTHING)


@pytest.mark.parametrize("text", ["", " \t\r\n\f", "// only a comment", "/* a\n * b **/", "\ufeff// with a mark"])
def test_a_file_may_be_empty(text: str) -> None:
    assert parse_schema(text) == Schema(source=text)


def test_declarations_keep_the_order_of_the_file(everything: Schema) -> None:
    assert [i.name for i in everything.interfaces] == ["Named", "Dated"]
    assert [n.key for n in everything.nodes] == ["node:Person", "node:Company"]
    assert [e.key for e in everything.edges] == ["edge:WorksAt", "edge:Knows", "edge:Likes"]
    assert everything.source == EVERYTHING


@pytest.mark.parametrize("scalar", SCALARS)
def test_every_base_type_is_known_plain_and_nullable(scalar: str) -> None:
    node = parse_schema(f"node N {{ a: {scalar}  b: {scalar}? }}").node["N"]
    assert node.properties == (Property("a", PropertyType(scalar)), Property("b", PropertyType(scalar), nullable=True))


@pytest.mark.parametrize("scalar", [s for s in SCALARS if s != "Blob"])
def test_lists_hold_every_base_type_but_blob(scalar: str) -> None:
    assert parse_schema(f"node N {{ a: [{scalar}]? }}").node["N"].by_name["a"].type == PropertyType("List", item=scalar)


def test_enum_values_are_a_sorted_set() -> None:
    one, two = (
        parse_schema(f"node N {{ a: enum({v}) }}").node["N"].properties for v in ("b, a-1, 2, _x", "2,_x,b,a-1")
    )
    assert one == two
    assert one[0].type.values == ("2", "_x", "a-1", "b")


@pytest.mark.parametrize("dimension", [1, 768, 2**31 - 1])
def test_vectors_have_from_1_to_2_to_the_31_minus_1_components(dimension: int) -> None:
    found = parse_schema(f"node N {{ v: Vector({dimension}) }}").node["N"].by_name["v"].type
    assert found == PropertyType("Vector", dimension=dimension)


@pytest.mark.parametrize(
    "name", ["node", "edge", "interface", "enum", "implements", "true", "_x", "aB9_", "_row_id", "from"]
)
def test_words_of_the_language_are_free_as_property_names(name: str) -> None:
    schema = parse_schema(f"node N {{ {name}: String @key(  {name}) }} edge E: N -> N {{ {name}: I32? }}")
    assert schema.node["N"].constraints == (Constraint("key", (name,)),)
    assert schema.edge["E"].properties[0].name == name


@pytest.mark.parametrize("name", ["String", "Vector", "N_1", "X"])
def test_type_names_start_with_a_capital(name: str) -> None:
    assert parse_schema(f"node {name} {{}}").nodes[0].name == name


def test_whitespace_and_comments_may_stand_between_any_two_words() -> None:
    tight = parse_schema('node N@a(1,k="x"){p:[I32]?@b @range(q,-1..2)q:I32}edge E:N->N@card(0..1)')
    loose = parse_schema(
        'node /**/ N // x\n @ a ( 1 , k = "x" ) { p : [ I32 ] ? @b\n @range ( q , -1 .. 2 ) q : I32 }\n'
        "edge E /* : */ : N -> N @card ( 0 .. 1 )"
    )
    assert (tight.nodes, tight.edges) == (loose.nodes, loose.edges)


def test_an_edge_has_its_body_only_if_it_needs_one(everything: Schema) -> None:
    assert everything.edge["Knows"].properties == everything.edge["Likes"].properties == ()
    assert [p.name for p in everything.edge["WorksAt"].properties] == ["since", "role"]


def test_cardinality_is_unbounded_unless_given(everything: Schema) -> None:
    bounds = {e.name: (e.card_min, e.card_max) for e in everything.edges}
    assert bounds == {"WorksAt": (0, 1), "Knows": (0, None), "Likes": (1, None)}


def test_annotations_are_kept_known_or_not(everything: Schema) -> None:
    person = everything.node["Person"]
    assert person.annotations == (
        Annotation("description", 'A "person"'),
        Annotation("instruction", "Ask for consent."),
        Annotation("owner", "hr", (("level", 3), ("strict", True))),
    )
    assert person.by_name["email"].annotations == (
        Annotation("description", "where to write"),
        Annotation("rename_from", "mail"),
    )
    assert everything.edge["WorksAt"].annotations == (Annotation("description", "an employment"),)


def test_unknown_annotations_take_any_literal_and_may_repeat() -> None:
    text = 'node N { p: I32 @x @x(word) @x("text") @x(7) @x(0.25) @x(true) @x(false, a=1.5, b="c") }'
    found = parse_schema(text).node["N"].by_name["p"].annotations
    assert [(a.argument, type(a.argument)) for a in found] == [
        (None, type(None)),
        ("word", str),
        ("text", str),
        (7, int),
        (0.25, float),
        (True, bool),
        (False, bool),
    ]
    assert found[-1].options == (("a", 1.5), ("b", "c"))


def test_strings_know_the_escapes_of_the_language_and_may_run_over_lines() -> None:
    text = 'node N @d("\\"\\\\\\n\\r\\t\\u00e9 ü 漢\n/* no comment */ // none") {}'
    assert parse_schema(text).nodes[0].annotations[0].argument == '"\\\n\r\té ü 漢\n/* no comment */ // none'


def test_ranges_take_signed_integers_and_floats_on_either_side() -> None:
    text = "node N { a: F64 @range(a, -1..2) @range(a, -0.5..+1.5) @range(a, ..-3) @range(a, 4..) }"
    bounds = {(c.low, c.high) for c in parse_schema(text).node["N"].constraints}
    assert bounds == {(-1, 2), (-0.5, 1.5), (None, -3), (4, None)}


def test_marks_on_properties_and_constraints_in_the_body_mean_the_same() -> None:
    on_properties = parse_schema("node N { a: String @key  b: I32? @unique @index } edge E: N -> N { c: Date @unique }")
    in_bodies = parse_schema(
        "node N { @index(b) @unique(b) @key(a) a: String b: I32? } edge E: N -> N { @unique(c) c: Date }"
    )
    assert (on_properties.nodes, on_properties.edges) == (in_bodies.nodes, in_bodies.edges)


def test_a_constraint_may_follow_a_property_on_its_line() -> None:
    node = parse_schema("node N { a: String @key(a, b) b: I32 @x @index(b) }").node["N"]
    assert node.constraints == (Constraint("key", ("a", "b")), Constraint("index", ("b",)))
    assert node.by_name["b"].annotations == (Annotation("x"),)


def test_lists_and_vectors_may_be_indexed() -> None:
    node = parse_schema("node N { a: [I32] @index  v: Vector(4)? @index(v) }").node["N"]
    assert [(c.kind, c.properties) for c in node.constraints] == [("index", ("a",)), ("index", ("v",))]


def test_the_order_of_constraints_does_not_depend_on_the_order_of_lines(everything: Schema) -> None:
    assert everything.node["Person"].constraints == (
        Constraint("key", ("email",)),
        Constraint("unique", ("nickname",)),
        Constraint("unique", ("small", "large")),
        Constraint("index", ("name",)),
        Constraint("index", ("age", "status")),
        Constraint("index", ("bio_vector",)),
        Constraint("range", ("age",), 0, 150),
        Constraint("range", ("height",), None, 3),
        Constraint("range", ("weight",), -1.5, None),
        Constraint("check", ("bio",), pattern=r"^\w+( \w+)*$"),
    )


def test_importing_the_package_and_the_model_loads_no_parser() -> None:
    import subprocess
    import sys

    code = "import sys, omnigraph.language.schema.model; print('lark' in sys.modules, 'difflib' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False", "False"]


def test_every_exported_name_can_be_had() -> None:
    import omnigraph.language.schema as package

    for name in package.__all__:
        assert getattr(package, name) is not None
    with pytest.raises(AttributeError):
        package.no_such_name  # noqa: B018
