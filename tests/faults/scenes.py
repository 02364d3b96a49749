"""The small graph that verbs are tried on: how it comes to be, what is done to it, and what the oracle expects then.

Starts build a graph through the public door. Changes are the written oracle: they turn the logical state before a verb
(see `jobs`) into the one after it, by hand and without asking the product.
"""

from __future__ import annotations

import copy
import json
import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

SCHEMA = """
node Person { name: String @key  age: I32? }
node Company { name: String @key  city: String? }
node Note { title: String @key  text: String? }
edge Knows: Person -> Person { since: I32? }
edge WorksAt: Person -> Company
"""
State = dict[str, Any]
ADDED_TYPE = SCHEMA + "node City { name: String @key }\n"
ADDED_PROPERTY = SCHEMA.replace("city: String?", "city: String?  size: I32 @default(7)")
RENAMED = SCHEMA.replace("node Note {", 'node Memo @rename_from("Note") {').replace(
    "text: String?", 'body: String? @rename_from("text")'
)
DROPPED = SCHEMA.replace("  city: String?", "").replace("node Note { title: String @key  text: String? }\n", "")
# After so many commits, small fragments of a table, accepted schemas, a write folds them (held by a test).
COMMITS_UNTIL_FOLD, FRAGMENTS_UNTIL_FOLD, SCHEMAS_UNTIL_FOLD = 46, 32, 24

BOTH = {
    "Person": [{"name": "dora", "age": 50}],
    "Company": [{"name": "core", "city": "Chur"}],
    "WorksAt": [{"from": "dora", "to": "core"}],
    "Knows": [{"from": "dora", "to": "anna", "since": 2020}],
}
MERGED = [
    {"type": "Person", "data": {"name": "dora", "age": 50}},
    {"type": "Company", "data": {"name": "acme", "city": "Chur"}},
    {"edge": "WorksAt", "from": "dora", "to": "acme"},
]
NOTES = [{"type": "Note", "data": {"title": "second"}}]
DORA = {"Person": [{"name": "dora", "age": 50}]}
DORA_AND_ACME = {**DORA, "Company": [{"name": "acme", "city": "Chur"}]}
DORA_WORKS = {"WorksAt": [{"from": "dora", "to": "acme"}]}
NOTE = {"Note": [{"title": "second"}]}
TAG = "v1"
# So many tables that several are committed at once.
WIDE = [f"Wide{number}" for number in range(9)]
WIDE_SCHEMA = SCHEMA + "".join(f"node {name} {{ name: String @key }}\n" for name in WIDE)
ONE_OF_EACH = {name: [{"name": "one"}] for name in WIDE}


def unobserved(_: str) -> None:
    """The observer of the door's phases that sees nothing."""


@dataclass(frozen=True)
class Place:
    """Where a graph is, how to get there, and who is told about the door's phases."""

    uri: str
    options: dict[str, str] | None = None
    observer: Callable[[str], None] = unobserved

    def open(self) -> Any:
        import omnigraph

        return omnigraph.open(self.uri, storage_options=self.options, observer=self.observer)

    def init(self, schema: str, *, row_ids: Literal["stable", "address"] = "stable") -> Any:
        import omnigraph

        return omnigraph.init(self.uri, schema, storage_options=self.options, observer=self.observer, row_ids=row_ids)


def cleanup_and_write(graph: Any) -> None:
    """Nobody who reads notices a cleanup: the write behind it tells how far it came."""
    graph.cleanup(keep=1, confirm=True)
    graph.upsert({"Person": [{"name": "dora", "age": 50}]})


# ---- starts ----------------------------------------------------------------------------------------------------------


def nothing(_: Place) -> None:
    """The start of `init`."""


def create_empty(place: Place) -> None:
    place.init(SCHEMA).close()


def create_wide(place: Place) -> None:
    with place.init(WIDE_SCHEMA) as graph:
        graph.insert({"Person": [{"name": "anna", "age": 30}], WIDE[0]: [{"name": "zero"}]})


