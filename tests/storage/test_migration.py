"""Older graphs: read as they are, brought forward by the first write, whatever happens meanwhile."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import lance
import pyarrow as pa
import pytest

import omnigraph as og
from omnigraph.commit.migrate import require_current
from omnigraph.errors import BadRecoveryRecord, BranchNotFound, NewerFormat, NotAGraph, UncoveredDrift
from omnigraph.storage import lancefs
from omnigraph.storage.layout import locate
from omnigraph.storage.manifest import FORMAT, Manifest
from omnigraph.storage.objects import ControlObjects
from tests.storage.old_graphs import (
    KEY,
    PENDING,
    SCHEMA,
    STAMP,
    OldGraph,
    build_old_graph,
    read_rows,
    read_state,
    settled,
)

GENERATIONS = (1, 2)
INTENTS = (None, "forward", "back")
ROOT = Path(__file__).parents[2]
ZOE = {"Person": [{"name": "zoe", "age": 1}]}


@pytest.fixture(autouse=True)
def _no_fsync(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMNIGRAPH_FSYNC", "off")


@pytest.fixture
def uri(tmp_path: Path) -> str:
    return str(tmp_path / "graph")


def manifest_of(uri: str) -> Manifest:
    return Manifest(locate(uri))


def migrate(uri: str) -> None:
    require_current(manifest_of(uri))


def state_of(uri: str) -> dict[str, Any]:
    with og.open(uri) as graph:
        return read_state(graph)


def tree(uri: str) -> dict[str, bytes]:
    root = Path(uri)
    return {str(p.relative_to(root)): p.read_bytes() if p.is_file() else b"/" for p in sorted(root.rglob("*"))}


def loose(uri: str) -> list[str]:
    """Everything under __recovery, except empty folders."""
    return [str(p) for p in Path(uri, "__recovery").rglob("*") if p.is_file()]


def with_person(state: dict[str, Any], name: str, age: int, branch: str = "main") -> dict[str, Any]:
    at = state[branch]
    rows = [*at["rows"]["Person"], {"id": name, "name": name, "age": age}]
    at["rows"]["Person"] = sorted(rows, key=lambda row: json.dumps(row, sort_keys=True))
    at["commits"] += 1
    return state


# ---- reading ---------------------------------------------------------------------------------------------------------


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
            assert graph.commit(commit).branch == past.branch
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
            before = graph.commit(dropped).parent
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
        assert graph.commit(lost).branch == "gone"
        assert lost not in {c.id for c in graph.commits("gone")}
        graph.insert(ZOE, branch="gone")


# ---- the first write -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("intent", INTENTS)
@pytest.mark.parametrize("generation", GENERATIONS)
def test_the_first_write_migrates_and_everything_reads_as_before(uri: str, generation: int, intent: Any) -> None:
    old = OldGraph(uri, generation=generation).build(intent=intent)
    with og.open(uri) as graph:
        before = [c.to_json() for c in graph.commits("review")]
        graph.insert(ZOE, branch="review")
        expected = with_person(settled(old.state, intent), "zoe", 1, branch="review")
        assert read_state(graph) == expected
    with og.open(uri) as graph:
        assert graph.snapshot().internal_schema_version == FORMAT
        assert read_state(graph) == expected
        assert [c.to_json() for c in graph.commits("review")][1:] == before
        for commit, past in old.past.items():
            assert read_rows(graph.snapshot(commit=commit)) == past.rows
            assert graph.commit(commit).branch == past.branch
        for branch in ("idle", "main", "review"):
            graph.upsert({"Person": [{"name": "yan", "age": 2}], "Note": [{"title": "t"}]}, branch=branch)
            with_person(expected, "yan", 2, branch=branch)
            expected[branch]["rows"]["Note"].append({"id": "t", "title": "t", "text": None})
        assert read_state(graph) == expected
        graph.delete_branch("review")
    assert loose(uri) == []


@pytest.mark.parametrize("generation", GENERATIONS)
@pytest.mark.parametrize(
    "write",
    [
        lambda g: g.create_branch("next", from_="review"),
        lambda g: g.delete_branch("review"),
        lambda g: g.apply_schema(SCHEMA + "node City { name: String @key }\n"),
        lambda g: g.load([b'{"type": "Person", "data": {"name": "zoe"}}\n'], mode="merge"),
        lambda g: g.update("Person", {"age": 31}, ids=["anna"]),
        lambda g: g.delete({"Person": ["anna"]}),
        lambda g: g.upsert({"Person": [{"name": "anna", "age": 32}]}, if_commit=g.snapshot().commit),
    ],
    ids=["create_branch", "delete_branch", "apply_schema", "load", "update", "delete", "if_commit"],
)
def test_every_kind_of_write_migrates(uri: str, generation: int, write: Callable[[Any], object]) -> None:
    build_old_graph(uri, generation=generation)
    with og.open(uri) as graph:
        write(graph)
    assert manifest_of(uri).format() == FORMAT
    with og.open(uri) as graph:
        graph.insert(ZOE | {"Person": [{"name": "yan"}]})


def test_a_transaction_that_read_before_the_migration_holds_after_it(uri: str) -> None:
    build_old_graph(uri, generation=1)
    with og.open(uri) as graph, graph.transaction("review") as transaction:
        assert transaction.get("Person", "rita") is not None
        migrate(uri)
        transaction.insert(ZOE)
    with og.open(uri) as graph:
        assert "zoe" in graph.snapshot("review").read("Person")["name"].to_pylist()


def test_a_handle_and_a_snapshot_from_before_go_on_reading(uri: str) -> None:
    state = build_old_graph(uri, generation=1)
    with og.open(uri) as graph:
        snapshot = graph.snapshot()
        migrate(uri)
        assert read_rows(snapshot) == state["main"]["rows"]
        assert read_state(graph) == state


def test_each_step_is_one_version_step(uri: str) -> None:
    state = build_old_graph(uri, generation=1)
    seen: list[tuple[int, bool, int]] = []

    def look(phase: str) -> None:
        if phase == "migrate":
            table = lance.dataset(f"{uri}/__manifest")
            metadata = table.schema.field("object_id").metadata or {}
            heads = [key for key in table.config() if key.startswith("head:")]
            seen.append((manifest_of(uri).format(), KEY.keys() == {k.decode() for k in metadata}, len(heads)))
            assert state_of(uri) == state

    require_current(manifest_of(uri), observe=look)
    assert seen == [(1, False, 0), (2, True, 0)]
    table = lance.dataset(f"{uri}/__manifest")
    assert table.schema.metadata[STAMP.encode()] == b"3"
    assert {key for key in table.config() if key.startswith("head:")} == {"head:idle", "head:main", "head:review"}


def test_migrating_again_changes_nothing(uri: str) -> None:
    build_old_graph(uri, generation=1, intent="back")
    migrate(uri)
    before = tree(uri)
    migrate(uri)
    assert tree(uri) == before


def test_old_commits_keep_their_place_however_many_there_are(uri: str) -> None:
    old = OldGraph(uri, generation=1)
    old.init(SCHEMA)
    for number in range(70):
        old._commit("main", "touch", {}, actor=str(number))
    old.insert("main", {"Person": [{"name": "late", "age": 1}]})
    ids = list(old.past)[::-1]
    for _ in range(2):
        with og.open(uri) as graph:
            assert [c.id for c in graph.commits()] == ids
            for commit in (ids[0], ids[1], ids[35], ids[-1]):
                assert read_rows(graph.snapshot(commit=commit)) == old.past[commit].rows
        migrate(uri)


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
    ],
    ids=["insert", "load", "apply_schema", "create_branch", "delete_branch"],
)
def test_a_newer_graph_is_not_written_and_nothing_is_touched(uri: str, write: Callable[[Any], object]) -> None:
    with og.init(uri, SCHEMA) as graph:
        graph.insert(ZOE)
        graph.create_branch("review")
    stamp(uri, str(FORMAT + 1))
    before = tree(uri)
    with og.open(uri) as graph:
        with pytest.raises(NewerFormat) as refused:
            write(graph)
        assert refused.value.fields == {"found": FORMAT + 1, "known": FORMAT}
        assert "Upgrade omnigraph first" in refused.value.remedy
        assert graph.snapshot().read("Person").num_rows == 1  # its heads are what this program knows
    assert tree(uri) == before


@pytest.mark.parametrize("head", ['{"state": "elsewhere"}', "not JSON", None])
def test_a_newer_graph_whose_heads_are_unknown_is_not_read(uri: str, head: str | None) -> None:
    og.init(uri, SCHEMA).close()
    stamp(uri, str(FORMAT + 1))
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


# ---- pending intents -------------------------------------------------------------------------------------------------


def recoveries(uri: str, branch: str = "main") -> list[tuple[str, str | None, str]]:
    """(kind, actor, outcome) of every decision of recovery on the branch, oldest first, notes included."""
    manifest = manifest_of(uri)
    head = manifest.head(branch)
    records = manifest.records(head.incarnation, 0, head.epoch)
    return [(r.kind, r.actor, r.recovery["outcome"]) for r in records if r.recovery is not None]


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


# ---- crashes and company ---------------------------------------------------------------------------------------------


class Killed(BaseException):
    """The process ends here, as far as the product can tell."""


@contextmanager
def at_call(number: int, when: str, action: Callable[[], None]) -> Iterator[list[int]]:
    """Do something before or after the nth change of storage, once. Yields how many changes there were."""
    calls = [0]
    commit, delete = lancefs.commit, ControlObjects.delete

    def wrapped(original: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **kwargs: Any) -> Any:
            calls[0] += 1
            mine = calls[0] == number
            if mine and when == "before":
                action()
            result = original(*args, **kwargs)
            if mine and when == "after":
                action()
            return result

        return call

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(lancefs, "commit", wrapped(commit))
        patch.setattr(ControlObjects, "delete", wrapped(delete))
        yield calls


def kill() -> None:
    raise Killed


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("intent", INTENTS)
def test_a_migration_killed_at_any_change_is_finished_by_the_next_writer(
    tmp_path: Path, intent: Any, when: str
) -> None:
    points = 0
    for number in range(1, 30):
        uri = str(tmp_path / str(number))
        state = build_old_graph(uri, generation=1, intent=intent)
        with at_call(number, when, kill) as calls:
            try:
                migrate(uri)
            except Killed:
                points += 1
        found = state_of(uri)
        assert found in (state, settled(state, intent)), number
        assert found == state or manifest_of(uri).format() == FORMAT, number
        with og.open(uri) as graph:
            graph.insert(ZOE)
        assert state_of(uri) == with_person(settled(state, intent), "zoe", 1), number
        assert loose(uri) == [], number
        if calls[0] < number:
            break
    assert points == {None: 3, "forward": 4, "back": 6}[intent]


def test_a_migration_killed_over_and_over_still_ends(uri: str) -> None:
    state = build_old_graph(uri, generation=1, intent="back")
    # The step to 2, two restores, the records and the swap; then only the restores and the swap are left to do.
    for number in (1, 5, 3, 2, 1, 3, 2, 1):
        with at_call(number, "before", kill), pytest.raises(Killed):
            migrate(uri)
        assert state_of(uri) == state
    migrate(uri)
    assert state_of(uri) == state
    assert [r[2] for r in recoveries(uri)] == ["rolled_back"]
    with og.open(uri) as graph:
        graph.insert({"Person": [{"name": "eve"}], "Knows": [{"from": "eve", "to": "anna"}]})


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("intent", INTENTS)
def test_a_second_process_may_migrate_and_write_at_any_moment_of_the_first_one_s_migration(
    tmp_path: Path, intent: Any, when: str
) -> None:
    for number in range(1, 30):
        uri = str(tmp_path / str(number))
        state = settled(build_old_graph(uri, generation=1, intent=intent), intent)
        busy: list[bool] = []

        def second(uri: str = uri, busy: list[bool] = busy) -> None:
            if not busy:
                busy.append(True)
                with og.open(uri) as other:
                    other.insert({"Person": [{"name": "yan", "age": 2}]})

        with at_call(number, when, second):
            migrate(uri)
        with og.open(uri) as graph:
            graph.insert(ZOE)
        expected = with_person(state, "zoe", 1)
        if busy:
            with_person(expected, "yan", 2)
        assert state_of(uri) == expected, number
        assert loose(uri) == [], number
        assert len(recoveries(uri)) == (intent is not None), number
        with og.open(uri) as graph:
            graph.insert({"Person": [{"name": "last"}], "Knows": [{"from": "last", "to": "anna"}]})
        if not busy:
            return
    raise AssertionError("the first process never came to an end")


WRITER = """
import os, sys, time
import omnigraph as og
uri, name, gate, kill_at = sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4])
from omnigraph.storage import lancefs
calls, commit = [0], lancefs.commit
def counted(*args, **kwargs):
    calls[0] += 1
    if calls[0] == kill_at:
        os.kill(os.getpid(), 9)
    return commit(*args, **kwargs)
