"""Processes that die in the middle of a load, an optimize or a verify: exactly the old or the new state, no row twice.

Speculation is on and eager, so that most tasks run twice as well.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest

import omnigraph as og
from tests.maintenance.optimize.answers import disagreements

pytestmark = pytest.mark.slow

SCHEMA = "node Person { name: String @key  age: I32? }\nedge Knows: Person -> Person"
PEOPLE = 5_000
JOB = Path(__file__).with_name("killed_job.py")


def processes() -> Iterator[tuple[int, int, str]]:
    """(process, its parent, its command line) of everything that runs."""
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            parent = int((entry / "stat").read_text().rsplit(")", 1)[1].split()[1])
            command = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except OSError:
            continue
        yield int(entry.name), parent, command


def below(root: int, wanted: Callable[[int, int, str], bool]) -> list[int]:
    """Descendants of a process that are wanted."""
    every = list(processes())
    parents = {process: parent for process, parent, _ in every}

    def descends(process: int) -> bool:
        while process in parents and process != root:
            process = parents[process]
        return process == root

    return [process for process, parent, command in every if descends(process) and wanted(process, parent, command)]


def python_workers(driver: int) -> list[int]:
    daemons = set(below(driver, lambda _process, _parent, command: "pyspark.daemon" in command))
    return below(driver, lambda _, parent, command: "pyspark.daemon" in command and parent in daemons)


def executors(driver: int) -> list[int]:
    return below(driver, lambda _process, _parent, command: "CoarseGrainedExecutorBackend" in command)


def staged(graph: Path) -> int:
    return len(list(graph.glob("__staging/*/rows-*")))


def write_input(path: Path) -> None:
    name = path.stem
    lines = [f'{{"type":"Person","data":{{"name":"{name}{i:06d}","age":{i % 90}}}}}' for i in range(PEOPLE)]
    lines += [f'{{"edge":"Knows","from":"{name}{i:06d}","to":"{name}{(i + 1) % PEOPLE:06d}"}}' for i in range(PEOPLE)]
    path.write_text("\n".join(lines) + "\n")


@pytest.fixture
def job(tmp_path: Path) -> Iterator[tuple[subprocess.Popen[str], Path]]:
    og.init(tmp_path / "g", SCHEMA)
    for name in ("worker", "executor", "more", "driver"):
        write_input(tmp_path / f"{name}.jsonl")
    environment = {k: v for k, v in os.environ.items() if not k.startswith(("SPARK_", "PYSPARK_"))}
    environment["SPARK_WORKER_DIR"] = str(tmp_path / "work")
    command = [sys.executable, str(JOB), str(tmp_path / "g"), str(tmp_path)]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment, start_new_session=True
    ) as process:
        try:
            yield process, tmp_path
        finally:
            with suppress(ProcessLookupError):  # all of them are gone already
                os.killpg(process.pid, signal.SIGKILL)


def said(process: subprocess.Popen[str], text: str) -> None:
    assert process.stdout is not None
    line = process.stdout.readline()
    assert line.startswith(text), (line, process.stderr.read() if not line and process.stderr else "")


def segments(graph: Path) -> int:
    return len(list(graph.glob("*/*/_indices/*")))


def worked(driver: int) -> dict[int, int]:
    """The ticks that each Python worker has worked."""
    found = {}
    for worker in python_workers(driver):
        with suppress(OSError):  # it has ended since
            fields = Path(f"/proc/{worker}/stat").read_text().rsplit(")", 1)[1].split()
            found[worker] = int(fields[11]) + int(fields[12])
    return found


def kill_in_the_middle(
    process: subprocess.Popen[str],
    graph: Path,
    find: Callable[[int], list[int]],
    progress: Callable[[Path], int] = staged,
) -> None:
    """Kill the first that is found, once some tasks of the job are done and others are not."""
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline:
        found = find(process.pid) if progress(graph) > 2 else []
        if found:
            os.kill(found[0], signal.SIGKILL)
            return
        time.sleep(0.01)
    pytest.fail("nothing to kill was found")


def rows(graph: Path) -> tuple[list[str], int]:
    snapshot = og.open(graph).snapshot()
    return sorted(snapshot.read("Person")["id"].to_pylist()), snapshot.read("Knows").num_rows


def expected(*names: str) -> tuple[list[str], int]:
    return sorted(f"{name}{i:06d}" for name in names for i in range(PEOPLE)), PEOPLE * len(names)


def require_optimized(graph: Path) -> None:
    """Indices that cover everything and answer like a scan, and nothing left to do."""
    handle = og.open(graph, engine="local")
    assert handle.optimize(target_rows_per_fragment=2_000).commit is None
    view = handle.snapshot().view
    for name in ("Person", "Knows"):
        table = view.open(view.type(name))
        assert len(table.describe_indices()) == 3
        assert disagreements(table) == []


def kill_an_executor_at_work(process: subprocess.Popen[str]) -> None:
    """Kill the executor of a Python worker that works since this was called."""
    before, deadline = worked(process.pid), time.monotonic() + 120
    while time.monotonic() < deadline:
        now = worked(process.pid)
        busy = [worker for worker, ticks in now.items() if ticks > before.get(worker, 0) + 5]
        if busy:
            parents = {child: parent for child, parent, _ in processes()}
            os.kill(next(e for e in executors(process.pid) if e in (parents[parents[busy[0]]],)), signal.SIGKILL)
            return
        time.sleep(0.01)
    pytest.fail("no worker was at work")


@pytest.mark.long
@pytest.mark.timeout(600)
def test_a_python_worker_an_executor_and_the_driver_die_in_the_middle_of_loads_optimize_and_verify(
    job: tuple[subprocess.Popen[str], Path],
) -> None:
    process, folder = job
    graph = folder / "g"
    said(process, "loading worker")
    kill_in_the_middle(process, graph, python_workers)
    said(process, f"loaded worker {2 * PEOPLE}")
    assert rows(graph) == expected("worker")
    said(process, "loading executor")
    kill_in_the_middle(process, graph, executors)
    said(process, f"loaded executor {2 * PEOPLE}")
    assert rows(graph) == expected("worker", "executor")
    said(process, "optimizing")
    kill_in_the_middle(process, graph, python_workers, segments)
    said(process, "optimized True")
    said(process, "loading more")
    said(process, f"loaded more {2 * PEOPLE}")
    said(process, "optimizing")
    kill_an_executor_at_work(process)
    said(process, "optimized True")
    assert rows(graph) == expected("worker", "executor", "more")
    said(process, "verifying")
    kill_an_executor_at_work(process)
    said(process, "verified True")
    said(process, "loading driver")
    kill_in_the_middle(process, graph, lambda driver: [driver])
    process.wait()
    assert process.stdout is not None
    assert process.stdout.read() == ""
    # The old state, writable at once; what the dead driver staged goes with the next load.
    assert rows(graph) == expected("worker", "executor", "more")
    require_optimized(graph)
    og.open(graph).load(str(folder / "driver.jsonl"), mode="append", engine="local")
    assert rows(graph) == expected("worker", "executor", "more", "driver")
