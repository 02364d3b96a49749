"""Runners: tasks in, results out, the same for Spark and for this process.

A task is a small JSON value; a task function turns it into files and a small JSON result. Callers pass the function;
workers get its name, `package.module:function`, and import it. Nothing else is sent, so a worker needs this package and
nothing of the caller. A task may run twice (a retry, a speculative copy, a lost executor), so a task function writes
under names of its own and its result says which; what the other copy wrote is an unreferenced file.

1. run       every task until it succeeds or its retries are used up; results are in the order of the tasks
2. fail      a typed error of a task is returned as a value: the first one, in the order of the tasks, is raised to the
             caller. Failures of the store are retried by the worker. Any other exception of a task ends the job with
             TaskFailed, after the engine's own retries.
3. cancel    KeyboardInterrupt cancels running tasks and is raised again
"""

from __future__ import annotations

import base64
import logging
import os
import re
import threading
import time
import traceback
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_EXCEPTION, Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from importlib import import_module
from typing import Any, Protocol

import orjson

from omnigraph import errors
from omnigraph.config import environment
from omnigraph.config.backoff import store_backoff
from omnigraph.config.logs import log_event
from omnigraph.errors import OmnigraphError, StorageError, TaskFailed
from omnigraph.storage.files import checksums
from omnigraph.tasks.progress import SilentWatcher, Watcher

logger = logging.getLogger(__name__)

Task = Mapping[str, Any]
TaskFunction = Callable[[Any], Any]
"""A function of a module, which a worker can import by name: no lambda, method or nested function."""
STORE_TRIES_MAX = 3
POLL_S = 0.1
# On Spark Connect, which has no RDDs, the tasks of one job are part of a closure.
CLOSURE_BYTES_MAX = 4 << 20


class Runner(Protocol):
    @property
    def engine(self) -> str: ...

    @property
    def parallelism(self) -> int:
        """How many tasks run at the same time: jobs are split into several times as many."""
        ...

    @property
    def is_here(self) -> bool:
        """Whether every task runs on this machine, so that all of them see the same local folders."""
        ...

    def run(self, function: TaskFunction, tasks: Sequence[Task], *, stage: str) -> list[Any]:
        """The results of `function`, in the order of the tasks. `stage` is what people read while it runs."""
        ...


def task_name(function: TaskFunction) -> str:
    """The name by which a worker imports the function: `module:function`."""
    name = function.__qualname__
    assert name.isidentifier(), f"a worker can't import {function.__module__}.{name}: it is not a function of a module"
    return f"{function.__module__}:{name}"


def task_function(name: str) -> TaskFunction:
    """The function that `task_name` has named."""
    module, _, attribute = name.partition(":")
    function: TaskFunction = getattr(import_module(module), attribute)
    return function


@contextmanager
def _logged_stage(stage: str, engine: str, *, tasks: int) -> Iterator[None]:
    """One line for a stage that ended, with its time and, if it failed, the reason."""
    began = time.monotonic()
    fields: dict[str, object] = {"stage": stage, "engine": engine, "tasks": tasks}
    try:
        yield
    except BaseException as error:
        fields["seconds"] = round(time.monotonic() - began, 3)
        log_event(logger, logging.WARNING, "stage failed", **fields, reason=f"{type(error).__name__}: {error}")
        raise
    log_event(logger, logging.INFO, "stage finished", **fields, seconds=round(time.monotonic() - began, 3))


# ---- on a worker -----------------------------------------------------------------------------------------------------


def perform(name: str, task: str | bytes) -> bytes:
    """Run one task in this process: import the function, call it, return its result or its typed error as JSON."""
    function = task_function(name)
    pause = store_backoff()
    for attempt in range(1, STORE_TRIES_MAX + 1):
        try:
            return orjson.dumps({"ok": function(orjson.loads(task))})
        except StorageError as error:
            if attempt == STORE_TRIES_MAX:
                return _failure(error)
            pause()
        except OmnigraphError as error:
            return _failure(error)
    raise AssertionError("unreachable")


