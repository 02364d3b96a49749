"""Beside writers, readers and new branches nothing is lost; killed at any point, the next run ends where one would."""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest

import omnigraph as og
from omnigraph.commit import owner
from tests.maintenance.cleanup.conftest import files, make_old, root_of, rows, versions


def crash(graph: Path, at: int) -> int | None:
    """Let a cleanup die at its Nth change; how many there are, if there are fewer."""
    command = [sys.executable, "-m", "tests.maintenance.cleanup.killed", str(graph), str(at)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, env={**os.environ})
    if done.returncode == -signal.SIGKILL:
        return None
    assert done.returncode == 0, done.stderr
    return int(done.stdout)


def data_files(graph: Path) -> set[str]:
    """Without what a run changes of itself: the manifest's versions, hints, control objects."""
    own = ("__manifest", "__recovery", "__cleanup/probe-")
    return {n for n in files(graph) if not n.startswith(own) and "hint" not in n}


def test_killed_at_any_point_the_next_run_converges_at_once(history: og.Graph, tmp_path: Path) -> None:
    history.create_branch("gone")
    for i in range(2):
        history.upsert({"Person": [{"name": f"g{i}"}]}, branch="gone")
    history.delete_branch("gone")
    path, expected = Path(history.uri), rows(history)
    origin = shutil.copytree(path, tmp_path / "origin")  # a fork works only where it was made
    count = crash(path, 10_000)
    assert count is not None
    goal = data_files(path)
    seed = random.randrange(1 << 30)
    print("seed", seed)
    points = {2, *random.Random(seed).sample(range(3, count), 2), count}
    for at in sorted(points):
        shutil.rmtree(path)
        shutil.copytree(origin, path)
        assert crash(path, at) is None
        graph = og.open(path)
        assert rows(graph) == expected
        assert not graph.cleanup(keep=1, confirm=True).failed
        assert data_files(path) == goal, f"killed at change {at} of {count}"
        assert rows(graph) == expected
        if (path / "__cleanup").exists():  # it died with a probe of the clock in its hands
            make_old(path / "__cleanup")
            graph.cleanup(keep=1, confirm=True)
        assert not (path / "__cleanup").exists()


def test_beside_writers_branches_and_leased_readers_nothing_is_lost(history: og.Graph) -> None:
    uri, stop = history.uri, threading.Event()
    trouble: list[BaseException] = []
    written: dict[int, int] = {}
    made: dict[str, set[str]] = {}
    reads = [0]

    def guarded(work: Any, *args: Any) -> threading.Thread:
        def body() -> None:
            try:
                work(*args)
            except BaseException as error:  # noqa: BLE001 - the test's own thread raises it again
                trouble.append(error)
                stop.set()

        thread = threading.Thread(target=body)
        thread.start()
        return thread

    def write(number: int) -> None:
        graph = og.open(uri)
        for i in range(1_000):
            if stop.is_set():
                return
            graph.upsert({"Person": [{"name": f"w{number}-{i % 5}", "age": i}]})
            written[number] = i
            time.sleep(0.02)  # two busy loops would leave the cleaner and the reader no processor

    def branch() -> None:
        graph = og.open(uri)
        for i in range(1_000):
            if stop.is_set():
                return
            name = f"b{i}"
            graph.create_branch(name)
            made[name] = {*graph.snapshot(name).read("Person", ["id"])["id"].to_pylist(), name}
            graph.upsert({"Person": [{"name": name}]}, branch=name)
            if i >= 3:
                graph.delete_branch(f"b{i - 3}")
                del made[f"b{i - 3}"]

    def read() -> None:
        graph = og.open(uri)
        while not stop.is_set():
            with graph.lease(seconds=30) as snapshot:
                first = snapshot.read("Person").to_pylist()
                time.sleep(0.05)
                assert snapshot.read("Person").to_pylist() == first
                reads[0] += 1

    threads = [guarded(write, 0), guarded(write, 1), guarded(branch), guarded(read)]
    began, runs = time.monotonic(), 0
    cleaner = og.open(uri)

    def goes_on() -> bool:
        taken_s = time.monotonic() - began
        return not stop.is_set() and (taken_s < 4 or (min(runs, reads[0]) <= 2 and taken_s < 120))

    while goes_on():
        assert not cleaner.cleanup(keep=1, older_than="0s", confirm=True).failed
        runs += 1
    stop.set()
    for thread in threads:
        thread.join()
    if trouble:
        raise trouble[0]
    assert runs > 2
    assert reads[0] > 2
    assert set(written) == {0, 1}
    found = rows(history)
    for number, last in written.items():
        assert found[f"w{number}-{last % 5}"]["age"] == last
    for name, expected in made.items():
        assert set(rows(history, name)) == expected
    history.cleanup(keep=1, older_than="0s", confirm=True)
    assert {name: set(rows(history, name)) for name in made} == made
    assert og.open(uri).verify(quick=True).ok


