"""Operations that are killed on their way through the door, each with the state it starts from.

They are chosen for the ways they differ: tables changed in place, tables forked first, several steps on one table, new
tables and a new schema, edges that go with their nodes, a write that also folds, drift that is adopted or discarded.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

SCHEMA = """
node Left { name: String @key  n: I64? }
node Right { name: String @key  n: I64? }
edge Joins: Left -> Right
"""
EVOLVED = """
node Left { name: String @key  m: I64? @rename_from("n")  extra: I32 @default(7) }
node Right { name: String @key  n: I64? }
node Third { name: String @key }
edge Joins: Left -> Right
"""
FOLD_AFTER = 31


def create(uri: str) -> None:
    import omnigraph

    with omnigraph.init(uri, SCHEMA) as graph:
        rows = [{"name": "old", "n": 0}, {"name": "older", "n": 0}]
        graph.insert({"Left": rows, "Right": rows, "Joins": [{"from": "old", "to": "old"}]})


def create_with_branch(uri: str) -> None:
    import omnigraph

    create(uri)
    with omnigraph.open(uri) as graph:
        graph.create_branch("side")


def create_with_fork(uri: str) -> None:
    import omnigraph

    create_with_branch(uri)
    with omnigraph.open(uri) as graph:
        graph.upsert({"Left": [{"name": "forked", "n": 1}]}, branch="side")


def create_due_for_folding(uri: str) -> None:
    import omnigraph

    create(uri)
    with omnigraph.open(uri) as graph:
        for n in range(FOLD_AFTER):
            graph.upsert({"Left": [{"name": f"small-{n}", "n": n}]})


def create_drifted(uri: str) -> None:
    """Two tables that somebody else has written to."""
    import omnigraph
    from tests.maintenance import strangers

    create(uri)
    with omnigraph.open(uri) as graph:
        strangers.append(graph, "Left", "raw")
        strangers.opened(graph, "Joins").delete("true")


def create_with_drifted_fork(uri: str) -> None:
    import omnigraph
    from tests.maintenance import strangers

    create_with_fork(uri)
    with omnigraph.open(uri) as graph:
        strangers.append(graph, "Left", "raw", branch="side")


def put_new(graph: Any) -> Any:
    return graph.upsert({"Left": [{"name": "new", "n": 1}], "Right": [{"name": "new", "n": 1}]})


def put(graph: Any, branch: str = "main") -> Any:
    rows = [{"name": "old", "n": 1}, {"name": "new", "n": 1}]
    return graph.upsert({"Left": rows, "Right": rows[1:]}, branch=branch)


@dataclass(frozen=True)
class Deed:
    name: str
    start: Callable[[str], None]
    act: Callable[[Any], Any]


DEEDS = {
    deed.name: deed
    for deed in (
        Deed("put", create, put),
        Deed("put_on_new_branch", create_with_branch, lambda graph: put(graph, "side")),
        Deed("put_on_forked_branch", create_with_fork, lambda graph: put(graph, "side")),
        Deed("evolve", create, lambda graph: graph.apply_schema(EVOLVED)),
        Deed("evolve_forked_branch", create_with_fork, lambda graph: graph.apply_schema(EVOLVED, branch="side")),
        Deed("delete_cascading", create, lambda graph: graph.delete({"Left": ["old"]})),
        Deed("put_and_fold", create_due_for_folding, put_new),
        Deed("repair_forced", create_drifted, lambda graph: graph.repair(force=True, confirm=True)),
        Deed("repair_discarding", create_drifted, lambda graph: graph.repair(discard=True, confirm=True)),
        Deed(
            "repair_of_a_fork",
            create_with_drifted_fork,
            lambda graph: graph.repair(branch="side", force=True, confirm=True),
        ),
        Deed("probe", create, lambda graph: graph.upsert({"Left": [{"name": "probe", "n": 2}]})),
    )
}
