"""Tasks that read possibly damaged files run in a child process.

Damaged bytes make Lance fail in any way. Most failures are errors; a length of terabytes ends the process, and others
could make it loop. So files are compared with their checksums first, and the footers of those without one are checked
(`checksums`): damaged files are reported, and not read. If not every file of a version was compared, tasks on
its rows and indices run in a child (`worker`), provided that the run is full, or the table so large that starting one
takes no time beside it:

1. run     the child gets the task and has TASK_MAX_S for it. Children are reused for the next task
2. died    if it ends without an answer, or is stopped at that limit, that is a finding of the table. Of several
           fragments the first that ends a child again is found by bisection, and its files are named
3. cause   of an index its column is read without it: if that ends the child too, rows are damaged, and not the index

The same where Spark runs the tasks: each of its workers has a child. If no child can be started a task runs in
this process. A crash of this process closes the input of its children, which ends them.
"""

from __future__ import annotations

import os
import select
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import orjson

from omnigraph.maintenance.verify.findings import Finding
from omnigraph.maintenance.verify.scope import Line, line_of, location_of
from omnigraph.maintenance.verify.tables import finding_json, line_finding, opened
from omnigraph.storage.manifest.records import Pin
from omnigraph.tasks.runner import Runner, TaskFunction, result_of, task_function, task_name

TASK_MAX_S = 900.0
"""A task reads about a quarter of a million rows."""
LARGE_BYTES = 64 << 20
_LAST_WORDS_BYTES = 4096
_CHUNK_BYTES = 1 << 20


# ---- the driver ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class CarefulRunner:
    """A runner whose tasks on lines that are not `trusted` run in children. Other tasks run as always."""

    inner: Runner
    trusted: Collection[str]
    """`Line.version_id` of those whose files have all been compared with their checksums."""
    sizes: Mapping[str, int]
    """Bytes of data by `Line.version_id`."""
    is_full: bool

    @property
    def engine(self) -> str:
        return self.inner.engine

    @property
    def parallelism(self) -> int:
        return self.inner.parallelism

    @property
    def is_here(self) -> bool:
        return self.inner.is_here

    def run(self, function: TaskFunction, tasks: Sequence[Any], *, stage: str) -> list[Any]:
        doubtful = [self._is_doubtful(task) for task in tasks]
        if not any(doubtful):
            return self.inner.run(function, tasks, stage=stage)
        work = task_name(function)
        jobs = [
            {"work": work, "task": task, "isolated": isolated} for task, isolated in zip(tasks, doubtful, strict=True)
        ]
        return self.inner.run(perform_task, jobs, stage=stage)

    def _is_doubtful(self, task: Mapping[str, Any]) -> bool:
        if "line" not in task:
            return False
        pin = Pin.from_json(*task["line"]["pin"])
        version_id = f"{pin.path}@{pin.version}"
        return version_id not in self.trusted and (self.is_full or self.sizes.get(version_id, 0) > LARGE_BYTES)


# ---- where the task is -----------------------------------------------------------------------------------------------


class Died(Exception):
    """The child ended, or had to be stopped, without an answer."""


