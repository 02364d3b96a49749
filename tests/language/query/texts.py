"""The schema and the shorthands that the tests of the query language share."""

from __future__ import annotations

from itertools import count

import pytest

from omnigraph.errors import QueryCheckError, QuerySyntaxError
from omnigraph.language.query import CheckedQuery, check_query, parse_queries
from omnigraph.language.query import model as m
from omnigraph.language.schema import accept, parse_schema

SCHEMA_TEXT = """
interface Named { name: String }

node Person implements Named {
  slug: String @key
  age: I32?
  visits: U64?
  height: F32?
  weight: F64?
  bio: String?
  vec: Vector(3)? @embed("bio", model="m-1") @index
  born: Date?
  joined: DateTime?
  active: Bool?
  status: enum(open, closed, on-hold)?
  tags: [String]?
  scores: [F64]?
  photo: Blob?
  raw: Vector(2)?
  days: [Date]?
  moments: [DateTime]?
}
node Company implements Named { slug: String @key  city: String?  staff: I64 @default(0) }
node City { name: String @key }
node Note { text: String  made: DateTime? }

edge Knows: Person -> Person { since: Date?  weight: F64?  label: String?  scan: Blob? }
edge WorksWith: Person -> Person
edge WorksAt: Person -> Company { role: String }
edge LocatedIn: Company -> City
edge Contains: Company -> Note
"""
_ids = count(1)
SCHEMA = accept(parse_schema(SCHEMA_TEXT), new_id=lambda prefix: f"{prefix}{next(_ids):03}")
IDS = {t.name: t.id for t in SCHEMA.types()}


def read_text(match: str, rest: str = "return { $p.name }", parameters: str = "") -> str:
    return f"query q({parameters}) {{ match {{ {match} }} {rest} }}"


def checked(text: str) -> CheckedQuery:
    (query,) = parse_queries(text, file="q.gq").queries
    return check_query(query, SCHEMA)


def read(match: str, rest: str = "return { $p.name }", parameters: str = "") -> m.Read:
    body = checked(read_text(match, rest, parameters)).body
    assert isinstance(body, m.Read)
    return body


def write(statements: str, parameters: str = "") -> tuple[m.Statement, ...]:
    body = checked(f"query q({parameters}) {{ {statements} }}").body
    assert isinstance(body, tuple)
    return body


def refused(text: str, code: str) -> QueryCheckError:
    """The check refuses the text with that code, at a place that it shows."""
    with pytest.raises(QueryCheckError) as caught:
        checked(text)
    fields = caught.value.fields
    assert fields["code"] == code, str(caught.value)
    assert fields["query"] == "q"
    line, caret = fields["excerpt"].split("\n")
    assert line == text.split("\n")[fields["line"] - 1]
    assert caret == " " * (fields["column"] - 1) + "^"
    return caught.value


def unread(match: str, code: str, rest: str = "return { $p.name }", parameters: str = "") -> QueryCheckError:
    return refused(read_text(match, rest, parameters), code)


def unwritten(statements: str, code: str, parameters: str = "") -> QueryCheckError:
    return refused(f"query q({parameters}) {{ {statements} }}", code)


def unparsed(text: str) -> QuerySyntaxError:
    with pytest.raises(QuerySyntaxError) as caught:
        parse_queries(text, file="q.gq")
    assert caught.value.fields["code"] == "Q000"
    return caught.value


def pointed(error: QueryCheckError | QuerySyntaxError) -> str:
    """The text from the caret on, up to the next blank."""
    line, caret = error.fields["excerpt"].split("\n")
    return line[len(caret) - 1 :].split(" ")[0]
