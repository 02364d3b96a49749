"""Vectors that change places in the file of a table."""

from __future__ import annotations

import omnigraph as og


def exchange_vectors(graph: og.Graph) -> None:
    """New vectors in the place of the old ones, as embed publishes them."""
    import pyarrow as pa

    from omnigraph.commit.operation import LaterStep, Prepared, TableWork, View, work_on
    from omnigraph.commit.request import Request
    from omnigraph.storage.lance.rewrites.column_files import base_of, exchange, write_columns

    class Exchange:
        kind, quick = "embed", True

        def scope(self, view: View) -> frozenset[str]:
            return frozenset(view.pins)

        def prepare(self, view: View) -> Prepared:
            t = view.type("Post")
            pin, handle, _ = work_on(view, t)
            rows = handle.to_table(columns=[], with_row_address=True)["_rowaddr"].to_pylist()
            vectors = pa.array([[1.0] + [2.0 + r % 50] * 7 for r in rows], pa.list_(pa.float32(), 8))
            new = pa.table({"_rowaddr": pa.array(rows, pa.uint64()), "vec": vectors})
            base = base_of(handle, 0, ["vec"])
            assert base is not None
            made = write_columns(graph._location, pin, handle, 0, new, base=base)
            files = (f"{pin.root}/data/{made.file['path']}",)
            later = (LaterStep(lambda table: exchange(pin, table, [made]), files),)
            work = TableWork(pin=pin, source=view.pins[t.id], steps=(), later=later, handle=handle)
            return Prepared(view=view, tables={t.id: work})

    graph._committer.run(Exchange(), Request("main"))
