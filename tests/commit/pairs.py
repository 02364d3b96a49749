"""Pairs of operations that meet at the door, and what must be true whoever goes first.

Each pair has two acts on handles of their own and a judge. The judge gets the two operations at their end and a fresh
handle; it knows which outcomes are right for which order. What holds for every pair is asked by `judge`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import omnigraph
from omnigraph.errors import BranchNotFound, ConstraintViolation, KeyConflict, ReadSetConflict, UnknownProperty
from omnigraph.storage.manifest.records import RECOVERY_ACTOR
from tests.commit.stepper import Stepper, open_without_heart
from tests.contention.audit import objects_left, wrong_epochs

SCHEMA = """
node Left { name: String @key  n: I64? }
node Right { name: String @key  n: I64? }
edge Joins: Left -> Right
"""
WITH_DEFAULT = SCHEMA.replace("node Left { name: String @key", "node Left { name: String @key  extra: I32 @default(7)")
RENAMED = SCHEMA.replace("n: I64? }", 'm: I64? @rename_from("n") }', 1)
Act = Callable[[Any], Any]


@dataclass(frozen=True)
class Pair:
    name: str
    first: Act
    second: Act
    judge: Callable[[Stepper, Stepper, Any], None]
    symmetric: bool = False
    """Whether the two acts are the same but for their names, so that it does not matter which of them begins."""


def create(path: Path) -> set[str]:
    """One row per type, in a second commit, and a branch that nobody has written to. The commits that there are."""
    with omnigraph.init(path, SCHEMA) as graph:
        graph.insert({"Left": [{"name": "old", "n": 0}], "Right": [{"name": "old", "n": 0}]})
        graph.create_branch("side")
        return {commit.id for commit in graph.commits()}


def judge(pair: Pair, first: Stepper, second: Stepper, path: Path, commits_before: set[str]) -> None:
    """Whatever the pair and the order: what was acknowledged is one commit each, and there is no other; epochs are
    decided once; after one more write nothing is left behind.
    """
    graph = open_without_heart(path)
    pair.judge(first, second, graph)
    promised = {s.result.commit.id for s in (first, second) if s.acknowledged and hasattr(s.result, "inserted")}
    promised |= {s.result.commit.id for s in (first, second) if s.acknowledged and hasattr(s.result, "plan")}
    names = [branch.name for branch in graph.branches()]
    made = {c.id for name in names for c in graph.commits(name) if c.actor != RECOVERY_ACTOR} - commits_before
    assert made <= promised, f"commits that nobody was told of: {made - promised}"
    if "side" in names:
        assert promised <= made, f"acknowledged commits are gone: {promised - made}"
    graph.upsert({"Right": [{"name": "afterwards"}]})
    for name in names:
        assert not wrong_epochs(graph, name)
    assert not objects_left(path)


def left(graph: Any, branch: str = "main") -> dict[str, Any]:
    return {row["id"]: row for row in graph.snapshot(branch).read("Left").to_pylist()}


def right(graph: Any) -> dict[str, Any]:
    return {row["id"]: row for row in graph.snapshot().read("Right").to_pylist()}


def both_done(first: Stepper, second: Stepper) -> None:
    for stepper in (first, second):
        assert stepper.acknowledged, (stepper.name, stepper.passed, stepper.error)


def put(type_name: str, name: str, n: int, *, branch: str = "main") -> Act:
    return lambda graph: graph.upsert({type_name: [{"name": name, "n": n}]}, branch=branch)


def put_both(name: str, n: int) -> Act:
    row = {"name": name, "n": n}
    return lambda graph: graph.upsert({"Left": [row], "Right": [row]})


def count_up(graph: Any) -> Any:
    with graph.transaction() as tx:
        now = tx.get("Left", "old")
        tx.upsert({"Left": [{"name": "old", "n": now["n"] + 1}]})
    return tx.result


# ---- what must be true -----------------------------------------------------------------------------------------------


def judge_types(first: Stepper, second: Stepper, graph: Any) -> None:
    both_done(first, second)
    assert left(graph).keys() == {"old", "a"}
    assert right(graph).keys() == {"old", "b"}


def judge_keys(first: Stepper, second: Stepper, graph: Any) -> None:
    both_done(first, second)
    assert left(graph).keys() == right(graph).keys() == {"old", "a", "b"}


def judge_same_key(first: Stepper, second: Stepper, graph: Any) -> None:
    both_done(first, second)
    values = {first.result.commit.id: 1, second.result.commit.id: 2}
    newest = next(c.id for c in graph.commits() if c.id in values)
    assert left(graph)["old"]["n"] == values[newest]


def judge_counter(first: Stepper, second: Stepper, graph: Any) -> None:
    done = [s for s in (first, second) if s.acknowledged]
    refused = [s.error for s in (first, second) if not s.acknowledged]
    assert done
    assert all(isinstance(error, ReadSetConflict) for error in refused), refused
    assert left(graph)["old"]["n"] == len(done)


def judge_insert(first: Stepper, second: Stepper, graph: Any) -> None:
    done = [s for s in (first, second) if s.acknowledged]
    refused = [s.error for s in (first, second) if not s.acknowledged]
    assert len(done) == 1
    assert isinstance(refused[0], KeyConflict), refused
    assert left(graph)["new"]["n"] == (1 if done[0] is first else 2)


def judge_default(first: Stepper, second: Stepper, graph: Any) -> None:
    both_done(first, second)
    assert {row["extra"] for row in left(graph).values()} == {7}
    assert left(graph).keys() == {"old", "a"}


def judge_rename(first: Stepper, second: Stepper, graph: Any) -> None:
    assert second.acknowledged, (second.passed, second.error)
    if first.acknowledged:
        assert left(graph)["a"] == {"id": "a", "name": "a", "m": 1}
    else:
        assert isinstance(first.error, UnknownProperty), first.error
        assert "a" not in left(graph)


def judge_create(first: Stepper, second: Stepper, graph: Any) -> None:
    both_done(first, second)
    assert left(graph).keys() == {"old", "a"}
    assert left(graph, "new").keys() in ({"old"}, {"old", "a"})


def judge_delete(first: Stepper, second: Stepper, graph: Any) -> None:
    assert second.acknowledged, (second.passed, second.error)
    if not first.acknowledged:
        assert isinstance(first.error, BranchNotFound), first.error
    assert [b.name for b in graph.branches()] == ["main"]
    assert left(graph).keys() == {"old"}


def judge_edge(first: Stepper, second: Stepper, graph: Any) -> None:
    """An edge is drawn to a node that is being deleted: refused, or deleted with it; it never dangles."""
    assert second.acknowledged, (second.passed, second.error)
    if not first.acknowledged:
        assert isinstance(first.error, ConstraintViolation), first.error
    assert not left(graph)
    assert graph.snapshot().count("Joins") == 0


PAIRS = (
    Pair("different types", put("Left", "a", 1), put("Right", "b", 1), judge_types, symmetric=True),
    Pair("different keys", put_both("a", 1), put_both("b", 1), judge_keys, symmetric=True),
    Pair("the same key", put("Left", "old", 1), put("Left", "old", 2), judge_same_key, symmetric=True),
    Pair("the same counter", count_up, count_up, judge_counter, symmetric=True),
    Pair(
        "the same insert",
        lambda graph: graph.insert({"Left": [{"name": "new", "n": 1}]}),
        lambda graph: graph.insert({"Left": [{"name": "new", "n": 2}]}),
        judge_insert,
        symmetric=True,
    ),
    Pair("a write and a new property", put("Left", "a", 1), lambda g: g.apply_schema(WITH_DEFAULT), judge_default),
    Pair("a write and a renamed property", put("Left", "a", 1), lambda g: g.apply_schema(RENAMED), judge_rename),
    Pair("a write and a new branch", put("Left", "a", 1), lambda g: g.create_branch("new"), judge_create),
    Pair(
        "a write and the end of its branch",
        put("Left", "a", 1, branch="side"),
        lambda graph: graph.delete_branch("side"),
        judge_delete,
    ),
    Pair(
        "an edge and the end of its node",
        lambda graph: graph.insert({"Joins": [{"from": "old", "to": "old"}]}),
        lambda graph: graph.delete({"Left": ["old"]}),
        judge_edge,
    ),
)
