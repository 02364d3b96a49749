"""Random loads with planted faults of every rule, for comparing the ways a load can go."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import orjson

import omnigraph as og
from omnigraph.errors import OmnigraphError

SCHEMA = """
node Person {
  name: String @key
  age: I32?
  @range(age, 0..120)
  kind: enum(a, b, c)?
  email: String? @unique
  code: String?
  @check(code, "^[A-Z]+$")
}
node Post { text: String  score: F64?  tags: [String]? }
edge Knows: Person -> Person @card(0..3) { since: I32? }
edge Wrote: Person -> Post @card(1..)
"""


def write_lines(path: Path, rng: random.Random, count: int) -> Path:
    """Records of all types, many of them wrong."""
    people = [f"p{i}" for i in range(max(3, count // 3))]
    posts = [f"t{i}" for i in range(max(2, count // 4))]
    path.write_bytes(b"".join(_line(rng, count, people, posts) + b"\n" for _ in range(count)))
    return path


def _line(rng: random.Random, count: int, people: list[str], posts: list[str]) -> bytes:
    roll = rng.random()
    if roll < 0.35:
        return orjson.dumps({"type": "Person", "data": _person(rng, people)})
    if roll < 0.5:
        post: dict[str, Any] = {"id": rng.choice(posts), "text": rng.choice(["x", "y"])}
        if rng.random() < 0.1:
            del post["text"]
        return orjson.dumps({"type": "Post", "data": post})
    if roll < 0.8:
        data = {"id": f"k{rng.randrange(count)}", "since": rng.randrange(5)}
        return orjson.dumps({"edge": "Knows", "from": rng.choice(people), "to": rng.choice(people), "data": data})
    if roll < 0.97:
        data = {"id": f"w{rng.randrange(count)}"}
        return orjson.dumps({"edge": "Wrote", "from": rng.choice(people), "to": rng.choice(posts), "data": data})
    return b"{bad json"


def _person(rng: random.Random, people: list[str]) -> dict[str, Any]:
    data: dict[str, Any] = {"name": rng.choice(people)}
    if rng.random() < 0.5:
        data["age"] = rng.choice([5, 50, 300])
    if rng.random() < 0.3:
        data["kind"] = rng.choice(["a", "b", "z"])
    if rng.random() < 0.4:
        data["email"] = rng.choice(people) + "@x"
    if rng.random() < 0.2:
        data["code"] = rng.choice(["ABC", "abc"])
    if rng.random() < 0.05:
        data["nope"] = 1
    return data


def exported(graph: og.Graph) -> bytes:
    parts: list[bytes] = []
    graph.export(parts.append)
    return b"".join(parts)


def outcome(graph: og.Graph, path: Path, aside: Path, *, mode: Any, on_error: Any, engine: str) -> dict[str, Any]:
    """Everything that a load shows: its counts or its error, the rejected lines, and the graph after it."""
    aside.unlink(missing_ok=True)
    told: dict[str, Any]
    try:
        quarantine = aside if on_error == "quarantine" else None
        done = graph.load(str(path), mode=mode, on_error=on_error, quarantine=quarantine, engine=engine)
        told = {k: v for k, v in done.to_json().items() if k not in ("commit", "quarantine", "engine")}
        told["made a commit"] = done.commit is not None
    except OmnigraphError as error:
        told = {"condition": error.condition, **error.fields}
        told.pop("shown", None)
        violations = told.pop("violations", [])
        if told.get("count", 0) <= len(violations):
            # Past the limit the ways may choose others of the same kind.
            told["violations"] = sorted(orjson.dumps(v) for v in violations)
    return {"told": told, "rejects": aside.read_bytes() if aside.exists() else b"", "graph": exported(graph)}
