"""Client processes at the price of a fork.

    python -m tests.faults.forkserver        the server itself; `ForkServer` starts it and talks to it

The server imports everything a client needs and uses none of it, so that no thread exists that a fork would lose; it
asserts that before every fork. One line of JSON per message:

    to it      {"id", "job", "arguments", "environment", "hand_over_to"}
    from it    {"id", "pid"} when the child exists, {"id", "status", "result"} when it has ended

A job is a function of `tests.faults.jobs.JOBS`. Its result is `{"value": …}` or `{"error": …}`, or null where the
process was killed before it could say anything. `status` is an exit code; a negative number is the signal.
`hand_over_to` is the address of a supervisor of system calls (`localdisk`), or empty.
"""

from __future__ import annotations

import contextlib
import gc
import itertools
import json
import os
import selectors
import signal
import subprocess
import sys
import threading
import warnings
from concurrent.futures import Future
from concurrent.futures import TimeoutError as NotInTime
from dataclasses import dataclass
from pathlib import Path
from typing import Any

REPOSITORY = Path(__file__).resolve().parents[2]
# Names of threads that survive a fork or do not matter after one: Python's own and the allocator's.
HARMLESS_THREADS = ("python", "pytest", "jemalloc_bg_thd")
SETTINGS = {
    "LANCE_LOG": "error",
    "OPENBLAS_NUM_THREADS": "1",
    "OMP_NUM_THREADS": "1",
    "TOKIO_WORKER_THREADS": "2",
    "LANCE_CPU_THREADS": "2",
    "LANCE_IO_THREADS": "2",
    "PYTHONFAULTHANDLER": "1",
    "OMNIGRAPH_FSYNC": "on",
}


@dataclass(frozen=True)
class Ended:
    """How a client process ended. `hung` means that it had to be killed because it never came to an end."""

    status: int
    result: dict[str, Any] | None
    hung: bool = False

    @property
    def acknowledged(self) -> bool:
        return self.result is not None and "value" in self.result

    @property
    def value(self) -> Any:
        assert self.acknowledged, f"status {self.status}, result {self.result}"
        assert self.result is not None
        return self.result["value"]

    @property
    def error(self) -> dict[str, Any] | None:
        return self.result.get("error") if self.result else None


class Job:
    def __init__(self) -> None:
        self.pid: Future[int] = Future()
        self._ended: Future[Ended] = Future()

    @property
    def is_over(self) -> bool:
        return self._ended.done()

    def wait(self, timeout_s: float = 60.0) -> Ended:
        """The end of the process; one that takes longer is killed and reported as hung."""
        try:
            return self._ended.result(timeout_s)
        except NotInTime:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid.result(), signal.SIGKILL)
            ended = self._ended.result(30)
            return Ended(ended.status, ended.result, hung=True)

    def told(self, message: dict[str, Any]) -> None:
        if "pid" in message:
            self.pid.set_result(message["pid"])
        else:
            self._ended.set_result(Ended(message["status"], message["result"]))


class ForkServer:
    """Starts the server and hands out jobs, from any number of threads. Use as a context manager."""

    def __init__(self, environment: dict[str, str] | None = None) -> None:
        self._environment = {**os.environ, **SETTINGS, **(environment or {})}
        self._ids = itertools.count()
        self._jobs: dict[int, Job] = {}
        self._sending = threading.Lock()

    def __enter__(self) -> ForkServer:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.faults.forkserver"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            cwd=REPOSITORY,
            env=self._environment,
        )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()
        return self

    def __exit__(self, *_: object) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait(timeout=30)
        self._reader.join(timeout=30)

    def start(
        self, job: str, arguments: dict[str, Any], environment: dict[str, str] | None = None, *, hand_over_to: str = ""
    ) -> Job:
        assert self._process.stdin is not None
        handle = Job()
        with self._sending:
            number = next(self._ids)
            self._jobs[number] = handle
            message = {
                "id": number,
                "job": job,
                "arguments": arguments,
                "environment": environment or {},
                "hand_over_to": hand_over_to,
            }
            self._process.stdin.write(json.dumps(message).encode() + b"\n")
            self._process.stdin.flush()
        return handle

    def run(self, job: str, arguments: dict[str, Any], environment: dict[str, str] | None = None) -> Ended:
        return self.start(job, arguments, environment).wait()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            message = json.loads(line)
            handle = self._jobs[message["id"]] if "pid" in message else self._jobs.pop(message["id"])
            handle.told(message)
        for handle in self._jobs.values():
            handle.told({"status": 255, "result": {"error": {"type": "ForkServerDied", "message": "see stderr"}}})


