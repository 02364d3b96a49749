"""Start the JVM of a Spark session: nothing of it is left if the start is interrupted, and no secret in its arguments.

PySpark starts `spark-submit`, which becomes the JVM, and waits for the file in which the JVM says where it listens. A
Ctrl-C meanwhile removes that file's folder: the JVM fails to write it, and one thread of it goes on for ever. So the
process is started in a group of its own, and the group is killed if the start does not come to an end. Later the JVM
ends by itself as soon as its stdin does, whatever becomes of this process.

PySpark hands the whole configuration over as arguments, which everybody on the machine can read. Keys that Spark
itself calls secret are left out of them; the session sets them in the running JVM, through its socket.
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
    with _whole():
        SparkContext._ensure_initialized(conf=launch)


@contextmanager
def _whole() -> Iterator[None]:
    """Kill what PySpark starts in this block, unless the block comes to its end."""
    from pyspark import java_gateway

    started: list[subprocess.Popen[Any]] = []

    def popen(*words: Any, **options: Any) -> subprocess.Popen[Any]:
        process: subprocess.Popen[Any] = subprocess.Popen(*words, **options, process_group=0)
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
