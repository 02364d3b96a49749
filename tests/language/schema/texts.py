"""Schema texts and shorthands that several tests share."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import count

from omnigraph.language.schema import Schema, SchemaPlan, accept, parse_schema, plan_changes

EVERYTHING = r"""
// One of everything that the language knows.
interface Named {
  name: String @index
  nickname: String? @unique
}
interface Dated { created: DateTime }

node Person
  @description("A \"person\"") @instruction("Ask for consent.") @owner(hr, level=3, strict=true)
  implements Named, Dated
{
  email: String @key @description("where to write") @rename_from("mail")
  born: Date?
  age: U32? /* years */
  height: F32?
  weight: F64 @default(-0.5)
  active: Bool @default(true)
  small: I32
  large: I64 @default(-9)
  huge: U64
  status: enum(open, closed, on-hold, 3rd) @default("on-hold")
  tags: [String]
  scores: [F64]?
  photo: Blob?
  bio: String?
  bio_vector: Vector(8)? @embed("bio", model="m-1") @index
  @unique(small, large)
  @index(age, status)
  @range(age, 0..150)
  @range(weight, -1.5..)
  @range(height, ..3)
  @check(bio, "^\\w+( \\w+)*$")
}
node Company {}

edge WorksAt: Person -> Company @card(0..1) @description("an employment") {
  since: Date @index
  role: String?
  @unique(src, dst)
}
edge Knows: Person -> Person
edge Likes: Person -> Person @card(1..) {}
"""


def counting_ids() -> Callable[[str], str]:
    """Ids that tests can foresee: n01, p02, … in the order of the calls."""
    numbers = count(1)
    return lambda prefix: f"{prefix}{next(numbers):02}"


def accepted(text: str) -> Schema:
    return accept(parse_schema(text), new_id=counting_ids())


def with_aliases(schema: Schema) -> Schema:
    """Aliases for every type and property, from 77 upwards."""
    numbers = count(77)

    def of(t):  # type: ignore[no-untyped-def]
        alias = f"{t.id[0]}{next(numbers)}"
        properties = tuple(replace(p, aliases=(f"p{next(numbers)}",)) for p in t.properties)
        return replace(t, aliases=(alias,), properties=properties)

    return replace(schema, nodes=tuple(map(of, schema.nodes)), edges=tuple(map(of, schema.edges)))


def plan(
    before: str | Schema,
    after: str | Schema,
    *,
    allow_data_loss: bool = False,
    drop_all: bool = False,
    populated: bool = True,
) -> SchemaPlan:
    old = accepted(before) if isinstance(before, str) else before
    new = parse_schema(after) if isinstance(after, str) else after
    ids = counting_ids()
    return plan_changes(
        old,
        new,
        new_id=lambda prefix: f"new-{ids(prefix)}",
        allow_data_loss=allow_data_loss,
        drop_all=drop_all,
        populated=lambda t: populated,
    )


def steps(made: SchemaPlan) -> list[dict[str, object]]:
    return [s.to_json() for s in made.steps]


def kinds(made: SchemaPlan) -> list[str]:
    return [s.kind for s in made.steps]