def create_small(place: Place) -> None:
    """Three people, two companies, four edges: in two commits, so that tables have a past."""
    with place.init(SCHEMA) as graph:
        people = [{"name": "anna", "age": 30}, {"name": "ben", "age": 40}, {"name": "cleo"}]
        companies = [{"name": "acme", "city": "Bern"}, {"name": "bolt", "city": "Basel"}]
        graph.insert({"Person": people, "Company": companies, "Note": [{"title": "first", "text": "one"}]})
        knows = [{"from": "anna", "to": "ben", "since": 2001}, {"from": "ben", "to": "cleo"}]
        works = [{"from": "anna", "to": "acme"}, {"from": "cleo", "to": "acme"}]
        graph.insert({"Knows": knows, "WorksAt": works})


def create_with_branch(place: Place) -> None:
    create_small(place)
    with place.open() as graph:
        graph.create_branch("review")


def create_with_forks(place: Place) -> None:
    create_with_branch(place)
    with place.open() as graph:
        graph.upsert({"Person": [{"name": "anna", "age": 31}]}, branch="review")


def create_with_history(place: Place) -> None:
    """Versions that nobody needs, a branch that stands on an old one, and forks of a living and of a deleted one."""
    create_with_forks(place)
    with place.open() as graph:
        for age in range(3):
            graph.upsert({"Person": [{"name": "ben", "age": 50 + age}], "Company": [{"name": "acme"}]})
        graph.create_branch("gone")
        graph.upsert({"Person": [{"name": "gone"}]}, branch="gone")
        graph.delete_branch("gone")


def create_packed(place: Place) -> None:
    """Two packs, a deleted branch in one of them, and loose branches beside them."""
    from omnigraph.storage.manifest.packed_heads import pack_heads

    create_with_forks(place)
    with place.open() as graph:
        graph.create_branch("idle")
        graph.create_branch("former")
        pack_heads(graph._manifest, keep=0)
        graph.create_branch("loose")
        pack_heads(graph._manifest, keep=0)
        graph.upsert({"Person": [{"name": "loose"}]}, branch="loose")
        graph.delete_branch("former")


def create_tagged(place: Place) -> None:
    """A tag of an old commit, above which a cleanup has removed versions."""
    create_small(place)
    with place.open() as graph:
        graph.create_tag(TAG, graph.commits()[1].id)
        for age in range(3):
            graph.upsert({"Person": [{"name": "ben", "age": 50 + age}], "Knows": [{"from": "ben", "to": "anna"}]})
        graph.cleanup(keep=1, confirm=True)


def create_drifted(place: Place) -> None:
    """Two tables that somebody with a Lance client wrote to."""
    from tests.maintenance import strangers

    create_small(place)
    with place.open() as graph:
        strangers.opened(graph, "Note").delete("true")
        strangers.update(graph, "Company", {"city": "'Chur'"}, "id = 'acme'")


def create_due_for_table_fold(place: Place) -> None:
    """So many small writes that the next insert folds the fragments of its table, and records of commits into rows."""
    create_small(place)
    with place.open() as graph:
        for age in range(COMMITS_UNTIL_FOLD - FRAGMENTS_UNTIL_FOLD):
            graph.upsert(person("ben", age))
        for number in range(FRAGMENTS_UNTIL_FOLD):
            graph.insert(person(f"person-{number}"))


def create_due_for_manifest_fold(place: Place) -> None:
    """So many accepted schemas that the next write, which folds records into rows, folds the manifest as well."""
    create_small(place)
    with place.open() as graph:
        for age in range(COMMITS_UNTIL_FOLD - SCHEMAS_UNTIL_FOLD):
            graph.upsert(person("ben", age))
        for number in range(SCHEMAS_UNTIL_FOLD):
            graph.apply_schema(SCHEMA.replace("node Note {", f'node Note @description("number {number}") {{'))


def create_old(generation: int, intent: Literal["forward", "back"] | None = None) -> Callable[[Place], object]:
    """A graph as an older program left it, with `intent` in the middle of an operation."""

    def start(place: Place) -> None:
        from tests.storage.old_graphs import build_old_graph

        build_old_graph(place.uri, generation=generation, storage_options=place.options, intent=intent)

    start.__name__ = f"create_old_{generation}_{intent}"
    return start


# ---- runs ------------------------------------------------------------------------------------------------------------


