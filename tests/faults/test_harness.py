"""The harness does to a process what it says: shown with bare Lance appends, whose states are known."""

from __future__ import annotations

import itertools
import signal
from pathlib import Path

import pytest

from tests.faults.forkserver import ForkServer, Job
from tests.faults.localdisk import Call, DiskFault, Supervisor
from tests.faults.powerloss import Unsynced, lose_power
from tests.faults.s3server import Entry, Fault, S3Server, World

NAMES = itertools.count()
COMMIT = "_versions/18446744073709551613.manifest"


def start(server: S3Server, forks: ForkServer, world: World, client: str, rows: int = 3) -> Job:
    store = {"endpoint": server.endpoint, "world": world.name, "client": client}
    return forks.start("append", {"uri": "s3://b/t", "store": store, "rows": rows})


@pytest.fixture
def world(server: S3Server, forks: ForkServer) -> World:
    """A table of three rows at version 1; the next append commits version 2."""
    world = server.add(World(f"harness{next(NAMES)}"))
    assert start(server, forks, world, "first").wait().value == 3
    return world


def is_commit(entry: Entry) -> bool:
    return entry.key.endswith(COMMIT) and entry.operation == "CREATE"


@pytest.mark.parametrize(
    ("kind", "rows_then"),
    [("kill_before", 4), ("kill_after", 7), ("ghost", 4)],
)
def test_a_killed_client_has_committed_only_if_its_request_was_applied(
    server: S3Server, forks: ForkServer, world: World, kind: str, rows_then: int
) -> None:
    world.faults.append(Fault(kind, "victim", when=is_commit))
    ended = start(server, forks, world, "victim").wait()
    assert (ended.status, ended.result) == (-9, None)
    assert start(server, forks, world, "checker", rows=1).wait().value == rows_then


def test_a_ghost_lands_when_it_is_released(server: S3Server, forks: ForkServer, world: World) -> None:
    world.faults.append(Fault("ghost", "victim", when=is_commit))
    start(server, forks, world, "victim").wait()
    assert "t/" + COMMIT not in world.store.objects
    server.call(world.release)
    assert start(server, forks, world, "checker", rows=1).wait().value == 7


@pytest.mark.parametrize("kind", ["error_500", "error_503", "drop", "lost", "applied_500", "delay"])
def test_a_passing_fault_at_the_commit_is_hidden_by_lance(
    server: S3Server, forks: ForkServer, world: World, kind: str
) -> None:
    world.faults.append(Fault(kind, "victim", when=is_commit))
    assert start(server, forks, world, "victim").wait().value == 6
    assert world.struck is not None
    assert world.struck.applied == (kind in ("lost", "applied_500", "delay"))


@pytest.mark.parametrize(("kind", "rows_then"), [("denied", 4), ("lost_denied", 7)])
def test_a_client_without_credentials_fails(
    server: S3Server, forks: ForkServer, world: World, kind: str, rows_then: int
) -> None:
    world.faults.append(Fault(kind, "victim", when=is_commit))
    assert start(server, forks, world, "victim").wait().error is not None
    assert start(server, forks, world, "checker", rows=1).wait().value == rows_then


@pytest.mark.parametrize(("kind", "seen_meanwhile"), [("freeze_before", 4), ("freeze_after", 7)])
def test_a_frozen_client_goes_on_after_others_have_written(
    server: S3Server, forks: ForkServer, world: World, kind: str, seen_meanwhile: int
) -> None:
    world.faults.append(Fault(kind, "victim", when=is_commit))
    job = start(server, forks, world, "victim")
    assert world.has_struck.wait(20)
    assert start(server, forks, world, "checker", rows=1).wait().value == seen_meanwhile
    assert not job.is_over
    server.call(world.release)
    assert job.wait().acknowledged


def test_requests_of_a_dead_client_are_dropped_and_those_of_others_answered(
    server: S3Server, forks: ForkServer, world: World
) -> None:
    before = len(world.log)
    world.faults.append(Fault("kill_before", "victim", 2))
    start(server, forks, world, "victim").wait()
    assert [entry.n for entry in world.log[before:] if entry.client == "victim"] == [0, 1, 2]
    assert start(server, forks, world, "other", rows=1).wait().value == 4


