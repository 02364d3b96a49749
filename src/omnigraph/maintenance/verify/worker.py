"""The process in which `isolated` runs tasks: `python -m omnigraph.maintenance.verify.worker`.

One line of JSON per task on standard input, `{"work", "task"}`, one per result on standard output. It ends with its
input, or when it had no task for a while. Output of libraries goes to standard error. If memory runs out, the kernel
should end this process and no other.
"""

from __future__ import annotations

import os
import select
import signal
import sys
import traceback
from contextlib import suppress

import orjson

from omnigraph.tasks.runner import perform

IDLE_MAX_S = 60.0


def answer(line: bytes) -> bytes:
    asked = orjson.loads(line)
    try:
        return perform(asked["work"], orjson.dumps(asked["task"]))
    except Exception as error:  # noqa: BLE001 - returned to the parent, as of a task in its own process
        return orjson.dumps({"exception": "".join(traceback.format_exception_only(error)).strip()})


def main() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # it ends with its parent
    with suppress(OSError), open("/proc/self/oom_score_adj", "w") as file:
        file.write("1000")
    results = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    while select.select([0], [], [], IDLE_MAX_S)[0]:
        line = sys.stdin.buffer.readline()
        if not line:
            return
        results.write(answer(line) + b"\n")
        results.flush()


if __name__ == "__main__":
    main()
