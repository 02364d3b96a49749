"""Loads one packed file in a process of its own, and prints what came of it and how much memory it took at its peak.

python -m tests.pipeline.bomb GRAPH records|table PATH LIMIT
"""

from __future__ import annotations

import json
import resource
import sys
from typing import Any

import omnigraph as og
from omnigraph.errors import OmnigraphError


def peak_mib() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10


def main(uri: str, form: str, path: str, limit: str) -> None:
    graph = og.open(uri)
    # What a load needs anyway is loaded first: modules, pools, the memory of one block.
    warm: dict[str, Any] = {"mode": "append", "engine": "local", "branch": "main"}
    graph.load([b'{"type":"Note","data":{"text":"%s"}}\n' % (b"x" * 4000)] * 2000, **warm)
    before = peak_mib()
    given: dict[str, Any] = {"source": path} if form == "records" else {"nodes": {"Note": path}}
    told: dict[str, Any]
    try:
        done = graph.load(**given, **warm, max_line_bytes=int(limit))
        told = {"inserted": dict(done.inserted), "lines": done.lines}
    except OmnigraphError as error:
        told = {"condition": error.condition, "line": error.fields.get("line")}
    print(json.dumps({**told, "grown_mib": peak_mib() - before}))


if __name__ == "__main__":
    main(*sys.argv[1:])
