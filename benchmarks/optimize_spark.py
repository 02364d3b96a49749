"""Optimize on a warm Spark session against bare Lance in process, at 8 million rows."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator

from benchmarks.optimize import spark
from benchmarks.report import Result


def run() -> Iterator[Result]:
    with tempfile.TemporaryDirectory(prefix="omnigraph-bench-") as folder:
        yield spark(folder, rows=8_000_000)
