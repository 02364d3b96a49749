"""Random loads with planted faults of every rule, for comparing the ways a load can go."""

from __future__ import annotations

import json
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
        violations = told.get("violations", [])
        if told.get("count", 0) > len(violations) and any("line" not in v for v in violations):
            # Of more than are shown, the ways may choose others that no line is to blame for.
            told["violations"] = [v for v in violations if "line" in v]
            told.pop("shown")
    return {"told": told, "rejects": aside.read_bytes() if aside.exists() else b"", "graph": exported(graph)}


# ---- random schemas --------------------------------------------------------------------------------------------------

KINDS = ("String", "I32", "U64", "F64", "Bool", "Date", "DateTime", "[String]", "Vector(2)", "enum(a, b)")
VALUES: dict[str, tuple[Any, ...]] = {
    "String": ("x", "y", "", "é'\"\\"),
    "I32": (0, 7, -3, 2**31),
    "U64": (0, 2**64 - 1, -1),
    "F64": (0.0, -0.0, 1.5, 10**400),
    "Bool": (True, False, 1),
    "Date": ("2024-02-29", "2023-02-29"),
    "DateTime": ("2024-01-02T03:04:05Z", "late"),
    "[String]": ([], ["a", "b"], ["a", None]),
    "Vector(2)": ([1, 2], [1], [0.5, -0.5]),
    "enum(a, b)": ("a", "b", "c"),
}


class RandomSchema:
    """A schema of a few types with random properties and constraints, and lines for it, most of them right."""

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng
        self.nodes = {f"N{i}": self._properties() for i in range(rng.randint(1, 3))}
        self.keyed = {name for name in self.nodes if rng.random() < 0.6}
        names = sorted(self.nodes)
        self.edges = {
            f"E{i}": (rng.choice(names), rng.choice(names), self._properties()) for i in range(rng.randint(1, 3))
        }
        self.text = "\n".join([*map(self._node, names), *map(self._edge, self.edges)])

    def _properties(self) -> dict[str, str]:
        return {f"p{i}": self._rng.choice(KINDS) for i in range(self._rng.randint(0, 4))}

    def _body(self, properties: dict[str, str], *, ranges: bool) -> str:
        lines = []
        for name, kind in properties.items():
            plain = kind not in ("[String]", "Vector(2)")
            mark = " @unique" if plain and self._rng.random() < 0.25 else ""
            lines.append(f"  {name}: {kind}{'?' if self._rng.random() < 0.7 else ''}{mark}")
            if ranges and kind == "I32" and self._rng.random() < 0.5:
                lines.append(f"  @range({name}, 0..5)")
        return "\n".join(lines)

    def _node(self, name: str) -> str:
        key = "  key: String @key\n" if name in self.keyed else ""
        return f"node {name} {{\n{key}{self._body(self.nodes[name], ranges=True)}\n}}"

    def _edge(self, name: str) -> str:
        source, target, properties = self.edges[name]
        card = self._rng.choice(["", " @card(0..2)", " @card(1..)", " @card(0..1)"])
        return f"edge {name}: {source} -> {target}{card} {{\n{self._body(properties, ranges=False)}\n}}"

    def line(self) -> bytes:
        rng = self._rng
        data: dict[str, Any] = {}
        if rng.random() < 0.5:
            name = rng.choice(sorted(self.nodes))
            data["key" if name in self.keyed else "id"] = f"{name}-{rng.randrange(12)}"
            return self._filled({"type": name, "data": data}, self.nodes[name])
        name = rng.choice(sorted(self.edges))
        source, target, properties = self.edges[name]
        data["id"] = f"{name}-{rng.randrange(30)}"
        ends = {"from": f"{source}-{rng.randrange(12)}", "to": f"{target}-{rng.randrange(12)}"}
        return self._filled({"edge": name, **ends, "data": data}, properties)

    def _filled(self, record: dict[str, Any], properties: dict[str, str]) -> bytes:
        for name, kind in properties.items():
            if self._rng.random() < 0.8:
                right = self._rng.random() < 0.9
                record["data"][name] = VALUES[kind][0 if right else self._rng.randrange(len(VALUES[kind]))]
                if right and kind in ("String", "I32", "U64"):
                    number = self._rng.randrange(6)
                    record["data"][name] = str(number) if kind == "String" else number
        return json.dumps(record).encode()