def test_two_cleanups_at_once_do_no_harm(history: og.Graph) -> None:
    expected, results = rows(history), []

    def clean() -> None:
        results.append(og.open(history.uri).cleanup(keep=1, confirm=True))

    threads = [threading.Thread(target=clean) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(results) == 3
    assert not any(result.failed for result in results)
    assert rows(history) == expected
    assert len(versions(root_of(history))) == 1
    assert not (Path(history.uri) / "__cleanup").exists()


def test_what_a_dead_cleanup_named_but_did_not_remove_is_removed_young_as_it_is(history: og.Graph) -> None:
    stray = root_of(history) / "data" / "0123.lance"
    stray.write_bytes(b"x")
    folder = Path(history.uri) / "__cleanup"
    folder.mkdir()
    path = os.path.relpath(root_of(history), history.uri)
    gone = {**owner.myself(), "start": "1"}
    needed = next(iter(n for n in files(root_of(history)) if n.startswith("data/") and "0123" not in n))
    body = {"owner": gone, "at_s": 0, "versions": {}, "files": {path: ["data/0123.lance", needed]}}
    (folder / "dead.json").write_text(json.dumps(body))
    before = rows(history)
    found = history.cleanup(keep=100, confirm=True).table("node:Person").files
    assert [(f.path, f.reason) for f in found] == [("data/0123.lance", "left_by_a_cleanup")]
    assert rows(history) == before, "what is needed stays, whoever names it"
    assert not folder.exists()


def test_a_running_cleanups_announcement_is_not_taken_away(history: og.Graph) -> None:
    from omnigraph.storage.objects import leases
    from omnigraph.storage.objects.json_objects import store_time_s

    now_s = store_time_s(history._location)
    name = leases.announce(history._location, {"nodes/x": frozenset({1})}, {}, owner=owner.myself(), now_s=now_s)
    history.cleanup(keep=1, confirm=True)
    assert [one.id for one in leases.announcements(history._location)] == [name]


@pytest.mark.parametrize("clock", ["old", "young"])
def test_a_writer_stopped_inside_its_swap_is_refused_by_what_the_manifest_keeps(history: og.Graph, clock: str) -> None:
    """The writer read a head, and goes on when others have moved it and a cleanup has come and gone."""
    from dataclasses import replace

    from omnigraph.storage.manifest.table import SwapLost

    stopped = og.open(history.uri)
    head = stopped._manifest.head("main")
    for i in range(3):
        history.upsert({"Person": [{"name": f"later{i}"}]})
    if clock == "old":
        for path in sorted((Path(history.uri) / "__manifest" / "_versions").glob("*.manifest"))[6:]:
            make_old(path)
    history.cleanup(keep=1, older_than="0s", confirm=True)
    expected = rows(history)
    with pytest.raises(SwapLost):
        stopped._manifest.swap(head, replace(head, epoch=head.epoch + 1))
    assert rows(history) == expected