def perform_away(name: str, task: str | bytes) -> bytes:
    """The same in another process: the checksums of the files that the task wrote are returned with its result."""
    response: dict[str, Any] = orjson.loads(perform(name, task))
    return orjson.dumps({**response, "checksums": checksums.take_noted()})


def _failure(error: OmnigraphError) -> bytes:
    return orjson.dumps({"error": type(error).__name__, "fields": error.fields}, default=str)


def result_of(raw: bytes) -> Any:
    """The result in a response of `perform`. Raises the typed error that it carries."""
    response = orjson.loads(raw)
    checksums.note_known(response.get("checksums", {}))
    if "ok" in response:
        return response["ok"]
    raise _error_of(response)


def _error_of(failure: Mapping[str, Any]) -> OmnigraphError:
    error: OmnigraphError = getattr(errors, failure["error"])(**failure["fields"])
    return error


def _amounts(raw: bytes) -> tuple[int, int]:
    """Rows and bytes that a result reports, for progress."""
    result = orjson.loads(raw).get("ok")
    if not isinstance(result, dict):
        return 0, 0
    return int(result.get("rows_done") or 0), int(result.get("bytes_done") or 0)


# ---- this process ----------------------------------------------------------------------------------------------------


class LocalRunner:
    """Runs tasks on threads of this process: most of the work is done by Arrow, numpy and Lance, which release the GIL.

    OMNIGRAPH_THREADS sets their number; by default one per processor.
    """

    engine = "local"
    is_here = True

    def __init__(self, *, parallelism: int | None = None, watcher: Watcher | None = None) -> None:
        self.parallelism = (
            parallelism or environment.integer("OMNIGRAPH_THREADS", 0, minimum=0, maximum=4096) or os.cpu_count() or 1
        )
        self._watcher = watcher or SilentWatcher()

    def run(self, function: TaskFunction, tasks: Sequence[Task], *, stage: str) -> list[Any]:
        self._watcher.stage(stage, tasks=len(tasks))
        if not tasks:
            return []
        pool = ThreadPoolExecutor(self.parallelism, thread_name_prefix="omnigraph-task")
        try:
            name = task_name(function)
            with _logged_stage(stage, self.engine, tasks=len(tasks)):
                futures = [pool.submit(perform, name, orjson.dumps(task)) for task in tasks]
                self._follow(futures)
                return [result_of(self._raw(future, stage)) for future in futures]
        finally:
            pool.shutdown(wait=True, cancel_futures=True)

    def _follow(self, futures: Sequence[Future[bytes]]) -> None:
        pending = set(futures)
        tasks = rows = size = 0
        while pending:
            finished, pending = wait(pending, timeout=POLL_S, return_when=FIRST_EXCEPTION)
            for future in finished:
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
            detail = "".join(traceback.format_exception_only(error)).strip()
            raise TaskFailed(stage=stage, engine="local", detail=detail) from error


# ---- Spark -----------------------------------------------------------------------------------------------------------


