"""Graphs with a history, and what a feed must give for it: differences of full scans."""

from __future__ import annotations

import random
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import omnigraph as og
from omnigraph.branch.feed.page import ChangePage

SCHEMA = """node City { name: String @key  size: I64? }
node Person { name: String @key  age: I64?  nick: String? }
edge Knows: Person -> Person { w: I64? }"""
RENAMED = SCHEMA.replace("nick: String?", 'alias: String? @rename_from("nick")  rank: I64?')

Change = tuple[str, str, str, Any, Any]
State = dict[tuple[str, str], dict[str, Any]]


def state_of(graph: og.Graph, commit: str) -> State:
    snapshot = graph.snapshot(commit=commit)
    return {(t.key, row["id"]): row for t in snapshot.schema.types() for row in snapshot.read(t.name).to_pylist()}


def expected_changes(old: State, new: State) -> list[Change]:
    """Operation, table, id and the two images, in the order of a feed. A property that is only in one state does not
    count as a change.
    """
    changes: list[Change] = []
    for key in sorted(old.keys() | new.keys(), key=lambda key: (key[0][0] != "n", *key)):
        before, after = old.get(key), new.get(key)
        if before is None or after is None:
            changes.append(("insert" if before is None else "delete", *key, before, after))
        elif _values(before, after) != _values(after, after):
            changes.append(("update", *key, before, after))
    return changes


def _values(image: dict[str, Any], shape: dict[str, Any]) -> dict[str, Any]:
    renamed = {"alias": "nick"}
    return {name: image.get(name, image.get(renamed.get(name, name))) for name in shape}


def changes_of(page: ChangePage) -> list[Change]:
    rows = [] if page.rows is None else page.rows.to_pylist()
    return [(r["operation"], r["table_key"], r["id"], r["before"], r["after"]) for r in rows]


def flattened(pages: Iterable[ChangePage]) -> list[tuple[str, Change]]:
    return [(page.commit.id, change) for page in pages for change in changes_of(page)]


def expected_feed(graph: og.Graph, branch: str = "main") -> list[tuple[str, Change]]:
    """The changes of all commits by full scans of their states."""
    feed: list[tuple[str, Change]] = []
    old: State = {}
    for commit in reversed(graph.commits(branch)):
        new = state_of(graph, commit.id)
        feed += [(commit.id, change) for change in expected_changes(old, new)]
        old = new
    return feed


def make_history(path: Path, seed: int, steps: int) -> og.Graph:
    """A random history: writes, deletes with their edges, ids that come again, merges, optimize, a schema change."""
    rng = random.Random(seed)
    graph = og.init(path, SCHEMA)
    people = [f"p{i}" for i in range(12)]
    graph.insert({"Person": [{"name": name, "age": i} for i, name in enumerate(people)]})
    renames_at = rng.randrange(steps)
    for step in range(steps):
        if step == renames_at:
            graph.apply_schema(RENAMED)
        random_step(graph, rng, people, f"b{step}")
    return graph


def random_step(graph: og.Graph, rng: random.Random, people: list[str], branch: str) -> None:
    kind = rng.choice(["write", "write", "write", "delete", "edge", "city", "merge", "optimize"])
    if kind == "write":
        graph.upsert({"Person": [{"name": n, "age": rng.randrange(5)} for n in rng.sample(people, rng.randint(1, 4))]})
    elif kind == "delete":
        present = graph.nodes("Person")["id"].to_pylist()
        graph.delete({"Person": rng.sample(present, min(len(present), 2))})
    elif kind == "edge":
        present = graph.nodes("Person")["id"].to_pylist()
        if present:
            graph.insert({"Knows": [{"from": rng.choice(present), "to": rng.choice(present), "w": rng.randrange(9)}]})
    elif kind == "city":
        graph.upsert({"City": [{"name": rng.choice("abc"), "size": rng.randrange(3)}]})
    elif kind == "merge":
        graph.create_branch(branch)
        graph.upsert(
            {"Person": [{"name": n, "age": 100 + rng.randrange(5)} for n in rng.sample(people, 2)]}, branch=branch
        )
        graph.upsert({"City": [{"name": "merged", "size": rng.randrange(100)}]})
        graph.merge(branch, delete_branch=True)
    else:
        graph.optimize()