# ---- inside the server process ---------------------------------------------------------------------------------------


def _serve() -> None:
    from tests.faults import jobs, localdisk

    assert localdisk.NUMBERS  # imported here, once, for all children
    jobs.import_everything()
    warnings.filterwarnings("ignore", message="lance is not fork-safe")
    gc.collect()
    gc.freeze()  # a child's collector must not touch, and so copy, the pages that it shares with us
    replies = os.dup(1)
    os.dup2(2, 1)  # what a library prints must not end up between the messages
    selector = selectors.DefaultSelector()
    selector.register(0, selectors.EVENT_READ, None)
    pending = b""
    while True:
        for key, _ in selector.select():
            if isinstance(key.data, _Child):
                if key.data.read():
                    selector.unregister(key.fd)
                    _reply(replies, key.data.ended())
                continue
            chunk = os.read(0, 1 << 16)
            if not chunk:
                return
            *lines, pending = (pending + chunk).split(b"\n")
            for line in lines:
                child = _fork(json.loads(line), replies)
                selector.register(child.pipe, selectors.EVENT_READ, child)


@dataclass
class _Child:
    number: int
    pid: int
    pipe: int
    said: bytes = b""

    def read(self) -> bool:
        """True once the child has closed its pipe, which it does by ending, in whatever way."""
        chunk = os.read(self.pipe, 1 << 16)
        self.said += chunk
        return not chunk

    def ended(self) -> dict[str, Any]:
        os.close(self.pipe)
        _, status = os.waitpid(self.pid, 0)
        result = json.loads(self.said) if self.said else None
        return {"id": self.number, "status": os.waitstatus_to_exitcode(status), "result": result}


def _reply(fd: int, message: dict[str, Any]) -> None:
    os.write(fd, json.dumps(message).encode() + b"\n")


def assert_safe_to_fork() -> None:
    threads = [Path(f"/proc/self/task/{task}/comm").read_text().strip() for task in os.listdir("/proc/self/task")]
    strangers = [name for name in threads if not name.startswith(HARMLESS_THREADS)]
    assert not strangers, f"threads that would not survive a fork: {strangers}"


def _fork(message: dict[str, Any], replies: int) -> _Child:
    assert_safe_to_fork()
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(reading)
        os.close(replies)
        _child(message, writing)
    os.close(writing)
    _reply(replies, {"id": message["id"], "pid": pid})
    return _Child(message["id"], pid, reading)


def _child(message: dict[str, Any], pipe: int) -> None:
    """Never returns: the process ends without the clean-up that belongs to its parent."""
    from tests.faults import jobs, localdisk

    os.environ.update(message["environment"])
    try:
        if message["hand_over_to"]:
            localdisk.hand_over(message["hand_over_to"])
        result = {"value": jobs.JOBS[message["job"]](**message["arguments"])}
    except BaseException as problem:  # noqa: BLE001  the job's outcome, whatever it is
        result = {"error": jobs.describe(problem)}
    said = memoryview(json.dumps(result, default=str).encode())
    while said:
        said = said[os.write(pipe, said) :]
    os._exit(0)


if __name__ == "__main__":
    _serve()