class SparkRunner:
    """Tasks on the executors of a session, classic or Connect. Each task is one partition of one job."""

    engine = "spark"

    def __init__(self, spark: Any, *, watcher: Watcher | None = None) -> None:
        self._spark = spark
        self._watcher = watcher or SilentWatcher()
        self._is_connect = type(spark).__module__.startswith("pyspark.sql.connect")

    @property
    def parallelism(self) -> int:
        if self._is_connect:
            return max(2, int(self._spark.conf.get("spark.default.parallelism", "8")))
        return max(1, int(self._spark.sparkContext.defaultParallelism))

    @property
    def is_here(self) -> bool:
        return not self._is_connect and str(self._spark.sparkContext.master).startswith("local")

    def run(self, function: TaskFunction, tasks: Sequence[Task], *, stage: str) -> list[Any]:
        self._watcher.stage(stage, tasks=len(tasks))
        if not tasks:
            return []
        texts = [orjson.dumps(task).decode() for task in tasks]
        name = task_name(function)
        with _logged_stage(stage, self.engine, tasks=len(tasks)):
            responses = self._by_connect(name, texts, stage) if self._is_connect else self._by_rdd(name, texts, stage)
            return [result_of(response) for response in responses]

    def _by_rdd(self, name: str, texts: list[str], stage: str) -> list[bytes]:
        context = self._spark.sparkContext
        counters = tuple(context.accumulator(0) for _ in range(3))
        group = f"omnigraph-{uuid.uuid4().hex[:12]}"

        def run_task(text: str) -> bytes:
            response = perform_away(name, text)
            for counter, amount in zip(counters, (1, *_amounts(response)), strict=True):
                counter.add(amount)
            return response

        def job() -> list[bytes]:
            context.setJobGroup(group, f"omnigraph: {stage}", interruptOnCancel=False)
            responses: list[bytes] = context.parallelize(texts, len(texts)).map(run_task).collect()
            return responses

        def report() -> None:
            tasks, rows, size = (counter.value for counter in counters)
            self._watcher.advance(tasks=tasks, rows=rows, size_bytes=size)

        return _run_watched(job, report=report, cancel=lambda: context.cancelJobGroup(group), stage=stage)

    def _by_connect(self, name: str, texts: list[str], stage: str) -> list[bytes]:
        from pyspark.sql import functions

        tag = f"omnigraph-{uuid.uuid4().hex[:12]}"
        responses: list[bytes] = []
        for part in _parts(texts):

            def job(part: list[str] = part) -> list[bytes]:
                self._spark.addTag(tag)
                response = functions.udf(_numbered(name, part), "binary", useArrow=False)("id").alias("done")
                rows = self._spark.range(0, len(part), 1, len(part)).select("id", response).collect()
                return [bytes(row["done"]) for row in sorted(rows, key=lambda row: row["id"])]

            responses += _run_watched(
                job, report=lambda: None, cancel=lambda: self._spark.interruptTag(tag), stage=stage
            )
            self._watcher.advance(tasks=len(responses), rows=0, size_bytes=0)
        return responses


def _numbered(name: str, texts: list[str]) -> Callable[[int], bytes]:
    # Without type hints: Spark derives the kind of a UDF from them.
    return lambda number: perform_away(name, texts[number])


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


def _run_watched(
    job: Callable[[], list[bytes]], *, report: Callable[[], None], cancel: Callable[[], object], stage: str
) -> list[bytes]:
    """Run a Spark job in another thread, so that this one can report progress and be interrupted."""
    results: list[list[bytes]] = []
    failures: list[BaseException] = []

    def body() -> None:
        try:
            results.append(job())
        except BaseException as error:  # noqa: BLE001 - raised again in the caller's thread
            failures.append(error)

    thread = threading.Thread(target=body, name="omnigraph-spark-job", daemon=True)
    thread.start()
    try:
        while thread.is_alive():
            thread.join(POLL_S)
            report()
    except KeyboardInterrupt:
        cancel()
        thread.join(30)
        raise
    if failures:
        if not isinstance(failures[0], Exception):
            raise failures[0]
        raise TaskFailed(stage=stage, engine="spark", detail=error_line(failures[0])) from failures[0]
    return results[0]


_ENCODED_ERROR = re.compile(r"omnigraph-error\[([A-Za-z0-9+/=]+)\]")


def encoded_error(error: OmnigraphError) -> RuntimeError:
    """A typed error as text, for code that Spark runs without `perform`: only the text of an exception is returned."""
    return RuntimeError(f"{error.message} omnigraph-error[{base64.b64encode(_failure(error)).decode()}]")


def decoded_error(error: Exception) -> OmnigraphError | None:
    """The typed error in the text of Spark's exception; None if there is none."""
    match = _ENCODED_ERROR.search(str(error))
    if match is None:
        return None
    return _error_of(orjson.loads(base64.b64decode(match[1])))


def error_line(error: Exception) -> str:
    """The error line of a worker's or the JVM's message, without the stack of the JVM."""
    lines = [line.strip() for line in str(error).splitlines()]
    shown = [line for line in lines if line and not line.startswith(("at ", "File ", "..."))]
    python_errors = [line for line in shown if "Error" in line or "Exception" in line]
    return (python_errors[-1] if python_errors else shown[0] if shown else type(error).__name__)[:1000]
