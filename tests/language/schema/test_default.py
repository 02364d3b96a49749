"""`@default(literal)`: the literal has to be a value of the property."""

from __future__ import annotations

import pytest

from omnigraph.errors import SchemaRuleError
from omnigraph.language.schema import parse_schema

FITS = [
    ("String", '"a b"', "a b"),
    ("String", '""', ""),
    ("String?", '"x"', "x"),
    ("Bool", "true", True),
    ("Bool", "false", False),
    ("I32", "-2147483648", -(2**31)),
    ("I32", "+2147483647", 2**31 - 1),
    ("I64", "-9223372036854775808", -(2**63)),
    ("U32", "4294967295", 2**32 - 1),
    ("U64", "18446744073709551615", 2**64 - 1),
    ("F32", "-0.5", -0.5),
    ("F64", "3", 3.0),
    ("F64", "-3.25", -3.25),
    ("Date", '"2024-02-29"', "2024-02-29"),
    ("DateTime", '"2024-02-29"', "2024-02-29"),
    ("DateTime", '"2024-02-29T12:30:00Z"', "2024-02-29T12:30:00Z"),
    ("DateTime", '"2024-02-29 12:30:00.125+02:00"', "2024-02-29 12:30:00.125+02:00"),
    ("enum(open, on-hold, true)", "open", "open"),
    ("enum(open, on-hold, true)", '"on-hold"', "on-hold"),
    ("enum(open, on-hold, true)", "true", "true"),
]


@pytest.mark.parametrize(("kind", "literal", "value"), FITS)
def test_a_literal_of_the_type_is_kept(kind: str, literal: str, value: object) -> None:
    default = parse_schema(f"node N {{ a: {kind} @default({literal}) }}").node["N"].by_name["a"].default
    assert default == value
    assert type(default) is type(value)


I32 = "a whole number from -2147483648 to 2147483647"
DATE = 'a date in quotes, as in "2024-02-29"'
TIME = 'a time in quotes, as in "2024-02-29T12:30:00Z"'
MISFITS = [
    ("String", "word", "a string in quotes"),
    ("String", "1", "a string in quotes"),
    ("String", "true", "a string in quotes"),
    ("Bool", "1", "true or false"),
    ("Bool", '"true"', "true or false"),
    ("I32", "2147483648", I32),
    ("I32", "1.0", I32),
    ("I32", '"1"', I32),
    ("I32", "true", I32),
    ("U32", "-1", "a whole number from 0 to 4294967295"),
    ("I64", "9223372036854775808", "a whole number from -9223372036854775808 to 9223372036854775807"),
    ("F64", '"1"', "a number"),
    ("F64", "true", "a number"),
    ("F32", "9" * 39 + ".0", "a number that fits into 32 bits"),
    ("Date", '"2024-02-30"', DATE),
    ("Date", '"20240229"', DATE),
    ("Date", '"2024-W09-4"', DATE),
    ("Date", "2024", DATE),
    ("DateTime", '"2024-02-29T25:00:00Z"', TIME),
    ("DateTime", '"0001-01-01T00:00:00+14:00"', TIME),
    ("DateTime", '"yesterday"', TIME),
    ("DateTime", "0", TIME),
    ("enum(a, b)", "c", "one of a, b"),
    ("enum(a, b)", '""', "one of a, b"),
    ("enum(1, 2)", "1", "one of 1, 2, in quotes"),
]


@pytest.mark.parametrize(("kind", "literal", "wanted"), MISFITS)
def test_a_literal_of_another_type_is_refused(kind: str, literal: str, wanted: str) -> None:
    text = f"node N {{ a: {kind} @default({literal}) }}"
    with pytest.raises(SchemaRuleError) as caught:
        parse_schema(text)
    assert caught.value.fields["detail"] == f"The default of a must be {wanted}."
    assert caught.value.fields["column"] == text.index("@default(") + len("@default(") + 1


@pytest.mark.parametrize(
    ("text", "detail"),
    [
        ("a: Blob? @default(1)", "@default is not possible for a Blob."),
        ("a: Vector(2)? @default(1)", "@default is not possible for a vector."),
        ("a: [I32] @default(1)", "@default is not possible for a list."),
        ("a: I32 @default", "@default takes one literal, as in @default(0)."),
        ("a: I32 @default(1, k=2)", "@default takes one literal, as in @default(0)."),
        ("a: I32 @default(1) @default(2)", "a carries @default twice."),
        ("a: I32 @default(11) @range(a, 0..10)", "The default of a is outside of its @range."),
        ("a: F64 @default(-0.1) @range(a, 0..)", "The default of a is outside of its @range."),
    ],
)
def test_defaults_stand_only_where_they_mean_something(text: str, detail: str) -> None:
    with pytest.raises(SchemaRuleError) as caught:
        parse_schema(f"node N {{ {text} }}")
    assert caught.value.fields["detail"] == detail


def test_edges_and_interfaces_may_have_defaults() -> None:
    schema = parse_schema(
        "interface I { a: I32 @default(1) } node N implements I {} edge E: N -> N { b: I32 @default(2) }"
    )
    assert (schema.node["N"].by_name["a"].default, schema.edge["E"].by_name["b"].default) == (1, 2)
