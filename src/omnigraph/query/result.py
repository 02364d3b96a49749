"""The result of a read query: rows as Arrow, batch by batch or whole, as Python values, as a text table.

The rows of a large result are built when they are read; they belong to the snapshot of the query however late that is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import datetime
from typing import Any

import pyarrow as pa

from omnigraph.errors import NotAvailable
from omnigraph.query.limits import ExecutedStep

BATCH_ROWS = 8192
SHOWN_ROWS = 50
CELL_CHARS = 60
Make = Callable[[int, int], pa.RecordBatch]
"""The rows from start to stop, as a batch."""


class Result:
    """The rows of a reading query, computed batch by batch, with the commit that they were read at."""

    def __init__(
        self,
        name: str,
        schema: pa.Schema,
        rows: int,
        make: Make,
        *,
        branch: str,
        commit: str,
        steps: list[ExecutedStep],
        seconds: float,
    ) -> None:
        self.name = name
        self.schema = schema
        self.num_rows = rows
        self.branch = branch
        self.commit = commit
        self.seconds = seconds
        self._make = make
        self._steps = steps
        self._table: pa.Table | None = None

    @property
    def columns(self) -> list[str]:
        return list(self.schema.names)

    def __len__(self) -> int:
        return self.num_rows

    def __iter__(self) -> Iterator[dict[str, Any]]:
        for batch in self.batches():
            yield from batch.to_pylist()

    # ---- rows

    def batches(self, rows: int = BATCH_ROWS) -> Iterator[pa.RecordBatch]:
        """The rows in order, `rows` at a time."""
        if self._table is not None:
            yield from self._table.to_batches(max_chunksize=rows)
            return
        for start in range(0, self.num_rows, rows):
            yield self._make(start, min(start + rows, self.num_rows))

    def reader(self) -> pa.RecordBatchReader:
        """The rows as batches, each computed when it is read."""
        return pa.RecordBatchReader.from_batches(self.schema, self.batches())

    def to_arrow(self) -> pa.Table:
        """All rows as one table, computed once."""
        if self._table is None:
            self._table = pa.Table.from_batches([self._make(0, self.num_rows)], schema=self.schema)
        return self._table

    def to_pylist(self) -> list[dict[str, Any]]:
        """One dictionary per row, in the order of the columns."""
        return list(self.to_arrow().to_pylist())

    def to_pandas(self) -> Any:
        """A pandas DataFrame, if pandas is installed."""
        _require("pandas", "to_pandas")
        return self.to_arrow().to_pandas()

    def to_polars(self) -> Any:
        """A polars DataFrame, if polars is installed."""
        polars = _require("polars", "to_polars")
        return polars.from_arrow(self.to_arrow())

    # ---- text

    def explain(self) -> dict[str, Any]:
        """The executed steps with estimated and actual rows, the indices and caches used, and time."""
        return {
            "query_name": self.name,
            "branch": self.branch,
            "graph_commit_id": self.commit,
            "rows": self.num_rows,
            "ms": round(self.seconds * 1000, 3),
            "steps": [s.to_json() for s in self._steps],
        }

    def explained(self) -> str:
        """The steps as a table."""
        head = ("step", "rows", "guessed", "ms", "about", "by")
        lines = [head]
        for s in self._steps:
            guessed = "" if s.estimated is None else f"{s.estimated:,}"
            ms = f"{s.seconds * 1000:.2f}"
            lines.append(("  " * s.depth + s.name, f"{s.rows:,}", guessed, ms, cell(s.detail), cell("; ".join(s.by))))
        widths = [max(len(r[i]) for r in lines) for i in range(len(head))]
        shown = ["  ".join(c.ljust(w) for c, w in zip(r, widths, strict=True)).rstrip() for r in lines]
        return "\n".join([*shown, f"{self.num_rows:,} rows in {self.seconds * 1000:.2f} ms"])

    def __repr__(self) -> str:
        return f"<Result of {self.name}: {self.num_rows} rows, columns {', '.join(self.columns)}>"

    def __str__(self) -> str:
        shown = self.to_arrow().slice(0, SHOWN_ROWS)
        cells = [[cell(v) for v in row.values()] for row in shown.to_pylist()]
        widths = [max([len(n), *(len(r[i]) for r in cells)]) for i, n in enumerate(self.columns)]
        lines = [
            "  ".join(c.ljust(w) for c, w in zip(row, widths, strict=True)).rstrip() for row in [self.columns, *cells]
        ]
        if self.num_rows > SHOWN_ROWS:
            lines.append(f"… {self.num_rows:,} rows, {SHOWN_ROWS} of them shown")
        return "\n".join(lines)


def cell(value: Any) -> str:
    """A value in a text table: one line of at most CELL_CHARS characters."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, datetime):
        value = value.isoformat().replace("+00:00", "Z")
    elif isinstance(value, list | dict):
        import json

        value = json.dumps(value, ensure_ascii=False, default=str)
    text = "".join(c if c.isprintable() else repr(c)[1:-1] for c in str(value))
    return text if len(text) <= CELL_CHARS else text[: CELL_CHARS - 1] + "…"


def _require(package: str, method: str) -> Any:
    from importlib import import_module

    try:
        return import_module(package)
    except ImportError as error:
        hint = f"Install {package}, which omnigraph itself does not need; or use to_arrow() or to_pylist()."
        raise NotAvailable(feature=f"{method}(), without the package {package},", hint=hint) from error
