"""A process that runs queries under limits and tells for each how it ended, how long it took and how it has grown.

    python -m tests.query.limits_child <graph> < cases.json

A case is a text and its limits. The caches are filled by `warm`, so that growth is what the query itself holds. Two
lines of JSON per case: when it begins; then its condition (None for an answer), resource, seconds on the clock, the
time that the thread has had a core until then, and the peak growth of the resident set in bytes.
"""

from __future__ import annotations

import ctypes
import json
import os
import sys
import time
from pathlib import Path
from typing import Any

import pyarrow as pa

import omnigraph as og

STATUS = Path("/proc/self/status")
SCHEDULED = Path("/proc/self/schedstat")
"""Begins with the time in nanoseconds that the main thread has had a core."""


def _status_bytes(field: str) -> int:
    line = next(line for line in STATUS.read_text().splitlines() if line.startswith(field))
    return int(line.split()[1]) * 1024


def _settle() -> int:
    """Give freed memory back, forget the peak; the resident set."""
    pa.default_memory_pool().release_unused()
    ctypes.CDLL(None).malloc_trim(0)
    Path("/proc/self/clear_refs").write_text("5")
    return _status_bytes("VmRSS")


def run(graph: og.Graph, case: dict[str, Any]) -> dict[str, Any]:
    text = case.pop("text")
    before = _settle()
    print(json.dumps({"began": time.monotonic()}), flush=True)
    began = time.perf_counter()
    condition = resource = None
    try:
        graph.query(text, **case)
    except og.errors.OmnigraphError as error:
        condition, resource = error.condition, error.to_json().get("resource")
    except (pa.ArrowException, ValueError, TypeError, IndexError, MemoryError) as error:
        condition = repr(error)
    return {
        "condition": condition,
        "resource": resource,
        "seconds": time.perf_counter() - began,
        "thread_ns": int(SCHEDULED.read_text().split()[0]),
        "growth_bytes": _status_bytes("VmHWM") - before,
    }


def main() -> None:
    given = json.load(sys.stdin)
    graph = og.open(sys.argv[1])
    for text in given["warm"]:
        graph.query(text)
    for case in given["cases"]:
        print(json.dumps(run(graph, case)), flush=True)
    sys.stdout.flush()
    os._exit(0)


if __name__ == "__main__":
    main()
