"""`omnigraph snapshot` on a small graph as a new process, against `python -c "import lance"` in the same run."""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import omnigraph as og
from benchmarks.report import Result


def run() -> Iterator[Result]:
    with tempfile.TemporaryDirectory(prefix="omnigraph-bench-") as folder:
        uri = f"{folder}/graph"
        graph = og.init(uri, "node Person { name: String @key }\nedge Knows: Person -> Person")
        graph.insert({"Person": [{"name": "Ada"}]})
        program = str(Path(sys.executable).with_name("omnigraph"))
        bare, snapshot = [], []
        for _ in range(7):
            bare.append(_seconds([sys.executable, "-c", "import lance"]))
            snapshot.append(_seconds([program, "snapshot", uri]))
        yield Result(
            'omnigraph snapshot, wall time against python -c "import lance"',
            min(snapshot) / min(bare),
            2.0,
            True,
            f"snapshot {min(snapshot) * 1000:.0f} ms, import lance {min(bare) * 1000:.0f} ms",
        )


def _seconds(command: Sequence[str]) -> float:
    started = time.perf_counter()
    subprocess.run(command, check=True, capture_output=True)
    return time.perf_counter() - started
