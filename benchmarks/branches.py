"""How the cost of a graph grows with its branches: the manifest's bytes, creation, commits, opening, cleanup previews.

`python -m benchmarks branches` compares 800 branches with 200. `python -m benchmarks.branches 200 800 2000` prints the
figures of each number of branches; with `--write` every branch gets one upsert of one row.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import omnigraph as og
from benchmarks.report import Result, median_ms

SCHEMA = "node Person { name: String @key  age: I32? }\nedge Knows: Person -> Person"
FEW, MANY = 200, 800
LINEAR_MAX = 1.5
"""How far a cost that grows with the branches may exceed their ratio: N log N against N, and noise."""


@dataclass(frozen=True)
class Figures:
    branches: int
    manifest_bytes: int
    version_bytes: int
    """The newest version file of the manifest, which every commit writes anew."""
    build_s: float
    create_ms: float
    commit_ms: float
    open_ms: float
    list_ms: float
    preview_s: float
    preview_cpu_s: float

    def __str__(self) -> str:
        return (
            f"{self.branches} branches: manifest {self.manifest_bytes / 1e6:.2f} MB, newest version "
            f"{self.version_bytes / 1e3:.1f} KB, built in {self.build_s:.1f} s; create {self.create_ms:.1f} ms, "
            f"commit on main {self.commit_ms:.1f} ms, open and read main {self.open_ms:.1f} ms, "
            f"list branches {self.list_ms:.1f} ms, cleanup preview {self.preview_s:.2f} s "
            f"(CPU {self.preview_cpu_s:.2f} s)"
        )


def run() -> Iterator[Result]:
    few, many = measure(FEW), measure(MANY)
    grown = MANY / FEW
    detail = f"{few}\n        {many}"
    ratio = many.manifest_bytes / few.manifest_bytes
    yield Result(f"bytes of the manifest, {MANY} branches against {FEW}", ratio, grown * LINEAR_MAX, True, detail)
    for what, before, after in (
        ("creating a branch", few.create_ms, many.create_ms),
        ("a commit on main", few.commit_ms, many.commit_ms),
        ("opening and reading main", few.open_ms, many.open_ms),
    ):
        claim = f"{what} with {MANY} branches against {FEW}"
        yield Result(claim, after / before, LINEAR_MAX, True, f"{before:.1f} ms, {after:.1f} ms")
    claim = f"preview of a cleanup, {MANY} branches against {FEW}"
    yield Result(claim, many.preview_s / few.preview_s, grown * LINEAR_MAX, True, "it looks at every branch")


def measure(branches: int, *, writes: bool = False) -> Figures:
    os.environ["OMNIGRAPH_FSYNC"] = "off"
    with tempfile.TemporaryDirectory(prefix="omnigraph-bench-") as folder:
        uri = f"{folder}/graph"
        graph = og.init(uri, SCHEMA)
        graph.insert({"Person": [{"name": f"p{i}", "age": i} for i in range(100)]})
        started = time.perf_counter()
        for i in range(branches):
            graph.create_branch(f"b{i}")
            if writes:
                graph.upsert({"Person": [{"name": "p0", "age": i}]}, branch=f"b{i}")
        build_s = time.perf_counter() - started
        manifest = Path(uri, "__manifest")
        newest = min(manifest.glob("_versions/*.manifest"))  # Lance numbers version files downwards
        size = sum(f.stat().st_size for f in manifest.rglob("*") if f.is_file())
        started, started_cpu = time.perf_counter(), time.process_time()
        og.open(uri).plan_cleanup(keep=1)
        preview_s, preview_cpu_s = time.perf_counter() - started, time.process_time() - started_cpu
        return Figures(
            branches=branches,
            manifest_bytes=size,
            version_bytes=newest.stat().st_size,
            build_s=build_s,
            preview_s=preview_s,
            preview_cpu_s=preview_cpu_s,
            open_ms=median_ms(lambda _: _read_main(uri), count=15),
            list_ms=median_ms(lambda _: og.open(uri).branches(), count=15),
            commit_ms=median_ms(lambda i: graph.upsert({"Person": [{"name": "p1", "age": i}]}), count=30),
            create_ms=median_ms(lambda i: graph.create_branch(f"more{i}"), count=30),
        )


def _read_main(uri: str) -> None:
    assert og.open(uri).snapshot().to_json()["tables"]


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("branches", type=int, nargs="+")
    parser.add_argument("--write", action="store_true")
    arguments = parser.parse_args()
    for number in arguments.branches:
        print(measure(number, writes=arguments.write), flush=True)