lancefs.commit = counted
import lance, lance.fragment, omnigraph.write.mutate
print("ready", flush=True)
while not os.path.exists(gate):
    time.sleep(0.001)
with og.open(uri) as graph:
    graph.insert({"Person": [{"name": name, "age": 1}]})
"""


def test_several_processes_at_once_migrate_once_and_lose_nothing(tmp_path: Path) -> None:
    """Six writers; three of them are killed on the way, at one step each."""
    uri, gate = str(tmp_path / "graph"), tmp_path / "gate"
    state = settled(build_old_graph(uri, generation=1, intent="back"), "back")
    kills = [0, 0, 0, 1, 3, 5]
    writers = [
        subprocess.Popen(
            [sys.executable, "-c", WRITER, uri, f"w{i}", str(gate), str(at)], stdout=subprocess.PIPE, cwd=ROOT
        )
        for i, at in enumerate(kills)
    ]
    for writer in writers:
        assert writer.stdout is not None
        assert writer.stdout.readline() == b"ready\n"
    gate.touch()
    codes = [writer.wait(timeout=120) for writer in writers]
    for writer in writers:
        assert writer.stdout is not None
        writer.stdout.close()
    assert codes[:3] == [0, 0, 0]
    assert set(codes[3:]) <= {0, -signal.SIGKILL}
    time.sleep(0.01)
    with og.open(uri) as graph:
        graph.insert(ZOE)
    found = state_of(uri)
    names = {row["name"] for row in found["main"]["rows"]["Person"]} - {"zoe"}
    expected = with_person(state, "zoe", 1)
    for i, code in enumerate(codes):
        if code == 0 or f"w{i}" in names:
            with_person(expected, f"w{i}", 1)
    assert found == expected
    assert [r[2] for r in recoveries(uri)][:1] == ["rolled_back"]
    assert loose(uri) == []