@dataclass
class _Child:
    """One process, for one task at a time."""

    _log: Any = field(default_factory=tempfile.TemporaryFile)
    _process: subprocess.Popen[bytes] = field(init=False)

    def __post_init__(self) -> None:
        paths = os.pathsep.join(path for path in sys.path if path)
        self._process = subprocess.Popen(
            [sys.executable, "-m", "omnigraph.maintenance.verify.worker"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            env={**os.environ, "PYTHONPATH": paths, "RUST_BACKTRACE": "0"},
        )

    @property
    def is_alive(self) -> bool:
        return self._process.poll() is None

    def request(self, question: bytes) -> bytes:
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(question + b"\n")
            self._process.stdin.flush()
            return self._answer(time.monotonic() + TASK_MAX_S)
        except BrokenPipeError as error:
            raise Died(self._last_output()) from error

    def _answer(self, deadline_s: float) -> bytes:
        assert self._process.stdout is not None
        out, answer = self._process.stdout.fileno(), b""
        while not answer.endswith(b"\n"):
            if not select.select([out], [], [], max(0.0, deadline_s - time.monotonic()))[0]:
                self.end()
                raise Died(f"it did not come to an end within {TASK_MAX_S:.0f} s")
            part = os.read(out, _CHUNK_BYTES)
            if not part:
                raise Died(self._last_output())
            answer += part
        return answer

    def _last_output(self) -> str:
        code = self._process.wait()
        self._log.seek(max(0, self._log.seek(0, os.SEEK_END) - _LAST_WORDS_BYTES))
        lines = self._log.read().decode(errors="replace").splitlines()
        text = next((line.strip() for line in lines if "memory allocation" in line), lines[-1].strip() if lines else "")
        ended = f"signal {-code}" if code < 0 else f"exit code {code}"
        return f"it ended the process ({ended}{': ' if text else ''}{text})"

    def end(self) -> None:
        self._process.kill()
        self._process.communicate()  # which closes its pipes
        self._log.close()


_lock = threading.Lock()
_idle: dict[int, list[_Child]] = {}
"""Children without a task, by the process that has started them: a fork must not use those of its parent."""


def _taken() -> _Child:
    with _lock:
        children = _idle.setdefault(os.getpid(), [])
        while children:
            child = children.pop()
            if child.is_alive:
                return child
    return _Child()


def end_children() -> None:
    """End the children of this process that have no task."""
    with _lock:
        children = _idle.pop(os.getpid(), [])
    for child in children:
        child.end()


def ask_child(work: str, task: Mapping[str, Any]) -> Any:
    """The result of the task in a child. Died if the child has ended."""
    try:
        child = _taken()
    except OSError:
        return task_function(work)(task)  # no process can be started
    try:
        answer = child.request(orjson.dumps({"work": work, "task": task}))
    except BaseException:
        child.end()
        raise
    with _lock:
        _idle.setdefault(os.getpid(), []).append(child)
    result = orjson.loads(answer)
    if "exception" in result:
        raise RuntimeError(result["exception"])
    return result_of(answer)


def perform_task(job: Mapping[str, Any]) -> Any:
    """The task: another task, here or in a child."""
    work, task = job["work"], job["task"]
    if not job["isolated"]:
        return task_function(work)(task)
    try:
        return ask_child(work, task)
    except Died as died:
        finding = finding_json(_finding(work, task, str(died)))
        return {"findings": [finding], "sent": None, "rows_done": 0, "asked": 0, "blobs": 0}


# ---- why a child ended -----------------------------------------------------------------------------------------------


def _finding(work: str, task: Mapping[str, Any], why: str) -> Finding:
    line, index = line_of(task["line"]), task.get("index")
    if index is None:
        fragment = _first_fatal(work, task)
        files = [] if fragment is None else _files_of(task, line, fragment)
        return _unreadable(line, [f"{name}: {why}" for name in files] or [why])
    name, column = (index, None) if isinstance(index, str) else (index["name"], index["column"])
    if column is not None:
        try:
            ask_child(task_name(read_column), {"place": task["place"], "line": task["line"], "column": column})
        except Died as died:
            return _unreadable(line, [f"{column}: {died}"])
    return line_finding("index_unreadable", line, f"the index {name} can't be read", examples=[why])


def _unreadable(line: Line, examples: list[str]) -> Finding:
    text = f"rows of {line.pin.path} at version {line.pin.version} can't be read"
    return line_finding("unreadable_data", line, text, count=len(examples), examples=examples)


def _first_fatal(work: str, task: Mapping[str, Any]) -> int | None:
    """The first fragment of a task that ends a child; None if no single one does."""
    fragments = list(task.get("fragments") or ())
    while len(fragments) > 1:
        half = fragments[: len(fragments) // 2]
        fragments = half if _is_fatal(work, {**task, "fragments": half}) else fragments[len(half) :]
    return fragments[0] if fragments and _is_fatal(work, {**task, "fragments": fragments}) else None


def _is_fatal(work: str, task: Mapping[str, Any]) -> bool:
    try:
        ask_child(work, task)
    except Died:
        return True
    return False


def _files_of(task: Mapping[str, Any], line: Line, fragment: int) -> list[str]:
    with suppress(Exception):  # the fragment is named without its files then
        table = opened(location_of(task["place"]), line, reads_rows=False)
        return [
            f"{line.pin.root}/data/{file['path']}" for file in table.get_fragment(fragment).metadata.to_json()["files"]
        ]
    return [f"fragment {fragment}"]


def read_column(task: Mapping[str, Any]) -> int:
    """All of one column, without its index; how many rows. An error that does not end the process is ignored."""
    rows = 0
    with suppress(Exception):
        table = opened(location_of(task["place"]), line_of(task["line"]))
        for batch in table.scanner(columns=[task["column"]], use_scalar_index=False).to_batches():
            rows += batch.num_rows
    return rows
