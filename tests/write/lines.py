"""What the two ways to read a line say of it, in one comparable form; and lines to read."""

from __future__ import annotations

import random
import re
from collections.abc import Iterable

import orjson

from omnigraph.language.schema.model import Schema
from omnigraph.language.schema.syntax.parse import parse_schema
from omnigraph.storage.ulids import Ulids
from omnigraph.write.envelope import Parsed
from omnigraph.write.envelope.reading import _table_of
from omnigraph.write.envelope.record import Record, judge

SCHEMA = parse_schema(
    """
    node Person { name: String @key  age: I32?  email: String? }
    node Thing {
      s: String?  b: Bool?  i: I32?  l: I64?  u: U32?  w: U64?  f: F32?  d: F64?  day: Date?  at: DateTime?
      e: enum(x, y)?  blob: Blob?  v: Vector(2)?  tags: [String]?  nums: [F32]?  days: [Date]?  times: [DateTime]?
      c: I32? @default(7)  type: String?
    }
    node Visit { who: String  day: Date  n: I64  level: F32  @key(who, day, level) }
    edge Knows: Person -> Person { since: Date?  weight: F64 @default(1.5)  data: String? }
    """
)

# A verdict: what is stored (without the id where it is a new ULID), or the rule and the reason.
Verdict = tuple[str, object, object]

_ULIDS = Ulids(0, 0)
# What a new ULID looks like; no id that a line here brings does.
_NEW_ID = re.compile("[0-9A-HJKMNP-TV-Z]{26}")


def judged(schema: Schema, line: bytes) -> Verdict | None:
    """The judge's own verdict; None for a blank line."""
    if not line.strip(b" \t\r\n"):
        return None
    found = judge(schema, line.rstrip(b"\r\n"))
    if not isinstance(found, Record):
        return ("refused", found.problem.rule, found.problem.message)
    row = _table_of([(0, found)], 0, _ULIDS).table.to_pylist()[0]
    if found.id is None and not found.type.key_properties:
        del row["id"]
    return ("stored", found.type.key, repr(row))


def verdicts(parsed: Parsed) -> dict[int, Verdict]:
    """The verdict on every line that is not blank, as the parser gave it."""
    said: dict[int, Verdict] = {}
    for line in parsed.rejected:
        assert line.line not in said
        said[line.line] = ("refused", line.rule, line.reason)
    for rows in parsed.rows.values():
        assert rows.lines.to_pylist() == sorted(rows.lines.to_pylist())
        rows.table.validate(full=True)
        for number, row in zip(rows.lines.to_pylist(), rows.table.to_pylist(), strict=True):
            assert number not in said
            if not rows.type.key_properties and _NEW_ID.fullmatch(row["id"]):
                del row["id"]
            said[number] = ("stored", rows.type.key, repr(row))
    return said


def expected(schema: Schema, lines: Iterable[bytes]) -> dict[int, Verdict]:
    said = {number: judged(schema, line) for number, line in enumerate(lines, 1)}
    return {number: verdict for number, verdict in said.items() if verdict is not None}


def good_lines(seed: int, count: int) -> list[bytes]:
    """Records that are all right, of all types, spelled as different programs would."""
    r = random.Random(seed)
    return [_spelled(r, _record(r, i)) for i in range(count)]


def _record(r: random.Random, i: int) -> dict[str, object]:
    kind = r.randrange(4)
    if kind == 0:
        return {"type": "Person", "data": {"name": f"p{i} é", "age": r.choice([None, r.randrange(100)])}}
    if kind == 1:
        day = f"2024-01-{r.randrange(1, 29):02d}"
        data: dict[str, object] = {
            "s": r.choice(["", "a b", "é\n\u2028", 'q"\\']),
            "b": r.random() < 0.5,
            "i": r.randrange(-(2**31), 2**31),
            "l": r.randrange(-(2**63), 2**63),
            "u": r.randrange(2**32),
            "w": r.randrange(2**64),
            "f": r.choice([0.1, -1e-30, 3, 16777217, r.random()]),
            "d": r.choice([1e300, -0.0, 5, r.random()]),
            "day": day,
            "at": r.choice([f"{day}T10:11:12Z", f"{day} 10:11:12.123+02:00", f"{day}T10:11:12.123456789", day]),
            "e": r.choice(["x", "z"]),
            "blob": r.choice(["", "AAEC", "/+8="]),
            "v": [r.random(), 2],
            "tags": r.choice([[], ["a", "b"]]),
            "nums": [1, 0.1],
            "days": [day],
            "times": [f"{day}T00:00:00Z"],
            "c": r.choice([None, 1]),
            "type": "x",
            "id": f"own{i:023d}",
        }
        return {"type": "Thing", "data": {k: data[k] for k in r.sample(sorted(data), r.randrange(len(data) + 1))}}
    if kind == 2:
        return {"type": "Visit", "data": {"who": f'w"{i}', "day": "1969-12-31", "n": 2**60 + i, "level": 0.1}}
    edge: dict[str, object] = {"edge": "Knows", "from": f"p{i}", "to": "p0"}
    if r.random() < 0.7:
        edge["data"] = r.choice([{"since": "2024-02-29"}, {"weight": 2}, {"data": "x", "id": f"own{i:023d}"}, {}])
    return edge


def _spelled(r: random.Random, record: dict[str, object]) -> bytes:
    style = r.randrange(6)
    if style == 0:
        record = dict(reversed(record.items()))
    text = orjson.dumps(record)
    if style == 1:
        text = text.replace(b'":', b'": ').replace(b',"', b', "')
    if style == 2:
        text = b"  " + text + b" \r"
    return text
