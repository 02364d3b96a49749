"""Runners: tasks in, results out, the same for Spark and for this process.

A task is a small JSON value; the work is a function named by its place, `package.module:function`, that turns a task
into files and a small JSON result. Nothing else crosses: a worker needs this package and nothing of the caller. A task
may run twice (a retry, a speculative copy, a lost executor), so work writes under names of its own and its result says
which; what the other copy wrote is an unreferenced file.

1. run       every task once more than it fails, results in the order of the tasks
2. fail      a typed error of a task is a value: the first one, in the order of the tasks, is raised to the caller.
             Failures of the store are tried again where they happen. Whatever else a task raises ends the job as
             TaskFailed, after the engine's own retries.
3. cancel    KeyboardInterrupt cancels what runs and is raised again
"""

from __future__ import annotations

import base64
import os
import re
import threading
import time
import traceback
import uuid
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import FIRST_EXCEPTION, Future, ThreadPoolExecutor, wait
from importlib import import_module
from typing import Any, Protocol

import orjson

from omnigraph import errors
from omnigraph.config import environment
from omnigraph.errors import OmnigraphError, StorageError, TaskFailed
from omnigraph.storage.files import checksums
from omnigraph.tasks.progress import Silent, Watcher

Task = Mapping[str, Any]
STORE_TRIES_MAX = 3
POLL_S = 0.1
# The tasks of one job ride in a closure on Spark Connect, which has no RDDs.
CLOSURE_BYTES_MAX = 4 << 20


class Runner(Protocol):
    @property
    def engine(self) -> str: ...

    @property
    def parallelism(self) -> int:
        """How many tasks run at the same time: what work should be cut for."""
        ...

    @property
    def is_here(self) -> bool:
        """Whether every task runs on this machine, so that a local folder is one for all of them."""
        ...

    def run(self, work: str, tasks: Sequence[Task], *, stage: str) -> list[Any]:
        """The results, in the order of the tasks. `stage` is what people read while it runs."""
        ...


# ---- on a worker -----------------------------------------------------------------------------------------------------


def perform(work: str, task: str | bytes) -> bytes:
    """Run one task where it is: import the work, call it, return its result or its typed error as JSON."""
    module, _, name = work.partition(":")
    function: Callable[[Any], Any] = getattr(import_module(module), name)
    for turn in range(1, STORE_TRIES_MAX + 1):
        try:
            return orjson.dumps({"ok": function(orjson.loads(task))})
        except StorageError as error:
            if turn == STORE_TRIES_MAX:
                return _failure(error)
            time.sleep(0.2 * turn)
        except OmnigraphError as error:
            return _failure(error)
    raise AssertionError("unreachable")


def perform_away(work: str, task: str | bytes) -> bytes:
    """The same in a process of its own: the checksums of the files that it wrote go along with the result."""
    done: dict[str, Any] = orjson.loads(perform(work, task))
    return orjson.dumps({**done, "checksums": checksums.take_noted()})


def _failure(error: OmnigraphError) -> bytes:
    return orjson.dumps({"error": type(error).__name__, "fields": error.fields}, default=str)


def result_of(raw: bytes) -> Any:
    """What `perform` returned, as a value, or raised as its typed error."""
    found = orjson.loads(raw)
    checksums.note_known(found.get("checksums", {}))
    if "ok" in found:
        return found["ok"]
    raise _error_of(found)


def _error_of(failure: Mapping[str, Any]) -> OmnigraphError:
    error: OmnigraphError = getattr(errors, failure["error"])(**failure["fields"])
    return error


def _amounts(raw: bytes) -> tuple[int, int]:
    """Rows and bytes that a result tells of itself, for progress."""
    found = orjson.loads(raw).get("ok")
    if not isinstance(found, dict):
        return 0, 0
    return int(found.get("rows_done") or 0), int(found.get("bytes_done") or 0)


# ---- this process ----------------------------------------------------------------------------------------------------


class LocalRunner:
    """Threads of this process: the work is Arrow's, numpy's and Lance's, which leave Python's lock alone.

    OMNIGRAPH_THREADS says how many; by default one per processor.
    """

    engine = "local"
    is_here = True

    def __init__(self, *, parallelism: int | None = None, watcher: Watcher | None = None) -> None:
        self.parallelism = (
            parallelism or environment.integer("OMNIGRAPH_THREADS", 0, minimum=0, maximum=4096) or os.cpu_count() or 1
        )
        self._watcher = watcher or Silent()

    def run(self, work: str, tasks: Sequence[Task], *, stage: str) -> list[Any]:
        self._watcher.stage(stage, tasks=len(tasks))
        if not tasks:
            return []
        pool = ThreadPoolExecutor(self.parallelism, thread_name_prefix="omnigraph-task")
        try:
            futures = [pool.submit(perform, work, orjson.dumps(task)) for task in tasks]
            self._follow(futures)
            return [result_of(self._raw(future, stage)) for future in futures]
        finally:
            pool.shutdown(wait=True, cancel_futures=True)

    def _follow(self, futures: Sequence[Future[bytes]]) -> None:
        pending = set(futures)
        tasks = rows = size = 0
        while pending:
            done, pending = wait(pending, timeout=POLL_S, return_when=FIRST_EXCEPTION)
            for future in done:
                if future.exception() is None:
                    more = _amounts(future.result())
                    tasks, rows, size = tasks + 1, rows + more[0], size + more[1]
                else:
                    return
            self._watcher.advance(tasks=tasks, rows=rows, size_bytes=size)

    @staticmethod
    def _raw(future: Future[bytes], stage: str) -> bytes:
        try:
            return future.result()
        except OmnigraphError:
            raise
        except Exception as error:
            told = "".join(traceback.format_exception_only(error)).strip()
            raise TaskFailed(stage=stage, engine="local", detail=told) from error


