"""Older graphs are read as they are; newer ones and what is no graph at all are not touched."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import lance
import pyarrow as pa
import pytest

import omnigraph as og
from omnigraph.errors import BranchNotFound, NewerFormat, NotAGraph
from omnigraph.storage.manifest.table import FORMAT_MAX
from tests.storage.looks import (
    GENERATIONS,
    INTENTS,
    ROOT,
    ZOE,
    migrate,
    state_of,
    tree,
)
from tests.storage.old_graphs import (
    SCHEMA,
    STAMP,
    OldGraph,
    build_old_graph,
    read_rows,
    read_state,
)


@pytest.mark.parametrize("intent", INTENTS)
@pytest.mark.parametrize("generation", GENERATIONS)
def test_an_older_graph_is_read_as_it_is_and_stays_untouched(uri: str, generation: int, intent: Any) -> None:
    old = OldGraph(uri, generation=generation).build(intent=intent)
    before = tree(uri)
    with og.open(uri) as graph:
        assert read_state(graph) == old.state
        assert graph.snapshot().to_json()["internal_schema_version"] == generation
        assert [b.to_json() for b in graph.branches()] == [
            {"name": "idle", "commit": old.branches["idle"].commit, "parent_branch": "main"},
            {"name": "main", "commit": old.branches["main"].commit, "parent_branch": None},
            {"name": "review", "commit": old.branches["review"].commit, "parent_branch": "main"},
        ]
        for commit, past in old.past.items():
            assert read_rows(graph.snapshot(commit=commit)) == past.rows
            assert graph.get_commit(commit).branch == past.branch
        lines: list[bytes] = []
        assert sum(graph.export(lines.append).rows.values()) == sum(map(len, old.state["main"]["rows"].values()))
        graph.plan_schema(SCHEMA + "node City { name: String @key }\n")
        with pytest.raises(BranchNotFound):
            graph.snapshot("gone")
    assert tree(uri) == before


READ_ONLY = """
import os, sys
import omnigraph as og
from tests.storage.old_graphs import read_state
def read():
    with og.open(sys.argv[1]) as graph:
        state = read_state(graph)
        graph.export(lambda _: None)
        return state
first = read()  # everything is imported now: another user can't read this user's libraries
for folder, _, names in os.walk(sys.argv[1]):
    for name in names:
        os.chmod(os.path.join(folder, name), 0o444)
    os.chmod(folder, 0o555)
if os.geteuid() == 0:
    os.setresuid(65534, 65534, 65534)
