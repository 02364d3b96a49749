"""The judge of one line: a record that is right in every respect, or the first reason why it is not.

A line is one JSON object, `{"type": T, "data": {…}}` or `{"edge": E, "from": id, "to": id, "data": {…}}`; `data` may be
left out. Refused, in this order: what is not UTF-8 or not JSON (NaN and Infinity are not), a member twice at any depth,
what is no object, both or neither of `type` and `edge`, an unknown type, a top-level field that does not belong there,
endpoints or `data` of the wrong kind, a field of `data` that the type does not have, values that `values.convert`
refuses, null where a value is required, an `id` that the key does not give. An edge and a node without a key may
bring their own `data.id`.

This code decides alone. The fast way through Arrow may only accept what the judge would accept, with equal values;
whatever it is unsure of, it brings here.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import NoReturn

from omnigraph.language.schema.model import RESERVED_PROPERTIES, EntityType, Property, Schema
from omnigraph.rules.endpoints import invalid_endpoint
from omnigraph.rules.fields import REQUIRED, required
from omnigraph.rules.identity import invalid_id, other_id
from omnigraph.rules.problem import Problem
from omnigraph.storage.lance.columns import physical_columns
from omnigraph.write.keys import TEXT, canonical_id
from omnigraph.write.values import JsonNumber, convert, named
from omnigraph.write.violations import hint, printable

_NODE_FIELDS = ("type", "data")
_EDGE_FIELDS = ("edge", "from", "to", "data")


@dataclass(frozen=True)
class Record:
    """A good line: stored values of all properties (None for null), and the ids that it gives itself."""

    type: EntityType
    values: Mapping[str, object]
    id: str | None
    src: str | None = None
    dst: str | None = None


@dataclass(frozen=True)
class Refusal:
    """A bad line: why, and what of it is known nevertheless."""

    problem: Problem
    type: EntityType | None = None
    id: str | None = None


class _NotJson(ValueError):
    """Never leaves this module: stops the JSON parser with a reason of ours."""


def judge(schema: Schema, line: bytes) -> Record | Refusal:
    parsed = _parsed(line)
    if isinstance(parsed, Problem):
        return Refusal(parsed)
    kind = "edge" if "edge" in parsed else "type"
    if ("type" in parsed) == ("edge" in parsed):
        which = "both" if "type" in parsed else "neither"
        return Refusal(Problem("record", f'a record has exactly one of "type" and "edge", this one has {which}'))
    t = _type(schema, kind, parsed[kind])
    if isinstance(t, Problem):
        return Refusal(t)
    found = _envelope(t, parsed)
    if found is not None:
        return Refusal(found, t)
    data = parsed.get("data", {})
    assert isinstance(data, dict)
    values = {p.name: _value(p, data) for p in t.properties}
    problem = _field_problem(t, data) or _value_problem(values) or _id_problem(t, data, values)
    if problem is not None:
        return Refusal(problem, t, _known_id(t, data, values))
    given_id, src, dst = (record_text(data, "id"), record_text(parsed, "from"), record_text(parsed, "to"))
    return Record(t, values, given_id, src, dst)


def _parsed(line: bytes) -> dict[str, object] | Problem:
    try:
        text = line.decode("utf-8")
    except UnicodeDecodeError as e:
        return Problem("record", f"not UTF-8 at byte {e.start}")
    try:
        value = json.loads(
            text,
            object_pairs_hook=_members,
            parse_int=JsonNumber,
            parse_float=JsonNumber,
            parse_constant=_no_constant,
        )
    except json.JSONDecodeError as e:
        return Problem("record", f"not JSON: {e.msg} at character {e.pos}")
    except _NotJson as e:
        return Problem("record", str(e))
    except RecursionError:
        return Problem("record", "not a record: nested too deeply")
    if not isinstance(value, dict):
        return Problem("record", f"a record is an object, not {named(value)}")
    return value


def _members(pairs: list[tuple[str, object]]) -> dict[str, object]:
    members = dict(pairs)
    if len(members) < len(pairs):
        seen: set[str] = set()
        twice = next(name for name, _ in pairs if name in seen or seen.add(name))  # type: ignore[func-returns-value]
        raise _NotJson(f"the member {twice!r} occurs twice")
    return members


def _no_constant(name: str) -> NoReturn:
    raise _NotJson(f"not JSON: {name} is not a number")


def _type(schema: Schema, kind: str, name: object) -> EntityType | Problem:
    if not isinstance(name, str) or isinstance(name, JsonNumber):
        return Problem("record", f'"{kind}" is a string, not {named(name)}')
    known: Mapping[str, EntityType] = schema.node if kind == "type" else schema.edge
    if name in known:
        return known[name]
    what = "node" if kind == "type" else "edge"
    return Problem("record", f"the schema has no {what} type named {name!r}{hint(name, known)}")


def _envelope(t: EntityType, parsed: Mapping[str, object]) -> Problem | None:
    allowed = _NODE_FIELDS if t.kind == "node" else _EDGE_FIELDS
    for name in parsed:
        if name not in allowed:
            where = ' (properties go into "data")' if name in t.by_name or name == "id" else hint(name, allowed)
            return Problem("unknown_field", f"a record of {t.key} has no field {name!r}{where}", printable(name))
    for name in ("from", "to") if t.kind == "edge" else ():
        if name not in parsed:
            return required(name, rule="endpoint")
        text = _text(parsed[name])
        if isinstance(text, Problem):
            return invalid_endpoint(name, text)
    if "data" in parsed and not isinstance(parsed["data"], dict):
        return Problem("record", f'"data" is an object, not {named(parsed["data"])}')
    return None


def _text(value: object) -> object:
    return Problem("type", "expected String, not null") if value is None else convert(TEXT, value)


def record_text(members: Mapping[str, object], name: str) -> str | None:
    value = members.get(name)
    return value if isinstance(value, str) else None


def _value(p: Property, data: Mapping[str, object]) -> object:
    """The stored value, None for null, or a Problem."""
    value = data.get(p.name, p.default)
    if value is None:
        return None if p.nullable else REQUIRED
    return convert(p.type, value, from_json=True)


def _field_problem(t: EntityType, data: Mapping[str, object]) -> Problem | None:
    for name in data:
        if name in t.by_name or name == "id":
            continue
        if name in RESERVED_PROPERTIES or name in physical_columns(t):
            return Problem("unknown_field", f"{name!r} is reserved for the storage", name)
        message = f"{t.key} has no property named {name!r}{hint(name, t.by_name)}"
        return Problem("unknown_field", message, printable(name))
    return None


def _value_problem(values: Mapping[str, object]) -> Problem | None:
    return next((value.on(name) for name, value in values.items() if isinstance(value, Problem)), None)


def _id_problem(t: EntityType, data: Mapping[str, object], values: Mapping[str, object]) -> Problem | None:
    if "id" not in data:
        return None
    given = _text(data["id"])
    if isinstance(given, Problem):
        return invalid_id(given)
    if t.key_properties:
        canonical = canonical_id(t, values)
        if given != canonical:
            return other_id(given, canonical)
    return None


def _known_id(t: EntityType, data: Mapping[str, object], values: Mapping[str, object]) -> str | None:
    """The id of a record that is refused, where it can be told: records that point to it are refused, too."""
    if not t.key_properties:
        given = _text(data.get("id"))
        return given if isinstance(given, str) else None
    members = [values[name] for name in t.key_properties]
    is_whole = not any(value is None or isinstance(value, Problem) for value in members)
    return canonical_id(t, values) if is_whole else None
