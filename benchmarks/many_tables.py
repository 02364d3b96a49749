"""What a graph of 100 tables costs against one of 5: opening and listing, branches. A fresh handle per call."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator

import omnigraph as og
from benchmarks.report import Result, median_ms


def run() -> Iterator[Result]:
    with tempfile.TemporaryDirectory(prefix="omnigraph-bench-") as folder:
        graphs = {n: _graph(f"{folder}/{n}", n) for n in (5, 100)}
        opened = {n: _fastest_s(lambda uri=uri: _open(uri)) for n, uri in graphs.items()}
        yield _result("opening a graph and taking a snapshot", opened)
        made = {n: _fastest_s(lambda uri=uri: _branch(uri), rounds=2) for n, uri in graphs.items()}
        yield _result("creating and deleting a branch", made)


def _result(what: str, by_tables: dict[int, float]) -> Result:
    return Result(
        f"{what}: 100 tables against 5",
        by_tables[100] / by_tables[5],
        1.5,
        True,
        f"5 tables {by_tables[5]:.2f} ms, 100 tables {by_tables[100]:.2f} ms",
    )


def _graph(uri: str, tables: int) -> str:
    og.init(uri, "\n".join(f"node T{i} {{ name: String @key  value: I64? }}" for i in range(tables)))
    return uri


def _fastest_s(call, *, rounds: int = 3) -> float:
    return min(median_ms(lambda _: call(), count=30) for _ in range(rounds))


def _open(uri: str) -> None:
    graph = og.open(uri)
    assert graph.snapshot().to_json()["tables"][0]["rows"] == 0


def _branch(uri: str) -> None:
    graph = og.open(uri)
    graph.create_branch("work")
    graph.delete_branch("work")