def on_graph(act: Callable[[Any], object]) -> Callable[[Place], object]:
    def run(place: Place) -> None:
        with place.open() as graph:
            act(graph)

    return run


def several_in_one(graph: Any) -> None:
    with graph.transaction() as tx:
        tx.insert({"Person": [{"name": "dora", "age": 50}]})
        tx.upsert({"Company": [{"name": "acme", "city": "Chur"}]})
        tx.delete({"Note": ["first"]})


def several_by_query(graph: Any) -> None:
    graph.mutate(
        """query several() {
            insert Person { name: "dora", age: 49 }
            merge Company { name: "acme" } set { city: "Chur" }
            delete Note where title = "first"
            update Person set { age: age + 1 } where name = "dora"
            insert WorksAt { from: $p, to: "acme" } from match { $p: Person { name: "dora" } }
        }"""
    )


def load(mode: str, lines: list[dict[str, Any]]) -> Callable[[Any], object]:
    raw = b"".join(json.dumps(line).encode() + b"\n" for line in lines)
    return lambda graph: graph.load([raw], mode=mode)


def bulk(
    mode: str, nodes: dict[str, list[dict[str, Any]]], edges: dict[str, list[dict[str, Any]]] | None = None
) -> Callable[[Any], object]:
    """A load that goes the way of large ones, one task at a time, so that its requests have an order."""

    def act(graph: Any) -> None:
        import pyarrow as pa

        os.environ["OMNIGRAPH_THREADS"] = "1"
        tables = [
            {name: pa.Table.from_pylist(rows) for name, rows in (given or {}).items()} for given in (nodes, edges)
        ]
        graph.load(nodes=tables[0], edges=tables[1], mode=mode, engine="local")

    return act


def on_review(graph: Any) -> None:
    graph.upsert(person("dora"), branch="review")


def pack_and_write(graph: Any) -> None:
    """Nobody who reads notices a packing: the write behind it, on a packed branch, shows how far it came."""
    from omnigraph.storage.manifest.packed_heads import pack_heads

    pack_heads(graph._manifest, keep=0)
    on_review(graph)


def write_and_pack(graph: Any) -> None:
    """A write on a packed branch, which packs behind itself. In a process of its own, as every verb is."""
    from omnigraph.storage.manifest import packed_heads

    packed_heads.LOOSE_MAX = packed_heads.LOOSE_KEPT = 0
    on_review(graph)


def person(name: str, age: int | None = None) -> dict[str, Any]:
    return {"Person": [{"name": name, "age": age}]}


# ---- changes: what the oracle expects --------------------------------------------------------------------------------


def put(state: State, kind: str, key: str, row: dict[str, Any], *, branch: str = "main") -> None:
    """Insert or replace the row whose id is `key`."""
    kept = [found for found in state[branch]["rows"][kind] if found.get("id") != key]
    state[branch]["rows"][kind] = [*kept, {"id": key, **row}]


def drop(state: State, kind: str, keep: Callable[[dict[str, Any]], bool], *, branch: str = "main") -> None:
    state[branch]["rows"][kind] = [row for row in state[branch]["rows"][kind] if keep(row)]


def add_edge(state: State, kind: str, source: str, target: str, **properties: Any) -> None:
    state["main"]["rows"][kind].append({"src": source, "dst": target, **properties})


def committed(state: State, *, branch: str = "main", times: int = 1) -> None:
    state[branch]["commits"] += times


def add_person(state: State, name: str, age: int | None = None, *, branch: str = "main") -> None:
    """No index covers the row yet, where there are indices."""
    put(state, "Person", name, {"name": name, "age": age}, branch=branch)
    indices = state[branch].get("indices", {}).get("Person", {})
    indices.update({index: uncovered + 1 for index, uncovered in indices.items()})
    committed(state, branch=branch)


def ordered(state: State) -> State:
    """Rows of every table in the order in which states are compared. Changes need not care about it."""
    for branch in state.values():
        for rows in branch["rows"].values():
            rows.sort(key=lambda row: json.dumps(row, sort_keys=True, default=str))
    return state