# ---- Spark -----------------------------------------------------------------------------------------------------------


class SparkRunner:
    """Tasks on the executors of a session, classic or Connect. Each task is one partition of one job."""

    engine = "spark"

    def __init__(self, spark: Any, *, watcher: Watcher | None = None) -> None:
        self._spark = spark
        self._watcher = watcher or Silent()
        self._is_connect = type(spark).__module__.startswith("pyspark.sql.connect")

    @property
    def parallelism(self) -> int:
        if self._is_connect:
            return max(2, int(self._spark.conf.get("spark.default.parallelism", "8")))
        return max(1, int(self._spark.sparkContext.defaultParallelism))

    @property
    def is_here(self) -> bool:
        return not self._is_connect and str(self._spark.sparkContext.master).startswith("local")

    def run(self, work: str, tasks: Sequence[Task], *, stage: str) -> list[Any]:
        self._watcher.stage(stage, tasks=len(tasks))
        if not tasks:
            return []
        texts = [orjson.dumps(task).decode() for task in tasks]
        raw = self._by_connect(work, texts, stage) if self._is_connect else self._by_rdd(work, texts, stage)
        return [result_of(one) for one in raw]

    def _by_rdd(self, work: str, texts: list[str], stage: str) -> list[bytes]:
        context = self._spark.sparkContext
        counted = tuple(context.accumulator(0) for _ in range(3))
        group = f"omnigraph-{uuid.uuid4().hex[:12]}"

        def one(text: str) -> bytes:
            done = perform_away(work, text)
            for counter, amount in zip(counted, (1, *_amounts(done)), strict=True):
                counter.add(amount)
            return done

        def job() -> list[bytes]:
            context.setJobGroup(group, f"omnigraph: {stage}", interruptOnCancel=False)
            found: list[bytes] = context.parallelize(texts, len(texts)).map(one).collect()
            return found

        def look() -> None:
            tasks, rows, size = (counter.value for counter in counted)
            self._watcher.advance(tasks=tasks, rows=rows, size_bytes=size)

        return _watched(job, look=look, cancel=lambda: context.cancelJobGroup(group), stage=stage)

    def _by_connect(self, work: str, texts: list[str], stage: str) -> list[bytes]:
        from pyspark.sql import functions

        tag = f"omnigraph-{uuid.uuid4().hex[:12]}"
        found: list[bytes] = []
        for part in _parts(texts):

            def job(part: list[str] = part) -> list[bytes]:
                self._spark.addTag(tag)
                done = functions.udf(_numbered(work, part), "binary", useArrow=False)("id").alias("done")
                rows = self._spark.range(0, len(part), 1, len(part)).select("id", done).collect()
                return [bytes(row["done"]) for row in sorted(rows, key=lambda row: row["id"])]

            found += _watched(job, look=lambda: None, cancel=lambda: self._spark.interruptTag(tag), stage=stage)
            self._watcher.advance(tasks=len(found), rows=0, size_bytes=0)
        return found


def _numbered(work: str, texts: list[str]) -> Callable[[int], bytes]:
    # Without types in its signature: Spark would try to make more of it than a plain function.
    return lambda number: perform_away(work, texts[number])


def _parts(texts: list[str]) -> list[list[str]]:
    parts: list[list[str]] = [[]]
    size = 0
    for text in texts:
        if size + len(text) > CLOSURE_BYTES_MAX and parts[-1]:
            parts.append([])
            size = 0
        parts[-1].append(text)
        size += len(text)
    return parts


def _watched(
    job: Callable[[], list[bytes]], *, look: Callable[[], None], cancel: Callable[[], object], stage: str
) -> list[bytes]:
    """Run a Spark job in a thread of its own, so that this one can look at it and be interrupted."""
    done: list[list[bytes]] = []
    trouble: list[BaseException] = []

    def body() -> None:
        try:
            done.append(job())
        except BaseException as error:  # noqa: BLE001 - whatever it is, it belongs to the caller's thread
            trouble.append(error)

    thread = threading.Thread(target=body, name="omnigraph-spark-job", daemon=True)
    thread.start()
    try:
        while thread.is_alive():
            thread.join(POLL_S)
            look()
    except KeyboardInterrupt:
        cancel()
        thread.join(30)
        raise
    if trouble:
        if not isinstance(trouble[0], Exception):
            raise trouble[0]
        raise TaskFailed(stage=stage, engine="spark", detail=reason_of(trouble[0])) from trouble[0]
    return done[0]


_CARRIED = re.compile(r"omnigraph-error\[([A-Za-z0-9+/=]+)\]")


def carried(error: OmnigraphError) -> RuntimeError:
    """A typed error as text, for work that Spark runs without `perform`: only the text of an exception arrives."""
    return RuntimeError(f"{error.message} omnigraph-error[{base64.b64encode(_failure(error)).decode()}]")


def typed_error(error: Exception) -> OmnigraphError | None:
    """The typed error that Spark's exception carries, if it does."""
    found = _CARRIED.search(str(error))
    if found is None:
        return None
    return _error_of(orjson.loads(base64.b64decode(found[1])))


def reason_of(error: Exception) -> str:
    """The last lines of what a worker or the JVM said, without the stack of the JVM."""
    lines = [line.strip() for line in str(error).splitlines()]
    told = [line for line in lines if line and not line.startswith(("at ", "File ", "..."))]
    python = [line for line in told if "Error" in line or "Exception" in line]
    return (python[-1] if python else told[0] if told else type(error).__name__)[:1000]
