"""Graphs whose storage says what no program of ours has written, and what lies beside them."""

from __future__ import annotations

import copy
import json
import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import lance
import pyarrow as pa

import omnigraph as og
from omnigraph.errors import OmnigraphError

SCHEMA = "node P { name: String @key  age: I64? @index }\nnode Q { name: String @key }\nedge E: P -> Q { since: I64? }"
OSC = "\x1b]52;c;ZXZpbA==\x07\x1b[2J\x9b31m\x7f"
TEXTS = (
    "",
    ".",
    "..",
    "../../outside",
    "z/../../../outside/nodes",
    "/etc",
    "a/b",
    "a\\b",
    "a\x00b",
    "a\nb",
    "'; DROP TABLE x; --",
    "`",
    "~",
    "𝕏",
    OSC,
    "\u202e\u2066",
    "x" * 5000,
)
OTHERS = (None, True, -1, 0, 2**63, 2**70, 1.5, [], ["x"], {}, {"a": 1})


def template(root: Path) -> Path:
    """A graph with a branch that has a fork, a commit record as a row, and a folder and another graph beside it."""
    with og.init(root / "graph", SCHEMA, actor="ada") as graph:
        graph.insert({"P": [{"name": "a", "age": 1}], "Q": [{"name": "q"}], "E": [{"from": "a", "to": "q"}]})
        graph.create_branch("review/anna")
        graph.insert({"P": [{"name": "b", "age": 2}]}, branch="review/anna")
    with og.init(root / "outside", SCHEMA) as graph:
        graph.insert({"P": [{"name": "victim", "age": 1}]})
    (root / "outside/precious.txt").write_text("precious")
    return root


def tree(root: Path) -> dict[str, bytes]:
    return {str(p.relative_to(root)): p.read_bytes() if p.is_file() else b"/" for p in sorted(root.rglob("*"))}


def manifest(graph: Path) -> lance.LanceDataset:
    return lance.dataset(str(graph / "__manifest"))


def head(graph: Path, branch: str = "main") -> dict[str, Any]:
    body: dict[str, Any] = json.loads(manifest(graph).config()[f"head:{branch}"])
    return body


def plant_head(graph: Path, body: Any, branch: str = "main") -> None:
    manifest(graph).update_config({f"head:{branch}": json.dumps(body)})


def row(graph: Path, kind: str) -> dict[str, Any]:
    found: dict[str, Any] = manifest(graph).to_table(filter=f"kind = '{kind}'").to_pylist()[0]
    return found


def plant_row(graph: Path, known: dict[str, Any], *, object_id: str, body: Any) -> None:
    shape = manifest(graph).schema
    values = {**known, "object_id": object_id, "body": json.dumps(body)}
    lance.write_dataset(
        pa.table({name: [values[name]] for name in shape.names}, schema=shape), manifest(graph).uri, mode="append"
    )


def plant_schema(graph: Path, body: Any, schema_id: str = "sbad") -> None:
    plant_row(graph, row(graph, "schema"), object_id=f"schema:{schema_id}", body=body)
    plant_head(graph, {**head(graph), "schema": schema_id})


def plant_record(graph: Path, body: Any) -> None:
    """A commit record as a row, to which the head of main leads."""
    commit = body.get("c")
    plant_row(graph, row(graph, "commit"), object_id=f"commit:{commit}", body=body)
    plant_head(graph, {**head(graph), "commit": commit, "recent": [], "base": commit, "pins": {}})


def leaves(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The path of every scalar, and of every key of an object, which ends in the marker KEY."""
    if isinstance(value, dict):
        for key, each in value.items():
            yield (*path, key, KEY)
            yield from leaves(each, (*path, key))
    elif isinstance(value, list):
        for number, each in enumerate(value):
            yield from leaves(each, (*path, number))
    else:
        yield path


KEY = object()


def mutated(value: Any, path: tuple[Any, ...], new: Any) -> Any:
    body = copy.deepcopy(value)
    at = body
    *way, last = path[:-1] if path[-1] is KEY else path
    for key in way:
        at = at[key]
    if path[-1] is KEY:
        at[str(new)] = at.pop(last)
    else:
        at[last] = new
    return body


def hostile_values(rng: random.Random, how_many: int) -> list[Any]:
    return rng.sample([*TEXTS, *OTHERS], how_many)


def outcomes(graph: Path, verbs: dict[str, Callable[[og.Graph], object]]) -> dict[str, str]:
    """The condition of every verb, "" for one that went through. Anything but an error of ours is a failure."""
    found = {}
    for name, verb in verbs.items():
        try:
            with og.open(graph, engine="local") as opened:
                verb(opened)
            found[name] = ""
        except OmnigraphError as error:
            found[name] = error.condition
    return found