def empty_graph(state: State) -> None:
    state["main"] = {
        "schema": {
            "Person": ["name: String", "age: I32?"],
            "Company": ["name: String", "city: String?"],
            "Note": ["title: String", "text: String?"],
            "Knows": ["since: I32?"],
            "WorksAt": [],
        },
        "rows": {"Person": [], "Company": [], "Note": [], "Knows": [], "WorksAt": []},
        "commits": 1,
    }


def two_types(state: State) -> None:
    add_person(state, "dora", 50)
    put(state, "Company", "core", {"name": "core", "city": "Chur"})
    add_edge(state, "WorksAt", "dora", "core")
    add_edge(state, "Knows", "dora", "anna", since=2020)


def without_anna(state: State) -> None:
    drop(state, "Person", lambda row: row["id"] != "anna")
    for kind in ("Knows", "WorksAt"):
        drop(state, kind, lambda row: "anna" not in (row["src"], row["dst"]))
    committed(state)


def after_transaction(state: State) -> None:
    add_person(state, "dora", 50)
    put(state, "Company", "acme", {"name": "acme", "city": "Chur"})
    drop(state, "Note", lambda row: row["id"] != "first")


def after_mutation(state: State) -> None:
    after_transaction(state)
    add_edge(state, "WorksAt", "dora", "acme")


def after_load_merge(state: State) -> None:
    add_person(state, "dora", 50)
    put(state, "Company", "acme", {"name": "acme", "city": "Chur"})
    add_edge(state, "WorksAt", "dora", "acme")


def with_one_of_each(state: State) -> None:
    for name in WIDE:
        put(state, name, "one", {"name": "one"})
    committed(state)


def after_bulk_append(state: State) -> None:
    add_person(state, "dora", 50)
    add_edge(state, "WorksAt", "dora", "acme")


def after_load_overwrite(state: State) -> None:
    drop(state, "Note", lambda _: False)
    put(state, "Note", "second", {"title": "second", "text": None})
    committed(state)


def with_type(state: State) -> None:
    state["main"]["schema"]["City"] = ["name: String"]
    state["main"]["rows"]["City"] = []
    committed(state)


def with_property(state: State) -> None:
    state["main"]["schema"]["Company"].append("size: I32")
    for row in state["main"]["rows"]["Company"]:
        row["size"] = 7
    committed(state)


def with_renames(state: State) -> None:
    for part in ("schema", "rows"):
        found = state["main"][part]
        state["main"][part] = {{"Note": "Memo"}.get(name, name): found[name] for name in found}
    state["main"]["schema"]["Memo"] = ["title: String", "body: String?"]
    for row in state["main"]["rows"]["Memo"]:
        row["body"] = row.pop("text")
    committed(state)


def without_city(state: State) -> None:
    state["main"]["schema"]["Company"] = ["name: String"]
    for row in state["main"]["rows"]["Company"]:
        del row["city"]
    del state["main"]["schema"]["Note"], state["main"]["rows"]["Note"]
    committed(state)


def after_old_intent(state: State) -> State:
    """What becomes of an old program's pending operation whose effects are all there."""
    from tests.storage.old_graphs import settled

    return ordered(settled(state, "forward"))


def with_drift(state: State) -> None:
    drop(state, "Note", lambda _: False)
    put(state, "Company", "acme", {"name": "acme", "city": "Chur"})
    committed(state)


def with_branch(state: State) -> None:
    state["review"] = copy.deepcopy(state["main"])


def with_tag(state: State) -> None:
    """Of the commit before the edges."""
    state["main"]["tags"] = {TAG: ["anna", "ben", "cleo"]}


def without_tag(state: State) -> None:
    del state["main"]["tags"]


def at_the_tag(state: State) -> None:
    """The tagged commit, and the commit of the reset, whatever was written since."""
    rows = state["main"]["rows"]
    rows["Knows"], rows["WorksAt"] = [], []
    rows["Person"] = [row for row in rows["Person"] if row["name"] in state["main"]["tags"][TAG]]
    next(row for row in rows["Person"] if row["name"] == "ben")["age"] = 40
    state["main"]["commits"] = 3


def review_at_main(state: State) -> None:
    state["review"] = copy.deepcopy(state["main"])
    committed(state, branch="review")


def without_branch(state: State) -> None:
    del state["review"]
