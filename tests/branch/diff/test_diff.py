"""graph.diff and commit_changes: revisions, filters, schema steps, what is read, leases."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import omnigraph as og
from omnigraph.branch.diff import type_changes
from omnigraph.branch.diff.type_changes import TypeChanges
from omnigraph.language.schema.model import Schema
from omnigraph.storage.diff.table_version import TableVersion
from omnigraph.storage.objects import leases
from tests.branch.merge.support import SCHEMA, edge_ids, make_graph
from tests.support.graphs import Templates


@pytest.fixture
def graph(graph_templates: Templates, tmp_path: Path) -> og.Graph:
    return graph_templates.open(make_graph, tmp_path / "graph")


def head(graph: og.Graph, branch: str = "main") -> str:
    return {b.name: b.commit for b in graph.branches()}[branch]


def summary(diff: Any) -> list[tuple[str, str, str]]:
    return [(r["operation"], r["table_key"], r["id"]) for batch in diff for r in batch.to_pylist()]


def test_two_branches_and_what_one_changed_since_their_merge_base(graph: og.Graph) -> None:
    graph.create_branch("x")
    graph.update("Person", {"age": 31}, ids=["Alice"], branch="x")
    graph.insert({"Person": [{"name": "Zed"}]})
    assert summary(graph.diff("main", "x")) == [
        ("update", "node:Person", "Alice"),
        ("delete", "node:Person", "Zed"),
    ]
    assert summary(graph.diff("main", "x", since_merge_base=True)) == [("update", "node:Person", "Alice")]
    assert summary(graph.diff("x", "x")) == []


def test_a_cascade_is_told_with_its_edges_and_nodes_come_first(graph: og.Graph) -> None:
    edge = edge_ids(graph, "main")[0]
    before = head(graph)
    graph.delete({"Person": ["Bob"]})
    diff = graph.diff(before, "main")
    assert summary(diff) == [("delete", "node:Person", "Bob"), ("delete", "edge:Knows", edge)]
    assert diff.stat() == {
        "node:Person": {"insert": 0, "update": 0, "delete": 1},
        "edge:Knows": {"insert": 0, "update": 0, "delete": 1},
    }
    row = diff.to_table("Knows").to_pylist()[0]
    assert (row["src"], row["dst"], row["before"]["w"], row["after"]) == ("Bob", "Carol", 1, None)


def test_types_ids_and_operations_choose_changes(graph: og.Graph) -> None:
    before = head(graph)
    graph.update("Person", {"age": 9}, ids=["Alice", "Bob"])
    graph.delete({"Person": ["Dan"]})
    graph.insert({"Likes": [{"from": "Alice", "to": "Bob"}]})
    assert {key for _, key, _ in summary(graph.diff(before, "main", types=["Person"]))} == {"node:Person"}
    assert {key for _, key, _ in summary(graph.diff(before, "main", types=["edge:Likes"]))} == {"edge:Likes"}
    assert summary(graph.diff(before, "main", ids=["Bob"])) == [("update", "node:Person", "Bob")]
    deletes = graph.diff(before, "main", operations=["delete"])
    assert summary(deletes) == [("delete", "node:Person", "Dan")]
    assert deletes.stat() == {"node:Person": {"insert": 0, "update": 0, "delete": 1}}
    with pytest.raises(og.errors.UnknownType):
        list(graph.diff(before, "main", types=["Nobody"]))
    with pytest.raises(og.errors.UsageError):
        graph.diff(before, "main", operations=["upsert"])


def test_json_has_the_same_words_as_the_columns(graph: og.Graph) -> None:
    before = head(graph)
    graph.update("Person", {"age": 31, "nick": ""}, ids=["Alice"])
    document = graph.diff(before, "main").to_json()
    assert list(document) == ["base", "target", "schema", "changes"]
    image = {"id": "Alice", "name": "Alice", "email": None}
    assert document["changes"] == [
        {
            "operation": "update",
            "table_key": "node:Person",
            "id": "Alice",
            "src": None,
            "dst": None,
            "changed": ["age", "nick"],
            "before": image | {"age": 30, "nick": None},
            "after": image | {"age": 31, "nick": ""},
        }
    ]


def test_renames_and_additions_are_schema_steps_and_change_no_row(graph: og.Graph) -> None:
    before = head(graph)
    text = SCHEMA.replace("nick: String?", 'alias: String? @rename_from("nick")  level: I64? @default(1)')
    graph.apply_schema(text)
    diff = graph.diff(before, "main")
    assert [step.kind for step in diff.schema] == ["rename_property", "add_property"]
    assert summary(diff) == []
    graph.update("Person", {"level": 2, "alias": "al"}, ids=["Alice"])
    row = graph.diff(before, "main").to_table("Person").to_pylist()[0]
    assert row["changed"] == ["alias", "level"]
    assert row["before"] == {"id": "Alice", "name": "Alice", "age": 30, "nick": None, "email": None}
    assert row["after"]["level"] == 2
    back = graph.diff("main", before)
    assert [step.kind for step in back.schema] == ["rename_property", "drop_property"]
    assert back.to_table("Person")["changed"].to_pylist() == [["nick"]]


def test_a_type_that_only_one_state_has(graph: og.Graph) -> None:
    before = head(graph)
    graph.apply_schema(f"{SCHEMA}\nnode Note {{ text: String @key }}")
    graph.insert({"Note": [{"text": "b"}, {"text": "a"}]})
    assert summary(graph.diff(before, "main")) == [("insert", "node:Note", "a"), ("insert", "node:Note", "b")]
    assert summary(graph.diff("main", before)) == [("delete", "node:Note", "a"), ("delete", "node:Note", "b")]


def test_what_one_commit_did(graph: og.Graph) -> None:
    graph.create_branch("x")
    graph.update("Person", {"age": 31}, ids=["Alice"], branch="x")
    graph.insert({"Person": [{"name": "Zed"}]})
    result = graph.merge("x")
    assert result.commit is not None
    assert summary(graph.commit_changes(result.commit.id)) == [("update", "node:Person", "Alice")]
    first = graph.commits()[-1]
    changes = graph.commit_changes(first.id)
    assert changes.base is None
    assert [step.kind for step in changes.schema] == ["add_type"] * 3
    assert summary(changes) == []


# ---- columns that only one of two states has -------------------------------------------------------------------------


def test_a_property_that_two_branches_added_is_one_by_its_alias(graph: og.Graph) -> None:
    graph.create_branch("x")
    for branch, default in (("main", 1), ("x", 2)):
        text = SCHEMA.replace("nick: String?", f"nick: String?  level: I64? @default({default})")
        graph.apply_schema(text, branch=branch)
    old, new = graph._committer.view("main"), graph._committer.view("x")
    theirs = old.schema.node["Person"].by_name["level"].id
    new.__dict__["schema"] = _with_alias(new.schema, theirs)
    rows = pa.concat_tables(TypeChanges(old, new, new.schema.node["Person"].id).batches()).to_pylist()
    assert [(r["id"], r["changed"], r["before"]["level"], r["after"]["level"]) for r in rows] == [
        (name, ["level"], 1, 2) for name in ("Alice", "Bob", "Carol", "Dan")
    ]


def _with_alias(schema: Schema, alias: str) -> Schema:
    person = schema.node["Person"]
    properties = tuple(dataclasses.replace(p, aliases=(alias,)) if p.name == "level" else p for p in person.properties)
    nodes = tuple(dataclasses.replace(t, properties=properties) if t is person else t for t in schema.nodes)
    return dataclasses.replace(schema, nodes=nodes)


def test_vectors_that_embed_wrote_beside_rows_into_an_added_property_are_changes(tmp_path: Path) -> None:
    graph = og.init(tmp_path / "graph", "node Post { name: String @key  text: String? }")
    graph.insert({"Post": [{"name": "a", "text": "one"}, {"name": "b"}]})
    before = head(graph)
    added = 'node Post { name: String @key  text: String?  v: Vector(64)? @embed("text") }'
    graph.apply_schema(added)
    graph.embed()
    row = graph.diff(before, "main").to_table("Post").to_pylist()
    assert [(r["id"], r["changed"]) for r in row] == [("a", ["v"])]


# ---- what is read ----------------------------------------------------------------------------------------------------


class Reads:
    """Rows that were read with columns, and without."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.values = self.places = 0
        scan = TableVersion.scan

        def counted(version: TableVersion, columns: Sequence[str], **options: Any) -> Iterator[pa.Table]:
            for batch in scan(version, columns, **options):
                if columns:
                    self.values += batch.num_rows
                else:
                    self.places += batch.num_rows
                yield batch

        monkeypatch.setattr(TableVersion, "scan", counted)