assert not os.access(sys.argv[1], os.W_OK)
assert read() == first
"""


@pytest.mark.parametrize("generation", GENERATIONS)
def test_an_older_graph_is_read_in_a_folder_that_nobody_may_write(generation: int) -> None:
    import tempfile

    with tempfile.TemporaryDirectory() as folder:  # pytest's own folders are closed to other users
        os.chmod(folder, 0o755)
        build_old_graph(f"{folder}/graph", generation=generation, intent="back")
        try:
            subprocess.run([sys.executable, "-c", READ_ONLY, f"{folder}/graph"], check=True, cwd=ROOT)
        finally:
            for below, _, _ in os.walk(f"{folder}/graph"):
                os.chmod(below, 0o755)


@pytest.mark.parametrize("generation", GENERATIONS)
def test_an_old_tombstone_hides_one_lifetime_and_not_the_one_of_a_type_added_again(uri: str, generation: int) -> None:
    old = OldGraph(uri, generation=generation).build()
    dropped = next(commit for commit, past in old.past.items() if "Note" not in past.rows)
    for _ in range(2):
        with og.open(uri) as graph:
            assert [row["title"] for row in graph.snapshot().read("Note").to_pylist()] == ["new"]
            assert len(graph.snapshot().view.pins) == 5
            assert len(graph.snapshot(commit=dropped).view.pins) == 4
            before = graph.get_commit(dropped).parent
            assert [row["title"] for row in graph.snapshot(commit=before).read("Note").to_pylist()] == ["old"]
        migrate(uri)


def test_a_tombstone_hides_a_lifetime_and_not_the_table_id(uri: str) -> None:
    old = OldGraph(uri, generation=1).build()
    note = old.branches["main"].lines["Note"]
    again = old._create(note.type)  # the same type id, at another path: a lifetime of its own
    old._commit("main", "rebuild", {"Note": again}, ended=[note])
    old.state["main"]["rows"]["Note"] = []
    assert state_of(uri) == old.state
    migrate(uri)
    assert state_of(uri) == old.state
    with og.open(uri) as graph:
        assert graph.snapshot().view.pins[note.type.id].incarnation == again.incarnation


def test_the_newest_row_of_a_head_wins_wherever_it_lies(uri: str) -> None:
    old = OldGraph(uri, generation=1).build()
    old.publishes -= 1
    stale = old._head_row("main")
    old.publishes += 1
    old.insert("main", {"Note": [{"title": "last", "text": None}]})
    table = lance.dataset(f"{uri}/__manifest")
    shape = table.schema
    row = pa.table([pa.array([v], f.type) for v, f in zip(stale, shape, strict=True)], schema=shape)
    lance.write_dataset(row, f"{uri}/__manifest", mode="append")
    assert state_of(uri) == old.state


def test_a_branch_made_again_does_not_see_what_its_name_saw_before(uri: str) -> None:
    old = OldGraph(uri, generation=1).build()
    lost = next(c for c, past in old.past.items() if past.branch == "gone")
    old.branch("gone", "main")
    assert state_of(uri) == old.state
    migrate(uri)
    with og.open(uri) as graph:
        assert read_state(graph) == old.state
        assert graph.get_commit(lost).branch == "gone"
        assert lost not in {c.id for c in graph.commits("gone")}
        graph.insert(ZOE, branch="gone")


# ---- newer, foreign --------------------------------------------------------------------------------------------------


def stamp(uri: str, value: str) -> None:
    """Overwrite the stamp, as a newer program would have set it."""
    op = lance.LanceOperation
    table = lance.dataset(f"{uri}/__manifest")
    update = op.UpdateConfig(schema_metadata_updates=op.UpdateMap({STAMP: value}))
    lance.LanceDataset.commit(f"{uri}/__manifest", lance.Transaction(read_version=table.version, operation=update))


@pytest.mark.parametrize(
    "write",
    [
        lambda g: g.insert({"Person": [{"name": "dora"}]}),
        lambda g: g.load([b'{"type": "Person", "data": {"name": "dora"}}\n'], mode="append"),
        lambda g: g.apply_schema(SCHEMA + "node City { name: String @key }\n"),
        lambda g: g.create_branch("next"),
        lambda g: g.delete_branch("review"),
        lambda g: g.optimize(),
        lambda g: g.repair(confirm=True),
        lambda g: g.cleanup(keep=1, confirm=True),
    ],
    ids=["insert", "load", "apply_schema", "create_branch", "delete_branch", "optimize", "repair", "cleanup"],
)
def test_a_newer_graph_is_not_written_and_nothing_is_touched(uri: str, write: Callable[[Any], object]) -> None:
    with og.init(uri, SCHEMA) as graph:
        graph.insert(ZOE)
        graph.create_branch("review")
    stamp(uri, str(FORMAT_MAX + 1))
    before = tree(uri)
    with og.open(uri) as graph:
        with pytest.raises(NewerFormat) as refused:
            write(graph)
        assert refused.value.fields == {"found": FORMAT_MAX + 1, "known": FORMAT_MAX}
        assert "Upgrade omnigraph first" in refused.value.remedy
        assert graph.snapshot().read("Person").num_rows == 1  # its heads are what this program knows
    assert tree(uri) == before


@pytest.mark.parametrize("head", ['{"state": "elsewhere"}', "not JSON", None])
def test_a_newer_graph_whose_heads_are_unknown_is_not_read(uri: str, head: str | None) -> None:
    og.init(uri, SCHEMA).close()
    stamp(uri, str(FORMAT_MAX + 1))
    lance.dataset(f"{uri}/__manifest").update_config({"head:main": head})
    before = tree(uri)
    with og.open(uri) as graph:
        for read in (graph.snapshot, graph.branches, graph.commits, graph.schema):
            with pytest.raises(NewerFormat):
                read()
    assert tree(uri) == before


def test_an_unstamped_table_that_is_no_graph_is_neither_read_nor_touched(uri: str) -> None:
    lance.write_dataset(pa.table({"n": [1]}), f"{uri}/__manifest")
    before = tree(uri)
    with og.open(uri) as graph:
        for use in (graph.branches, lambda: graph.insert(ZOE)):
            with pytest.raises(NotAGraph):
                use()
    assert tree(uri) == before


def test_a_stamp_that_is_no_number_is_refused(uri: str) -> None:
    og.init(uri, SCHEMA).close()
    stamp(uri, "next")
    with og.open(uri) as graph, pytest.raises(NotAGraph):
        graph.snapshot()
