"""Start the JVM of a Spark session: an interrupted start leaves no process, and its arguments have no secrets.

PySpark starts `spark-submit`, which becomes the JVM, and waits for the file in which the JVM writes its port. A Ctrl-C
meanwhile removes that file's folder: the JVM fails to write it, and one of its threads runs for ever. So the process is
started in its own process group, and the group is killed if the start does not complete. Later the JVM ends by itself
when its stdin is closed, also if this process crashes.

PySpark passes the whole configuration as arguments, which every user of the machine can read. Keys that Spark
classifies as secret are left out of them; the session sets them in the running JVM, through its socket.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any

_SECRET = re.compile(r"secret|password|token|access[.]?key", re.IGNORECASE)
"""The default of `spark.redaction.regex`."""


def is_secret(key: str) -> bool:
    return bool(_SECRET.search(key))


def launch_jvm(conf: Mapping[str, str]) -> None:
    """Start the JVM that the next session of this process will use, unless there is one already."""
    from pyspark import SparkConf, SparkContext

    launch = SparkConf()
    for key, value in conf.items():
        if not is_secret(key):
            launch.set(key, value)
    with _killed_on_failure():
        SparkContext._ensure_initialized(conf=launch)


@contextmanager
def _killed_on_failure() -> Iterator[None]:
    """Kill the processes that PySpark starts in this block if the block fails."""
    from pyspark import java_gateway

    started: list[subprocess.Popen[Any]] = []

    def popen(*arguments: Any, **options: Any) -> subprocess.Popen[Any]:
        process: subprocess.Popen[Any] = subprocess.Popen(*arguments, **options, process_group=0)
        started.append(process)
        return process

    real, java_gateway.Popen = java_gateway.Popen, popen
    try:
        yield
    except BaseException:
        for process in started:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        raise
    finally:
        java_gateway.Popen = real