@pytest.mark.parametrize("compacted", [False, True])
def test_a_small_change_of_a_large_table_reads_only_what_changed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, compacted: bool
) -> None:
    graph = og.init(tmp_path / "graph", "node Item { name: String @key  n: I64? }")
    names = [f"i{i:05}" for i in range(20_000)]
    for part in (names[:12_000], names[12_000:]):
        graph.load(nodes={"Item": pa.table({"name": part, "n": range(len(part))})}, mode="append")
    before = head(graph)
    changed = names[::400]
    graph.upsert({"Item": [{"name": name, "n": -1} for name in changed]})
    if compacted:
        graph.optimize(target_rows_per_fragment=100_000)
        assert len(graph._committer.view("main").open(graph._committer.view("main").type("Item")).get_fragments()) == 1
    reads = Reads(monkeypatch)
    diff = graph.diff(before, "main")
    assert diff.stat() == {"node:Item": {"insert": 0, "update": 50, "delete": 0}}
    assert reads.values <= 4 * len(changed)
    assert reads.places <= (40_100 if compacted else 0)
    assert [i for _, _, i in summary(diff)] == changed


def test_wide_images_are_read_in_small_windows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    graph = og.init(tmp_path / "graph", "node Doc { name: String @key  body: Blob? }")
    graph.insert({"Doc": [{"name": f"d{i}", "body": bytes(1000 * (i + 1))} for i in range(8)]})
    monkeypatch.setattr(type_changes, "WINDOW_BYTES_MAX", 10_000)
    diff = graph.diff(graph.commits()[-1].id, "main")
    sizes = [[len(r["after"]["body"]) for r in batch.to_pylist()] for batch in diff]
    assert [size for part in sizes for size in part] == [1000 * (i + 1) for i in range(8)]
    assert len(sizes) > 3
    assert all(len(part) == 1 or sum(part) <= 10_000 for part in sizes)


def test_both_states_are_leased_while_they_are_read(graph: og.Graph, monkeypatch: pytest.MonkeyPatch) -> None:
    before = head(graph)
    graph.update("Person", {"age": 1}, ids=["Alice"])
    next(iter(graph.diff(before, "main")))
    assert leases.leases(graph._location) == [], "what is read at once needs none"
    monkeypatch.setattr(type_changes, "READ_AT_ONCE_ROWS", 0)
    batches = iter(graph.diff(before, "main"))
    next(batches)
    assert [sorted(versions) for versions in leases.leases(graph._location)[0].pins.values()] == [[2, 3]]
    batches.close()  # type: ignore[attr-defined]
    assert leases.leases(graph._location) == []


def test_a_state_that_cleanup_removed_is_refused(graph: og.Graph) -> None:
    before = head(graph)
    graph.update("Person", {"age": 1}, ids=["Alice"])
    graph.cleanup(keep=1, older_than="0s", confirm=True)
    with pytest.raises(og.errors.VersionReclaimed):
        list(og.open(graph.uri).diff(before, "main"))
