"""Operations that an old program left half-done, settled by the migration."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import lance
import pytest

import omnigraph as og
from omnigraph.errors import BadRecoveryRecord, UncoveredDrift
from tests.storage.looks import (
    GENERATIONS,
    ZOE,
    loose,
    migrate,
    recoveries,
    state_of,
    tree,
    with_person,
)
from tests.storage.old_graphs import (
    PENDING,
    OldGraph,
    build_old_graph,
    read_state,
    settled,
)


@pytest.mark.parametrize("generation", GENERATIONS)
def test_an_intent_whose_every_target_is_there_rolls_forward(uri: str, generation: int) -> None:
    state = build_old_graph(uri, generation=generation, intent="forward")
    migrate(uri)
    assert state_of(uri) == settled(state, "forward")
    assert recoveries(uri) == [("insert", "eve", "rolled_forward")]
    assert loose(uri) == []


@pytest.mark.parametrize("generation", GENERATIONS)
def test_an_intent_with_a_missing_target_rolls_back_and_the_tables_are_writable(uri: str, generation: int) -> None:
    state = build_old_graph(uri, generation=generation, intent="back")
    migrate(uri)
    assert state_of(uri) == state
    assert recoveries(uri) == [("recovery", "omnigraph:recovery", "rolled_back")]
    assert loose(uri) == []
    with og.open(uri) as graph:
        graph.insert({"Person": [{"name": "eve"}], "Knows": [{"from": "eve", "to": "anna"}]})


def test_an_intent_left_behind_by_a_published_operation_makes_a_note_and_no_commit(uri: str) -> None:
    old = OldGraph(uri, generation=2).build()
    line = old.branches["main"].lines["Company"]
    entry = {**line.body(), "base": line.version - 1, "target": line.version}
    old.put_intent({"kind": "insert", "branch": "main", "actor": None, "tables": [entry]})
    migrate(uri)
    assert state_of(uri) == old.state
    assert recoveries(uri) == [("recovery", "omnigraph:recovery", "published")]
    assert loose(uri) == []


def test_an_intent_of_a_deleted_branch_is_noted_and_discarded(uri: str) -> None:
    old = OldGraph(uri, generation=1).build()
    old.branch("brief", "main")
    old.leave_pending("brief", PENDING, landed=("Person",))
    old.delete_branch("brief")
    with og.open(uri) as graph:
        graph.insert(ZOE)
    assert state_of(uri) == with_person(old.state, "zoe", 1)
    assert recoveries(uri) == [("recovery", "omnigraph:recovery", "discarded")]
    assert loose(uri) == []


def test_chained_intents_are_settled_in_the_order_of_their_names(uri: str) -> None:
    old = OldGraph(uri, generation=1).build()
    people: list[dict[str, Any]] = [{"name": "eve", "age": 50}, {"name": "fay", "age": 51}]
    for number, person in enumerate(people):
        old.leave_pending("main", {"Person": [person]}, landed=("Person",))
        old.branches["main"].lines["Person"].version += 1
        with_person(old.state, f"{person['name']}", 50 + number)
    migrate(uri)
    assert state_of(uri) == old.state
    assert [r[2] for r in recoveries(uri)] == ["rolled_forward", "rolled_forward"]


def test_an_intent_built_on_one_that_rolls_back_rolls_back_too(uri: str) -> None:
    old = OldGraph(uri, generation=1).build()
    old.leave_pending("main", PENDING, landed=("Person",))
    line = old.branches["main"].lines["Person"]
    line.version += 1
    old.leave_pending("main", {"Person": [{"name": "fay", "age": 51}]}, landed=("Person",))
    migrate(uri)
    assert state_of(uri) == old.state
    assert [r[2] for r in recoveries(uri)] == ["rolled_back", "rolled_back"]
    with og.open(uri) as graph:
        graph.insert({"Person": [{"name": "eve"}, {"name": "fay"}]})


@pytest.mark.parametrize("landed", [("Person", "Knows"), ("Person",)], ids=["forward", "back"])
def test_an_intent_on_a_branch_is_judged_by_that_branch(uri: str, landed: tuple[str, ...]) -> None:
    """Person has a fork of review already; Knows gets one by this operation, or would have."""
    old = OldGraph(uri, generation=2).build()
    old.leave_pending("review", PENDING, landed=landed)
    migrate(uri)
    expected = old.state
    if len(landed) == 2:
        expected["review"] = settled({"main": old.state["review"]}, "forward")["main"]
    assert state_of(uri) == expected
    assert recoveries(uri) == []
    assert [r[2] for r in recoveries(uri, "review")] == ["rolled_forward" if len(landed) == 2 else "rolled_back"]
    with og.open(uri) as graph:
        graph.insert({"Person": [{"name": "gus"}], "Knows": [{"from": "gus", "to": "anna"}]}, branch="review")


def test_an_intent_of_a_schema_change_never_rolls_forward(uri: str) -> None:
    old = OldGraph(uri, generation=1).build()
    old.leave_pending("main", PENDING, landed=("Person", "Knows"), kind="schema_apply")
    migrate(uri)
    assert state_of(uri) == old.state
    assert [r[2] for r in recoveries(uri)] == ["rolled_back"]


BAD = {
    "torn": b'{"format": 1, "kin',
    "empty": b"",
    "no object": b"[1, 2]",
    "newer": b'{"format": 9, "kind": "insert", "branch": "main", "tables": []}',
    "no tables": b'{"format": 1, "kind": "insert", "branch": "main", "tables": []}',
    "strange path": b'{"format": 1, "kind": "insert", "branch": "main", "tables": [{"table": "n1", "path": "../x-1", '
    b'"fork": null, "base": 1, "target": 2}]}',
}


@pytest.mark.parametrize("raw", BAD.values(), ids=BAD.keys())
def test_an_intent_that_cannot_be_understood_refuses_writes_and_stays(uri: str, raw: bytes) -> None:
    old = OldGraph(uri, generation=1).build(intent="forward")
    old.put_object("01JZZZZZZZZZZZZZZZZZZZZZZZ.json", raw)
    before = tree(uri)
    with og.open(uri) as graph:
        for write in (lambda: graph.insert(ZOE), lambda: graph.create_branch("next")):
            with pytest.raises(BadRecoveryRecord, match=r"__recovery/01JZZZZZZZZZZZZZZZZZZZZZZZ\.json"):
                write()
        assert read_state(graph) == old.state
    assert tree(uri) == before


def test_a_foreign_file_among_the_intents_refuses_writes_and_stays(uri: str) -> None:
    old = OldGraph(uri, generation=2).build()
    old.put_object("notes.txt", b"keep me")
    before = tree(uri)
    with og.open(uri) as graph, pytest.raises(BadRecoveryRecord, match=r"__recovery/notes\.txt"):
        graph.insert(ZOE)
    assert tree(uri) == before


def test_an_intent_that_was_never_wholly_written_does_not_count(uri: str) -> None:
    build_old_graph(uri, generation=1, intent="forward")
    Path(uri, "__recovery", "01JZZZZZZZZZZZZZZZZZZZZZZZ.json#1").write_bytes(b'{"form')
    migrate(uri)
    assert loose(uri) == []


def test_a_target_that_a_power_loss_cut_short_is_not_there(uri: str) -> None:
    old = OldGraph(uri, generation=1).build(intent="forward")
    newest = min(Path(uri, old.branches["main"].lines["Knows"].folder, "_versions").glob("*.manifest"))
    newest.write_bytes(b"")
    assert state_of(uri) == old.state
    migrate(uri)
    assert state_of(uri) == old.state
    assert [r[2] for r in recoveries(uri)] == ["rolled_back"]
    with og.open(uri) as graph:
        graph.insert({"Person": [{"name": "eve"}], "Knows": [{"from": "eve", "to": "anna"}]})


def test_a_version_that_no_intent_explains_is_left_to_repair(uri: str) -> None:
    old = OldGraph(uri, generation=1).build(intent="back")
    old._append("main", "Company", [{"name": "drift", "city": None}])
    line = old.branches["main"].lines["Person"]
    line.version += 1
    old._append("main", "Person", [{"name": "more", "age": None}])  # above the intent's target
    versions = {
        k: lance.dataset(f"{uri}/{old.branches['main'].lines[k].folder}").version for k in ("Company", "Person")
    }
    with og.open(uri) as graph:
        graph.insert({"Note": [{"title": "fine"}]})
        for kind in versions:
            with pytest.raises(UncoveredDrift):
                graph.insert({kind: [{"name": "dora"}]})
    for kind, version in versions.items():
        assert lance.dataset(f"{uri}/{old.branches['main'].lines[kind].folder}").version == version
