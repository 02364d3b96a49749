"""The canonical text of a schema."""

from __future__ import annotations

import pytest

from omnigraph.language.schema import Schema, parse_schema, render
from omnigraph.language.schema.syntax.show import literal
from tests.language.schema.texts import EVERYTHING

CANONICAL = r"""interface Named {
  name: String @index
  nickname: String? @unique
}

interface Dated {
  created: DateTime
}

node Person @description("A \"person\"") HEAD {
  email: String @key @description("where to write") @rename_from("mail")
  born: Date?
  age: U32?
  height: F32?
  weight: F64 @default(-0.5)
  active: Bool @default(true)
  small: I32
  large: I64 @default(-9)
  huge: U64
  status: enum(3rd, closed, on-hold, open) @default("on-hold")
  tags: [String]
  scores: [F64]?
  photo: Blob?
  bio: String?
  bio_vector: Vector(8)? @index @embed("bio", model="m-1")
  @unique(small, large)
  @index(age, status)
  @range(age, 0..150)
  @range(height, ..3)
  @range(weight, -1.5..)
  @check(bio, "^\\w+( \\w+)*$")
}

node Company {}

edge WorksAt: Person -> Company @card(0..1) @description("an employment") {
  since: Date @index
  role: String?
  @unique(src, dst)
}

edge Knows: Person -> Person

edge Likes: Person -> Person @card(1..)
""".replace("HEAD", '@instruction("Ask for consent.") @owner("hr", level=3, strict=true) implements Named, Dated')


def test_the_text_is_canonical_and_its_own_fixed_point() -> None:
    assert render(parse_schema(EVERYTHING)) == CANONICAL
    assert render(parse_schema(CANONICAL)) == CANONICAL
    assert render(Schema()) == ""


def test_what_comes_from_interfaces_is_repeated_only_where_it_differs() -> None:
    text = 'interface I { a: I32 b: I32 @x } node N implements I { a: I32 @index b: I32 @description("b") c: I32 }'
    assert render(parse_schema(text)).split("\n\n")[1] == (
        'node N implements I {\n  a: I32 @index\n  b: I32 @x @description("b")\n  c: I32\n}\n'
    )


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (True, "true"),
        (0, "0"),
        (-7, "-7"),
        (1.0, "1.0"),
        (1e22, "10000000000000000000000.0"),
        (1e-7, "0.0000001"),
        (-0.0, "-0.0"),
        ('a"\\\n\r\t\x01\x7fü', r'"a\"\\\n\r\t\u0001\u007fü"'),
    ],
)
def test_literals_are_written_as_the_language_reads_them(value: object, text: str) -> None:
    assert literal(value) == text  # type: ignore[arg-type]