def test_no_fork_is_made_once_lance_has_been_used(forks: ForkServer) -> None:
    error = forks.run("use_lance_and_fork", {}).error
    assert error is not None
    assert "would not survive a fork" in error["message"]


def supervised(forks: ForkServer, root: Path, fault: DiskFault | None = None) -> tuple[Supervisor, int, object]:
    supervisor = Supervisor(root, fault)
    ended = supervisor.run(forks, "append", {"uri": str(root / "t"), "store": None, "rows": 3}, {})
    return supervisor, ended.status, ended.result


def test_a_process_that_is_busy_for_ever_hangs(forks: ForkServer, tmp_path: Path) -> None:
    ended = Supervisor(tmp_path).run(forks, "touch_for_ever", {"path": str(tmp_path / "file")}, {}, timeout_s=1)
    assert ended.hung
    assert ended.status == -signal.SIGKILL


def test_every_call_that_names_a_file_is_seen_in_order(forks: ForkServer, tmp_path: Path) -> None:
    supervisor, status, result = supervised(forks, tmp_path)
    assert (status, result) == (0, {"value": 3})
    final = {str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*") if path.is_file()}
    came = {call.path for call in supervisor.log if call.kind in ("create", "rename", "link")}
    assert final <= came
    assert [call.n for call in supervisor.log] == list(range(len(supervisor.log)))


@pytest.mark.parametrize(("kind", "rows_then"), [("kill_before", 6), ("kill_after", 9)])
def test_a_process_killed_at_the_link_of_its_manifest(
    forks: ForkServer, tmp_path: Path, kind: str, rows_then: int
) -> None:
    supervised(forks, tmp_path)
    fault = DiskFault(kind, when=lambda call: call.kind == "link" and call.path.endswith(COMMIT))
    supervisor, status, result = supervised(forks, tmp_path, fault)
    assert supervisor.struck is not None
    assert (status, result) == (-9, None)
    assert supervised(forks, tmp_path)[2] == {"value": rows_then}


def test_a_torn_write_leaves_half_of_its_bytes(forks: ForkServer, tmp_path: Path) -> None:
    supervised(forks, tmp_path)
    fault = DiskFault("torn", when=lambda call: call.kind == "write" and "/_transactions/" in call.path)
    supervisor, status, _ = supervised(forks, tmp_path, fault)
    assert supervisor.struck is not None
    assert status == -9
    whole = next(path for path in tmp_path.rglob("*.txn"))
    assert 0 < (tmp_path / supervisor.struck.path).stat().st_size < whole.stat().st_size


def test_a_full_disk_stays_full(forks: ForkServer, tmp_path: Path) -> None:
    supervised(forks, tmp_path)
    _, _, result = supervised(forks, tmp_path, DiskFault("full", at=2))
    assert isinstance(result, dict)
    assert "No space left" in result["error"]["message"]


def test_power_loss_takes_what_was_not_synced(tmp_path: Path) -> None:
    log = [
        Call(0, "mkdir", "d"),
        Call(1, "create", "d/.tmp"),
        Call(2, "write", "d/.tmp"),
        Call(3, "fsync", "d/.tmp"),
        Call(4, "rename", "d/kept", "d/.tmp"),
        Call(5, "create", "d/short"),
        Call(6, "fsync", "d"),
        Call(7, "write", "d/short"),
        Call(8, "create", "d/gone"),
        Call(9, "fsync", "."),
    ]
    unsynced = Unsynced.after(log)
    assert unsynced.contents == {"d/short", "d/gone"}
    assert unsynced.names == {"d/gone"}
    (tmp_path / "d").mkdir()
    for name in ("kept", "short", "gone"):
        (tmp_path / "d" / name).write_text(name)
    lose_power(tmp_path, log)
    assert {path.name: path.read_text() for path in (tmp_path / "d").iterdir()} == {"kept": "kept", "short": ""}


def test_lance_alone_does_not_survive_a_power_loss(forks: ForkServer, tmp_path: Path) -> None:
    """The sentinel of the power tests: without fsync the newest version of a table is lost or unreadable."""
    supervised(forks, tmp_path)
    supervisor, _, result = supervised(forks, tmp_path)
    assert result == {"value": 6}
    assert lose_power(tmp_path, supervisor.log)
    assert supervised(forks, tmp_path)[2] != {"value": 9}
