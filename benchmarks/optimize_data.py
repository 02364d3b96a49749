"""The worn graph that optimize is measured on: many small fragments, and indices that cover most of them."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

import omnigraph as og
from omnigraph.commit.operation import Prepared, TableWork, View, work_on
from omnigraph.commit.request import Request

SCHEMA = """
node Item {
  name: String @key
  number: I64 @index
  kind: enum(a, b, c, d) @index
  text: String @index
  vec: Vector(32) @index
}
"""
FRAGMENT_ROWS = 10_000
_WORDS = np.array([f"word{i:04d}" for i in range(5_000)])


def items(first: int, rows: int) -> pa.Table:
    rng = np.random.default_rng(first)
    words = _WORDS[rng.integers(0, len(_WORDS), (rows, 6))]
    text = [" ".join(w) for w in words]
    vectors = pa.array(rng.random(rows * 32, dtype=np.float32))
    return pa.table(
        {
            "name": [f"item-{i:09d}" for i in range(first, first + rows)],
            "number": rng.integers(0, 1 << 40, rows),
            "kind": np.array(list("abcd"))[rng.integers(0, 4, rows)],
            "text": text,
            "vec": pa.FixedSizeListArray.from_arrays(vectors, 32),
        }
    )


def worn_graph(uri: str, rows: int, *, fragment_rows: int = FRAGMENT_ROWS) -> og.Graph:
    """`rows` rows in fragments of `fragment_rows`; indices cover the first nine tenths."""
    graph = og.init(uri, SCHEMA)
    indexed = rows * 9 // 10
    graph._committer.run(_Append(0, indexed, fragment_rows), Request("main"))
    graph.optimize(target_rows_per_fragment=2, engine="local")
    graph._committer.run(_Append(indexed, rows - indexed, fragment_rows), Request("main"))
    return graph


@dataclass
class _Append:
    """Rows in fragments of a chosen size, in one commit: a load would write larger ones."""

    first: int
    rows: int
    fragment_rows: int
    kind: str = "load"
    quick: bool = False

    def scope(self, view: View) -> frozenset[str]:
        return frozenset(view.pins)

    def prepare(self, view: View) -> Prepared:
        t = view.type("Item")
        pin, handle, editor = work_on(view, t)
        fragments = []
        for start in range(self.first, self.first + self.rows, 500_000):
            made = items(start, min(500_000, self.first + self.rows - start))
            made = made.add_column(0, "id", made["name"])
            fragments += editor.write(made, rows_per_file=self.fragment_rows)
        work = TableWork(pin=pin, source=view.pins[t.id], steps=(editor.appended(fragments),), handle=handle)
        return Prepared(view=view, tables={t.id: work})


def bare_copy(graph: og.Graph, to: str) -> Any:
    """The same table without a graph around it."""
    import lance

    view = graph.snapshot().view
    shutil.copytree(Path(view.open(view.type("Item")).uri), to)
    return lance.dataset(to)
