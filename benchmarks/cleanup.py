"""What cleanup costs against Lance's own: a table of 500 versions and the manifest that published them.

The peer gets the same folders and the same versions to remove: `cleanup_old_versions(versions=[…])` table by table, and
`explain_cleanup_old_versions` for the preview. Ours does more with them: it names every file with its reason, checks
floors, drift and pending recoveries, announces itself, and looks for files that no version refers to.
"""

from __future__ import annotations

import os
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from typing import Any

import omnigraph as og
from benchmarks.report import Result
from omnigraph.storage.lance import lance_api

COMMITS = 500
ROUNDS = 7


def run() -> Iterator[Result]:
    os.environ["OMNIGRAPH_FSYNC"] = "off"
    with tempfile.TemporaryDirectory(prefix="omnigraph-bench-") as folder:
        origin = f"{folder}/origin"
        graph = og.init(origin, "node Person { name: String @key  age: I32? }\nedge Knows: Person -> Person")
        for i in range(COMMITS):
            graph.upsert({"Person": [{"name": f"p{i}", "age": i}]})
        _age(origin)
        yield _compare("preview", folder, origin, ours=_preview, peer=_explain)
        yield _compare("cleanup", folder, origin, ours=_cleanup, peer=_bare)


def _age(origin: str) -> None:
    """Make every version ten days old, so that the manifest's own may go as well."""
    long_ago = time.time() - 10 * 86_400
    for below, _, names in os.walk(origin):
        for name in names:
            os.utime(os.path.join(below, name), (long_ago, long_ago))


def _compare(what: str, folder: str, origin: str, *, ours: Any, peer: Any) -> Result:
    """Medians of runs in turns, each on a fresh copy."""
    taken: dict[str, list[float]] = {"ours": [], "peer": []}
    for i in range(ROUNDS):
        for name, call in (("ours", ours), ("peer", peer)):
            copy = f"{folder}/{what}-{name}-{i}"
            shutil.copytree(origin, copy)
            taken[name].append(_timed(call(copy)))
            shutil.rmtree(copy)
    mine, theirs = (statistics.median(taken[name]) for name in ("ours", "peer"))
    call = "explain_cleanup_old_versions" if what == "preview" else "cleanup_old_versions"
    detail = f"ours {mine:.0f} ms, {call} {theirs:.0f} ms, {COMMITS} commits, table and manifest"
    return Result(f"{what} of {COMMITS} versions against Lance's own", mine / theirs, 1.5, True, detail)


def _timed(call: Callable[[], object]) -> float:
    started = time.perf_counter()
    call()
    return (time.perf_counter() - started) * 1000


def _preview(uri: str) -> Callable[[], object]:
    graph = og.open(uri)
    return lambda: _require(graph.plan_cleanup(keep=1))


def _cleanup(uri: str) -> Callable[[], object]:
    graph = og.open(uri)
    return lambda: _require(graph.cleanup(keep=1, confirm=True))


def _require(result: Any) -> None:
    assert result.table("node:Person").old_versions_removed >= COMMITS
    assert result.table("__manifest").old_versions_removed >= COMMITS


def _tables(uri: str) -> list[tuple[Any, list[int]]]:
    """Every table of the graph, opened, with the versions below its newest."""
    view = og.open(uri)._committer.view("main")
    paths = [view.tables.location.join(pin.path) for pin in view.pins.values()]
    found = []
    for path in (*paths, view.tables.location.manifest_uri):
        table = lance_api.open_newest(view.tables.location, path)
        found.append((table, [r["version"] for r in table.version_refs() if r["version"] < table.version]))
    return found


def _explain(uri: str) -> Callable[[], object]:
    tables = _tables(uri)
    return lambda: [t.explain_cleanup_old_versions(versions=v) for t, v in tables if v]


def _bare(uri: str) -> Callable[[], object]:
    tables = _tables(uri)
    return lambda: [t.cleanup_old_versions(versions=v) for t, v in tables if v]
