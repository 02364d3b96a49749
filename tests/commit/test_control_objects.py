"""Nothing that lies under `__recovery` blocks a branch for longer than a lease, whatever it is and whoever left it."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

import pytest

import omnigraph
from tests.commit import plant
from tests.commit.stepper import Stepper, waiting_is_a_step
from tests.contention.audit import objects_left, wrong_epochs

LEASE_S = 0.4
NOISE_S = 6.0
UNREADABLE = {
    "empty": b"",
    "torn": b'{"nonce": "a1", "own',
    "not JSON": b"\x00\xff\x00\xff",
    "a list": b"[]",
    "null": b"null",
    "no fields": b"{}",
    "an owner that is a text": b'{"nonce": "x", "owner": "me", "tables": []}',
    "an owner that is a list": b'{"nonce": "x", "owner": [1], "tables": []}',
    "an owner with odd fields": b'{"nonce": 5, "owner": {"boot": 1, "start": [], "pid": "x"}, "tables": {"a": 1}}',
    "tables that are no names": b'{"nonce": "x", "tables": [1, null, ["a"]], "kind": 7}',
    "tables that do not exist": b'{"nonce": "x", "tables": ["n00000000000"]}',
}


@pytest.fixture(autouse=True)
def _short_lease(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMNIGRAPH_LEASE_S", str(LEASE_S))


def write_in_time(path: Path, *, branch: str = "main") -> float:
    graph = omnigraph.open(path)
    began = time.monotonic()
    graph.upsert({"Left": [{"name": "new", "n": 1}]}, branch=branch)
    waited_s = time.monotonic() - began
    assert waited_s < LEASE_S + NOISE_S
    assert "new" in graph.snapshot(branch).read("Left")["id"].to_pylist()
    assert not wrong_epochs(graph, branch)
    return waited_s


@pytest.mark.parametrize("body", UNREADABLE.values(), ids=UNREADABLE.keys())
def test_a_ticket_that_cant_be_understood_holds_a_branch_for_a_lease_and_no_longer(path: Path, body: bytes) -> None:
    plant.lock(path, body)
    assert write_in_time(path) > LEASE_S
    assert not objects_left(path)


def test_a_ticket_from_another_machine_holds_a_branch_for_a_lease(path: Path) -> None:
    plant.lock(path)
    assert write_in_time(path) > LEASE_S
    assert not objects_left(path)


@pytest.mark.parametrize("body", [b"", b"{", b"[]", b'{"nonce": "other"}', b'{"nonce": "planted"}'], ids=repr)
def test_a_plan_that_cant_be_understood_is_no_plan(path: Path, body: bytes) -> None:
    lock = plant.lock(path)
    lock.with_name(lock.name.replace(".0.json", ".plan0.json")).write_bytes(body)
    write_in_time(path)
    assert not objects_left(path)


@pytest.mark.parametrize(
    "tables",
    ["{}", '{"x": 5}', '{"x": {"pin": [], "steps": 1}}', '{"x": {"pin": ["a", null, 1], "steps": "1"}}'],
)
def test_a_plan_of_the_right_form_with_nonsense_in_it_is_no_plan(path: Path, tables: str) -> None:
    head = omnigraph.open(path)._manifest.head("main")
    lock = plant.lock(path)
    record = f'{{"p": "{head.commit}", "e": {head.epoch + 1}, "s": "{head.schema}"}}'
    body = f'{{"nonce": "planted", "attempt": 0, "tables": {tables}, "record": {record}}}'
    lock.with_name(lock.name.replace(".0.json", ".plan0.json")).write_text(body)
    write_in_time(path)
    assert not objects_left(path)


def test_what_a_crash_left_half_written_is_swept(path: Path) -> None:
    """A local object store writes `name#1` and renames it; a process can die between the two."""
    folder = plant.folder(path)
    for name in ("000000000001.0.json#1", "000000000001.plan0.json#2", "000000000001.0.hb#1"):
        (folder / name).write_bytes(b"{")
    assert write_in_time(path) < LEASE_S + NOISE_S
    assert not objects_left(path)


def test_what_a_crash_left_half_written_for_the_next_epoch_holds_nobody(path: Path) -> None:
    (plant.folder(path) / f"{plant.next_epoch(path):012d}.0.json#1").write_bytes(b"{")
    assert write_in_time(path) < NOISE_S
    omnigraph.open(path).upsert({"Left": [{"name": "later"}]})
    assert not objects_left(path)


def test_foreign_files_and_folders_are_left_alone_and_block_nobody(path: Path) -> None:
    folder = plant.folder(path)
    (folder / "notes.txt").write_text("mine")
    (folder / "deep" / "er").mkdir(parents=True)
    (folder / "deep" / "er" / "file.json").write_text("{}")
    (path / "__recovery" / "README").write_text("mine")
    (path / "__recovery" / "empty").mkdir()
    assert write_in_time(path) < NOISE_S
    assert (folder / "notes.txt").exists()
    assert (path / "__recovery" / "README").exists()


def test_an_object_that_cant_be_deleted_blocks_nobody(path: Path) -> None:
    """A folder under the name of a decided ticket is none of ours, and deleting it as a file fails."""
    (plant.folder(path) / "000000000001.0.json").mkdir()
    assert write_in_time(path) < NOISE_S


@pytest.mark.parametrize("ahead", [1, 7])
def test_a_ticket_of_an_epoch_that_has_not_come_yet_blocks_nobody_now(path: Path, ahead: int) -> None:
    plant.lock(path, ahead=ahead)
    assert write_in_time(path) < NOISE_S


def test_tickets_of_a_branch_that_was_deleted_are_swept(path: Path, graph: Any) -> None:
    graph.create_branch("side")
    plant.lock(path, branch="side")
    folder = plant.folder(path, "side")
    graph.delete_branch("side")
    assert not folder.exists()
    folder.mkdir(parents=True)
    (folder / "000000000001.0.json").write_text("{}")
    write_in_time(path)
    assert not objects_left(path)
    assert not folder.exists()


def test_tickets_of_a_deleted_branch_do_not_hold_the_new_one_of_its_name(path: Path, graph: Any) -> None:
    graph.create_branch("side")
    old = plant.lock(path, branch="side")
    body = old.read_bytes()
    graph.delete_branch("side")
    graph.create_branch("side")
    old.parent.mkdir(parents=True, exist_ok=True)
    old.write_bytes(body)
    assert write_in_time(path, branch="side") < NOISE_S


def test_a_ticket_whose_epoch_was_decided_meanwhile_is_void(path: Path) -> None:
    """A has looked at the head and is slow; B commits that epoch and releases; A's ticket for it is nobody's."""
    with waiting_is_a_step():
        a = Stepper("a", path, lambda graph: graph.upsert({"Left": [{"name": "a"}]}))
        while a.at != "lock":
            a.advance()
        omnigraph.open(path).upsert({"Left": [{"name": "b"}]})
        a.advance()
        assert a.at == "check"
        a.advance()
        assert a.at == "release", "it went on with a ticket that is void"
        a.run_free()
    assert a.acknowledged
    graph = omnigraph.open(path)
    assert {"a", "b"} <= set(graph.snapshot().read("Left")["id"].to_pylist())
    assert not wrong_epochs(graph)
    assert not objects_left(path)


def test_a_ticket_whose_half_made_file_is_swept_is_made_again(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The writer is stopped while the store stages its ticket; the epoch is decided and swept; the rename fails."""
    import obstore
    from obstore.exceptions import GenericError

    real = obstore.put
    fails = iter([True])

    def put(store: Any, name: str, *rest: Any, **options: Any) -> Any:
        if next(fails, False):
            omnigraph.open(path).upsert({"Left": [{"name": "other"}]})
            raise GenericError("Unable to rename file: No such file or directory (os error 2)")
        return real(store, name, *rest, **options)

    graph = omnigraph.open(path)
    monkeypatch.setattr(obstore, "put", put)
    write_in_time(path)
    assert "other" in graph.snapshot().read("Left")["id"].to_pylist()


def test_a_graph_at_rest_has_an_empty_recovery_folder(path: Path, graph: Any) -> None:
    for n in range(3):
        graph.upsert({"Left": [{"name": f"n{n}"}]})
    assert not objects_left(path)
    assert os.listdir(path / "__recovery") in ([], [graph._manifest.head("main").incarnation])
