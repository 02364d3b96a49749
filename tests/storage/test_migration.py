"""The first write on an older graph brings it forward, whatever happens meanwhile."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import lance
import pytest

import omnigraph as og
from omnigraph.legacy.migrate import require_current
from omnigraph.storage.lance import lance_api
from omnigraph.storage.manifest.table import FORMAT
from omnigraph.storage.objects.control_objects import ControlObjects
from tests.storage.looks import (
    GENERATIONS,
    INTENTS,
    ROOT,
    ZOE,
    loose,
    manifest_of,
    migrate,
    recoveries,
    state_of,
    tree,
    with_person,
)
from tests.storage.old_graphs import (
    KEY,
    SCHEMA,
    STAMP,
    OldGraph,
    build_old_graph,
    read_rows,
    read_state,
    settled,
)


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
            assert graph.get_commit(commit).branch == past.branch
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
        lambda g: g.create_branch("next", from_branch="review"),
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


# ---- crashes and company ---------------------------------------------------------------------------------------------


class Killed(BaseException):
    """The process ends here, as far as the product can tell."""


@contextmanager
def at_call(number: int, when: str, action: Callable[[], None]) -> Iterator[list[int]]:
    """Do something before or after the nth change of storage, once. Yields how many changes there were."""
    calls = [0]
    commit, delete = lance_api.commit, ControlObjects.delete

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
        patch.setattr(lance_api, "commit", wrapped(commit))
        patch.setattr(ControlObjects, "delete", wrapped(delete))
        yield calls


def kill() -> None:
    raise Killed


@pytest.mark.parametrize("when", [pytest.param("before", marks=pytest.mark.long), "after"])
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


@pytest.mark.parametrize("when", [pytest.param("before", marks=pytest.mark.long), "after"])
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


@pytest.mark.parametrize("step", [1, 3], ids=["1 to 2", "2 to 3"])
def test_a_process_stopped_in_a_step_for_longer_than_versions_are_kept_buries_nothing(
    uri: str, monkeypatch: pytest.MonkeyPatch, step: int
) -> None:
    """Lance does not see what was collected: as if the step had been built on the newest version."""
    state = build_old_graph(uri, generation=1)
    monkeypatch.setattr("omnigraph.legacy.formats.SUSPICIOUS_S", -1.0)
    commit, calls = lance_api.commit, [0]

    def stopped(location: Any, base: Any, tx: Any, **options: Any) -> Any:
        calls[0] += 1
        if calls[0] == step:
            with og.open(uri) as other:
                other.insert(ZOE)
            tx = lance_api.transaction(tx.operation, read_version=lance.dataset(f"{uri}/__manifest").version)
        return commit(location, base, tx, **options)

    monkeypatch.setattr(lance_api, "commit", stopped)
    migrate(uri)
    assert manifest_of(uri).format() == FORMAT
    assert state_of(uri) == with_person(state, "zoe", 1)


WRITER = """
import os, sys, time
import omnigraph as og
uri, name, gate, kill_at = sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4])
from omnigraph.storage.lance import lance_api
calls, commit = [0], lance_api.commit
def counted(*args, **kwargs):
    calls[0] += 1
    if calls[0] == kill_at:
        os.kill(os.getpid(), 9)
    return commit(*args, **kwargs)
lance_api.commit = counted
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
